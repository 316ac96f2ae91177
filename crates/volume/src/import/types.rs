//! The findings of an import, and its progress reports.

use braid_contract::{Error, Result};
use std::path::{Path, PathBuf};

/// The contents of a tier's directory, and an import's effect on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportSurvey {
    /// Regular files that come in, each name counted.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Symbolic links and other inodes without data that come in.
    pub others: u64,
    /// Directories that are created, or merged with those of home.
    pub dirs: u64,
    /// Entries that stay on the tier, since home has that name already.
    pub conflicts: u64,
    /// The first conflicts, below the tier's directory.
    pub named: Vec<PathBuf>,
    /// Entries that can't be read, or are on another file system, and why they
    /// stay.
    pub failed: Vec<(PathBuf, String)>,
}

/// Receives reports of an import under way.
pub(crate) trait ImportObserver {
    /// Reports that so much came in. `ECANCELED` ends the import.
    fn came(&mut self, files: u64, bytes: u64) -> Result<()>;
    /// Reports a file that stays, since home has that name already.
    fn conflict(&mut self, path: &Path);
    /// Reports a file that could not be brought in. `ECANCELED` ends the
    /// import.
    fn failed(&mut self, path: &Path, error: &Error) -> Result<()>;
}
