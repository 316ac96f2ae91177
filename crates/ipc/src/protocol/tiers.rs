//! Replies about tiers that were added, changed, removed and replaced.

use super::{Job, NamedTier, Saved};
use serde::{Deserialize, Serialize};

/// A tier that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The lost tier, with its number.
    pub lost: NamedTier,
    /// Its location.
    pub lost_location: String,
    /// Number of ranges that were on it.
    pub lost_ranges: u64,
    /// Location of the new one.
    pub location: String,
    /// The change to make for the next mount.
    pub next_mount: String,
    /// How the stack file followed.
    #[serde(default)]
    pub saved: Saved,
}

/// A tier that was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierAdded {
    /// The tier.
    pub tier: NamedTier,
    /// Its location.
    pub location: String,
    /// How the stack file followed.
    pub saved: Saved,
}

/// A tier whose settings were changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierSet {
    /// The tier's name.
    pub tier: String,
    /// How the stack file followed.
    pub saved: Saved,
}

/// A tier that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierRemoved {
    /// The tier's name.
    pub tier: String,
    /// Its location.
    pub location: String,
    /// Why its directory could not be cleared; `None` if it was.
    pub not_cleared: Option<String>,
    /// How the stack file followed.
    pub saved: Saved,
}

/// A tier directory's own files, and an import's effect on them.
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
    /// Directories that are created, or merged with those of the volume.
    pub dirs: u64,
    /// Entries that stay on the tier, since the volume has that name already.
    pub conflicts: u64,
    /// The first conflicts, by path below the volume's root.
    pub conflicting: Vec<String>,
    /// Entries that can't be brought in.
    pub failures: Vec<ImportFailure>,
}

/// An entry that can't be brought in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportFailure {
    /// Its path below the tier's directory.
    pub path: String,
    /// The reason.
    pub why: String,
}

/// A tier that is being replaced by a new one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replacing {
    /// The new one, which is part of the volume.
    pub added: TierAdded,
    /// The job that moves everything to it, and removes the old one.
    pub job: Job,
}

/// A home tier that was replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HomeReplaced {
    /// The tier.
    pub tier: NamedTier,
    /// Its old location.
    pub old_location: String,
    /// Its new location.
    pub location: String,
    /// Regular files copied.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Time for which operations were held up in the end, in seconds.
    pub held_up: f64,
    /// The change to make for the next mount.
    pub next_mount: String,
    /// How the stack file followed.
    #[serde(default)]
    pub saved: Saved,
}
