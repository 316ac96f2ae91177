//! The part of `braid top` that earlier states of the volume have left.

use super::workers::Looks;
use braid_contract::TierId;
use braid_ipc::protocol::{Status, TierStatus};
use std::collections::BTreeMap;
use std::time::Instant;

/// The states that were seen, as far as a frame needs them.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) peaks: Peaks,
    /// Workers and queues.
    pub(super) looks: Looks,
}

impl History {
    /// Notes the state of a frame, before it is drawn.
    pub(super) fn see(&mut self, status: &Status, now: Instant) {
        self.peaks.see(status);
        self.looks.see(status.runtime.as_ref(), now);
    }
}

/// The highest rates so far, for tiers without a known maximum: read and
/// written, by the tier's number.
#[derive(Clone, Debug, Default)]
pub(super) struct Peaks(BTreeMap<TierId, [f64; 2]>);

impl Peaks {
    fn see(&mut self, status: &Status) {
        for tier in &status.tiers {
            let peak = self.0.entry(tier.id).or_default();
            peak[0] = peak[0].max(tier.read_rate);
            peak[1] = peak[1].max(tier.write_rate);
        }
    }

    pub(super) fn of(&self, tier: &TierStatus, side: usize) -> f64 {
        self.0.get(&tier.id).map_or(0.0, |peak| peak[side])
    }
}
