//! Which threads of applications use a tier, and how much: what `status`
//! counts, and what policies that map threads to tiers go by. `tiers::monitor`
//! fills it.

use super::load::Direction;
use crate::sync::Mutex;
use std::collections::HashMap;

/// Threads are spread over this many tables, so that hardly two meet at a lock.
const SHARDS: usize = 16;

/// Threads that one table knows at most; what others do is not told apart.
const SHARD_MAX: usize = 256;

/// Epochs without an operation after which a thread is forgotten.
const IDLE_MAX: u32 = 50;

/// What one thread did on the tier in the last epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ThreadLoad {
    /// Bytes read and written.
    pub(crate) bytes: [u64; 2],
    /// Reads and writes.
    pub(crate) ops: [u64; 2],
}

impl ThreadLoad {
    fn is_idle(&self) -> bool {
        self.ops == [0, 0]
    }
}

#[derive(Debug, Default)]
struct Thread {
    now: ThreadLoad,
    last: ThreadLoad,
    idle: u32,
}

/// The threads that used one tier lately.
#[derive(Debug, Default)]
pub(super) struct Threads {
    shards: [Mutex<HashMap<u32, Thread>>; SHARDS],
}

impl Threads {
    pub(super) fn note(&self, thread: u32, direction: Direction, bytes: u64) {
        let mut shard = self.shards[thread as usize % SHARDS].lock();
        if shard.len() >= SHARD_MAX && !shard.contains_key(&thread) {
            return;
        }
        let load = &mut shard.entry(thread).or_default().now;
        load.bytes[direction as usize] += bytes;
        load.ops[direction as usize] += 1;
    }

    /// What was counted so far is the last epoch's.
    pub(super) fn close_epoch(&self) {
        for shard in &self.shards {
            shard.lock().retain(|_, thread| {
                thread.last = std::mem::take(&mut thread.now);
                thread.idle = if thread.last.is_idle() { thread.idle + 1 } else { 0 };
                thread.idle <= IDLE_MAX
            });
        }
    }

    /// Threads that did something in the last epoch, and what.
    pub(super) fn active(&self) -> Vec<(u32, ThreadLoad)> {
        let mut active = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let busy = shard.iter().filter(|(_, thread)| !thread.last.is_idle());
            active.extend(busy.map(|(number, thread)| (*number, thread.last)));
        }
        active.sort_unstable_by_key(|(number, _)| *number);
        active
    }

    /// How many threads did something in the last epoch.
    pub(super) fn active_count(&self) -> u32 {
        let of = |shard: &Mutex<HashMap<u32, Thread>>| {
            shard.lock().values().filter(|thread| !thread.last.is_idle()).count() as u32
        };
        self.shards.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_by_epoch_and_forgotten_when_idle() {
        let threads = Threads::default();
        threads.note(1, Direction::Read, 10);
        threads.note(1, Direction::Write, 5);
        threads.note(17, Direction::Read, 1);
        assert_eq!(threads.active_count(), 0);
        threads.close_epoch();
        let one = ThreadLoad { bytes: [10, 5], ops: [1, 1] };
        let other = ThreadLoad { bytes: [1, 0], ops: [1, 0] };
        assert_eq!(threads.active(), [(1, one), (17, other)]);
        threads.note(17, Direction::Read, 1);
        threads.close_epoch();
        assert_eq!((threads.active_count(), threads.active()), (1, vec![(17, other)]));
        (0..=IDLE_MAX).for_each(|_| threads.close_epoch());
        assert!(threads.shards.iter().all(|shard| shard.lock().is_empty()));
    }

    #[test]
    fn there_is_an_end_to_what_is_remembered() {
        let threads = Threads::default();
        for thread in 0..100_000 {
            threads.note(thread, Direction::Read, 1);
        }
        threads.close_epoch();
        assert_eq!(threads.active_count() as usize, SHARDS * SHARD_MAX);
    }
}
