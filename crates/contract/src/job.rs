//! Jobs: long moves and reads of data that were requested, and continue after a restart.
//! The volume carries them out and saves them; the control protocol describes
//! them in the same terms.

use crate::Shown;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The data that a job moves, and its destination, or that it reads. Paths are below the
/// volume's root.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum JobKind {
    /// A file, or all files of a directory, to one tier.
    Move {
        /// File or directory.
        path: String,
        /// The tier's name.
        to: String,
    },
    /// A file, or all files of a directory, to the fastest tier with room.
    Promote {
        /// File or directory.
        path: String,
    },
    /// A file, or all files of a directory, to the slowest tier with room.
    Demote {
        /// File or directory.
        path: String,
    },
    /// Ranges of all files, so that every tier has its share.
    Rebalance {},
    /// Everything off one tier, which takes no new ranges any more.
    Evacuate {
        /// The tier's name.
        tier: String,
        /// Whether the tier leaves the volume once it is empty.
        #[serde(default)]
        then_remove: bool,
    },
    /// Everything off one tier to a new one, and once that is full to the
    /// others; then the first leaves the volume.
    Replace {
        /// The name of the tier that leaves.
        tier: String,
        /// The name of the tier that takes its place.
        by: String,
    },
    /// A tier's own files into the namespace, without moving them.
    Import {
        /// The tier's name.
        tier: String,
    },
    /// Home to another directory, with the names of all files.
    ReplaceHome {
        /// The directory, absolute.
        dir: String,
    },
    /// Reads a file, or all files of a directory, so that modules and devices check what they have.
    Scrub {
        /// File or directory.
        path: String,
    },
}

impl JobKind {
    /// The file or directory of such a job.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Move { path, .. }
            | Self::Promote { path }
            | Self::Demote { path }
            | Self::Scrub { path } => Some(path),
            Self::Rebalance {}
            | Self::Evacuate { .. }
            | Self::Replace { .. }
            | Self::Import { .. }
            | Self::ReplaceHome { .. } => None,
        }
    }

    /// The tier that such a job empties.
    #[must_use]
    pub fn emptied_tier(&self) -> Option<&str> {
        match self {
            Self::Evacuate { tier, .. } | Self::Replace { tier, .. } => Some(tier),
            Self::Move { .. }
            | Self::Promote { .. }
            | Self::Demote { .. }
            | Self::Rebalance {}
            | Self::Import { .. }
            | Self::ReplaceHome { .. }
            | Self::Scrub { .. } => None,
        }
    }

    /// The tier that such a job removes from the volume in the end.
    #[must_use]
    pub fn removed_tier(&self) -> Option<&str> {
        match self {
            Self::Evacuate { then_remove: false, .. } => None,
            what => what.emptied_tier(),
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |path: &str| if path.is_empty() { "/".to_owned() } else { path.shown().to_string() };
        match self {
            Self::Move { path, to } => write!(f, "move {} to {to}", shown(path)),
            Self::Promote { path } => write!(f, "promote {}", shown(path)),
            Self::Demote { path } => write!(f, "demote {}", shown(path)),
            Self::Rebalance {} => f.write_str("rebalance"),
            Self::Evacuate { tier, then_remove: false } => write!(f, "evacuate {tier}"),
            Self::Evacuate { tier, then_remove: true } => write!(f, "evacuate {tier} and remove it"),
            Self::Replace { tier, by } => write!(f, "replace {tier} by {by}"),
            Self::Import { tier } => write!(f, "import {tier}"),
            Self::ReplaceHome { dir } => write!(f, "replace home by {}", dir.shown()),
            Self::Scrub { path } => write!(f, "scrub {}", shown(path)),
        }
    }
}

/// A mover moves ranges by itself: a job that is never started, and runs for as
/// long as the volume is mounted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mover {
    /// Ranges that are frequently used, to faster tiers.
    Promote,
    /// Cold ranges off tiers that run full, to slower ones.
    Demote,
    /// Ranges in use from tiers that hold applications up to tiers that could do
    /// more.
    Balance,
}

impl Mover {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Promote, Self::Demote, Self::Balance];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Promote => "promote",
            Self::Demote => "demote",
            Self::Balance => "balance",
        }
    }
}

impl fmt::Display for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Promote => "promote what is in use",
            Self::Demote => "demote what is cold from full tiers",
            Self::Balance => "balance what is in use between tiers",
        })
    }
}

/// The id of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum JobId {
    /// A job that was requested, by its number.
    Number(u64),
    /// A mover, by its name.
    Mover(Mover),
}

impl From<u64> for JobId {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Mover(mover) => f.write_str(mover.name()),
        }
    }
}

impl FromStr for JobId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "promote" => Ok(Self::Mover(Mover::Promote)),
            "demote" => Ok(Self::Mover(Mover::Demote)),
            "balance" => Ok(Self::Mover(Mover::Balance)),
            number => number.parse().map(Self::Number).map_err(|_| {
                "a job is called by its number, or promote, demote or balance, if it is one that stands"
                    .into()
            }),
        }
    }
}

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It waits for others to end.
    Queued,
    /// It moves data, or waits for files that are in use.
    Running,
    /// It was paused, and may be resumed.
    Paused,
    /// It runs for as long as the volume is mounted, and has nothing to do now.
    Idle,
    /// It completed.
    Done,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Idle => "idle",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether this state is the last one.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// How much data was moved, or is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// Bytes of files.
    pub bytes: u64,
    /// Ranges.
    pub ranges: u64,
    /// Files with such ranges.
    pub files: u64,
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.ranges += more.ranges;
        self.files += more.files;
    }
}
