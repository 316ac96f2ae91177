//! Requests about jobs and pins, and their replies.

use super::Saved;
use braid_contract::{Amount, JobId, JobKind, JobState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A job to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartJob {
    /// Its kind.
    pub what: JobKind,
    /// Limit in bytes a second; none if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
}

/// A change of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobChange {
    /// Pause it, to be resumed later.
    Pause,
    /// Resume it.
    Resume,
    /// End it for good.
    Cancel,
    /// Limit it to this many bytes a second; `None` for no limit.
    Bandwidth(Option<u64>),
    /// Whether it slows down where applications wait for it. Not for movers.
    Guard(bool),
}

/// A job, or a mover, which is a standing one. Times are in nanoseconds since
/// the epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its number, unique in the volume; for a mover, its name.
    pub id: JobId,
    /// Its kind; `None` for a mover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<JobKind>,
    /// The same, for people.
    pub text: String,
    /// Its state.
    pub state: JobState,
    /// Data moved so far.
    pub done: Amount,
    /// Data to be moved in all; `None` before it was counted.
    pub total: Option<Amount>,
    /// Files left in place, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Ranges and files that could not be moved.
    pub errors: u64,
    /// Files in use that it waits for.
    pub waiting_for: u64,
    /// Its phase, if it does more than moving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Limit in bytes a second; `None` without one.
    pub bandwidth: Option<u64>,
    /// Limit in bytes a second for its reads from a tier and writes to it,
    /// shared with all other moves; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier_bandwidth: Option<u64>,
    /// Whether it slows down where applications wait for it.
    #[serde(default = "guarded")]
    pub guarded: bool,
    /// Tiers on which jobs are slowed down now, with the limit in bytes a
    /// second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slowed: BTreeMap<String, f64>,
    /// Bytes moved a second, now.
    pub rate: f64,
    /// Seconds until it is done, at this rate.
    pub eta_seconds: Option<f64>,
    /// When it was requested; for a mover, when the volume was mounted.
    pub created_ns: i64,
    /// When it first ran.
    pub started_ns: Option<i64>,
    /// When it ended.
    pub ended_ns: Option<i64>,
    /// Why it failed, its first error, or the work left undone.
    pub message: Option<String>,
    /// The outcome for the stack file, if the job changed the tiers in the end,
    /// under the present daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_file: Option<Saved>,
}

/// A daemon without the field guards all jobs.
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

/// Files to be pinned or unpinned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRequest {
    /// File or directory below the volume's root.
    pub path: String,
    /// Whether to pin or to unpin them.
    pub pin: bool,
    /// The tier that they are pinned to; `None` for their present place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Whether to include all files of a directory.
    #[serde(default)]
    pub recursive: bool,
}

/// The pin of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The tier, if one was named.
    pub tier: Option<String>,
}
