//! What a volume is made of and how it behaves. The daemon fills this in from
//! a stack file or from command-line flags.

use braid_contract::{Environment, Fd, Store};
use braid_placement::{PolicyConfig, Reserve, RuleConfig, TierProfile};
use std::sync::Arc;

/// A volume to be opened.
#[derive(Clone)]
pub struct VolumeConfig {
    /// The tier that holds the namespace.
    pub home: HomeConfig,
    /// All other tiers.
    pub tiers: Vec<TierConfig>,
    /// Range size in bytes of files that no rule gives another one, a power of
    /// two from
    /// [`RANGE_SIZE_MIN`](braid_format::RANGE_SIZE_MIN) to
    /// [`RANGE_SIZE_MAX`](braid_format::RANGE_SIZE_MAX). `None` takes what the volume
    /// has, or [`RANGE_SIZE_DEFAULT`](braid_format::RANGE_SIZE_DEFAULT) for a new one.
    pub range_size: Option<u32>,
    /// Where new ranges go.
    pub policy: PolicyConfig,
    /// Which files go elsewhere, or by another policy; the first that matches
    /// counts.
    pub rules: Vec<RuleConfig>,
    /// How often loads are reckoned and policies may change their mind, in
    /// nanoseconds; [`EPOCH_NS_DEFAULT`](braid_placement::EPOCH_NS_DEFAULT) is usual.
    pub epoch_ns: u64,
    /// Memory for the heat of ranges, in bytes; 0 keeps none.
    pub heat_budget: u64,
    /// Whether latencies and threads are watched.
    pub monitor: bool,
    /// What moves ranges in the background.
    pub movers: MoversConfig,
    /// Makes the volume where all tiers are new, and lets new tiers join one
    /// that is there. Without it, a directory that has no label is refused.
    pub create: bool,
    /// Time, chance and threads: the machine's, but in a simulation.
    pub environment: Arc<dyn Environment>,
}

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

/// Memory for the heat of ranges, unless set otherwise.
pub const HEAT_BUDGET_DEFAULT: u64 = 16 << 20;

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
