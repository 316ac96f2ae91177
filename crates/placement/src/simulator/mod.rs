//! A discrete-event simulator: applications' operations over tiers of given
//! bandwidths, with the policies, the rules and the monitor that a volume runs.
//! It has no chance in it: a run comes out the same each time.
//!
//! `engine` runs it, over `device`s (how long a tier takes) and `file`s (where
//! their ranges are, which `placing` decides). What is done comes from a [`Source`](source::Source): a
//! trace ([`simulate`], which `braid placement simulate` calls), or made-up work
//! (`workload`, for `tests`, which compare the policies; `docs/placement.md` has
//! the figures).

mod device;
mod engine;
mod file;
mod placing;
mod replay;
mod source;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod workload;

use crate::policy_config::PolicyConfig;
use crate::settings::{Reserve, RuleConfig, TierProfile};
use crate::trace::Trace;
use braid_format::RangeSize;
use engine::Engine;
use replay::Replay;
use std::collections::BTreeMap;

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

/// How a simulation went.
#[derive(Clone, PartialEq, Debug)]
pub struct Simulated {
    /// Seconds until the last byte was read or written.
    pub seconds: f64,
    /// Bytes that were read and written on all tiers.
    pub bytes: [u64; 2],
    /// The tiers, in their order.
    pub tiers: Vec<TierSimulated>,
    /// Bytes of writes for which no tier had room.
    pub refused_bytes: u64,
}

/// How it went on one tier.
#[derive(Clone, PartialEq, Debug)]
pub struct TierSimulated {
    /// The tier's name.
    pub name: String,
    /// Bytes that were read and written there.
    pub bytes: [u64; 2],
    /// Share of the time in which something was under way, 0 to 1.
    pub busy: f64,
    /// Bytes in use in the end.
    pub used: u64,
    /// Ranges that were put there, by whom.
    pub ranges: BTreeMap<PlacedBy, u64>,
}

/// Who gave a range its tier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PlacedBy {
    /// It was there before the trace began.
    Before,
    /// Nobody: it is the first of a file, which goes home.
    Plain,
    /// The policy.
    Policy,
    /// The policy, and its first choice had no room.
    Spill,
    /// The rule of this number, from 1 on.
    Rule(usize),
}

/// When operations of a trace begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// So long after the thread's last one as when they were recorded.
    Recorded,
    /// As soon as the thread's last one has ended.
    Fastest,
}

/// Replays a trace. `None` if a policy or rule names a tier that there is not,
/// or there are no tiers.
#[must_use]
pub fn simulate(config: &SimulatorConfig, trace: &Trace, pace: Pace) -> Option<Simulated> {
    let mut engine = Engine::new(config)?;
    engine.run(&mut Replay::new(trace, config.range_size.get(), pace));
    Some(engine.outcome())
}
