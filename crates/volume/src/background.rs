//! The volume's own threads: one looks after the tiers, one carries out
//! removals, two move ranges, and one counts ranges after a crash and ends.

use crate::{Volume, jobs};
use braid_contract::Mover;
use braid_core::reap::reap_due;
use braid_core::recover::counts::count_ranges;
use braid_index::BALLAST_LEN;
use braid_tiers::MoversConfig;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often tiers are looked after, due removals looked for, and what is hot
/// or cold moved, however long an epoch is.
const ROUND_NS: u64 = 200_000_000;

type Stop = (Mutex<bool>, Condvar);

/// The threads, and the way to end them.
pub(crate) struct Background {
    stop: Arc<Stop>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The movers that have a thread.
    movers: Mutex<BTreeSet<Mover>>,
}

/// What a mover's thread does until it is to stop.
type MoverLoop = fn(&Stop, &Weak<Volume>);

impl Background {
    pub(crate) fn new() -> Self {
        Self {
            stop: Arc::new((Mutex::new(false), Condvar::new())),
            threads: Mutex::default(),
            movers: Mutex::default(),
        }
    }

    /// Starts the threads. They end with [`stop`](Self::stop), or by themselves
    /// when the volume is gone.
    pub(crate) fn start(&self, volume: &Arc<Volume>) -> std::io::Result<()> {
        // Before anybody can fill home.
        volume.set_space_aside();
        self.start_thread(volume, "braid-volume", run)?;
        self.start_thread(volume, "braid-clean-up", clean_up)?;
        self.start_movers(volume, &volume.movers.rounds.config())?;
        self.start_thread(volume, "braid-count", count)
    }

    /// Starts the threads of the movers that are on by these settings, where
    /// they have none. Those of movers that are off have nothing to do.
    pub(crate) fn start_movers(&self, volume: &Arc<Volume>, config: &MoversConfig) -> std::io::Result<()> {
        let movers: [(_, _, _, MoverLoop); 2] = [
            (Mover::Promote, config.promote, "braid-promote", promote),
            (Mover::Demote, config.demote, "braid-demote", demote),
        ];
        let mut started = self.movers.lock();
        for (mover, _, name, work) in movers.into_iter().filter(|(_, on, ..)| *on) {
            if !started.contains(&mover) {
                self.start_thread(volume, name, work)?;
                started.insert(mover);
            }
        }
        Ok(())
    }

    fn start_thread(
        &self,
        volume: &Arc<Volume>,
        name: &str,
        work: fn(&Stop, &Weak<Volume>),
    ) -> std::io::Result<()> {
        let (stop, volume) = (Arc::clone(&self.stop), Arc::downgrade(volume));
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&stop, &volume))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Starts the threads that carry out jobs. They end when the jobs are
    /// stopped, or when the volume is gone.
    pub(crate) fn start_jobs(&self, volume: &Arc<Volume>) -> std::io::Result<()> {
        for _ in 0..jobs::PARALLEL_MAX {
            let (list, volume) = (Arc::clone(&volume.jobs), Arc::downgrade(volume));
            let work = move || jobs::work(&list, &volume);
            self.threads.lock().push(std::thread::Builder::new().name("braid-jobs".into()).spawn(work)?);
        }
        Ok(())
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        let (stopped, changed) = &*self.stop;
        *stopped.lock() = true;
        changed.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("one of the volume's background threads panicked");
            }
        }
    }
}

/// Inodes that must have been forgotten before freed memory is worth giving
/// back: about 16 MiB of it.
const FORGOTTEN_MIN: u64 = 40_000;

/// The same once no more are being forgotten.
const FORGOTTEN_SETTLED_MIN: u64 = 1_000;

impl Volume {
    /// One round of what goes on in the background. Where threads may be
    /// started, the volume's own do this.
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
        if config.promote {
            self.movers.promote(&|| false);
        }
        if config.demote {
            self.movers.demote(&|| false);
        }
    }

    /// Closes the tiers' epochs, and tells policies and movers of them. Never
    /// waits for a tier.
    fn close_epoch(&self) {
        for tier in self.core.tiers.iter() {
            tier.close_epoch();
        }
        self.placement.close_epoch(&self.core.tiers.last_epoch());
        let _entered = self.core.barrier.enter();
        self.throttles.adjust(&self.core.tiers);
    }

    /// Measures the tiers' space, and asks those in trouble whether they are
    /// back. Never waits for a tier.
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
        self.heat.close_epoch();
        self.core.inodes.drop_forgotten();
    }

    /// Carries out removals, and sets space aside. May wait for a tier.
    fn clean_up(&self) {
        let _entered = self.core.barrier.enter();
        reap_due(&self.core);
        self.heat.save_if_due(&self.core.home);
        self.set_space_aside();
    }

    /// Has home keep space for indexes, if there is enough.
    fn set_space_aside(&self) {
        if !self.core.index.ballast().is_full() && self.core.tiers.home().room() > 4 * BALLAST_LEN {
            self.core.index.ballast().fill();
        }
    }
}

fn count((stopped, _): &Stop, volume: &Weak<Volume>) {
    if let Some(volume) = volume.upgrade() {
        count_ranges(&volume.core, &|| *stopped.lock());
    }
}

/// Waits so long; answers `false` if the volume ends.
fn waited((stopped, changed): &Stop, nanos: u64) -> bool {
    let mut guard = stopped.lock();
    if !*guard {
        // One that wakes early does its round early, which does no harm.
        changed.wait_for(&mut guard, Duration::from_nanos(nanos));
    }
    !*guard
}

fn clean_up(stop: &Stop, volume: &Weak<Volume>) {
    while waited(stop, ROUND_NS) {
        let Some(volume) = volume.upgrade() else { return };
        volume.clean_up();
    }
}

fn promote(stop: &Stop, volume: &Weak<Volume>) {
    in_rounds(stop, volume, |volume| volume.movers.promote(&|| *stop.0.lock()));
}

fn demote(stop: &Stop, volume: &Weak<Volume>) {
    in_rounds(stop, volume, |volume| volume.movers.demote(&|| *stop.0.lock()));
}

/// Does `work` again and again, until the volume ends.
fn in_rounds(stop: &Stop, volume: &Weak<Volume>, work: impl Fn(&Volume)) {
    while waited(stop, ROUND_NS) {
        let Some(volume) = volume.upgrade() else { return };
        work(&volume);
    }
}

fn run(stop: &Stop, volume: &Weak<Volume>) {
    let (mut inodes_max, mut inodes_before, mut wait_ns) = (0, 0, 0);
    // When an epoch ends, and when tiers are looked after, next.
    let (mut epoch_at_ns, mut round_at_ns) = (0, 0);
    while waited(stop, wait_ns) {
        let Some(volume) = volume.upgrade() else { return };
        let now_ns = volume.core.environment.monotonic_ns();
        if now_ns >= epoch_at_ns {
            epoch_at_ns = now_ns + volume.state.epoch_ns;
            volume.close_epoch();
        }
        if now_ns >= round_at_ns {
            round_at_ns = now_ns + ROUND_NS;
            volume.look_after_tiers();
        }
        wait_ns = epoch_at_ns.min(round_at_ns).saturating_sub(volume.core.environment.monotonic_ns());
        let inodes = volume.core.inodes.count();
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
