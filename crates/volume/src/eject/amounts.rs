//! What an ejection is to do, would do, and came to.

use std::path::PathBuf;

/// How an ejection is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EjectOptions {
    /// Only look what it means.
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

/// How much comes home, and how much stays where.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Amounts {
    /// Files that come home.
    pub files: u64,
    /// Bytes of them on other tiers.
    pub bytes: u64,
    /// Room that they take on home, in bytes: less where there are holes.
    pub space: u64,
    /// What stays on other tiers.
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

/// What an ejection came to, or would.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Ejection {
    /// What comes home and what stays, as it was asked for.
    pub amounts: Amounts,
    /// The same for an ejection in place.
    pub in_place: Amounts,
    /// Room on home, in bytes.
    pub room: u64,
    /// Files that could not be brought home, below the root, and why not.
    pub left: Vec<(PathBuf, String)>,
    /// What else keeps the volume from being taken apart.
    pub hindrance: Option<String>,
    /// Nothing of Braid is left on any tier.
    pub done: bool,
}

/// How far an ejection is: bytes that came home, and bytes that are to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EjectProgress {
    /// Bytes that are at home now and were not.
    pub done: u64,
    /// Bytes that were elsewhere.
    pub total: u64,
}
