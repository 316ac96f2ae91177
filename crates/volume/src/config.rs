//! The configuration of a volume: its tiers and its behaviour. The daemon fills
//! this in from a stack file or from command-line flags.

use braid_contract::Environment;
use braid_hint::HintConfig;
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
    /// Range size in bytes, unless a rule sets another one for a file: a power
    /// of two from [`RANGE_SIZE_MIN`](braid_format::RANGE_SIZE_MIN) to
    /// [`RANGE_SIZE_MAX`](braid_format::RANGE_SIZE_MAX). `None` keeps the
    /// volume's own, or takes
    /// [`RANGE_SIZE_DEFAULT`](braid_format::RANGE_SIZE_DEFAULT) for a new one.
    pub range_size: Option<u32>,
    /// Where new ranges go.
    pub policy: PolicyConfig,
    /// Rules that send files elsewhere, or use another policy for them; the
    /// first that matches counts.
    pub rules: Vec<RuleConfig>,
    /// Streams besides those of rules.
    pub hints: HintConfig,
    /// Length of an epoch in nanoseconds, after which loads are computed and
    /// policies may change their mind; usually
    /// [`EPOCH_NS_DEFAULT`](braid_placement::EPOCH_NS_DEFAULT).
    pub epoch_ns: u64,
    /// Memory for the heat of ranges, in bytes; with 0, heat is not kept.
    pub heat_budget: u64,
    /// Whether latencies and threads are monitored.
    pub monitor: bool,
    /// Settings of the movers, which move ranges in the background.
    pub movers: MoversConfig,
    /// Creates the volume if all tiers are new, and lets new tiers join an
    /// existing one. Without it, a directory without a label is refused.
    pub create: bool,
    /// Time, chance and threads: those of the machine, except in a simulation.
    pub environment: Arc<dyn Environment>,
}

/// Memory for the heat of ranges, unless set otherwise.
pub const HEAT_BUDGET_DEFAULT: u64 = 16 << 20;
