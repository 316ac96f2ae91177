//! The settings of placement: rules, the calibrated performance of tiers, and
//! the space to be left free on them.

use crate::policy_config::PolicyConfig;
use crate::rules::Condition;
use braid_format::RangeSize;

/// Default length of an epoch (PolyStore §4.5.1), in nanoseconds.
pub const EPOCH_NS_DEFAULT: u64 = 200_000_000;

/// Space of a tier that Braid places no new ranges into.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Reserve {
    /// The default of a tier: 1 % of its size, 1 GiB at most; home keeps
    /// [more](Self::Names).
    #[default]
    Unset,
    /// This many bytes.
    Bytes(u64),
    /// This share of the tier's size, 0 to 100.
    Percent(f64),
    /// The default of home: 2 % of its size, but 64 MiB at least and 4 GiB at
    /// most, and never more than a quarter of it. It holds the names, and the
    /// indexes of data on other tiers.
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
    pub stream: Option<String>,
    /// The first of these tiers that has room gets the ranges; with none of
    /// them, or if none has, the policy is asked.
    pub tiers: Vec<String>,
    /// The policy, in place of the volume's.
    pub policy: Option<PolicyConfig>,
    /// Whether movers leave its ranges in place.
    pub pin: bool,
    /// Range size, in place of the volume's, of a file that gets its index
    /// under the rule; the file keeps it.
    pub range_size: Option<RangeSize>,
}

/// The performance of a tier, measured without other load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TierProfile {
    /// Reads.
    pub read: DirectionProfile,
    /// Writes.
    pub write: DirectionProfile,
}

/// The performance of a tier in one direction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DirectionProfile {
    /// Highest bandwidth, in bytes a second.
    pub bandwidth: f64,
    /// Mean latency of one thread alone.
    pub latency_ns: u64,
    /// The fewest threads that reach the bandwidth.
    pub threads: u32,
    /// Number of threads from which on it gets slower again; `None` if it never
    /// does.
    pub degrades_at: Option<u32>,
}
