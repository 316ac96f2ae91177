//! The messages: requests and replies in their form on the wire.
//!
//! Unknown fields are ignored and new ones may be added; a change that an older
//! peer would misread raises [`PROTOCOL`].

mod fsck;
mod jobs;
mod kv;
mod stack_file;
mod status;
mod tiers;
mod trace;
mod upgrade;

pub use braid_contract::{
    AffectedRun, Amount, Device, HoldingRule, HoldingStream, JobId, JobKind, JobState, Latency,
    LatencyBucket, LatencyHistogram, MoveCount, Mover, NamedTier, Pinned, PlacedRun, ThreadStatus, TierState,
    TierStatus, Trouble,
};
pub use fsck::{FsckProblem, FsckProgress, FsckRequest, FsckSummary};
pub use jobs::{Job, JobChange, Pin, PinRequest, StartJob};
pub use kv::{KvAnswer, KvKey, KvOperation, KvRequest, KvWhen};
pub use stack_file::{Modified, ModifyStack, Reloaded, Saved, StackDump};
pub use status::{HotFile, LearnedStream, LearnedStreams, Status};
pub use tiers::{
    HomeReplaced, ImportFailure, ImportSurvey, Replaced, Replacing, TierAdded, TierRemoved, TierSet,
};
pub use trace::{TraceBegun, TraceEnded, TraceLines, TraceRequest};
pub use upgrade::{ModuleUpgraded, Restarts, Upgrade, Upgrading};

use braid_contract::{Error, RuntimeStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The version of the protocol of this crate.
pub const PROTOCOL: u32 = 2;

/// The longest request line that a daemon reads, in bytes: room for the paths
/// of a check, as many as a command line has.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Request {
    /// Identify the daemon.
    Hello,
    /// The state of the volume and its tiers.
    Status,
    /// The location of an inode's ranges, and the reasons. For the owner of the
    /// mount, and for the owner of the file.
    Explain {
        /// The inode number, as `stat(2)` reports it.
        ino: u64,
    },
    /// Makes all writes to the volume durable; [`Reply::Done`] when done.
    Sync,
    /// Sets generic mount options, as for `mount -o remount`; the caller
    /// changes those that the kernel handles. For the owner of the mount.
    SetOptions {
        /// The options' names.
        options: Vec<String>,
    },
    /// The files with ranges on tiers that can't be relied on: one reply for
    /// each, then [`Reply::Done`]. For the owner of the mount.
    Affected,
    /// The armed faults of tiers, for drills. With `rules`, those of one tier
    /// are replaced first; an empty list lifts them. For the owner of the
    /// mount.
    Drill {
        /// The tier; all of them if `None`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tier: Option<String>,
        /// As in a stack file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rules: Option<Vec<String>>,
    },
    /// Replaces a lost tier by an empty directory. For the owner of the mount.
    ReplaceTier {
        /// The tier's name.
        tier: String,
        /// The directory, absolute.
        dir: String,
    },
    /// Adds a directory as a tier. For the owner of the mount.
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
    /// Removes a tier from the volume. For the owner of the mount.
    RemoveTier {
        /// The tier's name.
        tier: String,
        /// Whether to move its data away first.
        evacuate: bool,
    },
    /// Surveys a tier directory's own files, and an import's effect on them.
    /// For the owner of the mount.
    SurveyImport {
        /// The tier's name.
        tier: String,
    },
    /// The current stack. For the owner of the mount.
    DumpStack,
    /// The streams that were learned. For the owner of the mount.
    LearnedStreams,
    /// The workers, queues and sessions of applications. For the owner of the mount.
    Runtime,
    /// Reads the stack file again, and applies its changes. For the owner of
    /// the mount.
    Reload {
        /// Whether only to report the changes.
        #[serde(default)]
        dry_run: bool,
    },
    /// Hands the mount over to another program, which goes on with it in a process of
    /// its own. For the owner of the mount.
    Upgrade {
        /// The path of the program, absolute.
        program: String,
    },
    /// Exchanges, adds and removes modules. For the owner of the mount.
    ModifyStack(ModifyStack),
    /// Has another library go on as a module. For the owner of the mount.
    UpgradeModule {
        /// The module.
        module: String,
        /// The library, absolute; if not given, that which a repository has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
    /// Replaces a healthy tier by a directory, as a new tier, with a job. For
    /// the owner of the mount.
    ReplaceTierBy {
        /// The name of the tier that leaves.
        tier: String,
        /// The name of the new one.
        by: String,
        /// Its directory, absolute.
        dir: String,
        /// Its settings, as in a stack file.
        #[serde(default)]
        settings: BTreeMap<String, String>,
        /// Limit in bytes a second; none if not set.
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
        /// Limit in bytes a second; none if not set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bandwidth: Option<u64>,
    },
    /// Checks the volume while it is in use: any number of
    /// [`Reply::FsckProgress`] and [`Reply::FsckProblem`], one
    /// [`Reply::FsckSummary`], then [`Reply::Done`]. Ends early when the client
    /// hangs up. For the owner of the mount.
    Fsck(FsckRequest),
    /// Starts a job. For the owner of the mount, as are all that follow but
    /// [`Wait`](Self::Wait).
    StartJob(StartJob),
    /// The movers, and all known jobs.
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
        /// The change.
        change: JobChange,
    },
    /// Lets a tier that was emptied take new ranges again.
    UndoEvacuation {
        /// The tier's name.
        tier: String,
    },
    /// Pins files, or unpins them.
    Pin(PinRequest),
    /// Records the operations of applications: one [`Reply::TraceBegun`], any
    /// number of [`Reply::TraceLines`], one [`Reply::TraceEnded`], then
    /// [`Reply::Done`]. Ends with [`StopTrace`](Self::StopTrace), with the
    /// mount, or when the client hangs up.
    RecordTrace(TraceRequest),
    /// Ends a recording of another connection.
    StopTrace {
        /// Its number.
        id: u64,
    },
    /// Reads or changes keys and values of a directory, by the rights of the caller. The
    /// bytes of a value follow the line.
    Kv(KvRequest),
    /// Answered when the daemon has ended, with the outcome.
    Wait,
}

impl Request {
    /// Whether only root and the user who mounted may make the request: it
    /// changes something, or reveals names that directory permissions may hide.
    #[must_use]
    pub fn is_for_owner(&self) -> bool {
        // One by one, so that a new request is not overlooked.
        match self {
            Self::Hello | Self::Status | Self::Explain { .. } | Self::Sync | Self::Kv(_) | Self::Wait => {
                false
            }
            Self::SetOptions { .. }
            | Self::Affected
            | Self::Drill { .. }
            | Self::ReplaceTier { .. }
            | Self::AddTier { .. }
            | Self::SetTier { .. }
            | Self::RemoveTier { .. }
            | Self::SurveyImport { .. }
            | Self::DumpStack
            | Self::LearnedStreams
            | Self::Runtime
            | Self::Reload { .. }
            | Self::Upgrade { .. }
            | Self::ModifyStack(_)
            | Self::UpgradeModule { .. }
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

impl Request {
    /// Whether users who may modify the stack may make the request.
    #[must_use]
    pub fn is_for_modifiers(&self) -> bool {
        matches!(self, Self::DumpStack | Self::Reload { .. } | Self::ModifyStack(_))
    }
}

/// A request as a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLine {
    /// The client's version of the protocol; if not given, this one's.
    #[serde(default = "current")]
    pub protocol: u32,
    /// The request.
    #[serde(flatten)]
    pub request: Request,
}

/// A daemon's reply.
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
    /// To [`Request::LearnedStreams`].
    LearnedStreams(LearnedStreams),
    /// To [`Request::Runtime`].
    Runtime(RuntimeStatus),
    /// To [`Request::Reload`].
    Reloaded(Reloaded),
    /// To [`Request::Upgrade`], when requests to the file system are held up.
    Upgrading(Upgrading),
    /// To [`Request::ModifyStack`].
    StackModified(Modified),
    /// [`Request::UpgradeModule`]
    ModuleUpgraded(ModuleUpgraded),
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
    /// To [`Request::Kv`]. The bytes of values follow the line.
    Kv(KvAnswer),
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
    /// The daemon's version of the protocol.
    pub protocol: u32,
    /// The answer.
    #[serde(flatten)]
    pub reply: Reply,
}

fn current() -> u32 {
    PROTOCOL
}

/// The daemon's identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the daemon's program.
    pub version: String,
    /// The daemon's process id, in its own pid namespace.
    pub pid: u32,
    /// Where it mounted the file system.
    pub mountpoint: String,
    /// Whether the kernel still has the file system: it is mounted, or in use.
    #[serde(default = "yes")]
    pub serving: bool,
    /// How the last upgrade of the mount went; `None` if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
}

fn yes() -> bool {
    true
}

/// The end of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The error while it ended; `None` after a clean end.
    pub error: Option<String>,
}

/// A file with ranges on tiers that can't be relied on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedFile {
    /// Its path below the mount point.
    pub path: String,
    /// The error, if its index can't be read: then its ranges on each tier are
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Stretches of its bytes on such tiers, in file order.
    pub runs: Vec<AffectedRun>,
}

/// The last of several replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// The armed faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drill {
    /// Every requested tier, with or without faults.
    pub tiers: Vec<DrillTier>,
}

/// The faults of one tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillTier {
    /// The tier's name.
    pub tier: String,
    /// Its armed faults.
    pub faults: Vec<ArmedFault>,
    /// Operations that hang now.
    pub hanging: u64,
}

/// A fault and its effect so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmedFault {
    /// The rule, as in a stack file.
    pub rule: String,
    /// Number of operations that met it.
    pub hits: u64,
}

/// The location of a file's data.
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
    /// Range size of the file in bytes; for a plain one, the size that it would
    /// get.
    pub range_size: u32,
    /// Range size of files without a rule that says otherwise, in bytes; `None`
    /// from a daemon of an earlier version.
    #[serde(default)]
    pub volume_range_size: Option<u32>,
    /// Whether its synced data survives power loss: all of its tiers, home
    /// included, are durable.
    #[serde(default = "yes")]
    pub durable: bool,
    /// The tiers of the file that are not durable.
    #[serde(default)]
    pub volatile_tiers: Vec<NamedTier>,
    /// The rule that holds for the file at rest: not always the one that placed
    /// its ranges. `None` if none does.
    #[serde(default)]
    pub rule: Option<HoldingRule>,
    /// The stream that its data belongs to; `None` if none is known.
    #[serde(default)]
    pub stream: Option<HoldingStream>,
    /// The policy that holds for the file now, and its settings: the one that
    /// `rule` names, or else the volume's. `None` from a daemon of an earlier
    /// version.
    #[serde(default)]
    pub policy: Option<String>,
    /// The tier that rules and policy would give a new range of the file now.
    #[serde(default)]
    pub next: Option<NamedTier>,
    /// The pin of the file; `None` if it is not pinned.
    #[serde(default)]
    pub pin: Option<Pin>,
    /// Stretches of ranges with the same description, in file order.
    pub runs: Vec<PlacedRun>,
}

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// The Linux error number, where an operation failed with one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub errno: Option<i32>,
    /// The event, for people.
    pub message: String,
}

impl ErrorReply {
    /// An error without a number.
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
