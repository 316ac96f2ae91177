//! What is told of tiers that were added, set, removed and replaced.

use super::{Job, NamedTier, Saved};
use serde::{Deserialize, Serialize};

/// A tier that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The lost tier, with the number that it had.
    pub lost: NamedTier,
    /// Where it was.
    pub lost_location: String,
    /// How many ranges were on it.
    pub lost_ranges: u64,
    /// Where the new one is.
    pub location: String,
    /// What to change for the next mount.
    pub next_mount: String,
    /// Whether the stack file says so already.
    #[serde(default)]
    pub saved: Saved,
}

/// A tier that was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierAdded {
    /// The tier.
    pub tier: NamedTier,
    /// Where it is.
    pub location: String,
    /// What became of the stack file.
    pub saved: Saved,
}

/// A tier that was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierSet {
    /// The tier's name.
    pub tier: String,
    /// What became of the stack file.
    pub saved: Saved,
}

/// A tier that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierRemoved {
    /// The tier's name.
    pub tier: String,
    /// Where it was.
    pub location: String,
    /// Why its directory could not be cleared; `None` if it was.
    pub not_cleared: Option<String>,
    /// What became of the stack file.
    pub saved: Saved,
}

/// What a tier's directory has of its own, and what becomes of it by an
/// import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSurvey {
    /// The tier's name.
    pub tier: String,
    /// Regular files that come in, by name.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Symbolic links and other inodes without data that come in.
    pub others: u64,
    /// Directories that are made, or merged with those of the volume.
    pub dirs: u64,
    /// What stays on the tier, since the volume has something of that name.
    pub conflicts: u64,
    /// The first of them, by path below the volume's root.
    pub conflicting: Vec<String>,
    /// What can't be brought in.
    pub failures: Vec<ImportFailure>,
}

/// Something that can't be brought in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportFailure {
    /// Where it is, below the tier's directory.
    pub path: String,
    /// Why not.
    pub why: String,
}

/// A tier that is about to take the place of another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replacing {
    /// The new one, which is part of the volume.
    pub added: TierAdded,
    /// Moves everything to it, and removes the old one.
    pub job: Job,
}

/// A home tier that was replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HomeReplaced {
    /// The tier.
    pub tier: NamedTier,
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
    /// Whether the stack file says so already.
    #[serde(default)]
    pub saved: Saved,
}
