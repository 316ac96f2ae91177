//! What is said: requests and replies as they appear on the wire.
//!
//! Unknown fields are ignored and new ones may be added; a change that an
//! older peer would misread raises [`PROTOCOL`].

use braid_contract::Error;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of the protocol that this crate speaks.
pub const PROTOCOL: u32 = 1;

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
    /// Where the ranges of an inode are, and why.
    Explain {
        /// The inode number, as `stat(2)` reports it.
        ino: u64,
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
    /// Makes an empty directory the home tier: any number of
    /// [`Reply::HomeProgress`], one [`Reply::HomeReplaced`], then
    /// [`Reply::Done`]. Given up when the
    /// client hangs up, unless it is too late for that. For the owner of the
    /// mount.
    ReplaceHome {
        /// The directory, absolute.
        dir: String,
    },
    /// Check the volume while it is used: any number of
    /// [`Reply::FsckProgress`] and [`Reply::FsckProblem`], one
    /// [`Reply::FsckSummary`], then [`Reply::Done`]. Ends early when the client
    /// hangs up. For the owner of the mount.
    Fsck(FsckRequest),
    /// Answered when the daemon has ended, with how it went.
    Wait,
}

impl Request {
    /// Whether only root and the user who mounted may ask: it changes
    /// something, or tells names that directory permissions may hide.
    #[must_use]
    pub fn is_for_owner(&self) -> bool {
        matches!(
            self,
            Self::Affected
                | Self::Drill { .. }
                | Self::ReplaceTier { .. }
                | Self::ReplaceHome { .. }
                | Self::Fsck(_)
        )
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
    /// To [`Request::ReplaceHome`], now and then.
    HomeProgress(HomeProgress),
    /// To [`Request::ReplaceHome`], in the end.
    HomeReplaced(HomeReplaced),
    /// To [`Request::Fsck`], now and then.
    FsckProgress(FsckProgress),
    /// To [`Request::Fsck`], for each problem.
    FsckProblem(FsckProblem),
    /// To [`Request::Fsck`], in the end.
    FsckSummary(FsckSummary),
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
    /// Where the file system is mounted.
    pub mountpoint: String,
}

/// How the daemon ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What went wrong while it ended; `None` after a clean end.
    pub error: Option<String>,
}

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
    /// `online`, `full`, `read-only`, `failing`, `hanging` or `absent`.
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

/// A stretch of a file on a tier that can't be relied on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedRun {
    /// First byte.
    pub offset: u64,
    /// Length in bytes, up to the end of the file at most.
    pub len: u64,
    /// The tier.
    pub tier: RunTier,
    /// The state of the tier, as in [`TierStatus::state`], or `lost`.
    pub state: String,
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

/// A tier that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The lost tier, with the number that it had.
    pub lost: RunTier,
    /// Where it was.
    pub lost_location: String,
    /// How many ranges were on it.
    pub lost_ranges: u64,
    /// Where the new one is.
    pub location: String,
    /// What to change for the next mount.
    pub next_mount: String,
}

/// How far a replacement of the home tier has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeProgress {
    /// `counting`, `copying`, `catching up`, `waiting`, `switching` or
    /// `cleaning up`.
    pub phase: String,
    /// Regular files copied.
    pub files: u64,
    /// How many there were at the beginning.
    pub total_files: u64,
    /// Bytes copied; what changes meanwhile is copied more than once.
    pub bytes: u64,
    /// Space that files took on the home tier at the beginning.
    pub total_bytes: u64,
    /// Files open by passthrough, which are waited for.
    pub waiting: u64,
}

/// A home tier that was replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HomeReplaced {
    /// The tier.
    pub tier: RunTier,
    /// Where it was.
    pub old_location: String,
    /// Where it is.
    pub location: String,
    /// Regular files copied.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// For how long operations were held up in the end, in seconds.
    pub held_up: f64,
    /// What to change for the next mount.
    pub next_mount: String,
}

/// Where a file's data is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// `plain` or `spread`.
    pub layout: String,
    /// The object id of a spread file: 32 hexadecimal digits.
    pub object: Option<String>,
    /// Size of the file in bytes.
    pub size: u64,
    /// Size of a range in bytes.
    pub range_size: u32,
    /// Whether what was synced of it survives power loss: whether all tiers do
    /// that it is on, home among them.
    #[serde(default = "durable")]
    pub durable: bool,
    /// The tiers of the file that do not.
    #[serde(default)]
    pub volatile_tiers: Vec<RunTier>,
    /// Stretches of ranges that share a tier and a reason, in file order.
    pub runs: Vec<Run>,
}

/// A stretch of ranges on one tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Number of ranges.
    pub ranges: u64,
    /// The tier; `None` where nothing was ever written.
    pub tier: Option<RunTier>,
    /// Why the ranges are there.
    pub reason: String,
}

/// The tier of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTier {
    /// The tier's number.
    pub id: u8,
    /// The tier's name.
    pub name: String,
}

/// What is to be checked, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckRequest {
    /// Put right what can be put right without losing data.
    #[serde(default)]
    pub repair: bool,
    /// Tell of states too that are unusual and legal.
    #[serde(default)]
    pub verbose: bool,
    /// Files and directories to check, below the volume's root; all of it if
    /// there are none.
    #[serde(default)]
    pub paths: Vec<String>,
}

/// How far a check has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckProgress {
    /// What is being checked.
    pub phase: String,
    /// How many of them are done.
    pub done: u64,
    /// How many there are, where that is known.
    pub total: Option<u64>,
}

/// Something that a check found (`docs/fsck.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckProblem {
    /// Which kind it is.
    pub code: String,
    /// `damage`, `leak` or `note`.
    pub severity: String,
    /// The file concerned, below the volume's root, if one is known.
    pub path: Option<String>,
    /// The object id concerned: 32 hexadecimal digits.
    pub id: Option<String>,
    /// The tier concerned.
    pub tier: Option<String>,
    /// First byte of the file that is concerned.
    pub offset: Option<u64>,
    /// How many bytes are.
    pub len: Option<u64>,
    /// What was found.
    pub what: String,
    /// What a repair does, or did, or why it does nothing.
    pub repair: String,
    /// Whether it was put right.
    pub repaired: bool,
}

/// What a check comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckSummary {
    /// Regular files that were looked at, by name.
    pub files: u64,
    /// Those that are spread.
    pub spread_files: u64,
    /// Ranges that they have.
    pub ranges: u64,
    /// Objects on all tiers.
    pub objects: u64,
    /// Problems of each severity.
    pub damage: u64,
    /// Space that is used for nothing.
    pub leaks: u64,
    /// What is unusual and does no harm.
    pub notes: u64,
    /// Problems that were put right.
    pub repaired: u64,
    /// Damage and leaks that were not.
    pub left: u64,
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
