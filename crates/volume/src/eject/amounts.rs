//! Options, extent and outcome of an ejection.

use std::path::PathBuf;

/// Options of an ejection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EjectOptions {
    /// Only survey it.
    pub dry_run: bool,
    /// Files that are whole on another tier stay there, as ordinary files of
    /// its directory.
    pub in_place: bool,
}

/// Files that stay on a tier.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stays {
    /// The tier's name.
    pub tier: String,
    /// Files.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// How much data comes home, and how much stays on which tier.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Amounts {
    /// Number of files that come home.
    pub files: u64,
    /// Bytes of them on other tiers.
    pub bytes: u64,
    /// Space that they take on home, in bytes: less where there are holes.
    pub space: u64,
    /// Files that stay on other tiers.
    pub stays: Vec<Stays>,
}

impl Amounts {
    pub(super) fn comes_home(&mut self, bytes: u64, space: u64) {
        self.files += 1;
        self.bytes += bytes;
        self.space += space;
    }

    pub(super) fn stays(&mut self, tier: &str, bytes: u64) {
        match self.stays.iter_mut().find(|stays| stays.tier == tier) {
            Some(stays) => (stays.files, stays.bytes) = (stays.files + 1, stays.bytes + bytes),
            None => self.stays.push(Stays { tier: tier.to_owned(), files: 1, bytes }),
        }
    }
}

/// The outcome of an ejection, or of a survey for one.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Ejection {
    /// The data that comes home and that stays, by the options given.
    pub amounts: Amounts,
    /// The same for an ejection in place.
    pub in_place: Amounts,
    /// Free space on home, in bytes.
    pub room: u64,
    /// Files below the root that could not be brought home, and why not.
    pub left: Vec<(PathBuf, String)>,
    /// Any other reason why the volume can't be taken apart.
    pub hindrance: Option<String>,
    /// No tier holds anything of Braid any more.
    pub done: bool,
}

/// Progress of an ejection: bytes that came home, and bytes that are to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EjectProgress {
    /// Bytes that came home so far.
    pub done: u64,
    /// Bytes that were on other tiers.
    pub total: u64,
}
