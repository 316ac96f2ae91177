//! What is said of a mounted volume and its tiers.

use super::RunTier;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The volume's id: 32 hexadecimal digits.
    pub volume: String,
    /// Where it is mounted.
    pub mountpoint: String,
    /// Version of the daemon's program.
    pub version: String,
    /// The daemon's process id, in its own pid namespace.
    pub pid: u32,
    /// How long it has been mounted, in seconds.
    #[serde(default)]
    pub uptime_seconds: f64,
    /// Size of a range in bytes.
    pub range_size: u32,
    /// The policy in force, with its settings.
    pub policy: String,
    /// Files that are open at present.
    pub open_files: u64,
    /// Inodes held in memory.
    pub known_inodes: u64,
    /// Removed files whose space is not given back yet.
    pub pending_removals: u64,
    /// The tiers, by number.
    pub tiers: Vec<TierStatus>,
    /// Tiers that were lost and replaced: files may still have ranges that
    /// were on them.
    #[serde(default)]
    pub lost_tiers: Vec<RunTier>,
    /// Tiers that the mount was given and left out, since they were removed
    /// from the volume.
    #[serde(default)]
    pub left_out_tiers: Vec<String>,
    /// The files that are used most, hottest first.
    #[serde(default)]
    pub hottest: Vec<HotFile>,
    /// What movers moved since the mount.
    #[serde(default)]
    pub moves: Vec<MoveCount>,
}

/// A file that is used much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotFile {
    /// Its inode number.
    pub ino: u64,
    /// Its path below the mount point, where that is known; for root and the
    /// user who mounted only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The heat of its ranges that are in use, in percent, on average.
    pub heat: u8,
    /// How many these are.
    #[serde(default)]
    pub ranges: u64,
    /// The tiers that its hot ranges are on.
    pub tier_names: Vec<String>,
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

/// The state of one tier. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierStatus {
    /// The tier's number within the volume.
    pub id: u8,
    /// The tier's name.
    pub name: String,
    /// Where it is.
    pub location: String,
    /// Whether it holds the namespace.
    pub home: bool,
    /// `online`, `full`, `draining`, `read-only`, `failing`, `hanging` or `absent`.
    pub state: String,
    /// What its trouble began with; `None` while it has none.
    #[serde(default)]
    pub trouble: Option<Trouble>,
    /// Whether what was synced to it survives power loss; it does not on a
    /// file system in memory.
    #[serde(default = "durable")]
    pub durable: bool,
    /// Faults that are armed on it for a drill.
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
    /// The block device beneath, if there is one.
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
    pub mean: u64,
    /// Half of them took no longer.
    pub p50: u64,
    /// 99 in a hundred took no longer.
    pub p99: u64,
}

/// How many operations took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// Time of all of them together, in nanoseconds.
    pub sum: u64,
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
    pub below: Option<u64>,
    /// How many there were.
    pub ops: u64,
}

/// What a thread of an application does on a tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadStatus {
    /// The thread's id.
    pub thread: u32,
    /// The program that it is of, as the kernel calls its process; `None` where
    /// the thread has ended or can't be looked at.
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

pub(super) fn durable() -> bool {
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
