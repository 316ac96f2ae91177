//! The thread that makes changes durable, and checkpoints.

use crate::checkpoint::checkpoint;
use crate::core::Core;
use crate::room;
use crate::sync::{Condvar, Mutex};
use braid_contract::Result;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a change waits to be made durable without being asked for, at most.
const COMMIT_PAUSE: Duration = Duration::from_secs(5);
/// How often it is looked whether a checkpoint is due.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The thread, while it runs.
#[derive(Debug)]
pub(crate) struct Background {
    thread: JoinHandle<()>,
    ended: Arc<(Mutex<bool>, Condvar)>,
}

impl Background {
    /// Starts the thread that makes changes durable and checkpoints.
    pub(crate) fn begin(core: &Arc<Core>) -> Result<Self> {
        let ended: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let (core, asked) = (Arc::clone(core), Arc::clone(&ended));
        let work = move || {
            let mut waited = Duration::ZERO;
            loop {
                let mut ends = asked.0.lock();
                if !*ends {
                    asked.1.wait_for(&mut ends, LOOK_PAUSE);
                }
                if *ends {
                    return;
                }
                drop(ends);
                waited += LOOK_PAUSE;
                maintain(&core, &mut waited);
            }
        };
        let thread = std::thread::Builder::new().name("log".into()).spawn(work)?;
        Ok(Self { thread, ended })
    }

    /// Ends it, and waits for that.
    pub(crate) fn end(self) {
        *self.ended.0.lock() = true;
        self.ended.1.notify_all();
        // It does not panic; if it did, there is nothing to do about it here.
        let _ = self.thread.join();
    }
}

/// Commits and makes a checkpoint, each if it is due. After an error of the device there is
/// neither; a commit that only lacks room for the log is followed by a checkpoint, which
/// frees the log.
fn maintain(core: &Core, waited: &mut Duration) {
    let journal = &core.journal;
    if *waited >= COMMIT_PAUSE {
        *waited = Duration::ZERO;
        if journal.check().is_ok()
            && journal.undurable() > 0
            && let Err(error) = journal.commit(journal.last_record())
        {
            tracing::warn!(%error, "a commit in the background failed");
        }
    }
    if journal.check().is_ok()
        && room::is_due(core)
        && let Err(error) = checkpoint(core, false)
    {
        tracing::warn!(%error, "a checkpoint in the background failed");
    }
}
