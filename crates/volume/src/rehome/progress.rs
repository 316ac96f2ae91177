//! Progress and outcome of a replacement of home.

use braid_contract::Result;

/// Phase of a replacement of the home tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RehomePhase {
    /// Counting the data to copy.
    Counting,
    /// Copying the tree.
    Copying,
    /// Copying changes.
    CatchingUp,
    /// Waiting for files to be closed on which the kernel does I/O itself.
    Waiting,
    /// Operations are held up for the last of the copy.
    Switching,
    /// Removing leftovers.
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

/// Progress of a replacement of the home tier.
#[derive(Clone, Debug)]
pub struct RehomeProgress {
    /// Its phase.
    pub phase: RehomePhase,
    /// Regular files copied.
    pub files: u64,
    /// Number of regular files at the beginning.
    pub total_files: u64,
    /// Bytes copied, some of them more than once.
    pub bytes: u64,
    /// Space of files at the beginning, in bytes.
    pub total_bytes: u64,
    /// Files that are waited for.
    pub waiting: u64,
}

/// Outcome of a replacement of the home tier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RehomeReport {
    /// The old location of home.
    pub old_location: String,
    /// Regular files copied.
    pub files: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// How long operations were held up, in nanoseconds.
    pub held_up_ns: u64,
}

/// Outcome of a job that replaces home; or why it failed.
pub type RehomeOutcome = Result<RehomeReport>;
