//! Records of a session, in memory that outlives the process and that its application does not see:
//! another process goes on with it after a crash (LabStor §3.3, crash recovery).
//!
//! There are two kinds of memory. That of *slots* has, for each queue, how many requests were
//! taken, and for each slot the request that was taken and not answered, with its phase. *Entries*
//! are the inodes that the session knows and the files that it has open; their memory grows in
//! pieces, of which each is as large as all before. The first word of a record is stored last, so
//! that it is there as a whole or not at all.

use crate::asked::{self, Asked};
use crate::layout::{Geometry, QUEUES_MAX};
use braid_contract::{HandleId, InodeId, OpenFlags};
use braid_sdk::abi::Failure;
use braid_sys::SharedWords;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether the session's socket is at rest, without a message under way.
const AT_REST: usize = 0;
/// Directories that were shown.
const SHOWN: usize = 1;
/// How many requests of each queue were taken.
const HEADS: usize = 16;
/// The start of the slots.
const SLOTS: usize = HEADS + QUEUES_MAX;

/// Words of a slot: the request's number and 1, its phase, its error, its note (2), the turn of its
/// slot, the handle that it opened, then the copy of the request.
const SLOT: usize = COPY + asked::WORDS;
const COPY: usize = 7;

/// Words of an entry: its kind, its number, the lookups or the inode, and bits.
const ENTRY: usize = 4;
/// Entries of the first piece.
const FIRST: usize = 1024;

const INODE: u64 = 1;
const HANDLE: u64 = 2;

const READ: u64 = 1;
const WRITE: u64 = 2;
const DIRECT: u64 = 4;
const SYNC: u64 = 8;
const DIRECTORY: u64 = 16;
/// The application knows of it.
const TOLD: u64 = 32;

/// An open file or directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
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

/// A request that an earlier process took and did not answer.
pub(crate) struct Unanswered {
    /// Its number.
    pub(crate) number: u64,
    /// Its slot.
    pub(crate) slot: usize,
    pub(crate) asked: Result<Asked, Failure>,
    /// See [`Ledger::taken`].
    pub(crate) turn: u64,
    pub(crate) found: Found,
}

/// The record of a request that an earlier process took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) phase: Phase,
    /// Its error number, if it was carried out; 0 is success.
    pub(crate) errno: i32,
    /// Its [note](Ledger::note).
    pub(crate) note: Option<u64>,
    /// The handle that it opened, if its answer has one; else 0.
    pub(crate) opened: HandleId,
}

impl Found {
    /// Whether only a note shows if it was carried out: others have to wait until that is decided.
    pub(crate) fn is_noted(&self) -> bool {
        self.phase == Phase::Taken && self.note.is_some()
    }
}

/// Has more memory kept, too, before it is used.
type Keep = Box<dyn Fn(BorrowedFd<'_>) + Send + Sync>;

/// The records of a session.
pub(crate) struct Ledger {
    geometry: Geometry,
    slots: SharedWords,
    pieces: RwLock<Vec<SharedWords>>,
    places: Mutex<Places>,
    keep: Keep,
}

#[derive(Default)]
struct Places {
    inodes: HashMap<InodeId, usize>,
    handles: HashMap<HandleId, usize>,
    free: Vec<usize>,
}

impl Ledger {
    /// An empty one. `keep` is called with each further piece of memory that it gets.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn new(geometry: Geometry, keep: Keep) -> io::Result<Arc<Self>> {
        let slots = SharedWords::create("braid session", words_of_slots(geometry))?;
        let (pieces, places) = (RwLock::default(), Mutex::default());
        Ok(Arc::new(Self { geometry, slots, pieces, places, keep }))
    }

    /// All of its memory.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn memory(&self) -> io::Result<Vec<OwnedFd>> {
        let pieces = self.pieces.read();
        let all = std::iter::once(&self.slots).chain(&*pieces);
        all.map(|memory| memory.as_fd().try_clone_to_owned()).collect()
    }

    /// The records that an earlier process left, in use again.
    pub(crate) fn of(records: Records, keep: Keep) -> Arc<Self> {
        let Records { geometry, slots, pieces } = records;
        let mut places = Places::default();
        for (at, entry) in entries(&pieces).enumerate() {
            let id = entry[1].load(Ordering::Relaxed);
            match entry[0].load(Ordering::Acquire) {
                INODE => drop(places.inodes.insert(InodeId(id), at)),
                HANDLE => drop(places.handles.insert(HandleId(id), at)),
                _ => places.free.push(at),
            }
        }
        let (pieces, places) = (RwLock::new(pieces), Mutex::new(places));
        Arc::new(Self { geometry, slots, pieces, places, keep })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.slots.words()[at]
    }

    /// Sets whether the session's socket is at rest.
    pub(crate) fn set_at_rest(&self, at_rest: bool) {
        self.word(AT_REST).store(u64::from(at_rest), Ordering::Release);
    }

    pub(crate) fn set_shown(&self, shown: usize) {
        self.word(SHOWN).store(shown as u64, Ordering::Relaxed);
    }

    /// Sets how many requests of a queue were taken.
    pub(crate) fn set_head(&self, queue: usize, head: u64) {
        self.word(HEADS + queue).store(head, Ordering::Release);
    }

    fn record(&self, place: usize) -> &[AtomicU64] {
        record(&self.slots, place)
    }

    /// The place of a slot's record.
    pub(crate) fn place(&self, queue: usize, slot: usize) -> usize {
        queue * self.geometry.depth + slot
    }

    /// A request of this number is taken out of its slot, which is in use for the `turn`-th
    /// time.
    pub(crate) fn taken(&self, place: usize, (number, turn): (u64, u64), asked: &Result<Asked, Failure>) {
        let record = self.record(place);
        // That of the request before, which was answered, may still be there.
        record[0].store(0, Ordering::Release);
        record[1].store(Phase::Taken.word(), Ordering::Relaxed);
        record[3].store(0, Ordering::Relaxed);
        record[5].store(turn, Ordering::Relaxed);
        record[6].store(0, Ordering::Relaxed);
        match asked {
            Ok(asked) => asked.keep(&record[COPY..]),
            // The request is invalid, also for the next process.
            Err(_) => record[COPY].store(u64::MAX, Ordering::Relaxed),
        }
        record[0].store(number.wrapping_add(1), Ordering::Release);
    }

    /// Whether a request of this slot was taken and has no answer.
    pub(crate) fn is_under_way(&self, place: usize) -> bool {
        let record = self.record(place);
        record[0].load(Ordering::Acquire) != 0
            && Phase::of(record[1].load(Ordering::Acquire)) != Phase::Answered
    }

    /// Notes the state by which the next process finds out, after a crash, whether a request was
    /// carried out.
    pub(crate) fn note(&self, place: usize, note: u64) {
        let record = self.record(place);
        record[4].store(note, Ordering::Relaxed);
        record[3].store(1, Ordering::Release);
    }

    /// A request was carried out, with this error number.
    pub(crate) fn done(&self, place: usize, errno: i32) {
        let record = self.record(place);
        record[2].store(u64::from(errno.unsigned_abs()), Ordering::Relaxed);
        record[1].store(Phase::Done.word(), Ordering::Release);
    }

    /// The answer is in the slot, with the handle that was opened, if any: its application gets it
    /// from now on, by this process or the next.
    pub(crate) fn answered(&self, place: usize, opened: HandleId) {
        let record = self.record(place);
        record[6].store(opened.0, Ordering::Relaxed);
        record[1].store(Phase::Answered.word(), Ordering::Release);
        if opened.0 != 0 {
            self.told(opened);
        }
    }

    /// The application was notified of the answer to the request of this number. It may have put
    /// another one into the slot since.
    pub(crate) fn settled(&self, place: usize, number: u64) {
        let word = &self.record(place)[0];
        let _ = word.compare_exchange(number.wrapping_add(1), 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The session has so many lookups of an inode.
    pub(crate) fn knows(&self, ino: InodeId, lookups: u64) {
        let mut places = self.places.lock();
        match (places.inodes.get(&ino).copied(), lookups) {
            (Some(at), 0) => {
                places.inodes.remove(&ino);
                self.erase(&mut places, at);
            }
            (Some(at), _) => self.with(at, |entry| entry[2].store(lookups, Ordering::Relaxed)),
            (None, 0) => {}
            (None, _) => {
                if let Some(at) = self.write(&mut places, [INODE, ino.0, lookups, 0]) {
                    places.inodes.insert(ino, at);
                }
            }
        }
    }

    /// The session has opened this. Its application does not know yet.
    pub(crate) fn opened(&self, handle: HandleId, opened: &Opened) {
        let Opened { ino, flags: OpenFlags { read, write, direct, sync }, directory } = *opened;
        let flags = [(read, READ), (write, WRITE), (direct, DIRECT), (sync, SYNC), (directory, DIRECTORY)];
        let bits = flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum();
        let mut places = self.places.lock();
        if let Some(at) = self.write(&mut places, [HANDLE, handle.0, ino.0, bits]) {
            places.handles.insert(handle, at);
        }
    }

    /// The application knows of this handle.
    pub(crate) fn told(&self, handle: HandleId) {
        let places = self.places.lock();
        let Some(at) = places.handles.get(&handle).copied() else { return };
        self.with(at, |entry| entry[3].fetch_or(TOLD, Ordering::Relaxed));
    }

    /// It is closed.
    pub(crate) fn closed(&self, handle: HandleId) {
        let mut places = self.places.lock();
        if let Some(at) = places.handles.remove(&handle) {
            self.erase(&mut places, at);
        }
    }

    /// Only these handles stay open. Others, opened by requests whose answers were not received,
    /// are forgotten: the requests are carried out again.
    pub(crate) fn only_told(&self, told: &HashSet<HandleId>) {
        let open: Vec<HandleId> = self.places.lock().handles.keys().copied().collect();
        for handle in open {
            // Some were only known by an answer that is settled soon.
            if told.contains(&handle) { self.told(handle) } else { self.closed(handle) }
        }
    }

    fn write(&self, places: &mut Places, words: [u64; ENTRY]) -> Option<usize> {
        let at = self.free(places).inspect_err(|error| {
            tracing::warn!(%error, "if this process crashes, something of a session is lost");
        });
        let at = at.ok()?;
        self.with(at, |entry| {
            for (word, value) in entry.iter().zip(words).skip(1) {
                word.store(value, Ordering::Relaxed);
            }
            entry[0].store(words[0], Ordering::Release);
        });
        Some(at)
    }

    fn erase(&self, places: &mut Places, at: usize) {
        self.with(at, |entry| entry[0].store(0, Ordering::Release));
        places.free.push(at);
    }

    fn free(&self, places: &mut Places) -> io::Result<usize> {
        if let Some(at) = places.free.pop() {
            return Ok(at);
        }
        let mut pieces = self.pieces.write();
        let (first, len) = piece(pieces.len());
        let memory = SharedWords::create("braid session", len * ENTRY)?;
        (self.keep)(memory.as_fd());
        pieces.push(memory);
        // The next to be used comes last.
        places.free.extend((first + 1..first + len).rev());
        Ok(first)
    }

    fn with<R>(&self, at: usize, work: impl FnOnce(&[AtomicU64]) -> R) -> R {
        let pieces = self.pieces.read();
        let number = (at / FIRST + 1).ilog2() as usize;
        let word = (at - piece(number).0) * ENTRY;
        work(&pieces[number].words()[word..word + ENTRY])
    }
}

/// The first entry of a piece, and how many it has.
fn piece(number: usize) -> (usize, usize) {
    (FIRST * ((1 << number) - 1), FIRST << number)
}

fn words_of_slots(geometry: Geometry) -> usize {
    SLOTS + geometry.queues * geometry.depth * SLOT
}

fn record(slots: &SharedWords, place: usize) -> &[AtomicU64] {
    &slots.words()[SLOTS + place * SLOT..SLOTS + (place + 1) * SLOT]
}

fn entries(pieces: &[SharedWords]) -> impl Iterator<Item = &[AtomicU64]> {
    pieces.iter().flat_map(|piece| piece.words().chunks_exact(ENTRY))
}

/// The records that an earlier process left.
#[derive(Debug)]
pub(crate) struct Records {
    geometry: Geometry,
    slots: SharedWords,
    pieces: Vec<SharedWords>,
}

impl Records {
    /// Those in this memory.
    ///
    /// # Errors
    /// If it is not of these sizes.
    pub(crate) fn open(geometry: Geometry, memory: Vec<OwnedFd>) -> io::Result<Self> {
        let mut memory = memory.into_iter().map(SharedWords::open);
        let slots = memory.next().ok_or(io::ErrorKind::InvalidData)??;
        let pieces = memory.collect::<io::Result<Vec<_>>>()?;
        let fits = geometry.is_allowed()
            && slots.words().len() >= words_of_slots(geometry)
            && pieces.iter().enumerate().all(|(at, memory)| memory.words().len() == piece(at).1 * ENTRY);
        if !fits {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "records of another length"));
        }
        Ok(Self { geometry, slots, pieces })
    }

    /// Whether its application knows that it has begun, and waits for no answer on the socket.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.slots.words()[AT_REST].load(Ordering::Acquire) == 1
    }

    pub(crate) fn shown(&self) -> usize {
        self.slots.words()[SHOWN].load(Ordering::Relaxed) as usize
    }

    /// How many requests of each queue were taken.
    pub(crate) fn heads(&self) -> Vec<u64> {
        let head = |queue: usize| {
            let head = self.slots.words()[HEADS + queue].load(Ordering::Acquire);
            let mut slots = (0..self.geometry.depth).map(|slot| queue * self.geometry.depth + slot);
            // The process ended before it counted this one.
            let taken = slots
                .any(|place| record(&self.slots, place)[0].load(Ordering::Acquire) == head.wrapping_add(1));
            if taken { head.wrapping_add(1) } else { head }
        };
        (0..self.geometry.queues).map(head).collect()
    }

    /// The requests of a queue that were taken and not answered, the oldest first.
    pub(crate) fn unanswered(&self, queue: usize) -> Vec<Unanswered> {
        let mut found: Vec<Unanswered> = Vec::new();
        for slot in 0..self.geometry.depth {
            let record = record(&self.slots, queue * self.geometry.depth + slot);
            let number = record[0].load(Ordering::Acquire);
            if number == 0 {
                continue;
            }
            let load = |at: usize| record[at].load(Ordering::Acquire);
            let known = Found {
                phase: Phase::of(load(1)),
                errno: load(2) as i32,
                note: (load(3) != 0).then(|| load(4)),
                opened: HandleId(load(6)),
            };
            let asked = Asked::kept(&record[COPY..], self.geometry);
            let number = number.wrapping_sub(1);
            found.push(Unanswered { number, slot, asked, turn: load(5), found: known });
        }
        found.sort_by_key(|one| one.number);
        found
    }

    /// The inodes that the session knows, with its lookups of each.
    pub(crate) fn inodes(&self) -> Vec<(InodeId, u64)> {
        let known = entries(&self.pieces).filter(|entry| entry[0].load(Ordering::Acquire) == INODE);
        known
            .map(|entry| (InodeId(entry[1].load(Ordering::Relaxed)), entry[2].load(Ordering::Relaxed)))
            .collect()
    }

    /// Its open files that its application knows of.
    pub(crate) fn handles(&self) -> Vec<(HandleId, Opened)> {
        let unanswered = (0..self.geometry.queues).flat_map(|queue| self.unanswered(queue));
        let answered = unanswered.map(|one| one.found).filter(|found| found.phase == Phase::Answered);
        let answered: HashSet<HandleId> = answered.map(|found| found.opened).collect();
        let open = entries(&self.pieces).filter(|entry| entry[0].load(Ordering::Acquire) == HANDLE);
        let open = open.filter_map(|entry| {
            let (handle, bits) =
                (HandleId(entry[1].load(Ordering::Relaxed)), entry[3].load(Ordering::Relaxed));
            let has = |bit| bits & bit != 0;
            let flags =
                OpenFlags { read: has(READ), write: has(WRITE), direct: has(DIRECT), sync: has(SYNC) };
            let ino = InodeId(entry[2].load(Ordering::Relaxed));
            let told = has(TOLD) || answered.contains(&handle);
            told.then_some((handle, Opened { ino, flags, directory: has(DIRECTORY) }))
        });
        open.collect()
    }

    /// The same once more.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let all = std::iter::once(&self.slots).chain(&self.pieces);
        let memory = all.map(|memory| memory.as_fd().try_clone_to_owned()).collect::<io::Result<_>>()?;
        Self::open(self.geometry, memory)
    }
}

#[cfg(test)]
pub(crate) mod tests;
