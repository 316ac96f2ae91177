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

use super::{Context, PerTier, Policy, TierEpoch, TierView};
use crate::sync::Mutex;
use braid_contract::TierId;
use std::collections::HashMap;

pub(super) struct Adaptive {
    range_size: f64,
    state: Mutex<State>,
}

struct State {
    epoch: u64,
    /// Where each thread that places ranges does so now.
    streams: HashMap<u64, Stream>,
    /// Bytes that the streams still have to write to each tier, about.
    to_write: PerTier<f64>,
    /// Bytes that are in memory and on their way to each tier, about.
    behind: PerTier<f64>,
    /// How much more than it is known for a tier is given, as a factor.
    boost: PerTier<f64>,
}

struct Stream {
    tier: TierId,
    /// Bytes that it has still to write there, about.
    bytes: f64,
    /// It is taken for ended from this epoch on.
    until: u64,
}

/// An epoch in seconds, where only about how long matters.
const EPOCH_SECONDS: f64 = 0.2;
/// Streams that are kept track of at most.
const STREAMS_MAX: usize = 4096;
/// How long a stream is kept track of beyond what it should need, in epochs.
const LINGER: u64 = 3;
/// Most seconds of work that a tier may have behind it in memory.
const BEHIND_SECONDS_MAX: f64 = 10.0;
/// A tier less busy than this can do more, if another one has no rest.
const IDLE: f64 = 0.7;
const NO_REST: f64 = 0.95;
/// By how much more it is given each epoch, and at most.
const BOOST_STEP: f64 = 1.25;
const BOOST_MAX: f64 = 16.0;
/// How much of a boost is left an epoch after its reason is gone.
const BOOST_KEPT: f64 = 0.6;

impl Adaptive {
    pub(super) fn new(range_size: u32) -> Self {
        let state = State {
            epoch: 0,
            streams: HashMap::new(),
            to_write: PerTier::all(0.0),
            behind: PerTier::all(0.0),
            boost: PerTier::all(1.0),
        };
        Self { range_size: f64::from(range_size), state: Mutex::new(state) }
    }

    /// Seconds until `tier` would be done with what `context` asks for, and
    /// what the file is owed elsewhere.
    fn wait(&self, state: &State, context: &Context<'_>, tier: &TierView) -> f64 {
        let writes = tier.bandwidth[1] * state.boost[tier.id];
        let share = share(tier) * state.boost[tier.id];
        let own = state.streams.get(&context.stream()).filter(|own| own.tier == tier.id);
        let streams = state.to_write[tier.id] - own.map_or(0.0, |own| own.bytes)
            + f64::from(tier.plain_writes) * self.range_size / 2.0;
        let file = (context.deal.of(tier.id) + context.span.new_bytes as f64) / share;
        file + streams.max(0.0) / writes + state.behind[tier.id] / writes
    }
}

impl Policy for Adaptive {
    fn describe(&self) -> String {
        "adaptive".into()
    }

    fn place(&self, context: &Context<'_>) -> Option<TierId> {
        let state = self.state.lock();
        let candidates = context.tiers.iter().filter(|tier| tier.has_room);
        let waits = candidates.map(|tier| (self.wait(&state, context, tier), tier.id));
        waits.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, tier)| tier)
    }

    fn placed(&self, context: &Context<'_>, tier: TierId) {
        let Some(view) = context.tier(tier) else { return };
        let state = &mut *self.state.lock();
        let (span, key) = (&context.span, context.stream());
        // Who writes here and there fills no range.
        let bytes = if span.appends() { span.new_bytes } else { span.new_bytes.min(2 * span.len) } as f64;
        state.end(key);
        if state.streams.len() < STREAMS_MAX {
            state.to_write[tier] += bytes / 2.0;
            let epochs = (state.to_write[tier] * 4.0 / view.bandwidth[1] / EPOCH_SECONDS) as u64;
            let until = state.epoch + epochs + LINGER;
            state.streams.insert(key, Stream { tier, bytes: bytes / 2.0, until });
        }
        if !context.origin.direct && !context.origin.sync {
            let most = view.bandwidth[1] * BEHIND_SECONDS_MAX;
            state.behind[tier] = (state.behind[tier] + bytes).min(most);
        }
    }

    fn epoch(&self, tiers: &[TierEpoch]) {
        let state = &mut *self.state.lock();
        state.epoch += 1;
        state.end_old();
        let no_rest = tiers.iter().any(|tier| tier.load[1].busy >= NO_REST);
        for tier in tiers {
            let done = tier.bandwidth[1].unwrap_or(0.0) * EPOCH_SECONDS;
            state.behind[tier.id] = (state.behind[tier.id] - done).max(0.0);
            let boost = &mut state.boost[tier.id];
            *boost = match no_rest && tier.load[1].busy < IDLE && tier.bandwidth[1].is_some() {
                true => (*boost * BOOST_STEP).min(BOOST_MAX),
                false => 1.0 + (*boost - 1.0) * BOOST_KEPT,
            };
        }
    }
}

impl State {
    fn end(&mut self, key: u64) {
        if let Some(stream) = self.streams.remove(&key) {
            self.to_write[stream.tier] = (self.to_write[stream.tier] - stream.bytes).max(0.0);
        }
    }

    fn end_old(&mut self) {
        let old: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.until <= self.epoch)
            .map(|(key, _)| *key)
            .collect();
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
