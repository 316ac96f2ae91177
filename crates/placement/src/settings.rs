//! The settings of placement: rules, what a tier can do and what is to be left
//! free on it.

use crate::policy_config::PolicyConfig;
use crate::rules::Condition;
use braid_contract::StreamId;
use braid_format::RangeSize;

/// How long an epoch is, unless set otherwise (PolyStore §4.5.1), in
/// nanoseconds.
pub const EPOCH_NS_DEFAULT: u64 = 200_000_000;

/// Space of a tier that Braid places no new ranges into.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Reserve {
    /// What a tier leaves unless told otherwise: 1 % of its size, 1 GiB at most;
    /// home [more](Self::Names).
    #[default]
    Unset,
    /// This many bytes.
    Bytes(u64),
    /// This share of the tier's size, 0 to 100.
    Percent(f64),
    /// What home keeps unless told otherwise: 2 % of its size, but 64 MiB at
    /// least and 4 GiB at most, and never more than a quarter of it. Names,
    /// indexes and what leads to data on other tiers have their place there.
    Names,
}

impl Reserve {
    const UNSET_MAX: u64 = 1 << 30;
    const NAMES_MIN: u64 = 64 << 20;
    const NAMES_MAX: u64 = 4 << 30;

    /// The reserve of a tier of `total` bytes, in bytes.
    #[must_use]
    pub fn bytes(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Names => (total / 50).clamp(Self::NAMES_MIN, Self::NAMES_MAX).min(total / 4),
            Self::Unset => (total / 100).min(Self::UNSET_MAX),
            Self::Percent(percent) => (total as f64 * percent / 100.0) as u64,
        }
    }
}

/// A rule: where the ranges of some files go.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleConfig {
    /// For which files, and when.
    pub when: Condition,
    /// The stream that their data belongs to, which rules below and policies see.
    pub stream: Option<StreamId>,
    /// The first of these tiers that has room gets the ranges; with none of
    /// them, or if none has, the policy is asked.
    pub tiers: Vec<String>,
    /// The policy, in place of the volume's.
    pub policy: Option<PolicyConfig>,
    /// Movers leave what is placed by the rule where it is.
    pub pin: bool,
    /// How long the ranges of a file are that gets its index under the rule, in
    /// place of the volume's; it keeps them.
    pub range_size: Option<RangeSize>,
}

/// What a tier can do, as it was measured with nothing else going on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TierProfile {
    /// When it is read.
    pub read: DirectionProfile,
    /// When it is written.
    pub write: DirectionProfile,
}

/// What a tier can do in one direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DirectionProfile {
    /// The most bytes a second.
    pub bandwidth: f64,
    /// Mean latency of one thread alone.
    pub latency_ns: u64,
    /// The fewest threads that reach the bandwidth.
    pub threads: u32,
    /// From so many threads on it gets less again; `None` if it never does.
    pub degrades_at: Option<u32>,
}
