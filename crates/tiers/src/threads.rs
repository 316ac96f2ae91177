//! The threads of applications that use a tier, and how much: for `status`, and
//! for policies that map threads to tiers. [`monitor`](crate::monitor) fills
//! it.

use braid_placement::Direction;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Time that current figures look back, at least, in nanoseconds: less is too
/// short for a percentile. They look back for whole epochs, at least one.
pub(super) const WINDOW_NS: u64 = 1_000_000_000;

/// Number of tables that threads are spread over, so that two rarely meet at a
/// lock.
const SHARDS: usize = 16;

/// Most threads that one table knows; others are counted together.
const SHARD_MAX: usize = 256;

/// Shortest time for which an idle thread is remembered.
const IDLE_NS_MAX: u64 = 10_000_000_000;

/// The load of one thread on the tier within a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ThreadLoad {
    /// Bytes read and written.
    pub(crate) bytes: [u64; 2],
    /// Reads and writes.
    pub(crate) ops: [u64; 2],
    /// Their total duration, in nanoseconds.
    pub(crate) took_ns: [u64; 2],
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
    idle_ns: u64,
}

/// The threads that used one tier recently. Their load is reported by period:
/// the epochs that end within [`WINDOW_NS`] are one.
#[derive(Debug)]
pub(super) struct ThreadTable {
    shards: [Mutex<HashMap<u32, Thread>>; SHARDS],
    period: Mutex<Period>,
}

#[derive(Debug)]
struct Period {
    began_ns: u64,
    /// Length of the previous period.
    last_ns: u64,
}

impl ThreadTable {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { shards: Default::default(), period: Mutex::new(Period { began_ns: now_ns, last_ns: 0 }) }
    }

    pub(super) fn note(&self, thread: u32, direction: Direction, bytes: u64, took_ns: u64) {
        let mut shard = self.shards[thread as usize % SHARDS].lock();
        if shard.len() >= SHARD_MAX && !shard.contains_key(&thread) {
            return;
        }
        let load = &mut shard.entry(thread).or_default().now;
        load.bytes[direction as usize] += bytes;
        load.ops[direction as usize] += 1;
        load.took_ns[direction as usize] += took_ns;
    }

    /// Closes an epoch, and the period with it once that is long enough: the
    /// counts so far are then those of the last period.
    pub(super) fn close_epoch(&self, now_ns: u64) {
        let mut period = self.period.lock();
        let length_ns = now_ns.saturating_sub(period.began_ns);
        if length_ns < WINDOW_NS {
            return;
        }
        *period = Period { began_ns: now_ns, last_ns: length_ns };
        for shard in &self.shards {
            shard.lock().retain(|_, thread| {
                thread.last = std::mem::take(&mut thread.now);
                thread.idle_ns = if thread.last.is_idle() { thread.idle_ns + length_ns } else { 0 };
                thread.idle_ns <= IDLE_NS_MAX
            });
        }
    }

    /// Length of the last period, in nanoseconds; 0 before its end.
    pub(super) fn period_ns(&self) -> u64 {
        self.period.lock().last_ns
    }

    /// The threads that were active in the last period, and their load.
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

    /// Number of threads that were active in the last period.
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

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn threads_are_counted_by_period_and_forgotten_when_idle() {
        let threads = ThreadTable::new(0);
        threads.note(1, Direction::Read, 10, 300);
        threads.note(1, Direction::Write, 5, 20);
        threads.note(17, Direction::Read, 1, 4);
        assert_eq!(threads.active_count(), 0);
        threads.close_epoch(SECOND);
        let one = ThreadLoad { bytes: [10, 5], ops: [1, 1], took_ns: [300, 20] };
        let other = ThreadLoad { bytes: [1, 0], ops: [1, 0], took_ns: [4, 0] };
        assert_eq!(threads.active(), [(1, one), (17, other)]);
        threads.note(17, Direction::Read, 1, 4);
        threads.close_epoch(2 * SECOND);
        assert_eq!((threads.active_count(), threads.active()), (1, vec![(17, other)]));
        let known = || threads.shards.iter().map(|shard| shard.lock().len()).sum::<usize>();
        (3..=12).for_each(|second| threads.close_epoch(second * SECOND));
        assert_eq!(known(), 1, "10 seconds after its last operation");
        threads.close_epoch(13 * SECOND);
        assert_eq!(known(), 0);
    }

    #[test]
    fn a_period_is_a_second_of_short_epochs_or_one_long_epoch() {
        let threads = ThreadTable::new(0);
        for epoch in 1..=150 {
            threads.note(1, Direction::Read, 1, 1);
            threads.close_epoch(epoch * SECOND / 100);
        }
        assert_eq!((threads.active()[0].1.ops, threads.period_ns()), ([100, 0], SECOND));
        threads.note(1, Direction::Read, 1, 1);
        threads.close_epoch(6 * SECOND);
        assert_eq!((threads.active()[0].1.ops, threads.period_ns()), ([51, 0], 5 * SECOND));
        threads.close_epoch(66 * SECOND);
        assert_eq!(threads.active_count(), 0);
    }

    #[test]
    fn there_is_an_end_to_what_is_remembered() {
        let threads = ThreadTable::new(0);
        for thread in 0..100_000 {
            threads.note(thread, Direction::Read, 1, 1);
        }
        threads.close_epoch(SECOND);
        assert_eq!(threads.active_count() as usize, SHARDS * SHARD_MAX);
    }
}
