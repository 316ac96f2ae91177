//! Epochs, and what tiers did in one: policies are shown it when it has ended,
//! and what a tier can do is learned of it.

use braid_contract::TierId;

/// An epoch that ended.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// How long it was, in nanoseconds.
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
    /// What it did, read and written.
    pub load: [EpochLoad; 2],
    /// Bytes a second that it is believed to do, read and written.
    pub bandwidth: [f64; 2],
    /// What it can write was seen, or given.
    pub known: bool,
}

/// What went one way through a tier in one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EpochLoad {
    /// Bytes a second.
    pub rate: f64,
    /// Operations under way, on average over the epoch.
    pub in_flight: f64,
    /// Share of the epoch in which at least one was under way, 0 to 1.
    pub busy: f64,
    /// Share of the bytes that went past the page cache, 0 to 1.
    pub direct: f64,
}
