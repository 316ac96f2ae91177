//! The report of a check: its problems and counts.

use braid_contract::{Fd, ObjectId};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What is to be checked, and how.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// Put right what can be put right without losing data.
    pub repair: bool,
    /// Tell of states too that are unusual and legal.
    pub verbose: bool,
    /// Files and directories to look at, below the volume's root; all of it if
    /// there are none. Then only what belongs to a file is checked.
    pub paths: Vec<PathBuf>,
    /// The directories of tiers other than home, by name, where they are
    /// directories: what is in them beside objects is looked at too.
    pub roots: Vec<(String, Fd)>,
}

impl CheckOptions {
    /// The directory of a tier, if it was given.
    pub(crate) fn root_of(&self, tier: &str) -> Option<Fd> {
        self.roots.iter().find(|(name, _)| name == tier).map(|(_, fd)| Fd::clone(fd))
    }
}

/// How bad a problem is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Nothing is wrong with any file, and no space is lost that matters.
    Note,
    /// Space is used for nothing.
    Leak,
    /// Data can't be read, is wrong or is at risk.
    Damage,
}

impl Severity {
    /// The word for it.
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

/// Something that is not as it should be.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Says which kind it is, the same in all versions (`docs/fsck.md`).
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The file concerned, below the volume's root, if one is known.
    pub path: Option<PathBuf>,
    /// The object id concerned.
    pub id: Option<ObjectId>,
    /// The tier concerned.
    pub tier: Option<String>,
    /// The bytes of the file that are concerned.
    pub bytes: Option<Range<u64>>,
    /// What was found.
    pub what: String,
    /// What a repair does, or did, or why it does nothing.
    pub repair: String,
    /// Whether it was put right.
    pub repaired: bool,
    /// It is a state that the format allows, and only told on request.
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

    /// A state that the format allows.
    pub(crate) fn legal(code: &'static str, what: impl Into<String>) -> Self {
        Self { is_legal: true, ..Self::note(code, what) }
    }

    /// The problem of the file of this path.
    pub fn path(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    /// The problem of the file of this id.
    pub fn id(self, id: ObjectId) -> Self {
        Self { id: Some(id), ..self }
    }

    pub(crate) fn tier(self, tier: &str) -> Self {
        Self { tier: Some(tier.to_owned()), ..self }
    }

    pub(crate) fn bytes(self, bytes: Range<u64>) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// What a repair does.
    pub(crate) fn repair(self, repair: impl Into<String>) -> Self {
        Self { repair: repair.into(), ..self }
    }
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Regular files in the namespace that were looked at, by name.
    pub files: u64,
    /// Those that are spread.
    pub spread_files: u64,
    /// Ranges that they have.
    pub ranges: u64,
    /// Objects on all tiers.
    pub objects: u64,
    /// What is wrong.
    pub problems: Vec<Problem>,
}
