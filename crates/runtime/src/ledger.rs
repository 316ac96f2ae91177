//! Records of a session, in memory that outlives the process and that its application does not see:
//! another process goes on with it after a crash (LabStor §3.3, crash recovery).
//!
//! There are two kinds of memory. That of *slots* has, for each queue, how many requests were
//! taken, and for each slot the request that was taken and not answered, with its phase. *Entries*
//! are the inodes that the session knows and the files that it has open; their memory grows in
//! pieces, of which each is as large as all before. The first word of a record is stored last, so
//! that it is there as a whole or not at all.

mod format;

use crate::asked::Asked;
use crate::layout::Geometry;
use braid_contract::{HandleId, InodeId};
use braid_sdk::abi::Failure;
use braid_sys::SharedWords;
use format::{AT_REST, Entry, EntryWords, HEADS, SHOWN, SlotWords};
pub(crate) use format::{OpenFile, Phase, RequestRecord};
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A request that an earlier process took and did not answer.
pub(crate) struct Unanswered {
    /// Its number.
    pub(crate) number: u64,
    /// Its slot.
    pub(crate) slot: usize,
    pub(crate) asked: Result<Asked, Failure>,
    /// The generation of the slot.
    pub(crate) generation: u64,
    pub(crate) found: RequestRecord,
}

impl RequestRecord {
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
        let slots = SharedWords::create("braid session", format::words_of_slots(geometry))?;
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
        for (at, entry) in format::entries(&pieces).enumerate() {
            match entry.load() {
                Some(Entry::Inode { ino, .. }) => drop(places.inodes.insert(ino, at)),
                Some(Entry::Handle { handle, .. }) => drop(places.handles.insert(handle, at)),
                None => places.free.push(at),
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

    fn slot(&self, place: usize) -> SlotWords<'_> {
        SlotWords::at(&self.slots, place)
    }

    /// The place of a slot's record.
    pub(crate) fn place(&self, queue: usize, slot: usize) -> usize {
        queue * self.geometry.depth + slot
    }

    /// A request of this number is taken out of its slot, which is of this generation.
    pub(crate) fn taken(
        &self,
        place: usize,
        (number, generation): (u64, u64),
        asked: &Result<Asked, Failure>,
    ) {
        self.slot(place).take((number, generation), asked);
    }

    /// Whether a request of this slot was taken and has no answer.
    pub(crate) fn is_under_way(&self, place: usize) -> bool {
        let slot = self.slot(place);
        slot.number().is_some() && slot.phase() != Phase::Answered
    }

    /// Notes the state by which the next process finds out, after a crash, whether a request was
    /// carried out.
    pub(crate) fn note(&self, place: usize, note: u64) {
        self.slot(place).set_note(note);
    }

    /// A request was carried out, with this error number.
    pub(crate) fn done(&self, place: usize, errno: i32) {
        self.slot(place).set_done(errno);
    }

    /// The answer is in the slot, with the handle that was opened, if any: its application gets it
    /// from now on, by this process or the next.
    pub(crate) fn answered(&self, place: usize, opened: HandleId) {
        self.slot(place).set_answered(opened);
        if opened.0 != 0 {
            self.mark_handle_delivered(opened);
        }
    }

    /// The application was notified of the answer to the request of this number. It may have put
    /// another one into the slot since.
    pub(crate) fn mark_delivered(&self, place: usize, number: u64) {
        self.slot(place).remove(number);
    }

    /// The session has `lookups` lookups of an inode.
    pub(crate) fn knows(&self, ino: InodeId, lookups: u64) {
        let mut places = self.places.lock();
        match (places.inodes.get(&ino).copied(), lookups) {
            (Some(at), 0) => {
                places.inodes.remove(&ino);
                self.erase(&mut places, at);
            }
            (Some(at), _) => self.with(at, |entry| entry.set_lookups(lookups)),
            (None, 0) => {}
            (None, _) => {
                if let Some(at) = self.write(&mut places, Entry::Inode { ino, lookups }) {
                    places.inodes.insert(ino, at);
                }
            }
        }
    }

    /// The session has opened this. Its application does not know yet.
    pub(crate) fn opened(&self, handle: HandleId, opened: &OpenFile) {
        let mut places = self.places.lock();
        let entry = Entry::Handle { handle, opened: *opened, delivered: false };
        if let Some(at) = self.write(&mut places, entry) {
            places.handles.insert(handle, at);
        }
    }

    /// The application knows of this handle.
    pub(crate) fn mark_handle_delivered(&self, handle: HandleId) {
        let places = self.places.lock();
        let Some(at) = places.handles.get(&handle).copied() else { return };
        self.with(at, |entry| entry.mark_delivered());
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
    pub(crate) fn keep_delivered(&self, delivered: &HashSet<HandleId>) {
        let open: Vec<HandleId> = self.places.lock().handles.keys().copied().collect();
        for handle in open {
            // Some were only known by an answer that is marked as delivered soon.
            if delivered.contains(&handle) { self.mark_handle_delivered(handle) } else { self.closed(handle) }
        }
    }

    fn write(&self, places: &mut Places, entry: Entry) -> Option<usize> {
        let at = self.free(places).inspect_err(|error| {
            tracing::warn!(%error, "if this process crashes, something of a session is lost");
        });
        let at = at.ok()?;
        self.with(at, |words| words.store(entry));
        Some(at)
    }

    fn erase(&self, places: &mut Places, at: usize) {
        self.with(at, |entry| entry.erase());
        places.free.push(at);
    }

    fn free(&self, places: &mut Places) -> io::Result<usize> {
        if let Some(at) = places.free.pop() {
            return Ok(at);
        }
        let mut pieces = self.pieces.write();
        let (first, len) = format::piece(pieces.len());
        let memory = SharedWords::create("braid session", format::words_of_piece(pieces.len()))?;
        (self.keep)(memory.as_fd());
        pieces.push(memory);
        // The next to be used comes last.
        places.free.extend((first + 1..first + len).rev());
        Ok(first)
    }

    fn with(&self, at: usize, work: impl FnOnce(EntryWords<'_>)) {
        work(EntryWords::at(&self.pieces.read(), at));
    }
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
            && slots.words().len() >= format::words_of_slots(geometry)
            && pieces
                .iter()
                .enumerate()
                .all(|(at, memory)| memory.words().len() == format::words_of_piece(at));
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

    fn slot(&self, place: usize) -> SlotWords<'_> {
        SlotWords::at(&self.slots, place)
    }

    /// How many requests of each queue were taken.
    pub(crate) fn heads(&self) -> Vec<u64> {
        let head = |queue: usize| {
            let head = self.slots.words()[HEADS + queue].load(Ordering::Acquire);
            let mut slots = (0..self.geometry.depth).map(|slot| queue * self.geometry.depth + slot);
            // The process ended before it counted this one.
            let taken = slots.any(|place| self.slot(place).number() == Some(head));
            if taken { head.wrapping_add(1) } else { head }
        };
        (0..self.geometry.queues).map(head).collect()
    }

    /// The requests of a queue that were taken and not answered, the oldest first.
    pub(crate) fn unanswered(&self, queue: usize) -> Vec<Unanswered> {
        let unanswered = |slot: usize| {
            let words = self.slot(queue * self.geometry.depth + slot);
            let number = words.number()?;
            let (asked, generation) = (words.asked(self.geometry), words.generation());
            Some(Unanswered { number, slot, asked, generation, found: words.record() })
        };
        let mut found: Vec<Unanswered> = (0..self.geometry.depth).filter_map(unanswered).collect();
        found.sort_by_key(|one| one.number);
        found
    }

    fn entries(&self) -> impl Iterator<Item = Entry> {
        format::entries(&self.pieces).filter_map(EntryWords::load)
    }

    /// The inodes that the session knows, with its lookups of each.
    pub(crate) fn inodes(&self) -> Vec<(InodeId, u64)> {
        let known = self.entries().filter_map(|entry| match entry {
            Entry::Inode { ino, lookups } => Some((ino, lookups)),
            Entry::Handle { .. } => None,
        });
        known.collect()
    }

    /// Its open files that its application knows of.
    pub(crate) fn handles(&self) -> Vec<(HandleId, OpenFile)> {
        let unanswered = (0..self.geometry.queues).flat_map(|queue| self.unanswered(queue));
        let answered = unanswered.map(|one| one.found).filter(|found| found.phase == Phase::Answered);
        let answered: HashSet<HandleId> = answered.map(|found| found.opened).collect();
        let open = self.entries().filter_map(|entry| match entry {
            Entry::Handle { handle, opened, delivered } => {
                (delivered || answered.contains(&handle)).then_some((handle, opened))
            }
            Entry::Inode { .. } => None,
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
