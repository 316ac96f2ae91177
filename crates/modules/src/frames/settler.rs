//! The thread that settles writes, some time later.

use super::engine::Engine;
use crate::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The least time from one settling to the next.
const EVERY: Duration = Duration::from_secs(10);

/// Settles while it is there.
pub(super) struct Settler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Settler {
    /// Begins. Without a thread, space is given back at the end only.
    pub(super) fn begin(engine: Arc<Engine>) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let spawned = std::thread::Builder::new().name("frames".into()).spawn(move || of_thread.run(&engine));
        let thread =
            spawned.inspect_err(|error| tracing::error!(%error, "there is no thread to settle")).ok();
        Self { shared, thread }
    }
}

impl Shared {
    fn run(&self, engine: &Engine) {
        let mut is_over = self.is_over.lock();
        while !*is_over {
            self.changed.wait_while_for(&mut is_over, |is_over| !*is_over, EVERY);
            if !*is_over && engine.is_unsettled() {
                parking_lot::MutexGuard::unlocked(&mut is_over, || {
                    if let Err(error) = engine.settle() {
                        tracing::error!(%error, "what was written could not be made durable");
                    }
                });
            }
        }
    }
}

impl Drop for Settler {
    fn drop(&mut self) {
        *self.shared.is_over.lock() = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that settles panicked");
        }
    }
}
