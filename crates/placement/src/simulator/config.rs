//! What is simulated, and at which pace.

use crate::policy_config::PolicyConfig;
use crate::settings::{Reserve, RuleConfig, TierProfile};
use braid_format::RangeSize;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct SimulatorConfig {
    /// The tiers; the first is home.
    pub tiers: Vec<SimulatedTier>,
    /// Size of the ranges of files that no rule gives another one.
    pub range_size: RangeSize,
    /// Where new ranges go.
    pub policy: PolicyConfig,
    /// What goes before it.
    pub rules: Vec<RuleConfig>,
    /// How often policies may change their mind, in nanoseconds.
    pub epoch_ns: u64,
    /// Bandwidth is handed out for so many nanoseconds at a time, for reads and
    /// for writes apart, as the kernel's throttle does it. `None`: a tier does
    /// one thing after another.
    pub throttle_ns: Option<u64>,
}

/// A tier that is simulated.
#[derive(Clone, Debug)]
pub struct SimulatedTier {
    /// Its name.
    pub name: String,
    /// Bytes a second that it does, read and written.
    pub bandwidth: [f64; 2],
    /// What each read and write takes besides, in nanoseconds, while others may
    /// go on.
    pub latency_ns: [u64; 2],
    /// Its weight, as it was given to policies.
    pub weight: Option<f64>,
    /// What calibration found, which policies begin with.
    pub profile: Option<TierProfile>,
    /// Bytes that it has room for; `None` for any number.
    pub capacity: Option<u64>,
    /// What of them is left free.
    pub reserve: Reserve,
    /// It takes no new ranges.
    pub readonly: bool,
}

/// When operations of a trace begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// So long after the thread's last one as when they were recorded.
    Recorded,
    /// As soon as the thread's last one has ended.
    Fastest,
}
