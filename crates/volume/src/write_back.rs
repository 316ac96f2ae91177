//! Has the kernel write data of streams to the tiers' devices while the streams
//! go on, by a few threads: each tier has its own queue, so that none waits for
//! another. Nothing depends on it: what is left out is written when the kernel
//! finds it time, or by a sync.

use braid_contract::{Fd, NativeFd, ObjectId, Result, TierId};
use braid_core::Core;
use braid_tiers::Backend;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Threads, and so tiers that are written to at the same time.
pub(crate) const THREADS: usize = 4;

/// Stretches that may wait for a tier; more are left to the kernel.
const WAITING_MAX: usize = 4096;

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
    of: BTreeMap<TierId, Queue>,
    /// The tier whose turn it was last.
    last: Option<TierId>,
    /// Threads that carry it out.
    threads: usize,
    stopped: bool,
}

/// Data that is to be written.
#[derive(Default)]
pub(crate) struct WriteBack {
    queues: Mutex<Queues>,
    changed: Condvar,
}

impl WriteBack {
    /// Data was written and will stay as it is, for now. Does not wait.
    pub(crate) fn add(&self, home: &Fd, id: ObjectId, tier: TierId, bytes: Range<u64>) {
        let mut queues = self.queues.lock();
        if queues.threads == 0 || queues.stopped {
            return;
        }
        let queue = queues.of.entry(tier).or_default();
        if queue.waiting.len() < WAITING_MAX {
            queue.waiting.push_back(Stretch { home: Arc::downgrade(home), id, bytes });
            drop(queues);
            self.changed.notify_one();
        }
    }

    /// The body of a thread, until it is stopped or the core is gone.
    pub(crate) fn carry_out(&self, core: &Weak<Core>) {
        self.queues.lock().threads += 1;
        while let Some((tier, stretch)) = self.take() {
            let Some(core) = core.upgrade() else { return };
            if let Err(error) = start(&core, tier, &stretch) {
                tracing::debug!(file = %stretch.id, %error, "data is left to the kernel to write");
            }
            self.end(tier);
        }
    }

    /// Waits for data of a tier that no other thread works for; `None`: stopped.
    fn take(&self) -> Option<(TierId, Stretch)> {
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

    fn end(&self, tier: TierId) {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.of.get_mut(&tier) {
            queue.taken = false;
            if queue.waiting.is_empty() {
                queues.of.remove(&tier);
            }
        }
    }
}

/// Ends the threads at the latest when the volume is gone.
pub(crate) struct WriteBackEnd(pub(crate) Arc<WriteBack>);

impl WriteBackEnd {
    /// Ends the threads.
    pub(crate) fn stop(&self) {
        *self.0.queues.lock() = Queues { stopped: true, ..Queues::default() };
        self.0.changed.notify_all();
    }
}

impl Drop for WriteBackEnd {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Queues {
    /// The first stretch of the next tier, in turn, that no thread works for.
    fn take(&mut self) -> Option<(TierId, Stretch)> {
        let last = self.last;
        let is_free = |(_, queue): &(&TierId, &Queue)| !queue.taken && !queue.waiting.is_empty();
        let free = || self.of.iter().filter(is_free).map(|(tier, _)| *tier);
        let tier = free().find(|tier| Some(*tier) > last).or_else(|| free().next())?;
        let queue = self.of.get_mut(&tier)?;
        let stretch = queue.waiting.pop_front()?;
        queue.taken = true;
        self.last = Some(tier);
        Some((tier, stretch))
    }
}

fn start(core: &Core, tier: TierId, stretch: &Stretch) -> Result<()> {
    let tier = core.tiers.get(tier)?;
    if !tier.is_healthy() {
        return Ok(());
    }
    let (offset, len) = (stretch.bytes.start, stretch.bytes.end - stretch.bytes.start);
    match &tier.backend {
        Backend::Home(_) => stretch.home.upgrade().map_or(Ok(()), |file| file.start_write_back(offset, len)),
        Backend::Store(store) => store.start_write_back(stretch.id, offset, len),
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
            queues.of.entry(TierId(*tier)).or_default().waiting.push_back(stretch);
        }
        queues
    }

    #[test]
    fn tiers_take_turns_and_none_waits_for_another() {
        let mut queues = queues(&[1, 1, 1, 2, 2, 7]);
        let mut take = |ends: bool| {
            let (tier, _) = queues.take()?;
            if let Some(queue) = queues.of.get_mut(&tier).filter(|_| ends) {
                queue.taken = false;
            }
            Some(tier.0)
        };
        // A thread hangs in tier 2.
        assert_eq!([take(true), take(false), take(true), take(true), take(true)], [1, 2, 7, 1, 1].map(Some));
        assert_eq!(take(true), None);
    }
}
