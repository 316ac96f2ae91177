//! What an import finds, and what is told of one under way.

use braid_contract::{Error, Result};
use std::path::{Path, PathBuf};

/// What a tier's directory has of its own, and what becomes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportSurvey {
    /// Regular files that come in, each name of one counted.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Symbolic links and other inodes without data that come in.
    pub others: u64,
    /// Directories that are made, or merged with those that home has.
    pub dirs: u64,
    /// What stays on the tier, since home has something of that name.
    pub conflicts: u64,
    /// The first of them, below the tier's directory.
    pub named: Vec<PathBuf>,
    /// What can't be looked at, and why; or is on another file system.
    pub failed: Vec<(PathBuf, String)>,
}

/// What is told of an import under way.
pub(crate) trait ImportObserver {
    /// So much came in. `ECANCELED` ends it.
    fn came(&mut self, files: u64, bytes: u64) -> Result<()>;
    /// This stays, since home has something of that name.
    fn conflict(&mut self, path: &Path);
    /// This could not be brought in. `ECANCELED` ends it.
    fn failed(&mut self, path: &Path, error: &Error) -> Result<()>;
}
