//! The offline check of a volume, in terms that a command line can print.

use crate::config::Config;
use crate::refusal::Refusal;
use crate::{validate, wire};
use serde::Serialize;
use std::path::PathBuf;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Regular files.
    pub files: u64,
    /// Those of them that are spread.
    pub spread_files: u64,
    /// Ranges that have data.
    pub ranges: u64,
    /// Objects on the tiers.
    pub objects: u64,
    /// What is wrong, or was.
    pub problems: Vec<Problem>,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, where it is known.
    pub path: Option<PathBuf>,
    /// The object, where it is known.
    pub object: Option<String>,
    /// What is wrong.
    pub what: String,
    /// Whether it was put right.
    pub repaired: bool,
}

impl Report {
    /// Problems that are still there.
    #[must_use]
    pub fn left(&self) -> usize {
        self.problems.iter().filter(|problem| !problem.repaired).count()
    }
}

/// Checks the volume that `config` describes, which must not be mounted, and
/// puts right what can be if `repair` is set. `progress` is told what is being
/// done.
///
/// # Errors
/// If the volume can't be opened for checking.
pub fn run(config: &Config, repair: bool, progress: &mut dyn FnMut(&str)) -> Result<Report, Refusal> {
    let volume = config.stack.volume();
    validate::tiers(volume)?;
    wire::check(volume, repair, progress)
}
