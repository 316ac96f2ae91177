//! The results of a simulation.

use std::collections::BTreeMap;

/// The results of a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct Simulated {
    /// Seconds until the last byte was read or written.
    pub seconds: f64,
    /// Operations that were carried out.
    pub ops: u64,
    /// Bytes that were read and written on all tiers.
    pub bytes: [u64; 2],
    /// The tiers, in their order.
    pub tiers: Vec<TierSimulated>,
    /// Bytes of writes for which no tier had room.
    pub refused_bytes: u64,
}

/// The results on one tier.
#[derive(Clone, PartialEq, Debug)]
pub struct TierSimulated {
    /// The tier's name.
    pub name: String,
    /// Bytes that were read and written there.
    pub bytes: [u64; 2],
    /// Share of the time with operations in flight, 0 to 1.
    pub busy: f64,
    /// Bytes in use in the end.
    pub used: u64,
    /// Number of ranges placed there, by origin.
    pub ranges: BTreeMap<PlacedBy, u64>,
}

/// The origin of a range's placement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PlacedBy {
    /// It existed before the trace.
    Before,
    /// No choice was made: it is the first of a file, which goes home.
    Plain,
    /// The policy.
    Policy,
    /// The policy, whose first choice had no room.
    Spill,
    /// The rule of this number, from 1 on.
    Rule(usize),
}
