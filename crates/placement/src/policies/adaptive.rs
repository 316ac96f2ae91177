//! `adaptive`: new ranges go to the tier that completes them soonest, and that
//! is due by the file's shares. `docs/placement.md` has the idea and its
//! measure.
//!
//! For each tier three waits are computed, in seconds, and the tier with the
//! least sum gets the ranges:
//!
//! - that of the file: its ranges on the tier so far, by the tier's share.
//!   Alone, this deals each file in proportion, which suits a single stream,
//!   and later reads of the file;
//! - that of the streams that write there now, each with about half a range to
//!   go. With many streams this outweighs the file's, and keeps every tier busy
//!   all the time, regardless of the files' shares;
//! - that of dirty data in memory which the tier still has to write: no
//!   operation waits for it, so no other figure includes it.
//!
//! A stream that waits for each operation, and is alone, goes to a single tier
//! where that is faster (`lone.rs`).
//!
//! The bandwidth of a tier is learned (`learn.rs`); a tier that was never used
//! fully gets more as long as others have too much.

use super::lone::Lone;
use crate::context::{Context, TierView};
use crate::epoch::{Epoch, TierEpoch};
use crate::per_tier::PerTier;
use crate::policy::Policy;
use crate::policy_config::PolicyKind;
use crate::sync::Mutex;
use braid_contract::{Mover, TierId};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const KIND: PolicyKind = PolicyKind {
    name: "adaptive",
    summary: "the tier that finishes soonest, and owes the file a range",
    settings: &[],
    home_watermark: None,
    movers: &[Mover::Demote, Mover::Balance],
    make: |_, _| Some(Arc::new(Adaptive::new())),
};

pub(super) struct Adaptive {
    state: Mutex<State>,
}

struct State {
    /// The tier on which each stream places ranges now.
    streams: BTreeMap<u64, Stream>,
    /// Estimated bytes that the streams still have to write to each tier.
    to_write: PerTier<f64>,
    /// Estimated dirty bytes in memory for each tier.
    behind: PerTier<f64>,
    boost: PerTier<Boost>,
    lone: Lone,
    /// Whether anything was placed in this epoch where tiers share it.
    placed: bool,
}

struct Stream {
    tier: TierId,
    /// Estimated bytes that it still has to write there.
    bytes: f64,
    /// Seconds until it is considered ended. The epoch in which it placed
    /// something does not count.
    left: f64,
    counted: bool,
}

/// Most streams that are tracked.
const STREAMS_MAX: usize = 4096;
/// Seconds that a stream is tracked beyond its estimated need.
const LINGER: f64 = 0.2;
/// Most seconds of dirty data that a tier may have in memory.
const BEHIND_SECONDS_MAX: f64 = 10.0;
/// Least busy share of the busiest tier that counts as load.
const LOADED: f64 = 0.8;
/// Share of a tier's bytes that must bypass the page cache for that to count.
const DIRECT_MIN: f64 = 0.5;
/// From this busy share on, a tier has no slack.
const NO_REST: f64 = 0.9;
/// Below this share, relative to the busiest, a tier could do more.
const IDLE: f64 = 0.6;
/// Number of epochs for which that must last, if the tier's bandwidth is known.
const IDLE_EPOCHS: u32 = 3;
/// First boost of such a tier; it doubles each epoch, up to a limit.
const STEP_FIRST: f64 = 0.05;
const STEP_MAX: f64 = 0.5;
/// The boost if its bandwidth is unknown.
const STEP_UNKNOWN: f64 = 1.0;
/// Highest total boost.
const FACTOR_MAX: f64 = 20.0;
/// Share of the boost that remains an epoch after its reason has gone.
const KEPT: f64 = 0.5;

/// Extra share of a tier that could do more than estimated. Its bandwidth is
/// learned only when it has enough to do, which this ensures.
#[derive(Clone, Copy, Debug)]
struct Boost {
    factor: f64,
    /// Number of epochs in which it could have done more.
    idle: u32,
}

impl Boost {
    const NONE: Self = Self { factor: 1.0, idle: 0 };

    /// The boost after an epoch in which the busiest tier was this busy, and in
    /// which ranges were placed or not.
    fn next(self, tier: &TierEpoch, busiest: f64, placed: bool) -> Self {
        let (seen, busy) = (tier.load[1], tier.load[1].busy);
        if busiest < LOADED || busy >= NO_REST {
            return Self { factor: 1.0 + (self.factor - 1.0) * KEPT, idle: 0 };
        }
        if busy >= IDLE * busiest {
            return Self { idle: 0, ..self };
        }
        if !placed || seen.rate == 0.0 && !tier.known {
            // There was no test: the data being written was placed long ago,
            // and more boost would have no effect before it is far too much.
            return self;
        }
        let idle = self.idle + 1;
        let step = match idle.checked_sub(IDLE_EPOCHS) {
            _ if !tier.known => STEP_UNKNOWN,
            None => 0.0,
            Some(more) => (STEP_FIRST * f64::from(more).exp2()).min(STEP_MAX),
        };
        Self { factor: (self.factor * (1.0 + step)).min(FACTOR_MAX), idle }
    }
}

impl Adaptive {
    pub(super) fn new() -> Self {
        let state = State {
            streams: BTreeMap::new(),
            to_write: PerTier::all(0.0),
            behind: PerTier::all(0.0),
            boost: PerTier::all(Boost::NONE),
            lone: Lone::new(),
            placed: false,
        };
        Self { state: Mutex::new(state) }
    }
}

impl Policy for Adaptive {
    fn usual_movers(&self) -> &'static [Mover] {
        KIND.movers
    }

    fn describe(&self) -> String {
        "adaptive".into()
    }

    fn place(&self, context: &Context<'_>) -> Option<TierId> {
        let state = self.state.lock();
        let candidates = context.tiers.iter().filter(|tier| tier.has_room);
        let best = state.best_alone(context);
        if best.is_some() && candidates.clone().any(|tier| Some(tier.id) == best) {
            return best;
        }
        let waits = candidates.map(|tier| (state.wait(context, tier), tier.id));
        waits.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, tier)| tier)
    }

    fn share(&self, tier: &TierView) -> f64 {
        share(tier) * self.state.lock().boost[tier.id].factor
    }

    fn placed(&self, context: &Context<'_>, tier: TierId) {
        let Some(view) = context.tier(tier) else { return };
        let state = &mut *self.state.lock();
        state.placed |= state.best_alone(context) != Some(tier);
        let (span, key) = (&context.span, context.stream());
        // A stream with scattered writes fills no range.
        let bytes = if span.appends() { span.new_bytes } else { span.new_bytes.min(2 * span.len) } as f64;
        state.end(key);
        if state.streams.len() < STREAMS_MAX {
            state.to_write[tier] += bytes / 2.0;
            let left = state.to_write[tier] * 4.0 / view.bandwidth[1] + LINGER;
            state.streams.insert(key, Stream { tier, bytes: bytes / 2.0, left, counted: false });
        }
        if context.origin.is_buffered() {
            let most = view.bandwidth[1] * BEHIND_SECONDS_MAX;
            state.behind[tier] = (state.behind[tier] + bytes).min(most);
        }
    }

    fn epoch(&self, epoch: &Epoch) {
        let (state, tiers) = (&mut *self.state.lock(), &epoch.tiers);
        state.end_old(epoch.seconds());
        state.lone.epoch(epoch, |tier| harmonic(tier.bandwidth));
        // Buffered writes say nothing about how busy a tier is.
        let own = tiers.iter().map(|tier| tier.load[1]).filter(|load| load.direct >= DIRECT_MIN);
        let busiest = own.map(|load| load.busy).fold(0.0, f64::max);
        let placed = std::mem::take(&mut state.placed);
        for tier in tiers {
            let done = tier.bandwidth[1] * epoch.seconds();
            state.behind[tier.id] = (state.behind[tier.id] - done).max(0.0);
            state.boost[tier.id] = state.boost[tier.id].next(tier, busiest, placed);
        }
    }
}

impl State {
    /// Seconds until `tier` would complete the ranges of `context`, including
    /// earlier work.
    fn wait(&self, context: &Context<'_>, tier: &TierView) -> f64 {
        let boost = self.boost[tier.id].factor;
        let own = self.streams.get(&context.stream()).filter(|own| own.tier == tier.id);
        let streams = self.to_write[tier.id] - own.map_or(0.0, |own| own.bytes);
        let before = streams.max(tier.queued as f64) + self.behind[tier.id];
        let file = context.credits.late_after(tier.id, context.span.new_bytes, share(tier) * boost);
        file + before / (tier.bandwidth[1] * boost)
    }

    /// The tier for the stream of `context` alone, if it is and that matters. Data
    /// in memory is written to all tiers at the same time.
    fn best_alone(&self, context: &Context<'_>) -> Option<TierId> {
        if context.origin.is_buffered() {
            return None;
        }
        let own = usize::from(self.streams.contains_key(&context.stream()));
        self.lone.best(self.streams.len() - own)
    }

    fn end(&mut self, key: u64) {
        if let Some(stream) = self.streams.remove(&key) {
            self.to_write[stream.tier] = (self.to_write[stream.tier] - stream.bytes).max(0.0);
        }
    }

    /// Ends streams after an epoch of so many seconds.
    fn end_old(&mut self, seconds: f64) {
        for stream in self.streams.values_mut() {
            if std::mem::replace(&mut stream.counted, true) {
                stream.left -= seconds;
            }
        }
        let is_old = |(_, stream): &(&u64, &Stream)| stream.left <= 0.0;
        let old: Vec<u64> = self.streams.iter().filter(is_old).map(|(key, _)| *key).collect();
        old.into_iter().for_each(|key| self.end(key));
        if self.streams.is_empty() {
            // Avoids the drift of sums of fractions.
            self.to_write = PerTier::all(0.0);
        }
    }
}

/// The tier's share of a file relative to the others: if writing and reading
/// need different shares, the one that makes both together fastest.
fn share(tier: &TierView) -> f64 {
    harmonic(tier.bandwidth)
}

fn harmonic([read, write]: [f64; 2]) -> f64 {
    2.0 / (1.0 / read + 1.0 / write)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{tier_epoch, view};
    use super::*;
    use crate::context::{Origin, WriteSpan};
    use crate::credits::Credits;
    use crate::epoch::EpochLoad;

    const RANGE: u32 = 1 << 21;

    /// The tiers of a new file's ranges, one after the other.
    fn deal_file(policy: &Adaptive, origin: Origin, ranges: u64) -> Vec<TierId> {
        let mut tiers = [view(0, 1.0), view(1, 1.0)];
        tiers[0].bandwidth = [400e6, 200e6];
        tiers[1].bandwidth = [120e6, 60e6];
        let mut credits = Credits::new(0, RANGE);
        let mut given = Vec::new();
        for range in 0..ranges {
            let (size, len) = (range * u64::from(RANGE), u64::from(RANGE));
            let span = WriteSpan { offset: size, len, size, size_after: size + len, new_bytes: len };
            let context = Context::for_tests(origin, span, &credits, &tiers);
            let tier = policy.place(&context).expect("both have room");
            policy.placed(&context, tier);
            let share = policy.share(&tiers[usize::from(tier.0)]);
            credits.add(tier, len, share);
            given.push(tier);
        }
        given
    }

    #[test]
    fn a_tier_that_rests_is_given_more_only_while_something_is_placed() {
        let policy = Adaptive::new();
        let tier = |id, busy| {
            let seen = EpochLoad { rate: 10e6, in_flight: busy, busy, direct: 1.0 };
            TierEpoch { load: [EpochLoad::default(), seen], ..tier_epoch(id, 60e6) }
        };
        let share = || policy.share(&view(1, 1.0));
        let before = share();
        let epoch = Epoch { nanos: 200_000_000, tiers: vec![tier(0, 1.0), tier(1, 0.1)] };
        (0..20).for_each(|_| policy.epoch(&epoch));
        assert_eq!(share(), before, "what was placed ahead is only worked off");
        for _ in 0..5 {
            deal_file(&policy, Origin::default(), 1);
            policy.epoch(&epoch);
        }
        assert!(share() > 1.2 * before);
    }

    #[test]
    fn space_that_is_set_aside_is_not_taken_for_data_in_memory() {
        let direct = Origin { thread: 1, direct: true, ..Origin::default() };
        let usual = deal_file(&Adaptive::new(), direct, 100);
        let after = |first: Origin| {
            let policy = Adaptive::new();
            deal_file(&policy, first, 37);
            deal_file(&policy, direct, 100)
        };
        assert_eq!(after(Origin { reserves: true, direct: false, ..direct }), usual);
        assert_ne!(after(Origin { direct: false, ..direct }), usual, "what is in memory counts");
    }

    /// Seconds until two tiers have completed their work, by epochs of so many
    /// milliseconds: of data in memory, and of streams.
    fn worked_off(epoch_ms: u64) -> [f64; 2] {
        let policy = Adaptive::new();
        deal_file(&policy, Origin { thread: 1, ..Origin::default() }, 100);
        let tiers = vec![tier_epoch(0, 200e6), tier_epoch(1, 60e6)];
        let epoch = Epoch { nanos: epoch_ms * 1_000_000, tiers };
        let mut seconds = [0.0; 2];
        for passed in 1..10_000 {
            policy.epoch(&epoch);
            let state = policy.state.lock();
            let left = [state.behind[TierId(0)] + state.behind[TierId(1)] > 0.0, !state.streams.is_empty()];
            for (seconds, left) in seconds.iter_mut().zip(left) {
                *seconds = if left { f64::from(passed) * epoch.seconds() } else { *seconds };
            }
            if left == [false; 2] {
                return seconds;
            }
        }
        panic!("{epoch_ms} ms: something is never worked off");
    }

    #[test]
    fn a_tier_works_off_as_much_in_a_second_whatever_an_epoch_is() {
        // 200 MiB at 260 MB/s.
        for (epoch_ms, slack) in [(10, 0.05), (200, 0.2), (300, 0.3)] {
            let [behind, _] = worked_off(epoch_ms);
            assert!((behind - 0.8).abs() <= slack, "{epoch_ms}: {behind}");
        }
        assert_eq!(worked_off(5000)[0], 0.0, "an epoch is more than it takes");
    }

    #[test]
    fn a_stream_is_kept_track_of_for_as_long_whatever_an_epoch_is() {
        let [short, usual] = [10, 200].map(|epoch_ms| worked_off(epoch_ms)[1]);
        assert!((short - usual).abs() <= 0.4 && short > 0.1, "{short} {usual}");
        // It may have begun at the end of the epoch, and be there in the next.
        assert_eq!(worked_off(5000)[1], 5.0);
    }
}
