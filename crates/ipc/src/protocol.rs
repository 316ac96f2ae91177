//! What is said: requests and replies as they appear on the wire.
//!
//! Unknown fields are ignored and new ones may be added; a change that an
//! older peer would misread raises [`PROTOCOL`].

use braid_contract::Error;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of the protocol that this crate speaks.
pub const PROTOCOL: u32 = 1;

/// The longest request line that a daemon reads, in bytes.
pub const REQUEST_BYTES_MAX: u64 = 4096;

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
    /// Answered when the daemon has ended, with how it went.
    Wait,
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
    /// To [`Request::Wait`].
    Ended(Ended),
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
    /// `online`, `full`, `read-only` or `failing`.
    pub state: String,
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
