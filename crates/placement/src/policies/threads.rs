//! The mapping of threads to tiers, shared by `static` and `dynamic` (PolyStore
//! §4.4.2).

use crate::context::{Context, TierView};
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
}

#[derive(Clone, Copy, Debug)]
struct Mapped {
    tier: TierId,
    /// Start of the epoch in which it last placed something.
    seen_ns: u64,
}

/// A thread that places nothing for this long loses its place: one that fills a
/// range of a slow tier is not idle.
const IDLE_NS: u64 = 3_000_000_000;
/// Most threads that are tracked.
const THREADS_MAX: usize = 4096;

impl ThreadMap {
    pub(super) fn new(threads: u32) -> Self {
        Self { threads, now_ns: 0, mapped: BTreeMap::new() }
    }

    /// The tier that the thread is mapped to, or would be.
    pub(super) fn wanted(&self, context: &Context<'_>) -> Option<TierId> {
        let mapped = self.mapped.get(&context.stream()).map(|mapped| mapped.tier);
        let still_there = mapped.filter(|tier| context.tier(*tier).is_some());
        still_there.or_else(|| self.initial(context.tiers))
    }

    /// The fastest tier that has fewer threads than saturate it; the slowest
    /// takes the rest.
    fn initial(&self, tiers: &[TierView]) -> Option<TierId> {
        let ordered = fastest_first(tiers);
        let has_place = |tier: &&&TierView| {
            let most = tier.saturating.unwrap_or(self.threads).max(1) as usize;
            self.count(tier.id) < most
        };
        let tier = ordered.iter().find(has_place).or(ordered.last())?;
        Some(tier.id)
    }

    fn count(&self, tier: TierId) -> usize {
        self.mapped.values().filter(|mapped| mapped.tier == tier).count()
    }

    /// The tier for a thread's ranges: its own, or a slower one with room, or
    /// any with room.
    pub(super) fn place(&self, context: &Context<'_>) -> Option<TierId> {
        let wanted = self.wanted(context)?;
        let ordered = fastest_first(context.tiers);
        let at = ordered.iter().position(|tier| tier.id == wanted)?;
        let mut turns = ordered[at..].iter().chain(ordered[..at].iter().rev());
        turns.find(|tier| tier.has_room).map(|tier| tier.id)
    }

    /// Notes that the thread placed something: it is mapped from now on.
    pub(super) fn placed(&mut self, context: &Context<'_>) {
        let Some(tier) = self.wanted(context) else { return };
        let key = context.stream();
        if self.mapped.len() < THREADS_MAX || self.mapped.contains_key(&key) {
            self.mapped.insert(key, Mapped { tier, seen_ns: self.now_ns });
        }
    }

    /// Ends an epoch of so many nanoseconds: idle threads lose their places,
    /// except those that placed something in it.
    pub(super) fn epoch(&mut self, nanos: u64) {
        let began_ns = self.now_ns;
        self.now_ns += nanos;
        let now_ns = self.now_ns;
        self.mapped.retain(|_, mapped| mapped.seen_ns == began_ns || mapped.seen_ns + IDLE_NS > now_ns);
    }

    /// Maps one thread from a tier to another: the one that placed something
    /// last.
    pub(super) fn remap_one(&mut self, from: TierId, to: TierId) {
        let on = self.mapped.iter().filter(|(_, mapped)| mapped.tier == from);
        if let Some(key) = on.max_by_key(|(key, mapped)| (mapped.seen_ns, **key)).map(|(key, _)| *key)
            && let Some(mapped) = self.mapped.get_mut(&key)
        {
            mapped.tier = to;
        }
    }

    /// Forgets all threads: each is mapped again when it places something.
    pub(super) fn reset(&mut self) {
        self.mapped.clear();
    }

    #[cfg(test)]
    pub(super) fn counts(&self, tiers: &[TierId]) -> Vec<usize> {
        tiers.iter().map(|tier| self.count(*tier)).collect()
    }
}

/// The tiers by write bandwidth, fastest first.
pub(super) fn fastest_first(tiers: &[TierView]) -> Vec<&TierView> {
    let mut ordered: Vec<&TierView> = tiers.iter().collect();
    ordered.sort_by(|a, b| b.bandwidth[1].total_cmp(&a.bandwidth[1]));
    ordered
}

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;
    use crate::context::{Origin, WriteSpan};
    use crate::credits::Credits;

    #[test]
    fn a_thread_gives_its_place_back_after_the_same_time_whatever_an_epoch_is() {
        let (tiers, credits) = ([view(0, 1.0)], Credits::new(0, 1));
        let origin = Origin { thread: 1, ..Origin::default() };
        let context = Context::for_tests(origin, WriteSpan::default(), &credits, &tiers);
        for (epoch_ms, stays) in [(10, 299), (200, 14), (5000, 1)] {
            let mut map = ThreadMap::new(1);
            map.placed(&context);
            let mut epoch = || {
                map.epoch(epoch_ms * 1_000_000);
                map.counts(&[TierId(0)]) == [1]
            };
            assert!((0..stays).all(|_| epoch()) && !epoch(), "{epoch_ms}");
        }
    }
}
