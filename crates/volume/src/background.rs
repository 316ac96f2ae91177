//! Background work: one thread looks after the tiers, one carries out removals,
//! three move ranges, some carry out jobs, some have data written to devices and
//! read from them, and one counts ranges after a crash and then ends.

use crate::cache_work;
use crate::forget::keep_bound;
use crate::jobs::{JobList, PARALLEL_MAX};
use crate::threads::Stop;
use crate::volume::Volume;
use braid_contract::{Mover, Result};
use braid_core::reap::reap_due;
use braid_core::recover::count_ranges;
use braid_index::BALLAST_LEN;
use braid_tiers::MoversConfig;
use std::sync::{Arc, Weak};

/// Time between two looks at the tiers, at due removals, and at hot or cold
/// ranges, however long an epoch is.
const ROUND_NS: u64 = 200_000_000;

/// The body of a thread of the volume; it returns when the thread is to stop.
type ThreadBody = fn(&Stop, &Weak<Volume>);

/// Starts the threads. They end when they are stopped, or when the volume is
/// gone.
pub(crate) fn start_threads(volume: &Arc<Volume>) -> std::io::Result<()> {
    // Before home can fill up.
    volume.set_space_aside();
    start(volume, "braid-volume", run)?;
    start(volume, "braid-clean-up", clean_up)?;
    start_movers(volume, &volume.movers.rounds.config())?;
    for _ in 0..cache_work::THREADS {
        let (work, core) = (Arc::clone(&volume.cache_work.0), Arc::downgrade(&volume.core));
        volume.threads.start("braid-cache", move |_| work.carry_out(&core))?;
    }
    start(volume, "braid-count", count)
}

/// Starts the threads of the movers that are on by these settings, unless they
/// run already. A thread whose mover is off idles.
pub(crate) fn start_movers(volume: &Arc<Volume>, config: &MoversConfig) -> std::io::Result<()> {
    let mut started = volume.threads.movers.lock();
    for (mover, _) in config.each().into_iter().filter(|(_, scope)| scope.is_on()) {
        let (name, work): (_, ThreadBody) = match mover {
            Mover::Promote => ("braid-promote", promote),
            Mover::Demote => ("braid-demote", demote),
            Mover::Balance => ("braid-balance", balance),
        };
        if !started.contains(&mover) {
            start(volume, name, work)?;
            started.insert(mover);
        }
    }
    Ok(())
}

fn start(volume: &Arc<Volume>, name: &str, work: ThreadBody) -> std::io::Result<()> {
    let weak = Arc::downgrade(volume);
    volume.threads.start(name, move |stop| work(stop, &weak))
}

/// Starts the threads that carry out jobs. They end when the jobs are stopped,
/// or when the volume is gone.
fn start_job_threads(volume: &Arc<Volume>) -> std::io::Result<()> {
    for _ in 0..PARALLEL_MAX {
        let (jobs, weak) = (Arc::clone(&volume.jobs.list), Arc::downgrade(volume));
        volume.threads.start("braid-jobs", move |_| carry_out(&jobs, &weak))?;
    }
    Ok(())
}

/// The body of a job thread, until the volume ends.
fn carry_out(jobs: &JobList, volume: &Weak<Volume>) {
    while !jobs.is_stopped() && volume.strong_count() > 0 {
        let Some((id, pace)) = jobs.wait_for_work() else { continue };
        if let Some(volume) = volume.upgrade() {
            volume.run_job(id, &pace);
        }
    }
}

impl Volume {
    /// Lets jobs run, `parallel` of them at a time; called when the volume can
    /// be used.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start_jobs(self: &Arc<Self>, parallel: Option<usize>) -> Result<()> {
        if let Some(parallel) = parallel {
            self.jobs.list.set_parallel(parallel);
        }
        if self.core.environment.threads() {
            start_job_threads(self)?;
        }
        Ok(())
    }
}

/// Inodes that must have been forgotten before freed memory is worth giving
/// back: about 16 MiB of it.
const FORGOTTEN_MIN: u64 = 40_000;

/// The same, once no more inodes are being forgotten.
const FORGOTTEN_SETTLED_MIN: u64 = 1_000;

impl Volume {
    /// One round of background work. Where threads may be started, the volume's
    /// own do this.
    pub fn tick(&self) {
        self.close_epoch();
        self.look_after_tiers();
        self.clean_up();
        if !self.core.environment.threads() {
            self.step_jobs();
            self.step_movers();
        }
    }

    /// Runs movers where no threads may be started: each for one round.
    fn step_movers(&self) {
        let config = self.movers.rounds.config();
        if config.promote.is_on() {
            self.movers.promote(&|| false);
        }
        if config.demote.is_on() {
            self.movers.demote(&|| false);
        }
        if config.balance.is_on() {
            self.movers.balance(&|| false);
        }
    }

    /// Closes the tiers' epochs, and passes them on to policies and movers.
    /// Never waits for a tier.
    fn close_epoch(&self) {
        self.core.tiers.close_epoch(self.movers.tries());
        self.placement.close_epoch(&self.core.tiers.last_epoch());
        let _entered = self.core.barrier.enter();
        self.throttles.adjust(&self.core.tiers);
    }

    /// Measures the tiers' space, and probes those in trouble. Never waits for
    /// a tier.
    fn look_after_tiers(&self) {
        for tier in self.core.tiers.iter() {
            let Some(pool) = &self.core.pool else {
                if tier.begin_probe() {
                    tier.probe();
                }
                continue;
            };
            if tier.begin_probe() {
                let tier = Arc::clone(&tier);
                pool.spawn(move || tier.probe());
            }
            if tier.begin_measuring() {
                pool.spawn(move || tier.finish_measuring());
            }
        }
        let _entered = self.core.barrier.enter();
        self.movers.heat.close_epoch();
        if self.core.inodes.drop_forgotten() {
            self.core.freed.note_forgotten();
        }
    }

    /// Carries out removals, and sets space aside. May wait for a tier.
    fn clean_up(&self) {
        let _entered = self.core.barrier.enter();
        reap_due(&self.core);
        if self.movers.heat.save_if_due(&self.core.home) {
            self.save_experience();
        }
        self.set_space_aside();
    }

    /// Has home keep space for indexes, if it has enough.
    fn set_space_aside(&self) {
        if !self.core.index.ballast().is_full() && self.core.tiers.home().room() > 4 * BALLAST_LEN {
            self.core.index.ballast().fill();
        }
    }
}

fn count(stop: &Stop, volume: &Weak<Volume>) {
    if let Some(volume) = volume.upgrade() {
        count_ranges(&volume.core, &|| stop.is_set());
    }
}

fn clean_up(stop: &Stop, volume: &Weak<Volume>) {
    while stop.waited(ROUND_NS) {
        let Some(volume) = volume.upgrade() else { return };
        volume.clean_up();
    }
}

fn promote(stop: &Stop, volume: &Weak<Volume>) {
    in_rounds(stop, volume, |volume| volume.movers.promote(&|| stop.is_set()));
}

fn demote(stop: &Stop, volume: &Weak<Volume>) {
    in_rounds(stop, volume, |volume| volume.movers.demote(&|| stop.is_set()));
}

fn balance(stop: &Stop, volume: &Weak<Volume>) {
    in_rounds(stop, volume, |volume| volume.movers.balance(&|| stop.is_set()));
}

/// Repeats `work` until the volume ends.
fn in_rounds(stop: &Stop, volume: &Weak<Volume>, work: impl Fn(&Volume)) {
    while stop.waited(ROUND_NS) {
        let Some(volume) = volume.upgrade() else { return };
        work(&volume);
    }
}

fn run(stop: &Stop, volume: &Weak<Volume>) {
    let (mut inodes_max, mut inodes_before, mut wait_ns) = (0, 0, 0);
    // Times of the next end of an epoch and the next look at the tiers.
    let (mut epoch_at_ns, mut round_at_ns) = (0, 0);
    while stop.waited(wait_ns) {
        let Some(volume) = volume.upgrade() else { return };
        let now_ns = volume.core.environment.monotonic_ns();
        if now_ns >= epoch_at_ns {
            epoch_at_ns = now_ns + volume.threads.epoch_ns;
            volume.close_epoch();
        }
        if now_ns >= round_at_ns {
            round_at_ns = now_ns + ROUND_NS;
            volume.look_after_tiers();
        }
        wait_ns = epoch_at_ns.min(round_at_ns).saturating_sub(volume.core.environment.monotonic_ns());
        let inodes = volume.core.inodes.count();
        keep_bound(&volume, inodes);
        inodes_max = inodes.max(inodes_max);
        let enough = if inodes == inodes_before { FORGOTTEN_SETTLED_MIN } else { FORGOTTEN_MIN };
        inodes_before = inodes;
        if inodes_max - inodes >= enough {
            volume.core.inodes.shrink();
            braid_sys::release_free_memory();
            inodes_max = inodes;
        }
    }
}
