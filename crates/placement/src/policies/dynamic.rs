//! `dynamic`: threads mapped to tiers as `static` does, and remapped between
//! neighbours at each epoch (PolyStore §4.5.1, Algorithm 1).
//!
//! The numbers in the comments are the algorithm's lines. Where its text leaves
//! a choice, `docs/placement.md` documents ours.

use super::threads::{THREADS, ThreadMap};
use crate::context::Context;
use crate::epoch::{Epoch, TierEpoch};
use crate::policy::Policy;
use crate::policy_config::PolicyKind;
use crate::policy_setting::{Setting, SettingKind};
use crate::sync::Mutex;
use braid_contract::{Mover, TierId};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const KIND: PolicyKind = PolicyKind {
    name: "dynamic",
    summary: "the same, remapped each epoch",
    settings: &[THREADS, TIER_THRESHOLD, GLOBAL_THRESHOLD],
    home_watermark: None,
    movers: &[Mover::Promote, Mover::Demote],
    make: |settings, _| {
        let thresholds = [settings.share(TIER_THRESHOLD.key)?, settings.share(GLOBAL_THRESHOLD.key)?];
        Some(Arc::new(Dynamic::new(settings.threads(THREADS.key)?, thresholds)))
    },
};

/// Change of one tier's bandwidth that counts.
const TIER_THRESHOLD: Setting = Setting { key: "threshold", kind: THRESHOLD };
/// Change of the bandwidth of all together that counts.
const GLOBAL_THRESHOLD: Setting = Setting { key: "global-threshold", kind: THRESHOLD };
const THRESHOLD: SettingKind =
    SettingKind::Percent { default: 50.0, why_not_zero: "at 0% every change would count" };

/// Share of the cumulative bandwidth that is nearly all of it.
const NEARLY: f64 = 0.9;

pub(super) struct Dynamic {
    threads: u32,
    /// Changes that count, as shares: of a tier's bandwidth, of all tiers'.
    thresholds: [f64; 2],
    inner: Mutex<Inner>,
}

struct Inner {
    map: ThreadMap,
    /// State of each pair of neighbours, by the faster and the slower tier.
    states: BTreeMap<(TierId, TierId), State>,
    /// Bandwidths of the last epoch.
    last: BTreeMap<TierId, f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    LowToHigh,
    HighToLow,
    Stable,
}

/// A bandwidth compared with that of the last epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Improved,
    Dropped,
    None,
}

/// The step for the threads of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    OneUp,
    OneDown,
    Reset,
    None,
}

impl Dynamic {
    pub(super) fn new(threads: u32, thresholds: [f64; 2]) -> Self {
        let inner = Inner { map: ThreadMap::new(threads), states: BTreeMap::new(), last: BTreeMap::new() };
        Self { threads, thresholds, inner: Mutex::new(inner) }
    }
}

impl Policy for Dynamic {
    fn usual_movers(&self) -> &'static [Mover] {
        KIND.movers
    }

    fn describe(&self) -> String {
        let [tier, global] = self.thresholds.map(|threshold| threshold * 100.0);
        format!(
            "dynamic, thresholds {tier}% and {global}%, {} threads saturate a tier unless more is known",
            self.threads
        )
    }

    fn place(&self, context: &Context<'_>) -> Option<TierId> {
        self.inner.lock().map.place(context)
    }

    fn placed(&self, context: &Context<'_>, _tier: TierId) {
        self.inner.lock().map.placed(context);
    }

    fn remaps(&self) -> Option<u64> {
        Some(self.inner.lock().map.remaps())
    }

    /// PolyPlacement (1 to 5).
    fn epoch(&self, epoch: &Epoch) {
        let (inner, tiers) = (&mut *self.inner.lock(), &epoch.tiers);
        inner.map.epoch(epoch.nanos, tiers);
        let now: BTreeMap<TierId, f64> =
            tiers.iter().map(|tier| (tier.id, tier.applications_rate())).collect();
        let sum = |rates: &BTreeMap<TierId, f64>| rates.values().sum::<f64>();
        let dropped = change(sum(&now), sum(&inner.last), self.thresholds[1]) == Change::Dropped;
        let begins_anew = dropped || sum(&now) > 0.0 && is_below_cumulative(tiers);
        for pair in by_bandwidth(tiers).windows(2) {
            let (high, low) = (pair[0], pair[1]);
            let at = |rates: &BTreeMap<TierId, f64>| rates.get(&high).copied().unwrap_or(0.0);
            let of_high = change(at(&now), at(&inner.last), self.thresholds[0]);
            let state = inner.states.entry((high, low)).or_default();
            let (next, step) = next(*state, of_high, begins_anew);
            *state = next;
            match step {
                Step::OneUp => inner.map.remap_one(low, high),
                Step::OneDown => inner.map.remap_one(high, low),
                Step::Reset => inner.map.reset(tiers),
                Step::None => {}
            }
        }
        inner.last = now;
    }
}

/// Whether all tiers together do less than they can do of such work, reads and
/// writes in the same proportion (PolyStore §4.5.1, the end).
fn is_below_cumulative(tiers: &[TierEpoch]) -> bool {
    let done = [0, 1].map(|at: usize| tiers.iter().map(|tier| tier.load[at].rate).sum::<f64>());
    let sum = done[0] + done[1];
    let cost = |tier: &TierEpoch| done[0] / tier.bandwidth[0] + done[1] / tier.bandwidth[1];
    let possible: f64 = tiers.iter().map(|tier| sum / cost(tier)).sum();
    sum < NEARLY * possible
}

/// DynamicPlacement (6 to 31) for one pair. `begins_anew` says that all tiers
/// together dropped, or do less than they can.
fn next(state: State, high: Change, begins_anew: bool) -> (State, Step) {
    match (state, high) {
        // 8 to 15
        (State::LowToHigh, Change::Improved) => (state, Step::OneUp),
        (State::LowToHigh, Change::Dropped) => (State::HighToLow, Step::OneDown),
        // 16 to 23
        (State::HighToLow, Change::Improved) => (state, Step::OneDown),
        (State::HighToLow, Change::Dropped) => (State::LowToHigh, Step::OneUp),
        (State::LowToHigh | State::HighToLow, Change::None) => (State::Stable, Step::None),
        // 24 to 30
        (State::Stable, Change::Improved) => (state, Step::None),
        (State::Stable, Change::Dropped) => (State::LowToHigh, Step::None),
        (State::Stable, Change::None) if begins_anew => (State::LowToHigh, Step::Reset),
        (State::Stable, Change::None) => (state, Step::None),
    }
}

/// From nothing to something is an improvement by any share.
fn change(now: f64, last: f64, threshold: f64) -> Change {
    if now > last * (1.0 + threshold) {
        Change::Improved
    } else if now < last * (1.0 - threshold) {
        Change::Dropped
    } else {
        Change::None
    }
}

/// The tiers by estimated write bandwidth, fastest first.
fn by_bandwidth(tiers: &[TierEpoch]) -> Vec<TierId> {
    let mut ordered: Vec<&TierEpoch> = tiers.iter().collect();
    ordered.sort_by(|a, b| b.bandwidth[1].total_cmp(&a.bandwidth[1]));
    ordered.into_iter().map(|tier| tier.id).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{place_by, tier_epoch, view};
    use super::*;
    use crate::epoch::EpochLoad;

    const TIERS: [TierId; 2] = [TierId(0), TierId(1)];

    /// Eight threads, four on each of two tiers.
    fn dynamic() -> Dynamic {
        let dynamic = Dynamic::new(4, [0.5, 0.5]);
        let tiers = [view(0, 200.0), view(1, 60.0)];
        (1..=8).for_each(|thread| assert!(place_by(&dynamic, thread, &tiers).is_some()));
        dynamic
    }

    fn epoch(dynamic: &Dynamic, rates: [f64; 2]) -> (State, Vec<usize>) {
        let tier = |id: u8| TierEpoch {
            load: [EpochLoad::default(), EpochLoad { rate: rates[usize::from(id)], ..EpochLoad::default() }],
            ..tier_epoch(id, [200.0, 60.0][usize::from(id)])
        };
        dynamic.epoch(&Epoch { nanos: 200_000_000, tiers: vec![tier(0), tier(1)] });
        let inner = dynamic.inner.lock();
        (inner.states[&(TIERS[0], TIERS[1])], inner.map.counts(&TIERS))
    }

    #[test]
    fn threads_go_up_as_long_as_that_improves_and_come_back_when_it_does_not() {
        let dynamic = dynamic();
        assert_eq!(epoch(&dynamic, [50.0, 60.0]), (State::LowToHigh, vec![5, 3]));
        assert_eq!(epoch(&dynamic, [100.0, 60.0]), (State::LowToHigh, vec![6, 2]));
        assert_eq!(epoch(&dynamic, [40.0, 60.0]), (State::HighToLow, vec![5, 3]));
        assert_eq!(epoch(&dynamic, [70.0, 60.0]), (State::HighToLow, vec![4, 4]));
        assert_eq!(epoch(&dynamic, [30.0, 60.0]), (State::LowToHigh, vec![5, 3]));
        assert_eq!(epoch(&dynamic, [31.0, 60.0]), (State::Stable, vec![5, 3]));
        assert_eq!(epoch(&dynamic, [90.0, 60.0]), (State::Stable, vec![5, 3]));
    }

    #[test]
    fn what_is_stable_begins_anew_when_bandwidth_drops() {
        let dynamic = dynamic();
        assert_eq!(epoch(&dynamic, [10.0, 90.0]).0, State::LowToHigh);
        assert_eq!(epoch(&dynamic, [10.0, 90.0]), (State::Stable, vec![5, 3]));
        // A change of the sum only: the initial mapping.
        assert_eq!(epoch(&dynamic, [10.0, 20.0]), (State::LowToHigh, vec![4, 4]));
        assert_eq!(epoch(&dynamic, [10.0, 20.0]).0, State::Stable);
        assert_eq!(epoch(&dynamic, [4.0, 20.0]).0, State::LowToHigh);
    }

    #[test]
    fn threads_of_the_slower_tier_take_the_place_of_those_that_end() {
        let dynamic = dynamic();
        let both = [view(0, 200.0), view(1, 60.0)];
        // Those of the faster tier place nothing more.
        let slow: Vec<u32> = (5..=8).collect();
        for at in 0..20 {
            let rates = if at < 3 { [180.0, 60.0] } else { [0.0, 60.0] };
            slow.iter().for_each(|thread| assert!(place_by(&dynamic, *thread, &both).is_some()));
            epoch(&dynamic, rates);
        }
        assert_eq!(dynamic.inner.lock().map.counts(&TIERS), [4, 0]);
        assert!(slow.iter().all(|thread| place_by(&dynamic, *thread, &both) == Some(TIERS[0])));
        // One went up when the work began, and came down again.
        assert_eq!(dynamic.remaps(), Some(2 + 4));
    }

    #[test]
    fn nothing_is_mapped_anew_while_all_tiers_do_what_they_can() {
        for (rates, below) in [([190.0, 55.0], false), ([200.0, 0.0], true), ([0.0, 60.0], true)] {
            let of = |id: u8| TierEpoch {
                load: [
                    EpochLoad::default(),
                    EpochLoad { rate: rates[usize::from(id)], ..EpochLoad::default() },
                ],
                ..tier_epoch(id, [200.0, 60.0][usize::from(id)])
            };
            assert_eq!(is_below_cumulative(&[of(0), of(1)]), below, "{rates:?}");
        }
    }

    #[test]
    fn thresholds_are_shares() {
        assert_eq!(change(151.0, 100.0, 0.5), Change::Improved);
        assert_eq!(change(150.0, 100.0, 0.5), Change::None);
        assert_eq!(change(50.0, 100.0, 0.5), Change::None);
        assert_eq!(change(49.0, 100.0, 0.5), Change::Dropped);
        assert_eq!(change(0.0, 0.0, 0.5), Change::None);
    }
}
