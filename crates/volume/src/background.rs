//! The volume's own threads: one closes the tiers' epochs and carries out
//! removals, another counts ranges after a crash and ends.

use crate::Volume;
use crate::index::BALLAST_LEN;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often rates are reckoned and due removals looked for.
const EPOCH: Duration = Duration::from_millis(200);

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
            self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
            Ok(())
        };
        start("braid-volume", run)?;
        start("braid-count", count)
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        let (stopped, changed) = &*self.stop;
        *stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
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
    /// started, one of the volume's own calls this.
    pub fn tick(&self) {
        for tier in self.tiers.iter() {
            tier.load.close_epoch();
            if tier.begin_probe() {
                // A probe may hang as the tier does.
                match &self.pool {
                    Some(pool) => pool.spawn(move || tier.probe()),
                    None => tier.probe(),
                }
            }
        }
        self.reaper.reap_due(self);
        self.inodes.drop_forgotten();
        if !self.index.ballast.is_full() && self.tiers.home().room() > 4 * BALLAST_LEN {
            self.index.ballast.fill();
        }
    }
}

fn count((stopped, _): &Stop, volume: &Weak<Volume>) {
    if let Some(volume) = volume.upgrade() {
        volume.count_ranges(&|| *stopped.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn run((stopped, changed): &Stop, volume: &Weak<Volume>) {
    let mut inodes_max = 0;
    loop {
        {
            let guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = changed.wait_timeout_while(guard, EPOCH, |stopped| !*stopped);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
        let Some(volume) = volume.upgrade() else { return };
        volume.tick();
        let inodes = volume.inodes.len();
        inodes_max = inodes.max(inodes_max);
        if inodes_max - inodes >= FORGOTTEN_MIN {
            braid_sys::release_free_memory();
            inodes_max = inodes;
        }
    }
}
