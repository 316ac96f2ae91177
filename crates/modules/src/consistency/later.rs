//! Syncs that programs asked for, made a while later.

use crate::count::Count;
use crate::sync::{Condvar, Mutex};
use braid_contract::{FileSystem, InodeId};
use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Makes syncs that were put off, some time later. When it goes, it makes all that are left.
pub(super) struct Later {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    within: Duration,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Syncs that were done.
    done: Count,
    child: Arc<dyn FileSystem>,
}

#[derive(Default)]
struct Waiting {
    inodes: HashSet<InodeId>,
    /// Those that are being made durable now.
    under_way: HashSet<InodeId>,
    /// Any inode may wait, or be made durable now.
    is_all: bool,
    /// The last time failed: programs hear it from the child when they ask for more.
    failed: bool,
    over: bool,
}

impl Later {
    /// Begins; a sync that is put off is made after this time, and the data is durable once the
    /// child is done with it. `None` if no thread can be had, so that nothing may be put off.
    pub(super) fn begin(within: Duration, child: Arc<dyn FileSystem>) -> Option<Self> {
        let (waiting, changed, done) = (Mutex::default(), Condvar::new(), Count::default());
        let shared = Arc::new(Shared { within, waiting, changed, done, child });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("consistency".into());
        match thread.spawn(move || of_thread.run()) {
            Ok(thread) => Some(Self { shared, thread: Some(thread) }),
            Err(error) => {
                tracing::error!(%error, "there is no thread: nothing is put off");
                None
            }
        }
    }

    /// Puts off a sync of this inode; answers whether that is possible.
    pub(super) fn put_off(&self, ino: InodeId) -> bool {
        let mut waiting = self.shared.waiting.lock();
        if waiting.failed {
            return false;
        }
        waiting.inodes.insert(ino);
        self.shared.changed.notify_one();
        true
    }

    /// Puts off syncs that may have been asked for, of any inode.
    pub(super) fn put_all_off(&self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.is_all = true;
        waiting.inodes.insert(InodeId::ROOT);
        self.shared.changed.notify_one();
    }

    /// Whether anything is put off.
    pub(super) fn is_any(&self) -> bool {
        let waiting = self.shared.waiting.lock();
        !(waiting.inodes.is_empty() && waiting.under_way.is_empty())
    }

    /// Whether a sync of this inode is put off.
    pub(super) fn is_put_off(&self, ino: InodeId) -> bool {
        let waiting = self.shared.waiting.lock();
        waiting.is_all || waiting.inodes.contains(&ino) || waiting.under_way.contains(&ino)
    }

    /// The count of syncs made for those put off.
    pub(super) fn done(&self) -> u64 {
        self.shared.done.get()
    }

    /// The inodes with a sync that is put off.
    pub(super) fn waiting(&self) -> Vec<InodeId> {
        let waiting = self.shared.waiting.lock();
        waiting.inodes.union(&waiting.under_way).copied().collect()
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.shared.waiting.lock().over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that makes data durable panicked");
        }
    }
}

impl Shared {
    fn run(&self) {
        while self.wait_until_due() {
            self.done.one();
            let done = self.child.sync();
            let mut waiting = self.waiting.lock();
            let under_way = std::mem::take(&mut waiting.under_way);
            waiting.failed = done.is_err();
            waiting.is_all &= done.is_err();
            if let Err(error) = done {
                tracing::error!(%error, "what programs take for durable is not");
                waiting.inodes.extend(under_way);
                if waiting.over {
                    return;
                }
            }
        }
    }

    /// Waits until the syncs put off are due; answers whether there are any.
    fn wait_until_due(&self) -> bool {
        let mut waiting = self.waiting.lock();
        self.changed.wait_while(&mut waiting, |waiting| waiting.inodes.is_empty() && !waiting.over);
        self.changed.wait_while_for(&mut waiting, |waiting| !waiting.over, self.within);
        waiting.under_way = std::mem::take(&mut waiting.inodes);
        !waiting.under_way.is_empty()
    }
}
