//! The state of a volume, its tiers and its files. The volume fills these types
//! in, the control protocol sends them unchanged, and commands and metrics read
//! them: a new field is added here, and filled in where it is known.

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

/// The state of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierState {
    /// It takes new ranges.
    Online,
    /// It has no room beyond its reserve.
    Full,
    /// It takes no new ranges: its data is to go elsewhere.
    Draining,
    /// It was set to be read only. It is displayed as
    /// [`ReadOnly`](Self::ReadOnly), and parsed as that:
    /// [`TierStatus::readonly`] tells the two apart.
    #[serde(rename = "read-only", skip_deserializing)]
    SetReadOnly,
    /// It refuses writes; its data can be read.
    ReadOnly,
    /// It answers errors, or is gone.
    Failing,
    /// No operation on it ends.
    Hanging,
    /// The volume was opened without it.
    Absent,
}

impl TierState {
    /// The names of all states.
    pub const NAMES: [&str; 7] = ["online", "full", "draining", "read-only", "failing", "hanging", "absent"];

    /// The name that `status` shows, one of [`NAMES`](Self::NAMES).
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

/// The source of the figures of a tier's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpeedBasis {
    /// The volume's profile.
    Profile,
    /// The last mount.
    LastMount,
    /// A short measurement at the mount.
    Measured,
    /// Its use since the mount.
    Use,
    /// The kind of its device: it was not observed.
    DeviceKind,
}

impl SpeedBasis {
    /// Its description, after "known from".
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Profile => "the profile",
            Self::LastMount => "the last mount",
            Self::Measured => "a measurement at the mount",
            Self::Use => "use",
            Self::DeviceKind => "the kind of its device",
        }
    }
}

/// The state of one tier. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierStatus {
    /// The tier's number within the volume.
    pub id: TierId,
    /// The tier's name.
    pub name: String,
    /// Its location.
    pub location: String,
    /// Whether it holds the namespace.
    pub home: bool,
    /// Its state.
    pub state: TierState,
    /// Its trouble; `None` if it has none.
    #[serde(default)]
    pub trouble: Option<Trouble>,
    /// Whether synced data survives power loss; not so on a file system in
    /// memory.
    #[serde(default = "durable")]
    pub durable: bool,
    /// Faults that are armed on it for a drill. Filled in by the daemon.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Its share when ranges are dealt by weight, in MB/s; 0 if unknown.
    pub weight: f64,
    /// Space that Braid leaves free.
    pub reserve: u64,
    /// Whether it was set to be read only.
    #[serde(default)]
    pub readonly: bool,
    /// Whether it takes no new ranges, because its data is to go elsewhere.
    #[serde(default)]
    pub draining: bool,
    /// Size of the file system below.
    pub total: u64,
    /// Free space of the file system below.
    pub free: u64,
    /// Space that Braid may still use there.
    pub available: u64,
    /// Used space on the file system below, by any user.
    pub used: u64,
    /// Ranges of spread files there.
    pub ranges: u64,
    /// Errors since the mount, by kind: `io`, `no-space`, `read-only` or
    /// `missing`.
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
    /// Highest bytes read per second, as calibrated or learned; `None` if
    /// unknown.
    #[serde(default)]
    pub read_bandwidth: Option<f64>,
    /// The same for bytes written.
    #[serde(default)]
    pub write_bandwidth: Option<f64>,
    /// The source of these bandwidths; `None` if none is known.
    #[serde(default)]
    pub speed_basis: Option<SpeedBasis>,
    /// Seconds since they were last observed to be so.
    #[serde(default)]
    pub speed_age: Option<u64>,
    /// Latency of applications' reads within the last second, or the last epoch
    /// if that is longer, in nanoseconds.
    #[serde(default)]
    pub read_latency_ns: Latency,
    /// The same for writes.
    #[serde(default)]
    pub write_latency_ns: Latency,
    /// The same for reads since the mount.
    #[serde(default)]
    pub read_latency_total_ns: Latency,
    /// The same for writes since the mount.
    #[serde(default)]
    pub write_latency_total_ns: Latency,
    /// Histogram of latencies of applications' reads since the mount.
    #[serde(default, skip_serializing_if = "LatencyHistogram::is_empty")]
    pub read_latency_histogram_ns: LatencyHistogram,
    /// The same for writes.
    #[serde(default, skip_serializing_if = "LatencyHistogram::is_empty")]
    pub write_latency_histogram_ns: LatencyHistogram,
    /// Applications' operations in flight, on average, within the last second
    /// or epoch.
    #[serde(default)]
    pub in_flight: f64,
    /// Threads of applications that used the tier in the last complete second,
    /// or epoch if that is longer.
    #[serde(default)]
    pub threads: u32,
    /// At most eight of them, those that moved most bytes in that time, busiest
    /// first. Shown to root and the user who mounted.
    #[serde(default)]
    pub busiest_threads: Vec<ThreadStatus>,
    /// Bytes per second that movers and jobs read from it and write to it.
    #[serde(default)]
    pub mover_rate: f64,
    /// Bytes a second that movers and jobs may move there now; `None` without a
    /// limit.
    #[serde(default)]
    pub mover_limit: Option<f64>,
    /// The device number of the file system below, as in `stat`. Not sent: it
    /// means nothing elsewhere.
    #[serde(skip)]
    pub device_number: u64,
    /// The zones of a zoned tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<ZoneStatus>,
    /// The block device below, if there is one. Filled in by the daemon.
    #[serde(default)]
    pub device: Option<Device>,
}

/// Figures of a block device, of everything that uses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The kernel's name for it.
    pub name: String,
    /// Bytes read a second.
    pub read_rate: f64,
    /// Bytes written a second.
    pub write_rate: f64,
    /// Operations in flight now.
    pub in_flight: u64,
    /// Share of time with operations in flight, 0 to 1.
    pub busy: f64,
}

/// Latency of operations, in nanoseconds; zeros if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of operations.
    #[serde(default)]
    pub ops: u64,
    /// Mean.
    #[serde(rename = "mean")]
    pub mean_ns: u64,
    /// Median.
    #[serde(rename = "p50")]
    pub p50_ns: u64,
    /// 99th percentile.
    #[serde(rename = "p99")]
    pub p99_ns: u64,
}

/// Histogram of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// Sum of all latencies, in nanoseconds.
    #[serde(rename = "sum")]
    pub sum_ns: u64,
    /// By rising latency.
    pub buckets: Vec<LatencyBucket>,
}

impl LatencyHistogram {
    /// Whether it has no buckets, not even empty ones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }
}

/// Operations faster than some latency, and not faster than that of the bucket
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// That latency in nanoseconds; `None` for the last bucket.
    #[serde(rename = "below")]
    pub below_ns: Option<u64>,
    /// Number of operations.
    pub ops: u64,
}

/// The load of an application's thread on a tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadStatus {
    /// The thread's id.
    pub thread: u32,
    /// The program of its process, as the kernel names it; `None` if the thread
    /// has ended or can't be looked up. Filled in by the daemon.
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
    /// Mean latency of reads, in nanoseconds; 0 if there were none.
    pub read_latency_ns: u64,
    /// The same for writes.
    pub write_latency_ns: u64,
    /// Operations in flight, on average.
    pub in_flight: f64,
}

fn durable() -> bool {
    true
}

/// Why a tier can't be relied on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// The first error.
    pub error: String,
    /// Duration, in seconds.
    pub seconds: f64,
}

/// Data that one mover moved from one tier to another for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveCount {
    /// `promote` or `demote`.
    pub mover: String,
    /// The tier that the ranges left.
    pub from: String,
    /// The tier that they moved to.
    pub to: String,
    /// Why they were moved: `hot`, or `watermark`.
    pub reason: String,
    /// Number of ranges.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A rule that holds for a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingRule {
    /// Its position in the stack file's list, from 1 on.
    pub number: u64,
    /// Its condition, as the stack file has it.
    pub when: String,
    /// The tiers that it names, best first.
    pub tiers: Vec<String>,
    /// The policy that it names, and its settings.
    pub policy: Option<String>,
}

/// The zones of a zoned tier, and the writes to them since the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneStatus {
    /// Zones for data.
    pub zones: u32,
    /// Those without data.
    pub free: u32,
    /// Those that are open for a stream.
    pub open: u32,
    /// Those with data of more than one stream.
    pub mixed: u32,
    /// Those that failed.
    pub failed: u32,
    /// Bytes of new data that were written to zones.
    pub data_bytes: u64,
    /// Bytes that were moved to empty zones.
    pub moved_bytes: u64,
    /// Bytes that the index of objects took.
    pub index_bytes: u64,
    /// Bytes of memory for data that is not written yet.
    pub memory_bytes: u64,
    /// Nanoseconds in which zones were emptied.
    #[serde(default)]
    pub gc_ns: u64,
    /// Writes that waited for that.
    #[serde(default)]
    pub gc_waits: u64,
    /// Nanoseconds that a write waited for it at most.
    #[serde(default)]
    pub gc_longest_wait_ns: u64,
    /// The streams with data there.
    pub streams: Vec<ZoneStream>,
}

impl ZoneStatus {
    /// Share of the device's writes that moved data to empty zones, 0 to 1; `None` before the first
    /// write.
    #[must_use]
    pub fn gc_share(&self) -> Option<f64> {
        let all = self.data_bytes + self.moved_bytes + self.index_bytes;
        (all > 0).then(|| self.moved_bytes as f64 / all as f64)
    }

    /// Bytes that the device wrote for each byte of data; `None` before the first.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let all = self.data_bytes + self.moved_bytes + self.index_bytes;
        (self.data_bytes > 0).then(|| all as f64 / self.data_bytes as f64)
    }
}

/// A stream on a zoned tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneStream {
    /// Its number; `None` for data without a stream.
    pub id: Option<u32>,
    /// Its name. Filled in by the volume.
    #[serde(default)]
    pub name: String,
    /// Zones for it.
    pub zones: u32,
    /// Bytes of use in them.
    pub bytes: u64,
    /// The number under which the device places its data; `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<u16>,
}

/// The stream that a file's data belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingStream {
    /// Its name.
    pub name: String,
    /// The profile that knows the file; `None` where a rule, or the writer, named it.
    pub profile: Option<String>,
    /// How long the data is expected to live, as passed to the devices of tiers that are
    /// directories.
    pub life: Option<String>,
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
    /// Time of the move there, in seconds since 1970, the earliest of the run;
    /// `None` if unknown.
    #[serde(default)]
    pub since: Option<u64>,
    /// Heat of the ranges, in percent; 0 if unused or unknown.
    #[serde(default)]
    pub heat: u8,
    /// The action that movers and policy would take on them now.
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

/// The outcome of pinning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// Regular files that were visited.
    pub files: u64,
    /// Files whose pin changed.
    pub changed: u64,
}
