//! Requests for checks, and their replies.

use serde::{Deserialize, Serialize};

/// The files to check, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckRequest {
    /// Whether to repair damage where that loses no data.
    #[serde(default)]
    pub repair: bool,
    /// Whether to report unusual legal states too.
    #[serde(default)]
    pub verbose: bool,
    /// Files and directories to check, below the volume's root; everything if
    /// empty.
    #[serde(default)]
    pub paths: Vec<String>,
}

/// The progress of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckProgress {
    /// The present phase of the check.
    pub phase: String,
    /// How many are done.
    pub done: u64,
    /// How many there are, if known.
    pub total: Option<u64>,
}

/// A finding of a check (`docs/fsck.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckProblem {
    /// Its kind.
    pub code: String,
    /// `damage`, `leak` or `note`.
    pub severity: String,
    /// The file concerned, below the volume's root, if one is known.
    pub path: Option<String>,
    /// The object id concerned: 32 hexadecimal digits.
    pub id: Option<String>,
    /// The tier concerned.
    pub tier: Option<String>,
    /// The first byte concerned.
    pub offset: Option<u64>,
    /// Number of bytes concerned.
    pub len: Option<u64>,
    /// The finding.
    pub what: String,
    /// The repair that is possible or was made, or why there is none.
    pub repair: String,
    /// Whether it was repaired.
    pub repaired: bool,
}

/// The summary of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckSummary {
    /// Regular files that were checked, by name.
    pub files: u64,
    /// The spread files among them.
    pub spread_files: u64,
    /// Their ranges.
    pub ranges: u64,
    /// Objects on all tiers.
    pub objects: u64,
    /// Problems of each severity.
    pub damage: u64,
    /// Wasted space.
    pub leaks: u64,
    /// Unusual but harmless states.
    pub notes: u64,
    /// Repaired problems.
    pub repaired: u64,
    /// Damage and leaks that were not repaired.
    pub left: u64,
}
