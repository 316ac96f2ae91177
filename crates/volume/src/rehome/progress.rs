//! How far a replacement of home is, and what it came to.

use braid_contract::Result;

/// What a replacement of the home tier is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RehomePhase {
    /// Looking at what there is to copy.
    Counting,
    /// Copying the tree.
    Copying,
    /// Copying what changed meanwhile.
    CatchingUp,
    /// Waiting for files that the kernel reads by itself to be closed.
    Waiting,
    /// Nothing goes on but the last of the copy.
    Switching,
    /// Removing what is left over.
    CleaningUp,
}

impl RehomePhase {
    /// A word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counting => "counting",
            Self::Copying => "copying",
            Self::CatchingUp => "catching up",
            Self::Waiting => "waiting",
            Self::Switching => "switching",
            Self::CleaningUp => "cleaning up",
        }
    }
}

/// How far a replacement of the home tier has come.
#[derive(Clone, Debug)]
pub struct RehomeProgress {
    /// What it is at.
    pub phase: RehomePhase,
    /// Regular files copied.
    pub files: u64,
    /// How many there were at the beginning.
    pub total_files: u64,
    /// Bytes copied, some of them more than once.
    pub bytes: u64,
    /// Space that files took at the beginning.
    pub total_bytes: u64,
    /// Files that are waited for.
    pub waiting: u64,
}

/// What a replacement of the home tier came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RehomeReport {
    /// Where home was.
    pub old_location: String,
    /// Regular files copied.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// For how long nothing else went on, in nanoseconds.
    pub held_up_ns: u64,
}

/// What a job that replaces home came to; if it failed, why.
pub type RehomeOutcome = Result<RehomeReport>;
