//! Damage to the tiers of a volume that is not mounted, by plain file
//! operations on the format that `docs/format.md` describes.
//!
//! Each [`Kind`] has the problems that a check must find, the data that the
//! rescue script must get back, and the answers of the damaged file. Tests of
//! `fsck` and of the rescue script call it, and so does the `damage` binary. It
//! shares no code with the volume.

#![allow(clippy::single_range_in_vec_init, reason = "one stretch of bytes is meant")]

mod format;
mod ids;
mod index;
mod objects;
mod sample;
mod scene;
mod tiers;
mod words;

pub use format::Malformed;
pub use sample::{Sample, SampleFile};

use braid_contract::ObjectId;
use scene::Scene;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The directories of a volume's tiers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Volume {
    /// The home tier.
    pub home: PathBuf,
    /// The others.
    pub others: Vec<PathBuf>,
}

/// The file to damage, or whose index or object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A spread file with data on another tier than home; the seed says which.
    Any,
    /// The spread file with this path below the volume's root.
    Path(PathBuf),
    /// The spread file with this id.
    Id(ObjectId),
}

/// The finding of a check of the damaged volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// It must report a problem.
    Reported,
    /// It must report a problem, or that the volume can't be opened.
    Refused,
    /// It must report nothing: this is no damage.
    Legal,
    /// It may report a problem: the format allows this state, or does not show it.
    Either,
}

/// The part that the rescue script must restore. `braid fsck --repair` knows
/// more of the volume, and restores some of the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    /// There is nothing to restore: by the format, the answer of the damaged
    /// file is the truth.
    NotNeeded,
    /// Every file comes back as it was before the damage.
    Lossless,
    /// Lost data need not be restored, but must not be passed off as whole.
    Impossible,
}

/// The answer of the damaged file, until it is repaired. Everything else in the
/// volume answers as before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The same as before.
    Same,
    /// Reading in these ranges fails; the rest is as before.
    Error(Vec<Range<u64>>),
    /// These ranges read as zeros; the rest is as before.
    Zeros(Vec<Range<u64>>),
    /// It has this size: it is cut there, or goes on with zeros.
    Size(u64),
    /// It can't be read at all. To answer as a plain file would be wrong.
    Unreadable,
    /// It is a plain file, with the data of its home file.
    Plain,
}

/// One kind of damage.
#[derive(Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// The change.
    pub does: &'static str,
    /// The finding of a check.
    pub finding: Finding,
    /// The part that the rescue script must restore.
    pub repair: Repair,
    /// The answer of the file until it is repaired.
    pub answer: &'static str,
    inflict: fn(&mut Scene) -> Result<Applied, Error>,
}

/// Damage that was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The file concerned, below the volume's root, if one is.
    pub path: Option<PathBuf>,
    /// The object id concerned, if one is.
    pub id: Option<ObjectId>,
    /// The changed, created or removed file.
    pub place: PathBuf,
    /// The answer of the file until it is repaired.
    pub answer: Answer,
}

impl Applied {
    /// Damage to the scene's file.
    fn file(scene: &Scene, place: impl Into<PathBuf>, answer: Answer) -> Result<Self, Error> {
        let (path, id) = (Some(scene.file.path.clone()), Some(scene.file.id));
        Ok(Self { path, id, place: place.into(), answer })
    }

    /// Damage that concerns no file.
    fn volume(place: impl Into<PathBuf>) -> Result<Self, Error> {
        Ok(Self { path: None, id: None, place: place.into(), answer: Answer::Same })
    }

    /// Damage that concerns an id that no file has.
    fn to_no_file(id: ObjectId, place: impl Into<PathBuf>) -> Result<Self, Error> {
        Ok(Self { path: None, id: Some(id), place: place.into(), answer: Answer::Same })
    }
}

impl Kind {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = &'static Kind> {
        [index::KINDS, words::KINDS, objects::KINDS, ids::KINDS, tiers::KINDS].into_iter().flatten()
    }

    /// The kind of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Kind> {
        Self::all().find(|kind| kind.name == name)
    }

    /// Damages a volume that is not mounted. The same seed does the same.
    ///
    /// # Errors
    /// [`Error::Unsuited`] if volume or file lack the target of this kind; then
    /// nothing was changed. After [`Error::Io`], the damage may be partial.
    pub fn apply(&self, volume: &Volume, target: &Target, seed: u64) -> Result<Applied, Error> {
        (self.inflict)(&mut Scene::open(volume, target, seed)?)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let check = match self.finding {
            Finding::Reported => "reports it",
            Finding::Refused => "reports it or can't open the volume",
            Finding::Legal => "says nothing",
            Finding::Either => "may report it",
        };
        let rescue = match self.repair {
            Repair::NotNeeded => "not needed",
            Repair::Lossless => "without loss",
            Repair::Impossible => "need not come back",
        };
        write!(
            f,
            "{}: {}; check: {check}; rescue: {rescue}; until it is repaired: {}",
            self.name, self.does, self.answer
        )
    }
}

impl Answer {
    /// Compares a damaged file with its former contents. `read` reads a stretch
    /// of the damaged file, or fails.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(
        &self,
        before: &[u8],
        home: &[u8],
        size: io::Result<u64>,
        mut read: impl FnMut(Range<u64>) -> io::Result<Vec<u8>>,
    ) -> Result<(), String> {
        let (expected, failing) = self.expected(before, home);
        let Some(expected) = expected else {
            let bytes = size.and_then(|size| read(0..size.max(1)));
            return bytes.map_or(Ok(()), |bytes| Err(format!("{} bytes can be read of it", bytes.len())));
        };
        let size = size.map_err(|error| format!("its size can't be had: {error}"))?;
        if size != expected.len() as u64 {
            return Err(format!("its size is {size} and not {}", expected.len()));
        }
        let mut at = 0;
        for fails in failing.into_iter().chain([size..size]) {
            check_stretch(&expected, at..fails.start, &mut read)?;
            if !fails.is_empty() && read(fails.clone()).is_ok() {
                return Err(format!("bytes {fails:?} can be read"));
            }
            at = fails.end;
        }
        Ok(())
    }

    /// The readable bytes (`None`: nothing), and where reading fails.
    fn expected(&self, before: &[u8], home: &[u8]) -> (Option<Vec<u8>>, Vec<Range<u64>>) {
        let mut bytes = before.to_vec();
        match self {
            Self::Same => (Some(bytes), Vec::new()),
            Self::Error(ranges) => (Some(bytes), ranges.clone()),
            Self::Zeros(ranges) => {
                for range in ranges {
                    bytes[range.start as usize..range.end as usize].fill(0);
                }
                (Some(bytes), Vec::new())
            }
            Self::Size(size) => {
                bytes.resize(*size as usize, 0);
                (Some(bytes), Vec::new())
            }
            Self::Unreadable => (None, Vec::new()),
            Self::Plain => (Some(home.to_vec()), Vec::new()),
        }
    }
}

fn check_stretch(
    expected: &[u8],
    stretch: Range<u64>,
    read: &mut impl FnMut(Range<u64>) -> io::Result<Vec<u8>>,
) -> Result<(), String> {
    if stretch.is_empty() {
        return Ok(());
    }
    let found = read(stretch.clone()).map_err(|error| format!("bytes {stretch:?} can't be read: {error}"))?;
    let expected = &expected[stretch.start as usize..stretch.end as usize];
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        Some(at) => Err(format!("byte {} is not what it must be", stretch.start + at as u64)),
        None if found.len() != expected.len() => Err(format!("bytes {stretch:?}: {} of them", found.len())),
        None => Ok(()),
    }
}

/// Why damage was not done.
#[derive(Debug)]
pub enum Error {
    /// Volume or file are not such that this damage could be done to them.
    Unsuited(&'static str),
    /// A file of the volume does not match the format.
    Malformed(PathBuf, Malformed),
    /// An operation failed.
    Io(PathBuf, io::Error),
}

impl Error {
    fn io(path: &Path, error: io::Error) -> Self {
        Self::Io(path.to_owned(), error)
    }

    fn malformed(path: &Path, why: Malformed) -> Self {
        Self::Malformed(path.to_owned(), why)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsuited(why) => f.write_str(why),
            Self::Malformed(path, why) => write!(f, "{}: {why}", path.display()),
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
