//! The configuration of a simulation, and its pace.

use crate::policy_config::PolicyConfig;
use crate::settings::{Reserve, RuleConfig, TierProfile};
use braid_format::RangeSize;
use braid_hint::HintConfig;

/// The configuration of a simulation.
#[derive(Clone, Debug)]
pub struct SimulatorConfig {
    /// The tiers; the first is home.
    pub tiers: Vec<SimulatedTier>,
    /// Range size of files without a rule that says otherwise.
    pub range_size: RangeSize,
    /// Where new ranges go.
    pub policy: PolicyConfig,
    /// Rules that take precedence.
    pub rules: Vec<RuleConfig>,
    /// Streams besides those of rules.
    pub hints: HintConfig,
    /// Length of an epoch, in nanoseconds.
    pub epoch_ns: u64,
    /// Bandwidth is granted for so many nanoseconds at a time, separately for
    /// reads and for writes, like by the kernel's throttle. `None`: a tier does
    /// one thing after another.
    pub throttle_ns: Option<u64>,
}

/// A simulated tier.
#[derive(Clone, Debug)]
pub struct SimulatedTier {
    /// Its name.
    pub name: String,
    /// Its bytes a second, read and written.
    pub bandwidth: [f64; 2],
    /// Latency of each read and write besides its transfer, in nanoseconds,
    /// while others may proceed.
    pub latency_ns: [u64; 2],
    /// Its configured weight, for policies.
    pub weight: Option<f64>,
    /// Its calibrated figures, with which policies start.
    pub profile: Option<TierProfile>,
    /// Its room in bytes; `None` for unlimited.
    pub capacity: Option<u64>,
    /// The part of it that is left free.
    pub reserve: Reserve,
    /// Whether it takes no new ranges.
    pub readonly: bool,
}

/// When operations of a trace begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// With the recorded pauses after the thread's previous operation.
    Recorded,
    /// As soon as the thread's previous one has ended.
    Fastest,
}
