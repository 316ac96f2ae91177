//! What a volume is made of and how it behaves. The daemon fills this in from
//! a stack file or from command-line flags.

use crate::rules::Condition;
use braid_contract::{Environment, Fd, Store};
use braid_format::RangeSize;
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
    /// [`RANGE_SIZE_MIN`](crate::RANGE_SIZE_MIN) to
    /// [`RANGE_SIZE_MAX`](crate::RANGE_SIZE_MAX). `None` takes what the volume
    /// has, or [`RANGE_SIZE_DEFAULT`](crate::RANGE_SIZE_DEFAULT) for a new one.
    pub range_size: Option<u32>,
    /// Where new ranges go.
    pub policy: PolicyConfig,
    /// Which files go elsewhere, or by another policy; the first that matches
    /// counts.
    pub rules: Vec<RuleConfig>,
    /// How often loads are reckoned and policies may change their mind, in
    /// nanoseconds; [`EPOCH_NS_DEFAULT`](crate::EPOCH_NS_DEFAULT) is usual.
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
    /// Time, chance and threads; [`Machine`](crate::Machine) but in a
    /// simulation.
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

/// How long an epoch is, unless set otherwise (PolyStore §4.5.1), in
/// nanoseconds.
pub const EPOCH_NS_DEFAULT: u64 = 200_000_000;
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

/// A placement policy and its settings.
#[derive(Clone, PartialEq, Debug)]
pub enum PolicyConfig {
    /// Everything home until home is fuller than the watermark.
    HomeFirst {
        /// Share of home's space, 0 to 100.
        watermark_percent: f64,
    },
    /// Ranges dealt over all tiers in proportion to their bandwidth.
    Weighted,
    /// Dealt by what each tier does and has to do, as it changes.
    Adaptive,
    /// Threads are mapped to tiers: as many as saturate it to the fastest, and
    /// so on (PolyStore §4.4.2).
    Static {
        /// Threads that saturate a tier of which that is not known.
        threads: u32,
    },
    /// The same, remapped as the tiers' bandwidths change (PolyStore,
    /// Algorithm 1).
    Dynamic {
        /// Threads that saturate a tier of which that is not known.
        threads: u32,
        /// Change of a tier's bandwidth that counts, 0 to 100.
        tier_threshold_percent: f64,
        /// Change of the sum of all tiers' that counts, 0 to 100.
        global_threshold_percent: f64,
    },
    /// By the size of the file, by whether writes are synchronous, and by what
    /// the file was used for.
    Size {
        /// Files up to this many bytes stay home.
        small: u64,
        /// Synchronous writes up to this many bytes go home.
        sync: u64,
        /// Where the others go.
        large: LargeFiles,
    },
}

/// A rule: where the ranges of some files go.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleConfig {
    /// For which files, and when.
    pub when: Condition,
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

/// Where [`PolicyConfig::Size`] puts large files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LargeFiles {
    /// Over all tiers, as `weighted` does.
    Spread,
    /// On the tier of this name.
    Tier(String),
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
