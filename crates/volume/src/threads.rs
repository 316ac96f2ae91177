//! The volume's own threads, and how they end.

use crate::inode_bound::InodeBound;
use braid_contract::Mover;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Whether the threads are to end.
#[derive(Default)]
pub(crate) struct Stop(Mutex<bool>, Condvar);

impl Stop {
    /// Whether they are.
    pub(crate) fn is_set(&self) -> bool {
        *self.0.lock()
    }

    /// Waits so many nanoseconds; answers `false` if the thread is to end.
    pub(crate) fn waited(&self, nanos: u64) -> bool {
        let mut stopped = self.0.lock();
        if !*stopped {
            // A thread that wakes early does its round early, which does no
            // harm.
            self.1.wait_for(&mut stopped, Duration::from_nanos(nanos));
        }
        !*stopped
    }

    fn set(&self) {
        *self.0.lock() = true;
        self.1.notify_all();
    }
}

/// The threads.
pub(crate) struct BackgroundThreads {
    /// Length of an epoch, in nanoseconds.
    pub(crate) epoch_ns: u64,
    stop: Arc<Stop>,
    running: Mutex<Vec<JoinHandle<()>>>,
    /// The movers that have a thread.
    pub(crate) movers: Mutex<BTreeSet<Mover>>,
    /// How many inodes the front end is to know.
    pub(crate) inode_bound: InodeBound,
}

impl BackgroundThreads {
    pub(crate) fn new(epoch_ns: u64) -> Self {
        Self {
            epoch_ns,
            stop: Arc::default(),
            running: Mutex::default(),
            movers: Mutex::default(),
            inode_bound: InodeBound::default(),
        }
    }

    /// Starts a thread, which must end soon after the stop was set.
    pub(crate) fn start(&self, name: &str, work: impl FnOnce(&Stop) + Send + 'static) -> std::io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&stop))?;
        let mut running = self.running.lock();
        running.retain(|thread| !thread.is_finished());
        running.push(thread);
        Ok(())
    }

    /// Ends the threads and waits for them.
    pub(crate) fn stop(&self) {
        self.stop.set();
        let threads = std::mem::take(&mut *self.running.lock());
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("one of the volume's background threads panicked");
            }
        }
    }
}
