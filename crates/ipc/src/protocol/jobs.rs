//! What is said of jobs and pins.

use super::Saved;
use braid_contract::{Amount, JobId, JobKind, JobState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A job that is to be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartJob {
    /// What it is to do.
    pub what: JobKind,
    /// Most bytes a second; as fast as it goes without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
}

/// What is to become of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobChange {
    /// It stops, and can go on later.
    Pause,
    /// It goes on.
    Resume,
    /// It ends for good.
    Cancel,
    /// It moves so many bytes a second at most; `None` has no cap.
    Bandwidth(Option<u64>),
    /// Whether it slows down where applications wait for it. Not of a mover.
    Guard(bool),
}

/// A job, or a mover, which is one that stands. Times are in nanoseconds since
/// the epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its number, which no other job of the volume gets; the name of a mover.
    pub id: JobId,
    /// What it is to do; `None` for a mover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<JobKind>,
    /// The same, for people.
    pub text: String,
    /// Where it is in its life.
    pub state: JobState,
    /// What was moved.
    pub done: Amount,
    /// What is moved in the end; `None` before it was counted.
    pub total: Option<Amount>,
    /// Files that were left where they are, by why.
    pub skipped: BTreeMap<String, u64>,
    /// Ranges and files that could not be moved.
    pub errors: u64,
    /// Files that it waits for, since they are in use.
    pub waiting_for: u64,
    /// What it is at, where that is more than moving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Most bytes a second; `None` has no cap.
    pub bandwidth: Option<u64>,
    /// Most bytes a second that it may read from a tier and write to it,
    /// together with all else that moves data; `None` has no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier_bandwidth: Option<u64>,
    /// Whether it slows down where applications wait for it.
    #[serde(default = "guarded")]
    pub guarded: bool,
    /// Tiers on which jobs are slowed down at present, and to how many bytes a
    /// second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slowed: BTreeMap<String, f64>,
    /// Bytes moved a second, now.
    pub rate: f64,
    /// Seconds until it is done, at this rate.
    pub eta_seconds: Option<f64>,
    /// When somebody started it; when the volume was mounted, for a mover.
    pub created_ns: i64,
    /// When it first ran.
    pub started_ns: Option<i64>,
    /// When it ended.
    pub ended_ns: Option<i64>,
    /// Why it failed, the first of its errors, or what it left undone.
    pub message: Option<String>,
    /// What became of the stack file, if it changed the tiers in the end and
    /// the daemon is the one that it did so under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_file: Option<Saved>,
}

/// A daemon that does not say it knows no others.
fn guarded() -> bool {
    true
}

impl Job {
    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.is_final()
    }
}

/// Files that are to be pinned or unpinned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRequest {
    /// File or directory below the volume's root.
    pub path: String,
    /// Whether they are to be pinned; unpinned if not.
    pub pin: bool,
    /// The tier that they are pinned to; to wherever they are without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// All files of a directory.
    #[serde(default)]
    pub recursive: bool,
}

/// Where a file is pinned to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The tier, if one was named.
    pub tier: Option<String>,
}
