//! The report of a check: its problems and counts.

use braid_contract::{Fd, ObjectId};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The extent of a check, and its output.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Repair all damage that can be repaired without losing data.
    pub repair: bool,
    /// Also report unusual states that the format allows.
    pub verbose: bool,
    /// Files and directories to check, below the volume's root; then orphans are
    /// not looked for. The whole volume if there are none.
    pub paths: Vec<PathBuf>,
    /// The directories of tiers other than home, by name, if they are
    /// directories: then all files in them are checked, and not only objects.
    pub roots: Vec<(String, Fd)>,
}

impl CheckOptions {
    /// The directory of a tier, if it was given.
    pub(crate) fn root_of(&self, tier: &str) -> Option<Fd> {
        self.roots.iter().find(|(name, _)| name == tier).map(|(_, fd)| Fd::clone(fd))
    }
}

/// The severity of a problem.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// No file is affected, and no space is wasted that matters.
    Note,
    /// Space is wasted.
    Leak,
    /// Data is unreadable, wrong or at risk.
    Damage,
}

impl Severity {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Leak => "leak",
            Self::Damage => "damage",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A fault or an unusual state of the volume.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The kind of problem, named alike in all versions (`docs/fsck.md`).
    pub code: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// The file concerned, below the volume's root, if one is known.
    pub path: Option<PathBuf>,
    /// The object id concerned.
    pub id: Option<ObjectId>,
    /// The tier concerned.
    pub tier: Option<String>,
    /// The bytes of the file concerned.
    pub bytes: Option<Range<u64>>,
    /// A sentence about the finding.
    pub what: String,
    /// A sentence about the repair: its action, or why there is none.
    pub repair: String,
    /// Whether it was repaired.
    pub repaired: bool,
    /// The format allows this state: it is reported on request only.
    pub(crate) is_legal: bool,
}

impl Problem {
    fn new(severity: Severity, code: &'static str, what: String) -> Self {
        Self {
            code,
            severity,
            path: None,
            id: None,
            tier: None,
            bytes: None,
            what,
            repair: "nothing is done".into(),
            repaired: false,
            is_legal: false,
        }
    }

    pub(crate) fn damage(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(Severity::Damage, code, what.into())
    }

    pub(crate) fn leak(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(Severity::Leak, code, what.into())
    }

    pub(crate) fn note(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, what.into())
    }

    /// A note on a state that the format allows.
    pub(crate) fn legal(code: &'static str, what: impl Into<String>) -> Self {
        Self { is_legal: true, ..Self::note(code, what) }
    }

    /// Sets the path of the file concerned.
    pub fn path(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    /// Sets the object id concerned.
    pub fn id(self, id: ObjectId) -> Self {
        Self { id: Some(id), ..self }
    }

    pub(crate) fn tier(self, tier: &str) -> Self {
        Self { tier: Some(tier.to_owned()), ..self }
    }

    pub(crate) fn bytes(self, bytes: Range<u64>) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// Sets the sentence about the repair.
    pub(crate) fn repair(self, repair: impl Into<String>) -> Self {
        Self { repair: repair.into(), ..self }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Regular files that were checked, by name.
    pub files: u64,
    /// Those of them with an id: spread and whole files.
    pub spread_files: u64,
    /// Ranges of these files.
    pub ranges: u64,
    /// Objects on all tiers.
    pub objects: u64,
    /// All problems that were found.
    pub problems: Vec<Problem>,
}
