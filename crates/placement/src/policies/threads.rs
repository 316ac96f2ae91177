//! The mapping of threads to tiers, shared by `static` and `dynamic` (PolyStore
//! §4.4.2).

use crate::context::{Context, TierView};
use crate::epoch::TierEpoch;
use crate::policy_setting::{Setting, SettingKind};
use braid_contract::TierId;
use std::collections::BTreeMap;

/// Number of threads that saturate a tier, if unknown. More than the maximum
/// are never needed.
pub(super) const THREADS: Setting =
    Setting { key: "threads", kind: SettingKind::Threads { default: 8, max: 1024 } };

/// The mapping of threads to tiers.
#[derive(Debug)]
pub(super) struct ThreadMap {
    /// Number of threads that saturate a tier, if unknown.
    threads: u32,
    /// The end of the last epoch, in nanoseconds since the first.
    now_ns: u64,
    mapped: BTreeMap<u64, Mapped>,
    remaps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mapped {
    tier: TierId,
    /// Start of the epoch in which it last placed something.
    seen_ns: u64,
    /// Bytes that it placed then.
    bytes: u64,
}

/// A tier's part in the mapping.
#[derive(Clone, Copy, Debug)]
struct Target {
    id: TierId,
    /// Bytes a second that it can write.
    bandwidth: f64,
    /// Threads that saturate it, if known.
    saturating: Option<u32>,
}

/// A thread keeps its place for so many times as long as it takes to write its
/// placed data,
const TURNS: f64 = 3.0;
/// but not for less than this, in nanoseconds,
const IDLE_MIN_NS: u64 = 400_000_000;
/// nor for more.
const IDLE_MAX_NS: u64 = 3_000_000_000;
/// Most threads that are tracked.
const THREADS_MAX: usize = 4096;

impl ThreadMap {
    pub(super) fn new(threads: u32) -> Self {
        Self { threads, now_ns: 0, mapped: BTreeMap::new(), remaps: 0 }
    }

    /// The tier that the thread is mapped to, or would be; the tiers are
    /// `targets`, fastest first.
    fn wanted(&self, context: &Context<'_>, targets: &[Target]) -> Option<TierId> {
        let mapped = self.mapped.get(&context.stream()).map(|mapped| mapped.tier);
        let still_there = mapped.filter(|tier| context.tier(*tier).is_some());
        still_there.or_else(|| self.initial(targets, |tier| self.count(tier)))
    }

    /// The tier for one more thread: the fastest that has fewer than saturate
    /// it; when all have as many, the one that has most bandwidth for each of
    /// its threads.
    fn initial(&self, targets: &[Target], count: impl Fn(TierId) -> usize) -> Option<TierId> {
        let has_place = |target: &&Target| {
            let most = target.saturating.unwrap_or(self.threads).max(1) as usize;
            count(target.id) < most
        };
        let share = |target: &Target| target.bandwidth / (count(target.id) + 1) as f64;
        let most = || targets.iter().rev().max_by(|a, b| share(a).total_cmp(&share(b)));
        targets.iter().find(has_place).or_else(most).map(|target| target.id)
    }

    fn count(&self, tier: TierId) -> usize {
        self.mapped.values().filter(|mapped| mapped.tier == tier).count()
    }

    /// The tier for a thread's ranges: its own, or a slower one with room, or
    /// any with room.
    pub(super) fn place(&self, context: &Context<'_>) -> Option<TierId> {
        let ordered = fastest_first(context.tiers.iter().map(Target::of_view));
        let wanted = self.wanted(context, &ordered)?;
        let at = ordered.iter().position(|target| target.id == wanted)?;
        let mut turns = ordered[at..].iter().chain(ordered[..at].iter().rev()).map(|target| target.id);
        turns.find(|tier| context.tier(*tier).is_some_and(|tier| tier.has_room))
    }

    /// Notes that the thread placed something: it is mapped from now on.
    pub(super) fn placed(&mut self, context: &Context<'_>) {
        let targets = fastest_first(context.tiers.iter().map(Target::of_view));
        let Some(tier) = self.wanted(context, &targets) else { return };
        let key = context.stream();
        if self.mapped.len() < THREADS_MAX || self.mapped.contains_key(&key) {
            let bytes = context.span.new_bytes;
            self.mapped.insert(key, Mapped { tier, seen_ns: self.now_ns, bytes });
        }
    }

    /// Ends an epoch of so many nanoseconds: idle threads lose their places,
    /// except those that placed something in it. One that fills a range of a
    /// slow tier is not idle.
    pub(super) fn epoch(&mut self, nanos: u64, tiers: &[TierEpoch]) {
        let began_ns = self.now_ns;
        self.now_ns += nanos;
        let now_ns = self.now_ns;
        let mut ns_for_byte = BTreeMap::new();
        for tier in tiers {
            let turn = 1e9 * TURNS * self.count(tier.id) as f64 / tier.bandwidth[1].max(1.0);
            ns_for_byte.insert(tier.id, turn);
        }
        self.mapped.retain(|_, mapped| {
            let takes_ns =
                ns_for_byte.get(&mapped.tier).map_or(u64::MAX, |ns| (ns * mapped.bytes as f64) as u64);
            let idle_ns = takes_ns.clamp(IDLE_MIN_NS, IDLE_MAX_NS);
            mapped.seen_ns == began_ns || mapped.seen_ns + idle_ns > now_ns
        });
    }

    /// Maps one thread from a tier to another: the one that placed something
    /// last.
    pub(super) fn remap_one(&mut self, from: TierId, to: TierId) {
        let on = self.mapped.iter().filter(|(_, mapped)| mapped.tier == from);
        if let Some(key) = on.max_by_key(|(key, mapped)| (mapped.seen_ns, **key)).map(|(key, _)| *key)
            && let Some(mapped) = self.mapped.get_mut(&key)
        {
            mapped.tier = to;
            self.remaps += 1;
        }
    }

    /// Maps all threads as if they began now. A thread stays on its tier if that
    /// is to have as many.
    pub(super) fn reset(&mut self, tiers: &[TierEpoch]) {
        let targets = fastest_first(tiers.iter().map(Target::of_epoch));
        let mut places: BTreeMap<TierId, usize> = BTreeMap::new();
        for _ in 0..self.mapped.len() {
            let Some(tier) = self.initial(&targets, |tier| places.get(&tier).copied().unwrap_or(0)) else {
                return;
            };
            *places.entry(tier).or_default() += 1;
        }
        let mut homeless = Vec::new();
        for (key, mapped) in &self.mapped {
            match places.get_mut(&mapped.tier).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => homeless.push(*key),
            }
        }
        let free = places.into_iter().flat_map(|(tier, left)| std::iter::repeat_n(tier, left));
        for (key, tier) in homeless.into_iter().zip(free) {
            if let Some(mapped) = self.mapped.get_mut(&key) {
                mapped.tier = tier;
                self.remaps += 1;
            }
        }
    }

    /// How often a thread was mapped to another tier.
    pub(super) fn remaps(&self) -> u64 {
        self.remaps
    }

    #[cfg(test)]
    pub(super) fn counts(&self, tiers: &[TierId]) -> Vec<usize> {
        tiers.iter().map(|tier| self.count(*tier)).collect()
    }
}

impl Target {
    fn of_view(tier: &TierView) -> Self {
        Self { id: tier.id, bandwidth: tier.bandwidth[1], saturating: tier.saturating }
    }

    fn of_epoch(tier: &TierEpoch) -> Self {
        Self { id: tier.id, bandwidth: tier.bandwidth[1], saturating: tier.saturating }
    }
}

/// The tiers by write bandwidth, fastest first.
fn fastest_first(targets: impl Iterator<Item = Target>) -> Vec<Target> {
    let mut ordered: Vec<Target> = targets.collect();
    ordered.sort_by(|a, b| b.bandwidth.total_cmp(&a.bandwidth));
    ordered
}

#[cfg(test)]
mod tests {
    use super::super::tests::{tier_epoch, view};
    use super::*;
    use crate::context::{Origin, WriteSpan};
    use crate::credits::Credits;

    /// A thread places a range of 2 MiB.
    fn placed(map: &mut ThreadMap, thread: u32, tiers: &[TierView]) {
        let (origin, credits) = (Origin { thread, ..Origin::default() }, Credits::new(0, 1));
        let span = WriteSpan { new_bytes: 2 << 20, ..WriteSpan::default() };
        map.placed(&Context::for_tests(origin, span, &credits, tiers));
    }

    #[test]
    fn a_thread_gives_its_place_back_after_the_same_time_whatever_an_epoch_is() {
        for (epoch_ms, stays) in [(10, 299), (200, 14), (5000, 1)] {
            let mut map = ThreadMap::new(1);
            placed(&mut map, 1, &[view(0, 1.0)]);
            let mut epoch = || {
                map.epoch(epoch_ms * 1_000_000, &[tier_epoch(0, 1.0)]);
                map.counts(&[TierId(0)]) == [1]
            };
            assert!((0..stays).all(|_| epoch()) && !epoch(), "{epoch_ms}");
        }
    }

    #[test]
    fn a_thread_keeps_its_place_while_its_range_is_being_filled() {
        let epochs = |threads: u32, bandwidth: f64| {
            let mut map = ThreadMap::new(64);
            (0..threads).for_each(|thread| placed(&mut map, thread, &[view(0, bandwidth)]));
            let mut epochs = 0;
            while map.counts(&[TierId(0)]) != [0] {
                map.epoch(200_000_000, &[tier_epoch(0, bandwidth)]);
                epochs += 1;
            }
            epochs
        };
        // A range takes 10 ms, 350 ms, 700 ms, and 2.7 s.
        assert_eq!([epochs(1, 200e6), epochs(10, 60e6), epochs(20, 60e6), epochs(32, 25e6)], [2, 6, 11, 15]);
    }

    #[test]
    fn more_threads_than_saturate_all_tiers_are_dealt_by_bandwidth() {
        let tiers = [view(0, 200.0), view(1, 60.0), view(2, 25.0)];
        for (threads, expected) in [(3, [2, 1, 0]), (6, [2, 2, 2]), (16, [11, 3, 2]), (32, [23, 7, 2])] {
            let mut map = ThreadMap::new(2);
            (1..=threads).for_each(|thread| placed(&mut map, thread, &tiers));
            assert_eq!(map.counts(&[0, 1, 2].map(TierId)), expected, "{threads}");
        }
    }

    #[test]
    fn a_reset_moves_no_more_threads_than_it_has_to() {
        let epochs = [tier_epoch(0, 200.0), tier_epoch(1, 60.0)];
        let mut map = ThreadMap::new(2);
        let tiers = [view(0, 200.0), view(1, 60.0)];
        (1..=8).for_each(|thread| placed(&mut map, thread, &tiers));
        let counts = |map: &ThreadMap| map.counts(&[TierId(0), TierId(1)]);
        assert_eq!(counts(&map), [6, 2]);
        map.reset(&epochs);
        assert_eq!((counts(&map), map.remaps()), (vec![6, 2], 0));
        (0..3).for_each(|_| map.remap_one(TierId(0), TierId(1)));
        assert_eq!((counts(&map), map.remaps()), (vec![3, 5], 3));
        map.reset(&epochs);
        assert_eq!((counts(&map), map.remaps()), (vec![6, 2], 6));
        map.reset(&[]);
        assert_eq!(counts(&map), [6, 2]);
    }
}
