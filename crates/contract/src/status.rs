//! What a volume says of itself, its tiers and its files. The volume fills these
//! types in, the control protocol carries them as they are, and commands and
//! metrics read them: a new field is one here, and one where it is known.

use crate::TierId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A tier by number and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedTier {
    /// The tier's number.
    pub id: TierId,
    /// The tier's name.
    pub name: String,
}

/// How a tier is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierState {
    /// It takes new ranges.
    Online,
    /// It has no room beyond its reserve.
    Full,
    /// It takes no new ranges: what is on it is to go elsewhere.
    Draining,
    /// It was set to be read only. It goes by the name of
    /// [`ReadOnly`](Self::ReadOnly), and is read as that:
    /// [`TierStatus::readonly`] tells the two apart.
    #[serde(rename = "read-only", skip_deserializing)]
    SetReadOnly,
    /// It refuses writes; what is on it can be read.
    ReadOnly,
    /// It answers errors, or is gone.
    Failing,
    /// Nothing that was begun on it ends.
    Hanging,
    /// The volume was opened without it.
    Absent,
}

impl TierState {
    /// The words for all of them.
    pub const NAMES: [&str; 7] = ["online", "full", "draining", "read-only", "failing", "hanging", "absent"];

    /// The word that `status` shows, one of [`NAMES`](Self::NAMES).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Full => "full",
            Self::Draining => "draining",
            Self::ReadOnly | Self::SetReadOnly => "read-only",
            Self::Failing => "failing",
            Self::Hanging => "hanging",
            Self::Absent => "absent",
        }
    }
}

impl fmt::Display for TierState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The state of one tier. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierStatus {
    /// The tier's number within the volume.
    pub id: TierId,
    /// The tier's name.
    pub name: String,
    /// Where it is.
    pub location: String,
    /// Whether it holds the namespace.
    pub home: bool,
    /// How it is doing.
    pub state: TierState,
    /// What its trouble began with; `None` while it has none.
    #[serde(default)]
    pub trouble: Option<Trouble>,
    /// Whether what was synced to it survives power loss; it does not on a
    /// file system in memory.
    #[serde(default = "durable")]
    pub durable: bool,
    /// Faults that are armed on it for a drill. Filled in by the daemon.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Its share when ranges are dealt by weight; 0 while it is not known.
    pub weight: f64,
    /// Space that Braid leaves free.
    pub reserve: u64,
    /// It was set to be read only.
    #[serde(default)]
    pub readonly: bool,
    /// It takes no new ranges: what is on it is to go elsewhere.
    #[serde(default)]
    pub draining: bool,
    /// Size of the file system beneath.
    pub total: u64,
    /// Free space of the file system beneath.
    pub free: u64,
    /// What Braid may still put there.
    pub available: u64,
    /// Space in use on the file system beneath, by anybody.
    pub used: u64,
    /// Ranges of spread files there.
    pub ranges: u64,
    /// Errors that it answered since the mount, by kind: `io`, `no-space`,
    /// `read-only` or `missing`.
    #[serde(default)]
    pub errors: BTreeMap<String, u64>,
    /// Bytes read since the mount.
    pub read_bytes: u64,
    /// Reads since the mount.
    pub read_ops: u64,
    /// Bytes written since the mount.
    pub write_bytes: u64,
    /// Writes since the mount.
    pub write_ops: u64,
    /// Bytes read a second, now.
    pub read_rate: f64,
    /// Bytes written a second, now.
    pub write_rate: f64,
    /// Bytes read a second at most, as calibrated or learned; `None` while
    /// nothing is known.
    #[serde(default)]
    pub read_bandwidth: Option<f64>,
    /// The same for bytes written.
    #[serde(default)]
    pub write_bandwidth: Option<f64>,
    /// How long reads for applications took within the last second, or the last
    /// epoch where that is longer, in nanoseconds.
    #[serde(default)]
    pub read_latency_ns: Latency,
    /// How long writes for applications took, in the same time.
    #[serde(default)]
    pub write_latency_ns: Latency,
    /// The same for reads since the mount.
    #[serde(default)]
    pub read_latency_total_ns: Latency,
    /// The same for writes since the mount.
    #[serde(default)]
    pub write_latency_total_ns: Latency,
    /// How many reads for applications took how long since the mount.
    #[serde(default, skip_serializing_if = "LatencyHistogram::is_empty")]
    pub read_latency_histogram_ns: LatencyHistogram,
    /// The same for writes.
    #[serde(default, skip_serializing_if = "LatencyHistogram::is_empty")]
    pub write_latency_histogram_ns: LatencyHistogram,
    /// Operations for applications that were under way at a time, on average,
    /// within the last second or epoch.
    #[serde(default)]
    pub in_flight: f64,
    /// Threads of applications that used the tier in the last whole second, or
    /// epoch where that is longer.
    #[serde(default)]
    pub threads: u32,
    /// Eight of them at most that moved most bytes in that time, the busiest
    /// first. Told to root and the user who mounted.
    #[serde(default)]
    pub busiest_threads: Vec<ThreadStatus>,
    /// Bytes a second that movers and jobs read from it and write to it.
    #[serde(default)]
    pub mover_rate: f64,
    /// Bytes a second that movers and jobs may come to there at present; `None` if
    /// there is no cap.
    #[serde(default)]
    pub mover_limit: Option<f64>,
    /// The file system beneath, as `stat` numbers it. Not sent: the number is of
    /// no use elsewhere.
    #[serde(skip)]
    pub device_number: u64,
    /// The block device beneath, if there is one. Filled in by the daemon.
    #[serde(default)]
    pub device: Option<Device>,
}

/// Figures of a block device, of everything that uses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The kernel's name of it.
    pub name: String,
    /// Bytes read a second.
    pub read_rate: f64,
    /// Bytes written a second.
    pub write_rate: f64,
    /// Operations under way at present.
    pub in_flight: u64,
    /// Share of time in which something was under way, 0 to 1.
    pub busy: f64,
}

/// How long operations took, in nanoseconds; zeros if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How many there were.
    #[serde(default)]
    pub ops: u64,
    /// On average.
    #[serde(rename = "mean")]
    pub mean_ns: u64,
    /// Half of them took no longer.
    #[serde(rename = "p50")]
    pub p50_ns: u64,
    /// 99 in a hundred took no longer.
    #[serde(rename = "p99")]
    pub p99_ns: u64,
}

/// How many operations took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// Time of all of them together, in nanoseconds.
    #[serde(rename = "sum")]
    pub sum_ns: u64,
    /// The shortest first.
    pub buckets: Vec<LatencyBucket>,
}

impl LatencyHistogram {
    /// Whether there is nothing in it, not even empty buckets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }
}

/// Operations that took less than some time, and no less than those of the
/// bucket before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// That time in nanoseconds; `None` for the last bucket, which has the
    /// longest.
    #[serde(rename = "below")]
    pub below_ns: Option<u64>,
    /// How many there were.
    pub ops: u64,
}

/// What a thread of an application does on a tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadStatus {
    /// The thread's id.
    pub thread: u32,
    /// The program that it is of, as the kernel calls its process; `None` where
    /// the thread has ended or can't be looked at. Filled in by the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Bytes read a second.
    pub read_rate: f64,
    /// Bytes written a second.
    pub write_rate: f64,
    /// Reads a second.
    pub read_op_rate: f64,
    /// Writes a second.
    pub write_op_rate: f64,
    /// How long a read took on average, in nanoseconds; 0 if there was none.
    pub read_latency_ns: u64,
    /// The same of a write.
    pub write_latency_ns: u64,
    /// Operations under way at a time, on average.
    pub in_flight: f64,
}

fn durable() -> bool {
    true
}

/// Why a tier can't be relied on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// The error that it began with.
    pub error: String,
    /// How long it has lasted, in seconds.
    pub seconds: f64,
}

/// What one mover moved from one tier to another for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveCount {
    /// `promote` or `demote`.
    pub mover: String,
    /// The tier that the ranges left.
    pub from: String,
    /// The tier that they are on since.
    pub to: String,
    /// Why they were moved: `hot`, or `watermark`.
    pub reason: String,
    /// How many ranges.
    pub ranges: u64,
    /// How many bytes that is.
    pub bytes: u64,
}

/// A rule that holds for a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingRule {
    /// Its place in the stack file's list, from 1 on.
    pub number: u64,
    /// Its condition, as the stack file has it.
    pub when: String,
    /// The tiers that it names, best first.
    pub tiers: Vec<String>,
    /// The policy that it names, and its settings.
    pub policy: Option<String>,
}

/// A stretch of ranges on one tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedRun {
    /// First byte.
    pub offset: u64,
    /// Length in bytes, up to the end of the file at most.
    pub len: u64,
    /// Number of ranges.
    pub ranges: u64,
    /// The tier; `None` where nothing was ever written.
    pub tier: Option<NamedTier>,
    /// Why the ranges are there.
    pub reason: String,
    /// Since when, in seconds since 1970; `None` where that is not known. The
    /// earliest of the run.
    #[serde(default)]
    pub since: Option<u64>,
    /// How much the ranges are used, in percent; 0 for those that are not, and
    /// for those of which nothing is known.
    #[serde(default)]
    pub heat: u8,
    /// What movers and policy would do with them now.
    #[serde(default)]
    pub now: String,
}

/// A stretch of a file on a tier that can't be relied on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedRun {
    /// First byte.
    pub offset: u64,
    /// Length in bytes, up to the end of the file at most.
    pub len: u64,
    /// The tier.
    pub tier: NamedTier,
    /// The state of the tier, as in [`TierStatus::state`], or `lost`.
    pub state: String,
}

/// What pinning came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// Regular files that were looked at.
    pub files: u64,
    /// Those of which it was changed whether, or where to, they are pinned.
    pub changed: u64,
}
