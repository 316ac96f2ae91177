//! The format of the records: the words of both kinds of memory, for the process that writes them
//! and the next one, which may be of another version.

use crate::asked::{self, Asked};
use crate::layout::{Geometry, QUEUES_MAX};
use braid_contract::{HandleId, InodeId, OpenFlags};
use braid_sdk::abi::Failure;
use braid_sys::SharedWords;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file or directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFile {
    pub(crate) ino: InodeId,
    pub(crate) flags: OpenFlags,
    pub(crate) directory: bool,
}

/// The phase of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(crate) enum Phase {
    /// It was taken, and may have been carried out.
    Taken,
    /// It was carried out.
    Done,
    /// Its answer is in its slot.
    Answered,
}

/// The record of a request that an earlier process took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRecord {
    pub(crate) phase: Phase,
    /// Its error number, if it was carried out; 0 is success.
    pub(crate) errno: i32,
    /// Its note, of how to tell whether it was carried out.
    pub(crate) note: Option<u64>,
    /// The handle that it opened, if its answer has one; else 0.
    pub(crate) opened: HandleId,
}

/// Whether the session's socket is at rest, without a message under way.
pub(super) const AT_REST: usize = 0;
/// Directories that were shown.
pub(super) const SHOWN: usize = 1;
/// How many requests of each queue were taken.
pub(super) const HEADS: usize = 16;
/// The start of the slots.
const SLOTS: usize = HEADS + QUEUES_MAX;

/// Entries of the first piece.
pub(super) const FIRST: usize = 1024;

/// Words of the memory of slots.
pub(super) fn words_of_slots(geometry: Geometry) -> usize {
    SLOTS + geometry.queues * geometry.depth * SlotWords::LEN
}

/// The first entry of a piece, and how many it has.
pub(super) fn piece(number: usize) -> (usize, usize) {
    (FIRST * ((1 << number) - 1), FIRST << number)
}

/// Words of a piece.
pub(super) fn words_of_piece(number: usize) -> usize {
    piece(number).1 * EntryWords::LEN
}

/// The words of all entries.
pub(super) fn entries(pieces: &[SharedWords]) -> impl Iterator<Item = EntryWords<'_>> {
    pieces.iter().flat_map(|piece| piece.words().chunks_exact(EntryWords::LEN)).map(EntryWords)
}

/// The words about a slot: its request that was taken and not answered, if there is one.
#[derive(Clone, Copy)]
pub(super) struct SlotWords<'a>(&'a [AtomicU64]);

impl<'a> SlotWords<'a> {
    /// The request's number and 1; 0 if there is none. Stored last.
    const NUMBER: usize = 0;
    /// Its phase.
    const PHASE: usize = 1;
    /// Its error number, once it was carried out.
    const ERRNO: usize = 2;
    /// Whether there is a note.
    const IS_NOTED: usize = 3;
    const NOTE: usize = 4;
    /// The generation of the slot.
    const GENERATION: usize = 5;
    /// The handle that it opened, once it was answered.
    const OPENED: usize = 6;
    /// The copy of the request.
    const COPY: usize = 7;
    const LEN: usize = Self::COPY + asked::WORDS;

    /// Those of this place.
    pub(super) fn at(slots: &'a SharedWords, place: usize) -> Self {
        Self(&slots.words()[SLOTS + place * Self::LEN..SLOTS + (place + 1) * Self::LEN])
    }

    /// The number of the request; `None` if there is none.
    pub(super) fn number(self) -> Option<u64> {
        let word = self.0[Self::NUMBER].load(Ordering::Acquire);
        (word != 0).then(|| word.wrapping_sub(1))
    }

    pub(super) fn phase(self) -> Phase {
        Phase::of(self.0[Self::PHASE].load(Ordering::Acquire))
    }

    pub(super) fn generation(self) -> u64 {
        self.0[Self::GENERATION].load(Ordering::Acquire)
    }

    pub(super) fn asked(self, geometry: Geometry) -> Result<Asked, Failure> {
        Asked::kept(&self.0[Self::COPY..], geometry)
    }

    pub(super) fn record(self) -> RequestRecord {
        let load = |at: usize| self.0[at].load(Ordering::Acquire);
        RequestRecord {
            phase: self.phase(),
            errno: load(Self::ERRNO) as i32,
            note: (load(Self::IS_NOTED) != 0).then(|| load(Self::NOTE)),
            opened: HandleId(load(Self::OPENED)),
        }
    }

    /// A request was taken.
    pub(super) fn take(self, (number, generation): (u64, u64), asked: &Result<Asked, Failure>) {
        let Self(words) = self;
        // That of the request before, which was answered, may still be there.
        words[Self::NUMBER].store(0, Ordering::Release);
        words[Self::PHASE].store(Phase::Taken.word(), Ordering::Relaxed);
        words[Self::IS_NOTED].store(0, Ordering::Relaxed);
        words[Self::GENERATION].store(generation, Ordering::Relaxed);
        words[Self::OPENED].store(0, Ordering::Relaxed);
        match asked {
            Ok(asked) => asked.keep(&words[Self::COPY..]),
            // The request is invalid, also for the next process.
            Err(_) => words[Self::COPY].store(u64::MAX, Ordering::Relaxed),
        }
        words[Self::NUMBER].store(number.wrapping_add(1), Ordering::Release);
    }

    pub(super) fn set_note(self, note: u64) {
        self.0[Self::NOTE].store(note, Ordering::Relaxed);
        self.0[Self::IS_NOTED].store(1, Ordering::Release);
    }

    pub(super) fn set_done(self, errno: i32) {
        self.0[Self::ERRNO].store(u64::from(errno.unsigned_abs()), Ordering::Relaxed);
        self.0[Self::PHASE].store(Phase::Done.word(), Ordering::Release);
    }

    pub(super) fn set_answered(self, opened: HandleId) {
        self.0[Self::OPENED].store(opened.0, Ordering::Relaxed);
        self.0[Self::PHASE].store(Phase::Answered.word(), Ordering::Release);
    }

    /// Removes the request of this number, and no other.
    pub(super) fn remove(self, number: u64) {
        let (word, number) = (&self.0[Self::NUMBER], number.wrapping_add(1));
        // Another request may have taken its place.
        let _ = word.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

impl Phase {
    fn of(word: u64) -> Self {
        match word {
            2 => Self::Done,
            3 => Self::Answered,
            _ => Self::Taken,
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::Taken => 1,
            Self::Done => 2,
            Self::Answered => 3,
        }
    }
}

/// An entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    /// An inode that the session knows.
    Inode { ino: InodeId, lookups: u64 },
    /// A file that it has open.
    Handle {
        handle: HandleId,
        opened: OpenFile,
        /// The application knows of it.
        delivered: bool,
    },
}

/// The words of an entry.
#[derive(Clone, Copy)]
pub(super) struct EntryWords<'a>(&'a [AtomicU64]);

impl<'a> EntryWords<'a> {
    /// [`INODE`](Self::INODE) or [`HANDLE`](Self::HANDLE); else it is free. Stored last.
    const KIND: usize = 0;
    /// The number of the inode or handle.
    const ID: usize = 1;
    /// Of an inode, its lookups.
    const LOOKUPS: usize = 2;
    /// Of a handle, its inode.
    const INO: usize = 2;
    /// Of a handle, the bits that follow.
    const FLAGS: usize = 3;
    const LEN: usize = 4;

    const INODE: u64 = 1;
    const HANDLE: u64 = 2;

    const READ: u64 = 1;
    const WRITE: u64 = 2;
    const DIRECT: u64 = 4;
    const SYNC: u64 = 8;
    const DIRECTORY: u64 = 16;
    const DELIVERED: u64 = 32;

    /// Those of the entry at this place.
    pub(super) fn at(pieces: &'a [SharedWords], place: usize) -> Self {
        let number = (place / FIRST + 1).ilog2() as usize;
        let word = (place - piece(number).0) * Self::LEN;
        Self(&pieces[number].words()[word..word + Self::LEN])
    }

    /// `None` if it is free.
    pub(super) fn load(self) -> Option<Entry> {
        let kind = self.0[Self::KIND].load(Ordering::Acquire);
        let load = |at: usize| self.0[at].load(Ordering::Relaxed);
        match kind {
            Self::INODE => Some(Entry::Inode { ino: InodeId(load(Self::ID)), lookups: load(Self::LOOKUPS) }),
            Self::HANDLE => {
                let bits = load(Self::FLAGS);
                let has = |bit| bits & bit != 0;
                let flags = OpenFlags {
                    read: has(Self::READ),
                    write: has(Self::WRITE),
                    direct: has(Self::DIRECT),
                    sync: has(Self::SYNC),
                };
                let opened =
                    OpenFile { ino: InodeId(load(Self::INO)), flags, directory: has(Self::DIRECTORY) };
                let delivered = has(Self::DELIVERED);
                Some(Entry::Handle { handle: HandleId(load(Self::ID)), opened, delivered })
            }
            _ => None,
        }
    }

    pub(super) fn store(self, entry: Entry) {
        let store = |at: usize, word| self.0[at].store(word, Ordering::Relaxed);
        let kind = match entry {
            Entry::Inode { ino, lookups } => {
                store(Self::ID, ino.0);
                store(Self::LOOKUPS, lookups);
                store(Self::FLAGS, 0);
                Self::INODE
            }
            Entry::Handle { handle, opened: OpenFile { ino, flags, directory }, delivered } => {
                let OpenFlags { read, write, direct, sync } = flags;
                let flags = [
                    (read, Self::READ),
                    (write, Self::WRITE),
                    (direct, Self::DIRECT),
                    (sync, Self::SYNC),
                    (directory, Self::DIRECTORY),
                    (delivered, Self::DELIVERED),
                ];
                store(Self::ID, handle.0);
                store(Self::INO, ino.0);
                store(Self::FLAGS, flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum());
                Self::HANDLE
            }
        };
        self.0[Self::KIND].store(kind, Ordering::Release);
    }

    /// Makes it free.
    pub(super) fn erase(self) {
        self.0[Self::KIND].store(0, Ordering::Release);
    }

    pub(super) fn set_lookups(self, lookups: u64) {
        self.0[Self::LOOKUPS].store(lookups, Ordering::Relaxed);
    }

    pub(super) fn mark_delivered(self) {
        self.0[Self::FLAGS].fetch_or(Self::DELIVERED, Ordering::Relaxed);
    }
}
