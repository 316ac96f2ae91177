//! What a volume is made of and how it behaves. The daemon fills this in from
//! a stack file or from command-line flags.

use braid_contract::Environment;
use braid_placement::{PolicyConfig, RuleConfig};
use braid_tiers::{HomeConfig, MoversConfig, TierConfig};
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

/// Memory for the heat of ranges, unless set otherwise.
pub const HEAT_BUDGET_DEFAULT: u64 = 16 << 20;
