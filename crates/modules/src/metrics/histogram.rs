//! Counts of values by size, with fixed bounds, to which threads add without waiting for
//! each other.

use crate::count::Count;
use braid_contract::Distribution;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};

/// From 1 µs to 17 s, by fours.
pub(super) const TIMES_NS: [u64; 13] = powers::<13>(10);
/// From 512 bytes to 8 MiB, by fours.
pub(super) const SIZES: [u64; 8] = powers::<8>(9);

/// Threads that add at a time without sharing memory.
const SHARDS: usize = 8;

const fn powers<const COUNT: usize>(first: u32) -> [u64; COUNT] {
    let mut bounds = [0; COUNT];
    let mut at = 0;
    while at < COUNT {
        bounds[at] = 1 << (first + 2 * at as u32);
        at += 1;
    }
    bounds
}

pub(super) struct Histogram {
    bounds: &'static [u64],
    shards: Vec<Shard>,
}

/// The values of some threads, in cache lines of its own.
#[repr(align(128))]
struct Shard {
    sum: Count,
    /// One more than there are bounds.
    counts: Vec<Count>,
}

/// All values added, for another one with these bounds.
#[derive(Serialize, Deserialize)]
pub(super) struct Added {
    sum: u64,
    /// One more than there are bounds.
    counts: Vec<u64>,
}

impl Added {
    pub(super) fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    fn count(&self, at: usize) -> u64 {
        self.counts.get(at).copied().unwrap_or_default()
    }
}

impl Histogram {
    pub(super) fn new(bounds: &'static [u64]) -> Self {
        let shard = |_| Shard {
            sum: Count::default(),
            counts: (0..=bounds.len()).map(|_| Count::default()).collect(),
        };
        Self { bounds, shards: (0..SHARDS).map(shard).collect() }
    }

    pub(super) fn add(&self, value: u64) {
        let shard = &self.shards[this_shard()];
        shard.counts[self.bounds.partition_point(|bound| *bound < value)].one();
        shard.sum.add(value);
    }

    /// The distribution of all values, multiplied by `unit`.
    pub(super) fn distribution(&self, unit: f64) -> Distribution {
        let added = self.added();
        let bounds = self.bounds.iter().map(|bound| Some(*bound as f64 * unit)).chain([None]);
        let buckets = bounds.enumerate().map(|(at, bound)| (bound, added.count(at))).collect();
        Distribution { sum: added.sum as f64 * unit, buckets }
    }

    /// All values added.
    pub(super) fn added(&self) -> Added {
        let count = |at: usize| self.shards.iter().map(|shard| shard.counts[at].get()).sum();
        Added {
            sum: self.shards.iter().map(|shard| shard.sum.get()).sum(),
            counts: (0..=self.bounds.len()).map(count).collect(),
        }
    }

    /// Whether the values of another one can be added here.
    pub(super) fn fits(&self, added: &Added) -> bool {
        added.counts.len() == self.bounds.len() + 1
    }

    /// Adds the values of another one that [fits](Self::fits).
    pub(super) fn add_all(&self, added: &Added) {
        let [shard, ..] = &self.shards[..] else { return };
        shard.counts.iter().zip(&added.counts).for_each(|(count, more)| count.add(*more));
        shard.sum.add(added.sum);
    }
}

/// The shard of this thread.
fn this_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    MINE.with(|mine| *mine)
}
