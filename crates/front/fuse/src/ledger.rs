//! The files that the kernel has open, in memory that outlives the process: another one
//! goes on with it after a crash (LabStor §3.3, crash recovery: ids of requests in shared
//! memory). Used by `ops`, `handover` and the daemon, which keeps the memory.
//!
//! A record is written before its request is answered, and its first word last, so that
//! it is there as a whole or not at all, wherever the process was killed.

use braid_contract::{HandleId, InodeId, OpenFlags};
use braid_sys::SharedWords;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Records of one piece of memory: 256 KiB.
const CHUNK: usize = 4096;
/// Words of a record: the handle, or [`INTENT`]; the inode; bits; user and group; thread and
/// backing file; the request. The rest is spare.
const RECORD: usize = 8;
/// In place of a handle: a request that is about to be carried out.
const INTENT: u64 = u64::MAX;

const READ: u64 = 1;
const WRITE: u64 = 2;
const DIRECT: u64 = 4;
const SYNC: u64 = 8;
const DIRECTORY: u64 = 16;
const BYPASSES_CACHE: u64 = 32;
const PASSTHROUGH: u64 = 64;

/// How the kernel does the I/O of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenKind {
    /// It is a directory.
    Directory,
    /// Through its cache.
    Cached,
    /// Bypassing its cache.
    Direct,
    /// By itself, on the backing file of this number.
    Passthrough(u32),
}

/// An open file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenRecord {
    /// Its number, for the kernel and the file system.
    pub handle: HandleId,
    /// The open inode.
    pub ino: InodeId,
    /// How it was opened.
    pub flags: OpenFlags,
    /// How its data travels.
    pub kind: OpenKind,
    /// User, group and thread of the opener.
    pub opener: [u32; 3],
    /// The request that opened it.
    pub request: u64,
}

impl OpenRecord {
    fn words(&self) -> [u64; RECORD] {
        let OpenFlags { read, write, direct, sync } = self.flags;
        let (bits, backing) = match self.kind {
            OpenKind::Directory => (DIRECTORY, 0),
            OpenKind::Cached => (0, 0),
            OpenKind::Direct => (BYPASSES_CACHE, 0),
            OpenKind::Passthrough(backing) => (PASSTHROUGH, backing),
        };
        let flags = [(read, READ), (write, WRITE), (direct, DIRECT), (sync, SYNC)];
        let bits = flags.iter().filter(|(set, _)| *set).fold(bits, |bits, (_, bit)| bits | bit);
        let [uid, gid, thread] = self.opener;
        [self.handle.0, self.ino.0, bits, pair(uid, gid), pair(thread, backing), self.request, 0, 0]
    }

    fn of(words: &[u64; RECORD]) -> Self {
        let [handle, ino, bits, user, thread, request, ..] = *words;
        let has = |bit| bits & bit != 0;
        let ((uid, gid), (thread, backing)) = (halves(user), halves(thread));
        let kind = match (has(DIRECTORY), has(BYPASSES_CACHE), has(PASSTHROUGH)) {
            (true, ..) => OpenKind::Directory,
            (_, true, _) => OpenKind::Direct,
            (_, _, true) => OpenKind::Passthrough(backing),
            _ => OpenKind::Cached,
        };
        Self {
            handle: HandleId(handle),
            ino: InodeId(ino),
            flags: OpenFlags { read: has(READ), write: has(WRITE), direct: has(DIRECT), sync: has(SYNC) },
            kind,
            opener: [uid, gid, thread],
            request,
        }
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Has other memory kept, too, before this process uses it.
type Keep = Box<dyn Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync>;

/// The records of all open files and directories.
pub struct Ledger {
    chunks: RwLock<Vec<SharedWords>>,
    places: Mutex<Places>,
    keep: Keep,
}

#[derive(Default)]
struct Places {
    /// Where the record of each handle is.
    of: HashMap<HandleId, usize>,
    free: Vec<usize>,
}

impl Ledger {
    /// An empty one. `keep` is called with each piece of memory that it gets.
    #[must_use]
    pub fn new(keep: impl Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self { chunks: RwLock::default(), places: Mutex::default(), keep: Box::new(keep) }
    }

    /// The one in the memory of an earlier process, of which all pieces are kept.
    ///
    /// # Errors
    /// If it can't be mapped.
    pub fn found(
        memory: Vec<OwnedFd>,
        keep: impl Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let chunks = memory.into_iter().map(SharedWords::open).collect::<io::Result<Vec<_>>>()?;
        if chunks.iter().any(|chunk| chunk.words().len() != CHUNK * RECORD) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "records of another length"));
        }
        let mut places = Places::default();
        for (at, words) in records(&chunks).enumerate() {
            match words[0].load(Ordering::Acquire) {
                0 => places.free.push(at),
                INTENT => {}
                handle => drop(places.of.insert(HandleId(handle), at)),
            }
        }
        Ok(Self { chunks: RwLock::new(chunks), places: Mutex::new(places), keep: Box::new(keep) })
    }

    /// All pieces of its memory.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn memory(&self) -> io::Result<Vec<OwnedFd>> {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        chunks.iter().map(|chunk| chunk.as_fd().try_clone_to_owned()).collect()
    }

    /// Notes an open file, before the kernel knows it.
    pub(crate) fn opened(&self, record: &OpenRecord) {
        if let Some(at) = self.write(&record.words()) {
            self.places().of.insert(record.handle, at);
        }
    }

    /// Notes that a handle is no more.
    pub(crate) fn closed(&self, handle: HandleId) {
        let at = self.places().of.remove(&handle);
        at.into_iter().for_each(|at| self.erase(at));
    }

    /// Whether a handle is open.
    pub(crate) fn has(&self, handle: HandleId) -> bool {
        self.places().of.contains_key(&handle)
    }

    /// The open files.
    #[must_use]
    pub fn all(&self) -> Vec<OpenRecord> {
        let records = self.read().into_iter();
        records.filter(|(_, words)| words[0] != INTENT).map(|(_, words)| OpenRecord::of(&words)).collect()
    }

    /// The file that a request opened.
    pub(crate) fn opened_by(&self, request: u64) -> Option<OpenRecord> {
        self.all().into_iter().find(|record| record.request == request)
    }

    /// Notes that a request is about to be carried out that would do something else if it
    /// were carried out twice, and the inode that shows whether it was. The answer is for
    /// [`settled`](Self::settled).
    pub(crate) fn intend(&self, request: u64, before: InodeId) -> Option<usize> {
        self.write(&[INTENT, before.0, 0, 0, 0, request, 0, 0])
    }

    /// The note of a request that an earlier process may have carried out, as by
    /// [`intend`](Self::intend).
    pub(crate) fn intended(&self, request: u64) -> Option<(usize, InodeId)> {
        let is_it = |(_, words): &(usize, [u64; RECORD])| words[0] == INTENT && words[5] == request;
        self.read().into_iter().find(is_it).map(|(at, words)| (at, InodeId(words[1])))
    }

    /// The request is answered.
    pub(crate) fn settled(&self, intent: usize) {
        self.erase(intent);
    }

    /// Writes a record; `None` if there is no room. Then its subject ends with this
    /// process.
    fn write(&self, words: &[u64; RECORD]) -> Option<usize> {
        let at = self.place().inspect_err(|error| {
            tracing::warn!(%error, "an open file has no record: if this process crashes, it is closed");
        });
        let at = at.ok()?;
        self.with(at, |record| {
            for (word, value) in record.iter().zip(words).skip(1) {
                word.store(*value, Ordering::Relaxed);
            }
            record[0].store(words[0], Ordering::Release);
        });
        Some(at)
    }

    fn erase(&self, at: usize) {
        self.with(at, |record| record[0].store(0, Ordering::Release));
        self.places().free.push(at);
    }

    /// A place for a record.
    fn place(&self) -> io::Result<usize> {
        let mut places = self.places();
        if let Some(at) = places.free.pop() {
            return Ok(at);
        }
        let chunk = SharedWords::create("braid-open", CHUNK * RECORD)?;
        (self.keep)(chunk.as_fd())?;
        let mut chunks = self.chunks.write().unwrap_or_else(PoisonError::into_inner);
        let first = chunks.len() * CHUNK;
        chunks.push(chunk);
        // The next to be used comes last.
        places.free.extend((first + 1..first + CHUNK).rev());
        Ok(first)
    }

    fn with<R>(&self, at: usize, work: impl FnOnce(&[AtomicU64]) -> R) -> R {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let first = at % CHUNK * RECORD;
        work(&chunks[at / CHUNK].words()[first..first + RECORD])
    }

    /// All records in use, and where they are.
    fn read(&self) -> Vec<(usize, [u64; RECORD])> {
        let chunks = self.chunks.read().unwrap_or_else(PoisonError::into_inner);
        let used = records(&chunks).enumerate();
        let used = used.filter(|(_, words)| words[0].load(Ordering::Acquire) != 0);
        let copy = |words: &[AtomicU64]| std::array::from_fn(|at| words[at].load(Ordering::Relaxed));
        used.map(|(at, words)| (at, copy(words))).collect()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn records(chunks: &[SharedWords]) -> impl Iterator<Item = &[AtomicU64]> {
    chunks.iter().flat_map(|chunk| chunk.words().chunks_exact(RECORD))
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("open", &self.places().of.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn record(handle: u64, kind: OpenKind) -> OpenRecord {
        let flags = OpenFlags {
            read: true,
            write: handle.is_multiple_of(2),
            direct: false,
            sync: handle.is_multiple_of(3),
        };
        let opener = [1, u32::MAX, handle as u32];
        OpenRecord {
            handle: HandleId(handle),
            ino: InodeId(u64::MAX - handle),
            flags,
            kind,
            opener,
            request: handle * 2,
        }
    }

    #[test]
    fn what_is_open_is_found_by_the_next_process() {
        let ledger = Ledger::new(|_| Ok(()));
        let kinds = [OpenKind::Directory, OpenKind::Cached, OpenKind::Direct, OpenKind::Passthrough(7)];
        // More than one piece of memory has.
        let all: Vec<OpenRecord> =
            (1..=2 * CHUNK as u64 + 3).map(|handle| record(handle, kinds[handle as usize % 4])).collect();
        all.iter().for_each(|record| ledger.opened(record));
        for record in all.iter().filter(|record| record.handle.0 % 5 == 0) {
            ledger.closed(record.handle);
        }
        let intent = ledger.intend(5, InodeId(6)).unwrap();
        ledger.intend(7, InodeId(8)).unwrap();
        ledger.settled(intent);
        let next = Ledger::found(ledger.memory().unwrap(), |_| Ok(())).unwrap();
        let mut found = next.all();
        found.sort_by_key(|record| record.handle.0);
        let expected: Vec<OpenRecord> = all.into_iter().filter(|record| record.handle.0 % 5 != 0).collect();
        assert_eq!(found, expected);
        assert_eq!(next.opened_by(8).map(|record| record.handle), Some(HandleId(4)));
        assert_eq!((next.opened_by(10), next.intended(5)), (None, None));
        let (at, before) = next.intended(7).unwrap();
        next.settled(at);
        assert_eq!((before, next.intended(7)), (InodeId(8), None));
        assert!(next.has(HandleId(4)) && !next.has(HandleId(5)));
        // Places are used again: no further memory is needed for as many as were closed.
        let pieces = next.memory().unwrap().len();
        (0..CHUNK as u64 / 4).for_each(|more| next.opened(&record(1 << 40 | more, OpenKind::Cached)));
        assert_eq!(next.memory().unwrap().len(), pieces);
    }

    #[test]
    fn without_memory_what_is_open_has_no_record() {
        let ledger = Ledger::new(|_| Err(io::ErrorKind::OutOfMemory.into()));
        ledger.opened(&record(1, OpenKind::Cached));
        assert!(ledger.all().is_empty() && !ledger.has(HandleId(1)));
        ledger.closed(HandleId(1));
        assert_eq!(ledger.intend(1, InodeId(1)), None);
    }
}
