//! What is said: requests and replies as they appear on the wire.
//!
//! Unknown fields are ignored and new ones may be added; a change that an
//! older peer would misread raises [`PROTOCOL`].

mod fsck;
mod jobs;
mod stack_file;
mod status;
mod tiers;
mod trace;

pub use braid_contract::{
    AffectedRun, Amount, Device, HoldingRule, JobId, JobKind, JobState, Latency, LatencyBucket,
    LatencyHistogram, MoveCount, Mover, NamedTier, Pinned, PlacedRun, ThreadStatus, TierState, TierStatus,
    Trouble,
};
pub use fsck::{FsckProblem, FsckProgress, FsckRequest, FsckSummary};
pub use jobs::{Job, JobChange, Pin, PinRequest, StartJob};
pub use stack_file::{Reloaded, Saved, StackDump};
pub use status::{HotFile, Status};
pub use tiers::{
    HomeReplaced, ImportFailure, ImportSurvey, Replaced, Replacing, TierAdded, TierRemoved, TierSet,
};
pub use trace::{TraceBegun, TraceEnded, TraceLines, TraceRequest};

use braid_contract::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The version of the protocol that this crate speaks.
pub const PROTOCOL: u32 = 2;

/// The longest request line that a daemon reads, in bytes: room for the paths
/// of a check, as many as a command line has.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Request {
    /// Who answers here.
    Hello,
    /// The state of the volume and its tiers.
    Status,
    /// Where the ranges of an inode are, and why. For the owner of the mount,
    /// and for the owner of the file.
    Explain {
        /// The inode number, as `stat(2)` reports it.
        ino: u64,
    },
    /// Makes durable what was written to the volume: [`Reply::Done`] when it
    /// is.
    Sync,
    /// Options of any mount that hold from now on, as for `mount -o remount`;
    /// those that the kernel sees to are changed by the caller. For the owner
    /// of the mount.
    SetOptions {
        /// The options' names.
        options: Vec<String>,
    },
    /// The files with ranges on tiers that can't be relied on: one reply for
    /// each, then [`Reply::Done`]. For the owner of the mount.
    Affected,
    /// The faults that are armed on tiers for a drill. With `rules`, those of
    /// one tier are replaced first; none lifts them. For the owner of the mount.
    Drill {
        /// The tier; all of them if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tier: Option<String>,
        /// As in a stack file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rules: Option<Vec<String>>,
    },
    /// Puts an empty directory in the place of a tier that is lost. For the
    /// owner of the mount.
    ReplaceTier {
        /// The tier's name.
        tier: String,
        /// The directory, absolute.
        dir: String,
    },
    /// Makes a directory one more tier. For the owner of the mount.
    AddTier {
        /// The tier's name.
        tier: String,
        /// The directory, absolute.
        dir: String,
        /// Settings by key, as in a stack file.
        #[serde(default)]
        settings: BTreeMap<String, String>,
    },
    /// Changes settings of a tier. For the owner of the mount.
    SetTier {
        /// The tier's name.
        tier: String,
        /// Settings by key, as in a stack file; `weight` may be `auto`, and
        /// `reserve` `default`.
        settings: BTreeMap<String, String>,
    },
    /// Takes a tier out of the volume. For the owner of the mount.
    RemoveTier {
        /// The tier's name.
        tier: String,
        /// Move away first what is on it.
        evacuate: bool,
    },
    /// What a tier's directory has of its own, and what an import would do with
    /// it. For the owner of the mount.
    SurveyImport {
        /// The tier's name.
        tier: String,
    },
    /// The stack as it is now. For the owner of the mount.
    DumpStack,
    /// Reads the stack file anew, and lets what changed in it come into force.
    /// For the owner of the mount.
    Reload {
        /// Only tell what would change.
        #[serde(default)]
        dry_run: bool,
    },
    /// Puts a directory that becomes a tier in the place of a tier that is
    /// well, by a job. For the owner of the mount.
    ReplaceTierBy {
        /// The name of the tier that goes.
        tier: String,
        /// The name of the new one.
        by: String,
        /// Its directory, absolute.
        dir: String,
        /// What to set of it, as in a stack file.
        #[serde(default)]
        settings: BTreeMap<String, String>,
        /// Most bytes a second; as fast as it goes without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bandwidth: Option<u64>,
    },
    /// Makes an empty directory the home tier, by a job that goes on when the
    /// client hangs up: any number of [`Reply::Job`], one
    /// [`Reply::HomeReplaced`], then [`Reply::Done`]. [`StartJob`](Self::StartJob)
    /// does the same without waiting. For the owner of the mount.
    ReplaceHome {
        /// The directory, absolute.
        dir: String,
        /// Most bytes a second; as fast as it goes without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bandwidth: Option<u64>,
    },
    /// Check the volume while it is used: any number of
    /// [`Reply::FsckProgress`] and [`Reply::FsckProblem`], one
    /// [`Reply::FsckSummary`], then [`Reply::Done`]. Ends early when the client
    /// hangs up. For the owner of the mount.
    Fsck(FsckRequest),
    /// Starts a job. For the owner of the mount, as are all that follow but
    /// [`Wait`](Self::Wait).
    StartJob(StartJob),
    /// The movers, and all jobs that are known.
    Jobs,
    /// One job.
    Job {
        /// Its number, or the name of a mover.
        id: JobId,
    },
    /// Changes a job.
    ChangeJob {
        /// Its number, or the name of a mover.
        id: JobId,
        /// What is to become of it.
        change: JobChange,
    },
    /// A tier that was emptied takes new ranges again.
    UndoEvacuation {
        /// The tier's name.
        tier: String,
    },
    /// Pins files, or unpins them.
    Pin(PinRequest),
    /// Records what applications do: one [`Reply::TraceBegun`], any number of
    /// [`Reply::TraceLines`], one [`Reply::TraceEnded`], then [`Reply::Done`].
    /// Ends with [`StopTrace`](Self::StopTrace), with the mount, or when the
    /// client hangs up.
    RecordTrace(TraceRequest),
    /// Ends a recording that another connection asked for.
    StopTrace {
        /// Its number.
        id: u64,
    },
    /// Answered when the daemon has ended, with how it went.
    Wait,
}

impl Request {
    /// Whether only root and the user who mounted may ask: it changes
    /// something, or tells names that directory permissions may hide.
    #[must_use]
    pub fn is_for_owner(&self) -> bool {
        // One by one, so that a new request does not get by unnoticed.
        match self {
            Self::Hello | Self::Status | Self::Explain { .. } | Self::Sync | Self::Wait => false,
            Self::SetOptions { .. }
            | Self::Affected
            | Self::Drill { .. }
            | Self::ReplaceTier { .. }
            | Self::AddTier { .. }
            | Self::SetTier { .. }
            | Self::RemoveTier { .. }
            | Self::SurveyImport { .. }
            | Self::DumpStack
            | Self::Reload { .. }
            | Self::ReplaceTierBy { .. }
            | Self::ReplaceHome { .. }
            | Self::Fsck(_)
            | Self::StartJob(_)
            | Self::Jobs
            | Self::Job { .. }
            | Self::ChangeJob { .. }
            | Self::UndoEvacuation { .. }
            | Self::Pin(_)
            | Self::RecordTrace(_)
            | Self::StopTrace { .. } => true,
        }
    }
}

/// A request as a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLine {
    /// The version of the protocol that the client speaks; this one's if it
    /// does not say.
    #[serde(default = "current")]
    pub protocol: u32,
    /// What it asks for.
    #[serde(flatten)]
    pub request: Request,
}

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Hello`].
    Hello(Hello),
    /// To [`Request::Status`].
    Status(Status),
    /// To [`Request::Explain`].
    Explanation(Explanation),
    /// To [`Request::Affected`], once for each file; more often for one with
    /// very many runs.
    Affected(AffectedFile),
    /// To [`Request::Drill`].
    Drill(Drill),
    /// To [`Request::ReplaceTier`].
    Replaced(Replaced),
    /// To [`Request::AddTier`].
    TierAdded(TierAdded),
    /// To [`Request::SetTier`].
    TierSet(TierSet),
    /// To [`Request::RemoveTier`].
    TierRemoved(TierRemoved),
    /// To [`Request::SurveyImport`].
    ImportSurvey(ImportSurvey),
    /// To [`Request::DumpStack`].
    StackDump(StackDump),
    /// To [`Request::Reload`].
    Reloaded(Reloaded),
    /// To [`Request::ReplaceTierBy`].
    Replacing(Replacing),
    /// To [`Request::ReplaceHome`], in the end.
    HomeReplaced(HomeReplaced),
    /// To [`Request::Fsck`], now and then.
    FsckProgress(FsckProgress),
    /// To [`Request::Fsck`], for each problem.
    FsckProblem(FsckProblem),
    /// To [`Request::Fsck`], in the end.
    FsckSummary(FsckSummary),
    /// To [`Request::StartJob`], [`Request::Job`] and [`Request::ChangeJob`];
    /// to [`Request::ReplaceHome`], now and then.
    Job(Job),
    /// To [`Request::Jobs`], oldest first.
    Jobs(Vec<Job>),
    /// To [`Request::Pin`].
    Pinned(Pinned),
    /// To [`Request::RecordTrace`], at once.
    TraceBegun(TraceBegun),
    /// To [`Request::RecordTrace`], several times a second.
    TraceLines(TraceLines),
    /// To [`Request::RecordTrace`], in the end.
    TraceEnded(TraceEnded),
    /// To [`Request::Wait`].
    Ended(Ended),
    /// After the last of several replies.
    Done(Done),
    /// The request was refused or failed.
    Error(ErrorReply),
}

/// A reply as a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplyLine {
    /// The version of the protocol that the daemon speaks.
    pub protocol: u32,
    /// The answer.
    #[serde(flatten)]
    pub reply: Reply,
}

fn current() -> u32 {
    PROTOCOL
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the daemon's program.
    pub version: String,
    /// The daemon's process id, in its own pid namespace.
    pub pid: u32,
    /// Where the file system was mounted by it.
    pub mountpoint: String,
    /// The kernel has the file system still: it is mounted, or somebody uses it.
    #[serde(default = "yes")]
    pub serving: bool,
}

fn yes() -> bool {
    true
}

/// How the daemon ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What went wrong while it ended; `None` after a clean end.
    pub error: Option<String>,
}

/// A file with ranges on tiers that can't be relied on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedFile {
    /// Its path below the mount point.
    pub path: String,
    /// Where its index can't be read, why: then it is not known what it has on
    /// which tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Stretches of its bytes on such tiers, in file order.
    pub runs: Vec<AffectedRun>,
}

/// There are no more replies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// The faults that are armed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drill {
    /// Every tier that was asked for, with or without.
    pub tiers: Vec<DrillTier>,
}

/// The faults of one tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillTier {
    /// The tier's name.
    pub tier: String,
    /// What is armed.
    pub faults: Vec<ArmedFault>,
    /// Operations that hang at present.
    pub hanging: u64,
}

/// A fault and what it did so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmedFault {
    /// The rule, as in a stack file.
    pub rule: String,
    /// How many operations met it.
    pub hits: u64,
}

/// Where a file's data is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// `plain` or `spread`.
    pub layout: String,
    /// The object id of a spread file: 32 hexadecimal digits. For root and the
    /// user who mounted.
    pub object: Option<String>,
    /// The user who owns the file; `None` from a daemon of an earlier version.
    #[serde(default)]
    pub owner: Option<u32>,
    /// Size of the file in bytes.
    pub size: u64,
    /// Size of a range of the file in bytes; for a plain one, what it would be.
    pub range_size: u32,
    /// Size of a range of files that no rule gives another one, in bytes; `None`
    /// from a daemon of an earlier version.
    #[serde(default)]
    pub volume_range_size: Option<u32>,
    /// Whether what was synced of it survives power loss: whether all tiers do
    /// that it is on, home among them.
    #[serde(default = "yes")]
    pub durable: bool,
    /// The tiers of the file that do not.
    #[serde(default)]
    pub volatile_tiers: Vec<NamedTier>,
    /// The rule that holds for the file now, while nobody writes to it: not
    /// always the one that placed its ranges. `None` if none does.
    #[serde(default)]
    pub rule: Option<HoldingRule>,
    /// The policy that counts for the file now, and its settings: the one that
    /// `rule` names, or else the volume's. `None` from a daemon of an earlier
    /// version.
    #[serde(default)]
    pub policy: Option<String>,
    /// The tier that rules and policy would give a new range of the file now.
    #[serde(default)]
    pub next: Option<NamedTier>,
    /// Where movers leave the file; `None` if it is not pinned.
    #[serde(default)]
    pub pin: Option<Pin>,
    /// Stretches of ranges of which the same is to be said, in file order.
    pub runs: Vec<PlacedRun>,
}

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// The Linux error number, where an operation failed with one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub errno: Option<i32>,
    /// What happened, for people.
    pub message: String,
}

impl ErrorReply {
    /// An error that is not an operation's.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { errno: None, message: message.into() }
    }
}

impl From<Error> for ErrorReply {
    fn from(error: Error) -> Self {
        Self { errno: Some(error.errno().0), message: error.to_string() }
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
