//! The status of a mounted volume. The contract has that of its tiers.

use super::Restarts;
use braid_contract::{ModuleStatus, MoveCount, NamedTier, RuntimeStatus, Shown, TierStatus};
use serde::{Deserialize, Serialize};

/// The state of a mounted file system: of a volume, where it is not said otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The volume's id: 32 hexadecimal digits.
    pub volume: String,
    /// Its mount point.
    pub mountpoint: String,
    /// Version of the daemon's program.
    pub version: String,
    /// The daemon's process id, in its own pid namespace.
    pub pid: u32,
    /// Time since the mount, in seconds.
    #[serde(default)]
    pub uptime_seconds: f64,
    /// Size of a range in bytes.
    pub range_size: u32,
    /// The policy in force, with its settings.
    pub policy: String,
    /// How often the policy mapped a thread to another tier since it is in
    /// force, if it maps threads to tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaps: Option<u64>,
    /// How the kernel treats the data of open files: `writeback`,
    /// `passthrough`, `direct`, or `writethrough` where it offers less than was
    /// asked for.
    #[serde(default)]
    pub cache: String,
    /// How requests of the kernel come: `io_uring` or `device`.
    #[serde(default)]
    pub transport: String,
    /// The device of the log file system that is mounted, if it is one: it has no tiers,
    /// and its figures are with the modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The way to that device: `kernel`, `io_uring`, `dax` or `nvme`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_driver: Option<String>,
    /// What was wrong with the log file system, a line for each kind, if it is salvaged: it is only
    /// read then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_salvage: Option<Vec<String>>,
    /// The directory of another mount that this is a view of, if it is one: it has no tiers of
    /// its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// Whether another process goes on with the mount if the daemon crashes.
    #[serde(default)]
    pub outlives_crash: bool,
    /// Crashes of the daemon since the mount, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<Restarts>,
    /// The workers of applications' sessions, if they may have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeStatus>,
    /// Open files.
    pub open_files: u64,
    /// Inodes held in memory.
    pub known_inodes: u64,
    /// Removed files whose space is not freed yet.
    pub pending_removals: u64,
    /// The tiers, by number.
    pub tiers: Vec<TierStatus>,
    /// Lost tiers that were replaced: files may still have ranges on them.
    #[serde(default)]
    pub lost_tiers: Vec<NamedTier>,
    /// Tiers that were given at the mount but left out, since they were removed
    /// from the volume.
    #[serde(default)]
    pub left_out_tiers: Vec<String>,
    /// The files that are used most, hottest first.
    #[serde(default)]
    pub hottest: Vec<HotFile>,
    /// Data moved by movers since the mount.
    #[serde(default)]
    pub moves: Vec<MoveCount>,
    /// The modules, from the top down, with their figures. Filled in by the daemon.
    #[serde(default)]
    pub modules: Vec<ModuleStatus>,
}

impl Status {
    /// Why it has no tiers, with advice, if it is that of no volume.
    #[must_use]
    pub fn without_tiers(&self) -> Option<(String, String)> {
        let point = self.mountpoint.shown();
        match (&self.log, &self.view) {
            (Some(_), _) => {
                let advice = "docs/log.md says what there is";
                Some((format!("{point}: a log file system has no tiers"), advice.into()))
            }
            (None, Some(of)) => {
                let advice = format!("ask the mount that it is of: {}", of.shown());
                Some((format!("{point}: a view has no tiers of its own"), advice))
            }
            (None, None) => None,
        }
    }
}

/// A file that is used much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotFile {
    /// Its inode number.
    pub ino: u64,
    /// Its path below the mount point, if known; for root and the user who
    /// mounted only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Average heat of its ranges in use, in percent.
    pub heat: u8,
    /// Number of these ranges.
    #[serde(default)]
    pub ranges: u64,
    /// The tiers that its hot ranges are on.
    pub tier_names: Vec<String>,
}

/// The streams that a volume learned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedStreams {
    /// Each, by number.
    pub streams: Vec<LearnedStream>,
}

/// A stream that was learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedStream {
    /// Its name.
    pub name: String,
    /// The expected life of its data, as devices get it.
    pub life: String,
    /// The same, in seconds.
    pub life_seconds: u64,
    /// Patterns of its files, the most frequent first.
    pub files: Vec<String>,
    /// Files reported for them.
    pub told: u64,
}
