//! The dirty objects of a directory store: created or changed and not synced
//! since, so that loss of power or of the device could still take them.
//!
//! The kernel reports an error of writeback to the descriptors that were open
//! when it happened; for a file without any, it may forget the error. So a
//! changed object stays open, with the descriptor that changed it, until it is
//! synced. If there are too many, the one that has been open longest is written
//! back before it is closed, and an error of that is kept until the object is
//! synced.

use super::files::is_removed;
use crate::native::write_back;
use braid_contract::{Errno, Error, Fd, ObjectId, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

const SHARDS: usize = 16;

/// Changed objects that are kept open in each shard.
const OPEN_PER_SHARD: usize = 256;

/// When an object was last changed and created, as numbers that its shard never
/// reuses; 0 for durable.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    changed: u64,
    made: u64,
}

impl Mark {
    /// Whether the object's name may not be durable.
    pub(super) fn is_new(self) -> bool {
        self.made != 0
    }
}

/// The state of an object that is not durable.
#[derive(Default)]
struct Entry {
    mark: Mark,
    /// Open since it was first changed; with the time of that.
    file: Option<Fd>,
    opened_at: u64,
    /// Error of writeback, until it is reported.
    failed: Option<Errno>,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<ObjectId, Entry>,
    /// Entries with a file and when they got it, longest open first; those that
    /// have lost it since are skipped.
    open: VecDeque<(ObjectId, u64)>,
    open_count: usize,
    writing_back: Option<ObjectId>,
    clock: u64,
    /// When a sync of everything last failed.
    failed_at: u64,
}

#[derive(Default)]
struct Lane {
    shard: Mutex<Shard>,
    /// Held during writeback of the file that has been open longest.
    writer: Mutex<()>,
}

/// The objects that are not durable.
pub(super) struct Unsynced {
    lanes: [Lane; SHARDS],
    /// Directories of objects that are durable with all their names, except
    /// those of marked objects. All are unknown at first.
    durable_dirs: [AtomicBool; 256],
    /// The file system is not the tier's any more.
    given_up: AtomicBool,
}

impl Unsynced {
    pub(super) fn new() -> Self {
        Self {
            lanes: std::array::from_fn(|_| Lane::default()),
            durable_dirs: std::array::from_fn(|_| AtomicBool::new(false)),
            given_up: AtomicBool::new(false),
        }
    }

    /// Marks an object as changed through `file`. Called after the change: a
    /// sync that runs during a change may or may not include it.
    pub(super) fn changed(&self, id: ObjectId, file: &Fd) {
        let lane = self.lane(id);
        let mut shard = lock(&lane.shard);
        let changed = shard.tick();
        let entry = shard.entries.entry(id).or_default();
        entry.mark.changed = changed;
        if entry.file.is_some() {
            return;
        }
        entry.file = Some(Arc::clone(file));
        entry.opened_at = changed;
        shard.opened(id, changed);
        let too_many = shard.open_count > OPEN_PER_SHARD;
        drop(shard);
        // After a removal, no other call would close it.
        if is_removed(file) {
            self.removed(id);
        } else if too_many {
            lane.write_back_to(OPEN_PER_SHARD);
        }
    }

    /// Marks an object as created. Called before the creation, so that another
    /// thread that finds the object knows that its name may not be durable.
    pub(super) fn made(&self, id: ObjectId) {
        let mut shard = lock(&self.lane(id).shard);
        let made = shard.tick();
        shard.entries.entry(id).or_default().mark.made = made;
    }

    /// Drops the marks of a removed object.
    pub(super) fn removed(&self, id: ObjectId) {
        let removed = lock(&self.lane(id).shard).remove(id);
        // Closed without the lock: this may free the object's space.
        drop(removed);
    }

    /// The file of a changed object.
    pub(super) fn file(&self, id: ObjectId) -> Option<Fd> {
        lock(&self.lane(id).shard).entries.get(&id)?.file.clone()
    }

    /// The mark of an object before its sync.
    pub(super) fn mark(&self, id: ObjectId) -> Mark {
        lock(&self.lane(id).shard).entries.get(&id).map(|entry| entry.mark).unwrap_or_default()
    }

    /// Notes that an object is durable up to this mark; later changes are not.
    ///
    /// # Errors
    /// If writeback of part of it has failed before. This is reported once.
    pub(super) fn synced(&self, id: ObjectId, was: Mark) -> Result<()> {
        let mut shard = self.lane(id).when_written_back(id);
        if let Some(errno) = shard.entries.get_mut(&id).and_then(|entry| entry.failed.take()) {
            return Err(Error::new(errno, "what was written before could not be written back"));
        }
        let closed = shard.synced(id, was);
        drop(shard);
        drop(closed);
        Ok(())
    }

    /// Notes the same after a successful sync of everything. Earlier errors are
    /// still reported by the object's own sync.
    pub(super) fn synced_with_all(&self, id: ObjectId, was: Mark) {
        let mut shard = self.lane(id).when_written_back(id);
        let failed_at = shard.failed_at;
        let sound =
            |entry: &Entry| entry.failed.is_none() && (entry.file.is_none() || entry.opened_at > failed_at);
        let closed = if shard.entries.get(&id).is_some_and(sound) { shard.synced(id, was) } else { None };
        drop(shard);
        drop(closed);
    }

    /// Whether the object's name has to be synced with its data.
    pub(super) fn name_needs_sync(&self, id: ObjectId, mark: Mark) -> bool {
        mark.is_new() || !self.dir_is_durable(id)
    }

    /// Whether the object's directory is known to be durable itself.
    pub(super) fn dir_is_durable(&self, id: ObjectId) -> bool {
        self.durable_dirs[usize::from(id.0[0])].load(Ordering::Acquire)
    }

    /// Notes that the object's directory was created.
    pub(super) fn dir_made(&self, id: ObjectId) {
        self.durable_dirs[usize::from(id.0[0])].store(false, Ordering::Release);
    }

    /// Notes that the object's directory is durable, with all names that it had
    /// when its sync began.
    pub(super) fn names_synced(&self, id: ObjectId) {
        self.durable_dirs[usize::from(id.0[0])].store(true, Ordering::Release);
    }

    /// All objects that are not durable.
    pub(super) fn all(&self) -> Vec<(ObjectId, Mark)> {
        let mut all = Vec::new();
        for lane in &self.lanes {
            all.extend(lock(&lane.shard).entries.iter().map(|(id, entry)| (*id, entry.mark)));
        }
        all
    }

    /// Notes that a sync of everything failed, with unknown losses. Each object
    /// that is marked now reports that at its own sync.
    pub(super) fn could_not_sync_all(&self) {
        for lane in &self.lanes {
            let mut shard = lock(&lane.shard);
            shard.failed_at = shard.tick();
        }
    }

    /// Notes that the file system is not the tier's any more: answers the
    /// objects that were not durable. `is_given_up` detects later changes.
    pub(super) fn give_up(&self) -> Vec<ObjectId> {
        self.given_up.store(true, Ordering::SeqCst);
        self.all().into_iter().map(|(id, _)| id).collect()
    }

    /// Whether the last mark may be missing from the answer of `give_up`.
    pub(super) fn is_given_up(&self) -> bool {
        // The lock of the object's shard orders this: the mark took it either
        // before `give_up` did, or after this was set.
        self.given_up.load(Ordering::SeqCst)
    }

    /// Closes all files, after writeback.
    pub(super) fn close_all(&self) {
        self.lanes.iter().for_each(|lane| lane.write_back_to(0));
    }

    fn lane(&self, id: ObjectId) -> &Lane {
        // Ids are random: the last byte is as good as a hash.
        &self.lanes[usize::from(id.0[15]) % SHARDS]
    }
}

impl Mark {
    fn became_durable(&mut self, was: Self) {
        if self.changed == was.changed {
            self.changed = 0;
        }
        if self.made == was.made {
            self.made = 0;
        }
    }

    fn is_durable(self) -> bool {
        self.changed == 0 && self.made == 0
    }
}

impl Lane {
    /// Locks the shard while no writeback of the object runs: the kernel may be
    /// about to report an error to that, instead of to the sync.
    fn when_written_back(&self, id: ObjectId) -> MutexGuard<'_, Shard> {
        loop {
            let shard = lock(&self.shard);
            if shard.writing_back != Some(id) {
                return shard;
            }
            drop(shard);
            drop(lock(&self.writer));
        }
    }

    /// Writes back and closes the files that have been open longest, until only
    /// `most` are open. If another thread does so, this leaves it to that.
    fn write_back_to(&self, most: usize) {
        // Each at most once: one that is changed all the time stays.
        let rounds = lock(&self.shard).open.len();
        for _ in 0..rounds {
            let _writer = match self.writer.try_lock() {
                Ok(writer) => writer,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let mut shard = lock(&self.shard);
            let Some(longest) = shard.longest_open(most) else { return };
            shard.writing_back = Some(longest.id);
            drop(shard);
            let result = write_back(&longest.file);
            let mut shard = lock(&self.shard);
            shard.writing_back = None;
            let closed = shard.close(&longest, result.err().map(|error| error.errno()));
            drop(shard);
            drop(closed);
        }
    }
}

/// The object to be closed.
struct Longest {
    id: ObjectId,
    file: Fd,
    opened_at: u64,
    changed: u64,
}

impl Shard {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Notes that an object is durable up to this mark. Answers the file to be
    /// closed.
    fn synced(&mut self, id: ObjectId, was: Mark) -> Option<Fd> {
        let mark = &mut self.entries.get_mut(&id)?.mark;
        mark.became_durable(was);
        if mark.is_durable() { self.remove(id) } else { None }
    }

    fn opened(&mut self, id: ObjectId, at: u64) {
        self.open_count += 1;
        self.open.push_back((id, at));
        if self.open.len() > 2 * self.open_count + OPEN_PER_SHARD {
            let entries = &self.entries;
            let is_open = |entry: &Entry, at| entry.file.is_some() && entry.opened_at == at;
            self.open.retain(|(id, at)| entries.get(id).is_some_and(|entry| is_open(entry, *at)));
        }
    }

    fn longest_open(&mut self, most: usize) -> Option<Longest> {
        while self.open_count > most {
            let (id, opened_at) = self.open.pop_front()?;
            let Some(entry) = self.entries.get(&id).filter(|entry| entry.opened_at == opened_at) else {
                continue;
            };
            if let Some(file) = entry.file.clone() {
                return Some(Longest { id, file, opened_at, changed: entry.mark.changed });
            }
        }
        None
    }

    /// Releases an object's file after writeback, unless it was changed since.
    fn close(&mut self, longest: &Longest, failed: Option<Errno>) -> Option<Fd> {
        let entry = self.entries.get_mut(&longest.id)?;
        entry.failed = failed.or(entry.failed);
        if entry.opened_at != longest.opened_at || entry.file.is_none() {
            return None;
        }
        if entry.mark.changed != longest.changed {
            self.open.push_back((longest.id, longest.opened_at));
            return None;
        }
        self.open_count -= 1;
        entry.file.take()
    }

    fn remove(&mut self, id: ObjectId) -> Option<Fd> {
        let file = self.entries.remove(&id)?.file?;
        self.open_count -= 1;
        Some(file)
    }
}

/// No state here is left half-changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "unsynced_tests.rs"]
mod tests;
