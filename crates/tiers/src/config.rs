//! What a tier is given as, and what movers may do. The daemon fills these in
//! from a stack file or from command-line flags.

use braid_contract::{Fd, Store};
use braid_placement::{Reserve, TierProfile};
use std::sync::Arc;

/// The home tier: a directory of a mounted file system with extended
/// attributes.
#[derive(Clone)]
pub struct HomeConfig {
    /// The tier's name.
    pub name: String,
    /// Its directory, opened and locked.
    pub root: Fd,
    /// What to call its place in messages, such as the directory's path.
    pub location: String,
    /// Bandwidth relative to the other tiers; measured while running if `None`.
    pub weight: Option<f64>,
    /// What it can do, if it was calibrated.
    pub profile: Option<TierProfile>,
    /// Space to be left free.
    pub reserve: Reserve,
}

/// A tier that holds data only.
#[derive(Clone)]
pub struct TierConfig {
    /// The tier's name.
    pub name: String,
    /// Where its bytes are; `None` for a tier that the volume has and that is
    /// not there now: what is on it answers `EIO`.
    pub store: Option<Arc<dyn Store>>,
    /// What to call the store's place in messages, such as its directory.
    pub location: String,
    /// Bandwidth relative to the other tiers; measured while running if `None`.
    pub weight: Option<f64>,
    /// What it can do, if it was calibrated.
    pub profile: Option<TierProfile>,
    /// Space to be left free.
    pub reserve: Reserve,
}

/// What moves ranges in the background, and how.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MoversConfig {
    /// Ranges that are frequently used go to a faster tier.
    pub promote: bool,
    /// A tier that ran full gives cold ranges to slower ones.
    pub demote: bool,
    /// Bytes a second that movers and jobs read from a tier and write to it, at
    /// most; `None` is [`BANDWIDTH_DEFAULT`](Self::BANDWIDTH_DEFAULT) for
    /// movers, and as fast as it goes for jobs.
    pub bandwidth: Option<u64>,
    /// Bytes a second that jobs are left on a tier, whatever applications feel
    /// there.
    pub job_floor: u64,
    /// Share of a tier's space, 0 to 1: when so much is used, it is relieved,
    /// and nothing is promoted to it.
    pub watermark_high: f64,
    /// Share of a tier's space, 0 to 1: it is relieved until less is used.
    pub watermark_low: f64,
    /// From which heat on a range is frequently used, 0 to 1.
    pub heat_threshold: f64,
    /// How many times longer applications' operations may take on a tier while
    /// movers and jobs use it, before those slow down.
    pub latency_factor: f64,
}

impl MoversConfig {
    /// What movers read from a tier and write to it in a second at most, unless
    /// set otherwise, in bytes.
    pub const BANDWIDTH_DEFAULT: u64 = 50 << 20;

    /// No movers.
    pub const NONE: Self = Self {
        promote: false,
        demote: false,
        bandwidth: None,
        job_floor: 8 << 20,
        watermark_high: 0.9,
        watermark_low: 0.8,
        heat_threshold: 0.5,
        latency_factor: 2.0,
    };
}
