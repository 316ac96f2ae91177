//! The volume's own threads: one looks after the tiers, one carries out
//! removals, and one counts ranges after a crash and ends.

use crate::Volume;
use crate::index::BALLAST_LEN;
use crate::sync::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// How often rates are reckoned and due removals looked for.
const EPOCH_NS: u64 = 200_000_000;

type Stop = (Mutex<bool>, Condvar);

/// The threads, and the way to end them.
pub(crate) struct Background {
    stop: Arc<Stop>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Background {
    pub(crate) fn new() -> Self {
        Self { stop: Arc::new((Mutex::new(false), Condvar::new())), threads: Mutex::new(Vec::new()) }
    }

    /// Starts the threads. They end with [`stop`](Self::stop), or by themselves
    /// when the volume is gone.
    pub(crate) fn start(&self, volume: &Arc<Volume>) -> std::io::Result<()> {
        let start = |name: &str, work: fn(&Stop, &Weak<Volume>)| {
            let (stop, volume) = (Arc::clone(&self.stop), Arc::downgrade(volume));
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&stop, &volume))?;
            self.threads.lock().push(thread);
            Ok(())
        };
        start("braid-volume", run)?;
        start("braid-clean-up", clean_up)?;
        start("braid-count", count)
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

impl Volume {
    /// One round of what goes on in the background. Where threads may be
    /// started, the volume's own do this.
    pub fn tick(&self) {
        self.look_after_tiers();
        self.clean_up();
    }

    /// Closes the tiers' epochs, measures their space, and asks those in
    /// trouble whether they are back. Never waits for a tier.
    fn look_after_tiers(&self) {
        for tier in self.tiers.iter() {
            tier.load.close_epoch();
            let Some(pool) = &self.pool else {
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
        let _pass = self.door.pass();
        self.inodes.drop_forgotten();
    }

    /// Carries out removals, and sets space aside. May wait for a tier.
    fn clean_up(&self) {
        let _pass = self.door.pass();
        self.reaper.reap_due(self);
        if !self.index.ballast().is_full() && self.tiers.home().room() > 4 * BALLAST_LEN {
            self.index.ballast().fill();
        }
    }
}

fn count((stopped, _): &Stop, volume: &Weak<Volume>) {
    if let Some(volume) = volume.upgrade() {
        volume.count_ranges(&|| *stopped.lock());
    }
}

/// Waits for the end of an epoch; answers `false` if the volume ends.
fn epoch_ended((stopped, changed): &Stop) -> bool {
    let mut guard = stopped.lock();
    if !*guard {
        // One that wakes early ends its epoch early, which does no harm.
        guard = changed.wait_for(guard, EPOCH_NS);
    }
    !*guard
}

fn clean_up(stop: &Stop, volume: &Weak<Volume>) {
    while epoch_ended(stop) {
        let Some(volume) = volume.upgrade() else { return };
        volume.clean_up();
    }
}

fn run(stop: &Stop, volume: &Weak<Volume>) {
    let mut inodes_max = 0;
    while epoch_ended(stop) {
        let Some(volume) = volume.upgrade() else { return };
        volume.look_after_tiers();
        let inodes = volume.inodes.len();
        inodes_max = inodes.max(inodes_max);
        if inodes_max - inodes >= FORGOTTEN_MIN {
            braid_sys::release_free_memory();
            inodes_max = inodes;
        }
    }
}
