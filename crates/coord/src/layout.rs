//! Where each word of a region is. Processes that map the same words agree by
//! this; a change of it is a new [`VERSION`].
//!
//! A volume's words:
//!
//! | word | what |
//! | --- | --- |
//! | 0 | magic, kind, version |
//! | 1 | shape: owners, barrier counts and slots of each |
//! | 2 | tickets given to owners so far |
//! | 3 | owners that died with a claim so far |
//! | 4 | 1 while the barrier is frozen or about to be |
//! | 5 | movers that wait for claims to go |
//! | 8 … | four words for each owner: its tag (0: free), process id, start; 0 |
//!
//! then a page for each owner, at multiples of [`PAGE`]: its barrier counts and
//! its slots, one a line. An owner changes its own page only, and the keeper all.
//!
//! A file's words:
//!
//! | word | what |
//! | --- | --- |
//! | 0 | magic, kind, version |
//! | 1 | moves that are registered |
//! | 2 | entries that were switched so far |
//! | 3 | how many want that nothing moves |
//! | 4 | lock of those who register moves |
//! | line 1 | size, lock of the size, lock of appends, time of the last change, of the last read that counts (0: none is known) |
//! | line 2 … | two words for each of [`MOVES_MAX`] moves: its state (bit 0 writers wait, bit 1 cancelled, bit 2 set, bit 3 a writer waits for it, from bit 4 on the range; 0: none), chunks written since they were copied |

use crate::region::{LINE, PrivateWords, ReadRegion, Region};
use crate::sync::Ordering;
use crate::tag::OwnerTag;
use std::fmt;
use std::ops::Range;

/// The version of both layouts.
const VERSION: u64 = 2;

const MAGIC: u64 = 0x4252_434f << 32;
const VOLUME: u64 = MAGIC | 1 << 16 | VERSION;
const FILE: u64 = MAGIC | 2 << 16 | VERSION;

/// Words of a page, the smallest unit of a mapping.
const PAGE: usize = if cfg!(loom) { 1 } else { 512 };

/// The common words of a volume.
pub(crate) const TICKETS: usize = 2;
pub(crate) const DEATHS: usize = 3;
pub(crate) const FROZEN: usize = 4;
pub(crate) const WAITING: usize = 5;
const SHAPE: usize = 1;
const OWNERS: usize = 8;

/// The words of an owner.
pub(crate) const TAG: usize = 0;
pub(crate) const PID: usize = 1;
pub(crate) const START: usize = 2;
const OWNER: usize = 4;

/// The words of a file.
pub(crate) const ACTIVE: usize = 1;
pub(crate) const SWITCHES: usize = 2;
pub(crate) const HELD: usize = 3;
pub(crate) const MOVES_LOCK: usize = 4;
/// Number of moves that ended: waited on for room.
pub(crate) const ENDED: usize = 5;
const LIVE: usize = if LINE > 6 { LINE } else { 6 };
pub(crate) const SIZE: usize = LIVE;
pub(crate) const SIZE_LOCK: usize = LIVE + 1;
pub(crate) const APPEND_LOCK: usize = LIVE + 2;
pub(crate) const MTIME: usize = LIVE + 3;
pub(crate) const ATIME: usize = LIVE + 4;
const MOVES: usize = LIVE + if LINE > 5 { LINE } else { 5 };

/// Most moves of one file at a time: more than a volume has tiers, since a job
/// may move ranges of one file from each tier at once. Writers whose tier is
/// full also move a range each; moves without room wait for it.
pub const MOVES_MAX: usize = if cfg!(loom) { 2 } else { 64 };

/// The words of one move.
pub(crate) const fn move_state(at: usize) -> usize {
    MOVES + 2 * at
}

pub(crate) const fn move_dirty(at: usize) -> usize {
    MOVES + 2 * at + 1
}

/// Why words can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// They begin otherwise: they are of another kind or version.
    Other,
    /// There are fewer than they claim.
    Short,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Other => "shared words of another kind or version",
            Self::Short => "shared words that end too early",
        })
    }
}

impl std::error::Error for AttachError {}

/// The capacity of a volume's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeShape {
    /// Processes, including the keeper.
    pub owners: u16,
    /// Barrier counts of each owner, which operations share.
    pub counts: u16,
    /// Slots of each owner: the most writes in flight.
    pub slots: u16,
}

impl VolumeShape {
    /// Number of words that it needs.
    #[must_use]
    pub fn words(self) -> usize {
        self.page(self.owners.into())
    }

    /// The words that an owner stores to: whole pages of memory.
    #[must_use]
    pub fn own_words(self, owner: OwnerTag) -> Range<usize> {
        self.page(owner.index())..self.page(owner.index() + 1)
    }

    /// Position of an owner's words.
    pub(crate) fn owner(self, owner: usize) -> usize {
        OWNERS + owner * OWNER
    }

    /// Start of an owner's page.
    fn page(self, owner: usize) -> usize {
        let lines = usize::from(self.counts) + usize::from(self.slots);
        let first = self.owner(self.owners.into()).next_multiple_of(PAGE);
        first + owner * (lines * LINE).next_multiple_of(PAGE)
    }

    /// Position of an owner's barrier count.
    pub(crate) fn count(self, owner: usize, at: usize) -> usize {
        self.page(owner) + at * LINE
    }

    /// Position of an owner's slot.
    pub(crate) fn slot(self, owner: usize, at: usize) -> usize {
        self.count(owner, usize::from(self.counts) + at)
    }

    fn to_word(self) -> u64 {
        u64::from(self.owners) | u64::from(self.counts) << 16 | u64::from(self.slots) << 32
    }

    fn from_word(word: u64) -> Option<Self> {
        let part = |shift: u32| (word >> shift) as u16;
        let shape = Self { owners: part(0), counts: part(16), slots: part(32) };
        (shape.owners > 0 && shape.counts > 0 && shape.slots > 0).then_some(shape)
    }
}

/// The words of a volume: its owners, the barrier, the slots of writers.
#[derive(Clone, Debug)]
pub struct VolumeWords<R> {
    pub(crate) region: R,
    pub(crate) shape: VolumeShape,
}

impl VolumeWords<PrivateWords> {
    /// The words of a volume that only this process uses.
    #[must_use]
    pub fn private(counts: u16, slots: u16) -> Self {
        let shape = VolumeShape { owners: 1, counts, slots };
        Self::make(PrivateWords::new(shape.words()), shape)
    }
}

impl<R: Region> VolumeWords<R> {
    /// Formats words that are all 0 for a volume.
    ///
    /// # Errors
    /// If there are too few.
    pub fn format(region: R, shape: VolumeShape) -> Result<Self, AttachError> {
        if region.count() < shape.words() {
            return Err(AttachError::Short);
        }
        Ok(Self::make(region, shape))
    }

    fn make(region: R, shape: VolumeShape) -> Self {
        let this = Self { region, shape };
        // The keeper owns the first page from the start.
        this.region.word(shape.owner(0) + TAG).store(OwnerTag::KEEPER.0, Ordering::Relaxed);
        this.region.word(SHAPE).store(shape.to_word(), Ordering::Relaxed);
        this.region.word(0).store(VOLUME, Ordering::Release);
        this
    }
}

impl<R: ReadRegion> VolumeWords<R> {
    /// The words of a volume that another process formatted.
    ///
    /// # Errors
    /// If they are not that.
    pub fn attach(region: R) -> Result<Self, AttachError> {
        if region.count() < OWNERS || region.load(0) != VOLUME {
            return Err(AttachError::Other);
        }
        let shape = VolumeShape::from_word(region.load(SHAPE)).ok_or(AttachError::Other)?;
        if region.count() < shape.words() {
            return Err(AttachError::Short);
        }
        Ok(Self { region, shape })
    }
}

/// The words of a spread file: its moves, its size and times.
#[derive(Clone, Debug)]
pub struct FileWords<R> {
    pub(crate) region: R,
}

impl FileWords<PrivateWords> {
    /// The words of a file that only this process uses.
    #[must_use]
    pub fn private() -> Self {
        let region = PrivateWords::new(Self::WORDS);
        region.word(0).store(FILE, Ordering::Release);
        Self { region }
    }
}

impl<R> FileWords<R> {
    /// Number of words of a file.
    pub const WORDS: usize = MOVES + 2 * MOVES_MAX;
}

impl<R: Region> FileWords<R> {
    /// Formats words that are all 0 for a file.
    ///
    /// # Errors
    /// If there are too few.
    pub fn format(region: R) -> Result<Self, AttachError> {
        if region.count() < Self::WORDS {
            return Err(AttachError::Short);
        }
        region.word(0).store(FILE, Ordering::Release);
        Ok(Self { region })
    }
}

impl<R: ReadRegion> FileWords<R> {
    /// The words of a file that another process formatted.
    ///
    /// # Errors
    /// If they are not that.
    pub fn attach(region: R) -> Result<Self, AttachError> {
        if region.count() == 0 || region.load(0) != FILE {
            return Err(AttachError::Other);
        }
        if region.count() < Self::WORDS { Err(AttachError::Short) } else { Ok(Self { region }) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SHAPE: VolumeShape = VolumeShape { owners: 3, counts: 2, slots: 4 };

    #[test]
    fn what_owners_change_is_on_pages_of_their_own_and_fits() {
        assert_eq!((SHAPE.page(0), SHAPE.page(1), SHAPE.words()), (512, 1024, 2048));
        assert_eq!((SHAPE.owner(0), SHAPE.owner(2)), (8, 16));
        assert_eq!(SHAPE.own_words(OwnerTag::KEEPER), 512..1024);
        assert_eq!((SHAPE.count(1, 0), SHAPE.count(1, 1)), (1024, 1024 + 16));
        assert_eq!((SHAPE.slot(1, 0), SHAPE.slot(1, 3)), (1024 + 32, 1024 + 80));
        let large = VolumeShape { owners: 2, counts: 64, slots: 256 };
        assert!(large.slot(1, 255) < large.words());
        let many = VolumeShape { owners: 500, counts: 1, slots: 1 };
        assert!(many.owner(499) + START < many.count(0, 0));
    }

    #[test]
    fn the_words_of_files_do_not_overlap_and_are_where_they_were() {
        assert_eq!((SIZE, SIZE_LOCK, APPEND_LOCK, MTIME, ATIME), (16, 17, 18, 19, 20));
        assert_eq!((move_state(0), move_dirty(0), move_state(63)), (32, 33, 158));
        assert_eq!(FileWords::<PrivateWords>::WORDS, 160);
    }

    #[test]
    fn words_of_another_kind_version_or_length_are_refused() {
        let words = VolumeWords::format(PrivateWords::new(SHAPE.words()), SHAPE).unwrap();
        assert_eq!(VolumeWords::attach(&words.region).unwrap().shape, SHAPE);
        assert_eq!(FileWords::attach(&words.region).unwrap_err(), AttachError::Other);
        assert_eq!(VolumeWords::format(PrivateWords::new(9), SHAPE).unwrap_err(), AttachError::Short);

        let newer = PrivateWords::new(SHAPE.words());
        newer.word(0).store(VOLUME + 1, Ordering::Relaxed);
        assert_eq!(VolumeWords::attach(newer).unwrap_err(), AttachError::Other);

        let short = PrivateWords::new(64);
        (0..64).for_each(|at| short.word(at).store(words.region.load(at), Ordering::Relaxed));
        assert_eq!(VolumeWords::attach(short).unwrap_err(), AttachError::Short);
    }
}
