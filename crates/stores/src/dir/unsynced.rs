//! What of a directory store power loss, or the loss of its device, could
//! still take: objects that were changed or made and not synced since.
//!
//! The kernel tells of an error of write-back to the descriptors that were open
//! when it happened; of a file that nobody has open it may forget it. So an
//! object that was changed stays open, by the descriptor that it was changed
//! through, until it is synced. Where there are too many of them, the one that
//! has been open longest is written back before it is closed, and an error of
//! that is kept until somebody syncs the object.

use super::files::is_removed;
use crate::native::write_back;
use braid_contract::{Errno, Fd, ObjectId, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;

/// Changed objects that are kept open in each shard.
const OPEN_PER_SHARD: usize = 256;

/// When an object was last changed and made, as numbers that are never used
/// twice; 0 if what was done is durable.
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

/// What is known of an object that is not durable.
#[derive(Default)]
struct Entry {
    mark: Mark,
    /// Open since it was first changed, and when that was.
    file: Option<Fd>,
    opened_at: u64,
    /// It could not be written back, and nobody was told.
    failed: bool,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<ObjectId, Entry>,
    /// Entries with a file and when they got it, longest open first; those that
    /// have lost it since are passed over.
    open: VecDeque<(ObjectId, u64)>,
    open_count: usize,
    writing_back: Option<ObjectId>,
}

#[derive(Default)]
struct Lane {
    shard: Mutex<Shard>,
    /// Held by whoever writes back what has been open longest.
    writer: Mutex<()>,
}

/// The objects that are not durable.
pub(super) struct Unsynced {
    clock: AtomicU64,
    lanes: [Lane; SHARDS],
    /// Directories of objects of which all names are durable, but those of
    /// marked objects. Nothing is known of what an earlier process made.
    durable_dirs: [AtomicBool; 256],
    /// The file system is not the tier's any more.
    given_up: AtomicBool,
    /// When a sync of everything last failed.
    failed_at: AtomicU64,
}

impl Unsynced {
    pub(super) fn new() -> Self {
        Self {
            clock: AtomicU64::new(1),
            lanes: std::array::from_fn(|_| Lane::default()),
            durable_dirs: std::array::from_fn(|_| AtomicBool::new(false)),
            given_up: AtomicBool::new(false),
            failed_at: AtomicU64::new(0),
        }
    }

    /// The object was changed through `file`. Said after the change: one that
    /// is under way while the object is synced may be in that or not.
    pub(super) fn changed(&self, id: ObjectId, file: &Fd) {
        let changed = self.tick();
        let lane = self.lane(id);
        let mut shard = lock(&lane.shard);
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
        // If it was removed before, nobody else would close it.
        if is_removed(file) {
            self.removed(id);
        } else if too_many {
            lane.write_back_to(OPEN_PER_SHARD);
        }
    }

    /// The object was made. Said before it is, so that whoever finds it made
    /// by somebody else knows that its name may not be durable.
    pub(super) fn made(&self, id: ObjectId) {
        let made = self.tick();
        lock(&self.lane(id).shard).entries.entry(id).or_default().mark.made = made;
    }

    /// The object was removed.
    pub(super) fn removed(&self, id: ObjectId) {
        let removed = lock(&self.lane(id).shard).remove(id);
        // Closed without the lock: it may be what frees the object's space.
        drop(removed);
    }

    /// The file of an object that was changed.
    pub(super) fn file(&self, id: ObjectId) -> Option<Fd> {
        lock(&self.lane(id).shard).entries.get(&id)?.file.clone()
    }

    /// What is about to become durable.
    pub(super) fn mark(&self, id: ObjectId) -> Mark {
        lock(&self.lane(id).shard).entries.get(&id).map(|entry| entry.mark).unwrap_or_default()
    }

    /// What was marked so is durable; what came since is not.
    ///
    /// # Errors
    /// `EIO`, once, if part of it could not be written back before.
    pub(super) fn synced(&self, id: ObjectId, was: Mark) -> Result<()> {
        let lane = self.lane(id);
        let mut shard = lock(&lane.shard);
        while shard.writing_back == Some(id) {
            // The kernel may have told whoever writes it back, and not the
            // sync.
            drop(shard);
            drop(lock(&lane.writer));
            shard = lock(&lane.shard);
        }
        let Some(entry) = shard.entries.get_mut(&id) else { return Ok(()) };
        if std::mem::take(&mut entry.failed) {
            return Err(Errno::EIO.into());
        }
        entry.mark.became_durable(was);
        let closed = if entry.mark.is_durable() { shard.remove(id) } else { None };
        drop(shard);
        drop(closed);
        Ok(())
    }

    /// Whether the object's name has to be made durable with its data.
    pub(super) fn name_needs_sync(&self, id: ObjectId, mark: Mark) -> bool {
        mark.is_new() || !self.durable_dirs[usize::from(id.0[0])].load(Ordering::Acquire)
    }

    /// All names in the object's directory are durable that were there when
    /// the directory's sync began.
    pub(super) fn names_synced(&self, id: ObjectId) {
        self.durable_dirs[usize::from(id.0[0])].store(true, Ordering::Release);
    }

    /// All objects that are not durable, and that nothing is known to have gone
    /// wrong with: those that a sync of everything makes durable.
    pub(super) fn sound(&self) -> Vec<(ObjectId, Mark)> {
        let failed_at = self.failed_at.load(Ordering::Acquire);
        let sound = |entry: &Entry| !entry.failed && (entry.file.is_none() || entry.opened_at > failed_at);
        self.collect(|id, entry| sound(entry).then_some((id, entry.mark)))
    }

    /// Everything could not be made durable, and which objects are concerned
    /// is not known. Only its own sync tells of each that is marked now.
    pub(super) fn could_not_sync_all(&self) {
        self.failed_at.store(self.tick(), Ordering::Release);
    }

    /// The file system is not the tier's any more: answers what was not
    /// durable. What is changed after that is seen by `is_given_up`.
    pub(super) fn give_up(&self) -> Vec<ObjectId> {
        self.given_up.store(true, Ordering::SeqCst);
        self.collect(|id, _| Some(id))
    }

    /// Whether what was just marked may be missing from what `give_up`
    /// answered.
    pub(super) fn is_given_up(&self) -> bool {
        // Ordered by the lock of the object's shard: it was taken for the mark
        // either before `give_up` took it, or after this was set.
        self.given_up.load(Ordering::SeqCst)
    }

    /// Closes what is kept open, after writing it back.
    pub(super) fn close_all(&self) {
        self.lanes.iter().for_each(|lane| lane.write_back_to(0));
    }

    fn collect<T>(&self, pick: impl Fn(ObjectId, &Entry) -> Option<T>) -> Vec<T> {
        let mut all = Vec::new();
        for lane in &self.lanes {
            all.extend(lock(&lane.shard).entries.iter().filter_map(|(id, entry)| pick(*id, entry)));
        }
        all
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
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
    /// Writes back and closes what has been open longest, until only `most`
    /// are open. If somebody else does, that is left to them.
    fn write_back_to(&self, most: usize) {
        // Each at most once: one that is changed all the time stays.
        let rounds = lock(&self.shard).open.len();
        for _ in 0..rounds {
            let Ok(_writer) = self.writer.try_lock() else { return };
            let mut shard = lock(&self.shard);
            let Some(longest) = shard.longest_open(most) else { return };
            shard.writing_back = Some(longest.id);
            drop(shard);
            let result = write_back(&longest.file);
            let mut shard = lock(&self.shard);
            shard.writing_back = None;
            let closed = shard.close(&longest, result.is_err());
            drop(shard);
            drop(closed);
        }
    }
}

/// An open object that is to be closed.
struct Longest {
    id: ObjectId,
    file: Fd,
    opened_at: u64,
    changed: u64,
}

impl Shard {
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

    /// Lets go of an object's file after it was written back, unless it was
    /// changed since.
    fn close(&mut self, longest: &Longest, failed: bool) -> Option<Fd> {
        let entry = self.entries.get_mut(&longest.id)?;
        entry.failed |= failed;
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
