//! The memory that the tiers of a volume share.

use super::RANGE_DEFAULT;
use super::tier::{Admission, CacheFigures, TierCache};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// After so many ranges that were read from stores, the parts are dealt out anew.
const DEALT_EVERY: u64 = 256;
/// A tier that has a part gets this share of the memory at least, one in so many.
const LEAST: u64 = 16;

/// A tier's part of the memory.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum CacheShare {
    /// As much as it pays: the more, the longer reads from the tier take, and the more
    /// there are. None if the tier is read as fast as memory.
    #[default]
    Auto,
    /// None.
    Off,
    /// This share of all, above 0 and at most 1, whatever the tier is like.
    Part(f64),
}

/// The memory, and each tier's part of it. At first it is 0, and all reads pass
/// by.
pub struct CacheMemory {
    range: u64,
    budget: AtomicU64,
    /// Ranges that were read from stores.
    read: AtomicU64,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    shares: BTreeMap<String, CacheShare>,
    tiers: Vec<Weak<TierCache>>,
}

impl CacheMemory {
    /// A cache in ranges of so many bytes, a power of two.
    #[must_use]
    pub fn new(range: u64) -> Arc<Self> {
        let range = if range.is_power_of_two() { range } else { RANGE_DEFAULT };
        let (budget, read) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { range, budget, read, parts: Mutex::default() })
    }

    /// Bytes of a range.
    #[must_use]
    pub fn range(&self) -> u64 {
        self.range
    }

    /// Bytes that all tiers may use together.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// From now on, all tiers together may use so many bytes; with 0, all reads pass
    /// by.
    pub fn set_budget(&self, bytes: u64) {
        self.budget.store(bytes, Ordering::Relaxed);
        self.deal();
    }

    /// The parts of tiers by name; others are [`CacheShare::Auto`].
    pub fn set_shares(&self, shares: BTreeMap<String, CacheShare>) {
        self.parts.lock().shares = shares;
        self.deal();
    }

    /// A part for one more tier.
    pub(super) fn join(&self, tier: &str) -> Arc<TierCache> {
        let part = Arc::new(TierCache::new(tier.to_owned()));
        self.parts.lock().tiers.push(Arc::downgrade(&part));
        self.deal();
        part
    }

    /// Its figures for each tier.
    #[must_use]
    pub fn figures(&self) -> Vec<(String, CacheFigures)> {
        let tiers: Vec<Arc<TierCache>> = self.parts.lock().tiers.iter().filter_map(Weak::upgrade).collect();
        tiers.iter().map(|tier| (tier.name.clone(), tier.figures())).collect()
    }

    /// Some ranges were read from stores.
    pub(super) fn were_read(&self, count: u64) {
        let before = self.read.fetch_add(count, Ordering::Relaxed);
        if before / DEALT_EVERY != (before + count) / DEALT_EVERY {
            self.deal();
        }
    }

    /// Deals the memory out.
    fn deal(&self) {
        // Outside the lock: a tier that gives memory back keeps no other one from its own.
        for (tier, admission, bytes) in self.dealt() {
            tier.admit(admission);
            tier.set_limit(bytes);
        }
    }

    /// The memory due to each tier.
    fn dealt(&self) -> Vec<(Arc<TierCache>, Admission, u64)> {
        let budget = self.budget();
        let mut parts = self.parts.lock();
        parts.tiers.retain(|tier| tier.strong_count() > 0);
        let tiers: Vec<Arc<TierCache>> = parts.tiers.iter().filter_map(Weak::upgrade).collect();
        if budget == 0 {
            return tiers.into_iter().map(|tier| (tier, Admission::Never, 0)).collect();
        }
        let (mut left, mut dealt, mut by_weight) = (budget, Vec::new(), Vec::new());
        for tier in tiers {
            match parts.shares.get(&tier.name).copied().unwrap_or_default() {
                CacheShare::Off => dealt.push((tier, Admission::Never, 0)),
                CacheShare::Part(part) => {
                    let bytes = ((budget as f64 * part) as u64).min(left);
                    left -= bytes;
                    dealt.push((tier, Admission::Always, bytes));
                }
                CacheShare::Auto => {
                    let weight = tier.weight();
                    by_weight.push((tier, weight));
                }
            }
        }
        let caching = by_weight.iter().filter(|(_, weight)| *weight > 0.0).count() as u64;
        let least = left.checked_div(caching).map_or(0, |each| each.min(left / LEAST));
        let sum: f64 = by_weight.iter().map(|(_, weight)| weight).sum();
        let by_weight = by_weight.into_iter().map(|(tier, weight)| {
            let more = (left - least * caching) as f64 * weight / sum.max(1.0);
            (tier, Admission::Slower, if weight > 0.0 { least + more as u64 } else { 0 })
        });
        dealt.extend(by_weight);
        dealt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A memory with three tiers, of which reads take so many microseconds.
    fn three() -> (Arc<CacheMemory>, Vec<Arc<TierCache>>) {
        let memory = CacheMemory::new(4096);
        memory.set_budget(1 << 20);
        let tier = |(name, micros): (&str, u64)| {
            let tier = Arc::new(TierCache::new(name.to_owned()));
            memory.parts.lock().tiers.push(Arc::downgrade(&tier));
            (0..100).for_each(|_| tier.was_read(4096, Duration::from_micros(micros)));
            tier
        };
        let tiers = [("slow", 400), ("slower", 1600), ("memory", 3)].map(tier).to_vec();
        memory.deal();
        (memory, tiers)
    }

    fn of(memory: &CacheMemory, tier: &str) -> CacheFigures {
        memory.figures().into_iter().find(|(name, _)| name == tier).unwrap().1
    }

    #[test]
    fn slower_tiers_get_more_and_those_of_memory_none() {
        let (memory, tiers) = three();
        let limits = ["slow", "slower", "memory"].map(|tier| of(&memory, tier).limit);
        assert_eq!(limits[2], 0);
        assert!(limits[0] >= (1 << 20) / LEAST && limits[1] > 2 * limits[0], "{limits:?}");
        assert!(limits.iter().sum::<u64>() <= 1 << 20);
        assert!(of(&memory, "memory").passes && !of(&memory, "slow").passes);
        // It is not memory any more; and the one that is used gets more than before.
        (0..100).for_each(|_| tiers[2].was_read(4096, Duration::from_micros(90)));
        (0..4000).for_each(|_| tiers[0].was_passed());
        memory.deal();
        let now = ["slow", "slower", "memory"].map(|tier| of(&memory, tier).limit);
        assert!(now[2] > 0 && now[0] > limits[0] && now[0] > now[1], "{now:?}");
    }

    #[test]
    fn shares_that_are_given_count_whatever_the_tiers_are_like() {
        let (memory, _tiers) = three();
        let shares = [("memory", CacheShare::Part(0.5)), ("slower", CacheShare::Off)];
        memory.set_shares(shares.map(|(name, share)| (name.to_owned(), share)).into());
        assert_eq!((of(&memory, "memory").limit, of(&memory, "memory").passes), (1 << 19, false));
        assert_eq!((of(&memory, "slower").limit, of(&memory, "slower").passes), (0, true));
        assert_eq!(of(&memory, "slow").limit, 1 << 19);
        memory.set_budget(0);
        assert!(memory.figures().iter().all(|(_, tier)| tier.passes && tier.limit == 0));
    }

    #[test]
    fn a_tier_that_is_gone_takes_no_part() {
        let (memory, tiers) = three();
        drop(tiers);
        let left = Arc::new(TierCache::new("left".to_owned()));
        memory.parts.lock().tiers.push(Arc::downgrade(&left));
        memory.deal();
        assert_eq!(memory.figures().len(), 1);
        assert_eq!(of(&memory, "left").limit, 1 << 20);
    }
}
