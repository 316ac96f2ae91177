//! What of a directory store power loss, or the loss of its device, could
//! still take: objects that were changed or made and not synced since.

use braid_contract::ObjectId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;

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

/// The objects that are not durable.
pub(super) struct Unsynced {
    clock: AtomicU64,
    marks: [Mutex<HashMap<ObjectId, Mark>>; SHARDS],
    /// Directories of objects of which all names are durable, but those of
    /// marked objects. Nothing is known of what an earlier process made.
    durable_dirs: [AtomicBool; 256],
}

impl Unsynced {
    pub(super) fn new() -> Self {
        Self {
            clock: AtomicU64::new(1),
            marks: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            durable_dirs: std::array::from_fn(|_| AtomicBool::new(false)),
        }
    }

    /// The object was changed. Said after the change: one that is under way
    /// while the object is synced may be in that or not.
    pub(super) fn changed(&self, id: ObjectId) {
        let changed = self.clock.fetch_add(1, Ordering::Relaxed);
        self.marks(id).entry(id).or_default().changed = changed;
    }

    /// The object was made.
    pub(super) fn made(&self, id: ObjectId) {
        let made = self.clock.fetch_add(1, Ordering::Relaxed);
        self.marks(id).entry(id).or_default().made = made;
    }

    /// The object was removed.
    pub(super) fn removed(&self, id: ObjectId) {
        self.marks(id).remove(&id);
    }

    /// What is about to become durable.
    pub(super) fn mark(&self, id: ObjectId) -> Mark {
        self.marks(id).get(&id).copied().unwrap_or_default()
    }

    /// What was marked so is durable; what came since is not.
    pub(super) fn synced(&self, id: ObjectId, was: Mark) {
        let mut marks = self.marks(id);
        if let Some(mark) = marks.get_mut(&id) {
            if mark.changed == was.changed {
                mark.changed = 0;
            }
            if mark.made == was.made {
                mark.made = 0;
            }
            if mark.changed == 0 && mark.made == 0 {
                marks.remove(&id);
            }
        }
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

    /// All objects that are not durable.
    pub(super) fn all(&self) -> Vec<ObjectId> {
        self.marks.iter().flat_map(|marks| lock(marks).keys().copied().collect::<Vec<_>>()).collect()
    }

    fn marks(&self, id: ObjectId) -> MutexGuard<'_, HashMap<ObjectId, Mark>> {
        // Ids are random: the last byte is as good as a hash.
        lock(&self.marks[usize::from(id.0[15]) % SHARDS])
    }
}

fn lock(marks: &Mutex<HashMap<ObjectId, Mark>>) -> MutexGuard<'_, HashMap<ObjectId, Mark>> {
    // A panic elsewhere can't leave a map half-changed.
    marks.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ObjectId = ObjectId([3; 16]);

    #[test]
    fn a_change_that_comes_during_a_sync_is_left_for_the_next() {
        let unsynced = Unsynced::new();
        unsynced.made(ID);
        unsynced.changed(ID);
        let before = unsynced.mark(ID);
        unsynced.changed(ID);
        unsynced.synced(ID, before);
        assert_eq!(unsynced.all(), [ID]);
        assert!(!unsynced.mark(ID).is_new());
        unsynced.synced(ID, unsynced.mark(ID));
        assert!(unsynced.all().is_empty());
    }

    #[test]
    fn a_mark_that_went_and_came_again_is_another() {
        let unsynced = Unsynced::new();
        unsynced.changed(ID);
        let first = unsynced.mark(ID);
        unsynced.synced(ID, first);
        unsynced.changed(ID);
        unsynced.synced(ID, first);
        assert_eq!(unsynced.all(), [ID]);
    }

    #[test]
    fn names_of_an_earlier_process_are_synced_once() {
        let unsynced = Unsynced::new();
        assert!(unsynced.name_needs_sync(ID, unsynced.mark(ID)));
        unsynced.names_synced(ID);
        assert!(!unsynced.name_needs_sync(ID, unsynced.mark(ID)));
        unsynced.made(ID);
        assert!(unsynced.name_needs_sync(ID, unsynced.mark(ID)));
    }
}
