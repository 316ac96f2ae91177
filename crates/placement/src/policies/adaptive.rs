//! `adaptive`: new ranges go where they are done soonest, and where the file
//! is owed one. `docs/placement.md` has the idea and its measure.
//!
//! For each tier three waits are reckoned, in seconds, and the tier with the
//! least sum gets the ranges:
//!
//! - that of the file: what was dealt to it there so far, by the tier's share.
//!   Alone, this deals each file in proportion, which is what one stream
//!   needs, and what reads of the file will need;
//! - that of the streams that write there now, each with about half a range to
//!   go. With many streams this outweighs the file's, and keeps every tier
//!   busy all the time, whatever the files need in the end;
//! - that of what was written through memory and which the tier still has to
//!   work off: nobody waits for it, so nothing else shows it.
//!
//! What a tier can do is learned (`tiers/learn.rs`); one that could do more
//! than was ever asked of it is given more as long as others have too much.

use crate::context::{Context, TierView};
use crate::epoch::{Epoch, TierEpoch};
use crate::per_tier::PerTier;
use crate::policy::Policy;
use crate::policy_config::PolicyKind;
use crate::sync::Mutex;
use braid_contract::TierId;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const KIND: PolicyKind = PolicyKind {
    name: "adaptive",
    summary: "where it is done soonest, and where the file is owed one",
    settings: &[],
    home_watermark: None,
    make: |_, _| Some(Arc::new(Adaptive::new())),
};

pub(super) struct Adaptive {
    state: Mutex<State>,
}

struct State {
    /// Where each thread that places ranges does so now.
    streams: BTreeMap<u64, Stream>,
    /// Bytes that the streams still have to write to each tier, about.
    to_write: PerTier<f64>,
    /// Bytes that are in memory and on their way to each tier, about.
    behind: PerTier<f64>,
    boost: PerTier<Boost>,
    /// Whether anything was placed in this epoch.
    placed: bool,
}

struct Stream {
    tier: TierId,
    /// Bytes that it has still to write there, about.
    bytes: f64,
    /// The seconds after which it is taken for ended. The epoch in which it
    /// placed something is not counted.
    left: f64,
    counted: bool,
}

/// Streams that are kept track of at most.
const STREAMS_MAX: usize = 4096;
/// How many seconds a stream is kept track of beyond what it should need.
const LINGER: f64 = 0.2;
/// Most seconds of work that a tier may have behind it in memory.
const BEHIND_SECONDS_MAX: f64 = 10.0;
/// Under load, the busiest tier is at least so busy, as a share of the time.
const LOADED: f64 = 0.8;
/// Share of a tier's bytes that must go past the page cache for that to count.
const DIRECT_MIN: f64 = 0.5;
/// A tier that is so busy does all that it can.
const NO_REST: f64 = 0.9;
/// One less busy than this, against the busiest, could do more.
const IDLE: f64 = 0.6;
/// For how many epochs it must be so, if it is known what the tier can do.
const IDLE_EPOCHS: u32 = 3;
/// By how much it is given more then; twice as much each epoch, up to a bound.
const STEP_FIRST: f64 = 0.05;
const STEP_MAX: f64 = 0.5;
/// By how much if nothing is known of it.
const STEP_UNKNOWN: f64 = 1.0;
/// The most in all.
const FACTOR_MAX: f64 = 20.0;
/// How much of it is left an epoch after the reason is gone.
const KEPT: f64 = 0.5;

/// How much more than it is believed to do a tier is given, since it could do
/// more. What it can do is learned only when it has enough to do: this is what
/// gives it enough.
#[derive(Clone, Copy, Debug)]
struct Boost {
    factor: f64,
    /// For how many epochs it could have done more.
    idle: u32,
}

impl Boost {
    const NONE: Self = Self { factor: 1.0, idle: 0 };

    /// The boost after an epoch in which the busiest tier was so busy, and in
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
            // It was not asked: what is written was placed long ago, and more
            // of a boost would show no effect before it is far too much.
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
            placed: false,
        };
        Self { state: Mutex::new(state) }
    }
}

impl Policy for Adaptive {
    fn describe(&self) -> String {
        "adaptive".into()
    }

    fn place(&self, context: &Context<'_>) -> Option<TierId> {
        let state = self.state.lock();
        let candidates = context.tiers.iter().filter(|tier| tier.has_room);
        let waits = candidates.map(|tier| (state.wait(context, tier), tier.id));
        waits.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, tier)| tier)
    }

    fn share(&self, tier: &TierView) -> f64 {
        share(tier) * self.state.lock().boost[tier.id].factor
    }

    fn placed(&self, context: &Context<'_>, tier: TierId) {
        let Some(view) = context.tier(tier) else { return };
        let state = &mut *self.state.lock();
        state.placed = true;
        let (span, key) = (&context.span, context.stream());
        // Who writes here and there fills no range.
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
        // What goes into memory says nothing of how busy a tier is.
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
    /// Seconds until `tier` would be done with what `context` asks for, and
    /// with what goes before it.
    fn wait(&self, context: &Context<'_>, tier: &TierView) -> f64 {
        let boost = self.boost[tier.id].factor;
        let own = self.streams.get(&context.stream()).filter(|own| own.tier == tier.id);
        let streams = self.to_write[tier.id] - own.map_or(0.0, |own| own.bytes);
        let before = streams.max(tier.queued as f64) + self.behind[tier.id];
        let file = context.credits.after(tier.id, context.span.new_bytes, share(tier) * boost);
        file + before / (tier.bandwidth[1] * boost)
    }

    fn end(&mut self, key: u64) {
        if let Some(stream) = self.streams.remove(&key) {
            self.to_write[stream.tier] = (self.to_write[stream.tier] - stream.bytes).max(0.0);
        }
    }

    /// An epoch of so many seconds ended, and streams with it.
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
            // Sums of fractions drift.
            self.to_write = PerTier::all(0.0);
        }
    }
}

/// What a file should have of a tier, against the others: where writing and
/// reading ask for different shares, what makes both together fastest.
fn share(tier: &TierView) -> f64 {
    let [read, write] = tier.bandwidth;
    2.0 / (1.0 / read + 1.0 / write)
}

#[cfg(test)]
mod tests {
    use super::super::tests::view;
    use super::*;
    use crate::context::{Origin, WriteSpan};
    use crate::credits::Credits;
    use crate::epoch::EpochLoad;

    const RANGE: u32 = 1 << 21;

    /// Where the ranges of a new file go, one after the other.
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
            TierEpoch {
                id: TierId(id),
                load: [EpochLoad::default(), seen],
                bandwidth: [60e6; 2],
                known: true,
            }
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

    /// Seconds until nothing is left of what was given to two tiers, by epochs
    /// of so many milliseconds: of data in memory, and of streams.
    fn worked_off(epoch_ms: u64) -> [f64; 2] {
        let policy = Adaptive::new();
        deal_file(&policy, Origin { thread: 1, ..Origin::default() }, 100);
        let tier = |id: u8, write: f64| TierEpoch {
            id: TierId(id),
            load: [EpochLoad::default(); 2],
            bandwidth: [write; 2],
            known: true,
        };
        let epoch = Epoch { nanos: epoch_ms * 1_000_000, tiers: vec![tier(0, 200e6), tier(1, 60e6)] };
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
