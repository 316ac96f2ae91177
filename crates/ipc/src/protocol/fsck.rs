//! What is asked for and said of a check.

use serde::{Deserialize, Serialize};

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
