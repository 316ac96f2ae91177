//! Has the kernel move data of streams between its page cache and the tiers'
//! devices while the streams go on, by a few threads: each tier has queues of its
//! own, so that none waits for another. Nothing depends on it: data that is left
//! out is written when the kernel finds it time, or by a sync, and read when it is
//! needed.

use braid_contract::{Fd, NativeFd, ObjectId, Result, TierId};
use braid_core::Core;
use braid_tiers::Backend;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Threads, and so queues that are worked off at the same time.
pub(crate) const THREADS: usize = 6;

/// Stretches that may wait in a queue to be written, and to be read; more are left
/// to the kernel.
const WRITES_MAX: usize = 4096;
const READS_MAX: usize = 256;
/// Bytes that are read before it is looked whether they are still wanted.
const READ_STEP: u64 = 1 << 20;

/// The part of the work that a queue has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Task {
    /// Dirty data goes to the device.
    WriteOut,
    /// Data that is needed soon comes from it.
    ReadIn,
}

/// A stretch of a file's data on one tier.
pub(crate) struct Stretch {
    /// The home file; not kept open for this.
    home: Weak<dyn NativeFd>,
    id: ObjectId,
    bytes: Range<u64>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Stretch>,
    /// A thread has work of it.
    taken: bool,
}

#[derive(Default)]
struct Queues {
    of: BTreeMap<(Task, TierId), Queue>,
    /// The one whose turn it was last.
    last: Option<(Task, TierId)>,
    /// Threads that carry it out.
    threads: usize,
    stopped: bool,
}

/// Data that is to be written or read.
#[derive(Default)]
pub(crate) struct CacheWork {
    queues: Mutex<Queues>,
    changed: Condvar,
}

impl CacheWork {
    /// Adds data of a file on a tier. Does not wait.
    pub(crate) fn add(&self, task: Task, home: &Fd, id: ObjectId, (tier, bytes): (TierId, Range<u64>)) {
        let mut queues = self.queues.lock();
        if queues.threads == 0 || queues.stopped {
            return;
        }
        let queue = queues.of.entry((task, tier)).or_default();
        let most = if task == Task::WriteOut { WRITES_MAX } else { READS_MAX };
        if queue.waiting.len() < most {
            queue.waiting.push_back(Stretch { home: Arc::downgrade(home), id, bytes });
            drop(queues);
            self.changed.notify_one();
        }
    }

    /// The body of a thread, until it is stopped or the core is gone.
    pub(crate) fn carry_out(&self, core: &Weak<Core>) {
        self.queues.lock().threads += 1;
        while let Some((queue, stretch)) = self.take() {
            let Some(core) = core.upgrade() else { return };
            if let Err(error) = start(&core, queue, &stretch) {
                tracing::debug!(file = %stretch.id, task = ?queue.0, %error, "data is left to the kernel");
            }
            self.end(queue);
        }
    }

    /// Waits for a queue that no other thread works for; `None`: stopped.
    fn take(&self) -> Option<((Task, TierId), Stretch)> {
        let mut queues = self.queues.lock();
        loop {
            if queues.stopped {
                return None;
            }
            if let Some(taken) = queues.take() {
                return Some(taken);
            }
            self.changed.wait(&mut queues);
        }
    }

    fn end(&self, of: (Task, TierId)) {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.of.get_mut(&of) {
            queue.taken = false;
            if queue.waiting.is_empty() {
                queues.of.remove(&of);
            }
        }
    }
}

/// Ends the threads at the latest when the volume is gone.
pub(crate) struct CacheWorkEnd(pub(crate) Arc<CacheWork>);

impl CacheWorkEnd {
    /// Ends the threads.
    pub(crate) fn stop(&self) {
        *self.0.queues.lock() = Queues { stopped: true, ..Queues::default() };
        self.0.changed.notify_all();
    }
}

impl Drop for CacheWorkEnd {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Queues {
    /// The first stretch of the next queue, in turn, that no thread works for.
    fn take(&mut self) -> Option<((Task, TierId), Stretch)> {
        let last = self.last;
        let is_free = |(_, queue): &(&(Task, TierId), &Queue)| !queue.taken && !queue.waiting.is_empty();
        let free = || self.of.iter().filter(is_free).map(|(of, _)| *of);
        let of = free().find(|of| Some(*of) > last).or_else(|| free().next())?;
        let queue = self.of.get_mut(&of)?;
        let stretch = queue.waiting.pop_front()?;
        queue.taken = true;
        self.last = Some(of);
        Some((of, stretch))
    }
}

fn start(core: &Core, (task, tier): (Task, TierId), stretch: &Stretch) -> Result<()> {
    let tier = core.tiers.get(tier)?;
    if !tier.is_healthy() {
        return Ok(());
    }
    let (offset, len) = (stretch.bytes.start, stretch.bytes.end - stretch.bytes.start);
    match (&tier.backend, task) {
        (Backend::Store(store), Task::WriteOut) => store.start_write_back(stretch.id, offset, len),
        (Backend::Home(_), Task::WriteOut) => {
            stretch.home.upgrade().map_or(Ok(()), |file| file.start_write_back(offset, len))
        }
        (backend, Task::ReadIn) => {
            for at in (offset..offset + len).step_by(READ_STEP as usize) {
                // It may have been closed.
                let Some(file) = stretch.home.upgrade() else { return Ok(()) };
                let len = READ_STEP.min(offset + len - at);
                match backend {
                    Backend::Home(_) => file.start_read(at, len)?,
                    Backend::Store(store) => store.start_read(stretch.id, at, len)?,
                }
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_stores::native::KernelFd;

    fn queues(tiers: &[u8]) -> Queues {
        let mut queues = Queues::default();
        for (at, tier) in tiers.iter().enumerate() {
            let home: Weak<dyn NativeFd> = Weak::<KernelFd>::new();
            let id = ObjectId([at as u8; 16]);
            let stretch = Stretch { home, id, bytes: 0..1 };
            queues.of.entry((Task::WriteOut, TierId(*tier))).or_default().waiting.push_back(stretch);
        }
        queues
    }

    #[test]
    fn tiers_take_turns_and_none_waits_for_another() {
        let mut queues = queues(&[1, 1, 1, 2, 2, 7]);
        let mut take = |ends: bool| {
            let (of, _) = queues.take()?;
            if let Some(queue) = queues.of.get_mut(&of).filter(|_| ends) {
                queue.taken = false;
            }
            Some(of.1.0)
        };
        // A thread hangs in tier 2.
        assert_eq!([take(true), take(false), take(true), take(true), take(true)], [1, 2, 7, 1, 1].map(Some));
        assert_eq!(take(true), None);
    }
}
