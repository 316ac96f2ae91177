//! Epochs, and the load of tiers in one: policies see it after the end, and the
//! performance of a tier is learned from it.

use braid_contract::TierId;

/// An epoch that ended.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Its length, in nanoseconds.
    pub nanos: u64,
    /// The tiers, in their order.
    pub tiers: Vec<TierEpoch>,
}

impl Epoch {
    pub(crate) fn seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

/// A tier at the end of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct TierEpoch {
    /// The tier's number.
    pub id: TierId,
    /// Its load, read and written.
    pub load: [EpochLoad; 2],
    /// Estimated bytes a second, read and written.
    pub bandwidth: [f64; 2],
    /// Whether its write bandwidth was observed, or configured.
    pub known: bool,
    /// Whether it takes ranges, and has room.
    pub takes: bool,
    /// Bytes a second that movers and jobs read and wrote, a part of the load.
    pub moved: f64,
    /// Threads that saturate it with writes, if known.
    pub saturating: Option<u32>,
}

impl TierEpoch {
    /// Bytes a second that applications read and wrote.
    pub(crate) fn applications_rate(&self) -> f64 {
        (self.load[0].rate + self.load[1].rate - self.moved).max(0.0)
    }
}

/// The load of a tier in one direction in one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EpochLoad {
    /// Bytes a second.
    pub rate: f64,
    /// Operations in flight, on average over the epoch.
    pub in_flight: f64,
    /// Share of the epoch with at least one in flight, 0 to 1.
    pub busy: f64,
    /// Share of the bytes that bypassed the page cache, 0 to 1.
    pub direct: f64,
}
