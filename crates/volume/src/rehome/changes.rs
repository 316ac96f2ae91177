//! Changes on the home tier while it is copied. Each operation notes its
//! changes after it made them and before it leaves the
//! [`Barrier`](braid_coord::Barrier). A note that is read too early does no
//! harm, and none is missed, since the last pass over the notes is made while
//! the barrier is frozen.

use braid_contract::InodeId;
use braid_core::live::Inode;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files are copied again in pieces of this many bytes.
pub(crate) const CHUNK: u64 = 1 << 20;

/// Pieces of one file that are distinguished; with more, it is copied again
/// from the first of them on.
const CHUNKS_MAX: usize = 1 << 16;

/// The notes.
pub(crate) struct Changes {
    on: AtomicBool,
    set: Mutex<ChangeSet>,
    /// The volume is being closed: copying stops.
    ending: AtomicBool,
    /// Held while home is copied.
    pub(super) copying: Mutex<()>,
}

/// Notes that are not processed yet.
#[derive(Default)]
pub(crate) struct ChangeSet {
    /// Inodes whose contents or attributes changed.
    pub(crate) inodes: HashMap<InodeId, Change>,
    /// Directories, and the names in them that appeared or disappeared.
    pub(crate) names: HashMap<InodeId, (Arc<Inode>, HashSet<OsString>)>,
}

/// The amount of data to copy.
pub(super) struct Extent {
    /// Inodes and names to visit.
    pub(super) things: u64,
    /// Bytes of pieces, at most.
    pub(super) bytes: u64,
    /// Files to be copied from some byte on.
    pub(super) tails: Vec<(Arc<Inode>, u64)>,
}

/// Changes of one inode; its attributes at least.
pub(crate) struct Change {
    pub(crate) inode: Arc<Inode>,
    pub(crate) data: ChangedData,
}

/// Changes of a file's contents.
#[derive(Debug)]
pub(crate) struct ChangedData {
    /// Changed pieces, by number.
    pub(crate) chunks: BTreeSet<u64>,
    /// Everything from this byte on changed.
    pub(crate) from: u64,
}

impl ChangedData {
    pub(crate) fn nothing() -> Self {
        Self { chunks: BTreeSet::new(), from: u64::MAX }
    }

    fn add(&mut self, bytes: Range<u64>) {
        let end = bytes.end.min(self.from);
        if bytes.start >= end {
            return;
        }
        if end.div_ceil(CHUNK) - bytes.start / CHUNK > CHUNKS_MAX as u64 {
            return self.cut(bytes.start);
        }
        self.chunks.extend(bytes.start / CHUNK..end.div_ceil(CHUNK));
        if self.chunks.len() > CHUNKS_MAX {
            self.cut(self.chunks.first().map_or(0, |first| first * CHUNK));
        }
    }

    fn cut(&mut self, from: u64) {
        self.from = self.from.min(from);
        self.chunks.split_off(&self.from.div_ceil(CHUNK));
    }
}

impl ChangeSet {
    /// The amount of data to copy.
    pub(super) fn extent(&self) -> Extent {
        let names: usize = self.names.values().map(|(_, names)| names.len()).sum();
        let changes = || self.inodes.values();
        let tails = changes().filter(|change| change.data.from != u64::MAX);
        Extent {
            things: (self.inodes.len() + names) as u64,
            bytes: changes().map(|change| change.data.chunks.len() as u64 * CHUNK).sum(),
            tails: tails.map(|change| (Arc::clone(&change.inode), change.data.from)).collect(),
        }
    }

    pub(crate) fn change(&mut self, inode: &Arc<Inode>) -> &mut Change {
        let make = || Change { inode: Arc::clone(inode), data: ChangedData::nothing() };
        let change = self.inodes.entry(inode.ino).or_insert_with(make);
        // The number may be that of an inode that is gone.
        change.inode = Arc::clone(inode);
        change
    }
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            set: Mutex::new(ChangeSet::default()),
            ending: AtomicBool::new(false),
            copying: Mutex::new(()),
        }
    }

    /// Starts or stops noting changes; earlier notes are forgotten.
    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Ordering::SeqCst);
        *self.set.lock() = ChangeSet::default();
    }

    /// Whether a copy is being made.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Makes the copy of home give up, and waits until it has.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        drop(self.copying.lock());
    }

    /// Whether the copy of home is to give up.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Takes the notes since the last call.
    pub(crate) fn take(&self) -> ChangeSet {
        std::mem::take(&mut *self.set.lock())
    }

    /// The amount of data noted since.
    pub(super) fn extent(&self) -> Extent {
        self.set.lock().extent()
    }

    fn note(&self, note: impl FnOnce(&mut ChangeSet)) {
        if self.is_on() {
            note(&mut self.set.lock());
        }
    }

    /// Notes a change of an inode's attributes, or of its index.
    pub(crate) fn note_inode(&self, inode: &Arc<Inode>) {
        self.note(|set| _ = set.change(inode));
    }

    /// Notes changed bytes of a file.
    pub(crate) fn note_data(&self, inode: &Arc<Inode>, bytes: Range<u64>) {
        self.note(|set| set.change(inode).data.add(bytes));
    }

    /// Notes that a file may have changed anywhere from byte `from` on.
    pub(crate) fn note_from(&self, inode: &Arc<Inode>, from: u64) {
        self.note(|set| set.change(inode).data.cut(from));
    }

    /// Notes a name that appeared or disappeared in a directory.
    pub(crate) fn note_name(&self, dir: &Arc<Inode>, name: &OsStr) {
        self.note(|set| {
            let make = || (Arc::clone(dir), HashSet::new());
            let (_, names) = set.names.entry(dir.ino).or_insert_with(make);
            names.insert(name.to_owned());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_bytes_are_kept_by_chunks() {
        let mut data = ChangedData::nothing();
        data.add(0..1);
        data.add(3 * CHUNK - 1..3 * CHUNK + 1);
        data.add(7..7);
        assert_eq!(data.chunks, BTreeSet::from([0, 2, 3]));
        data.cut(2 * CHUNK + 5);
        assert_eq!((data.from, data.chunks.clone()), (2 * CHUNK + 5, BTreeSet::from([0, 2])));
        data.add(5 * CHUNK..9 * CHUNK);
        assert_eq!(data.chunks, BTreeSet::from([0, 2]));
    }

    #[test]
    fn very_many_chunks_become_one_stretch() {
        let mut data = ChangedData::nothing();
        data.add(4 * CHUNK..u64::MAX);
        assert_eq!((data.from, data.chunks.len()), (4 * CHUNK, 0));
    }
}
