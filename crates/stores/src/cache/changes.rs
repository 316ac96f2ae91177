//! Changes of objects that are under way, so that nothing gets into the cache that was
//! read while it changed.

use braid_contract::ObjectId;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters for changes of single ranges; several ranges may share one.
const SLOTS: usize = 1024;
/// A change of more ranges counts for everything.
const RANGES_MAX: u64 = 64;

/// Changes that began and those that ended.
#[derive(Default)]
struct Slot {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Slot {
    /// How many changes there were, if none is under way.
    fn quiet(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::SeqCst);
        (self.begun.load(Ordering::SeqCst) == ended).then_some(ended)
    }

    fn is_still(&self, count: u64) -> bool {
        self.begun.load(Ordering::SeqCst) == count
    }

    /// Begins a change; answers its number, and whether no other one is under way.
    fn begin(&self) -> (u64, bool) {
        let before = self.begun.fetch_add(1, Ordering::SeqCst);
        (before + 1, self.ended.load(Ordering::SeqCst) == before)
    }

    fn end(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// The changes of a tier's objects.
pub(super) struct Changes {
    slots: Box<[Slot]>,
    /// Of whole objects, and of many ranges.
    all: Slot,
    hash: RandomState,
}

/// The state at which a range was read.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    slot: usize,
    count: u64,
    all: u64,
}

/// A change under way. It ends when it is dropped; the cache's copy is put right before.
pub(super) struct Change<'a> {
    changes: &'a Changes,
    first: u64,
    /// Of each range, in order; none where all is meant.
    slots: Vec<(usize, u64, bool)>,
}

impl Changes {
    pub(super) fn new() -> Self {
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Self { slots, all: Slot::default(), hash: RandomState::new() }
    }

    fn slot(&self, id: ObjectId, range: u64) -> usize {
        self.hash.hash_one((id, range)) as usize % SLOTS
    }

    /// Taken before a range is read; `None` if it is being changed.
    pub(super) fn ticket(&self, id: ObjectId, range: u64) -> Option<Ticket> {
        let slot = self.slot(id, range);
        Some(Ticket { slot, count: self.slots[slot].quiet()?, all: self.all.quiet()? })
    }

    /// Whether the data read then still counts. The caller holds the lock under which
    /// changes put the cache right.
    pub(super) fn is_current(&self, ticket: Ticket) -> bool {
        self.slots[ticket.slot].is_still(ticket.count) && self.all.is_still(ticket.all)
    }

    /// Ranges `first` to `last` are about to be changed.
    pub(super) fn begin(&self, id: ObjectId, first: u64, last: u64) -> Change<'_> {
        if last - first >= RANGES_MAX {
            return self.begin_all();
        }
        let begun = (first..=last).map(|range| {
            let slot = self.slot(id, range);
            let (number, is_alone) = self.slots[slot].begin();
            (slot, number, is_alone)
        });
        Change { changes: self, first, slots: begun.collect() }
    }

    /// Everything may be about to change.
    pub(super) fn begin_all(&self) -> Change<'_> {
        self.all.begin();
        Change { changes: self, first: 0, slots: Vec::new() }
    }
}

impl Change<'_> {
    /// Whether it was the only change of the range all the time, so that the range is
    /// now known to have the written data.
    pub(super) fn was_alone(&self, range: u64) -> bool {
        let known = usize::try_from(range - self.first).ok().and_then(|at| self.slots.get(at));
        known.is_some_and(|(slot, number, is_alone)| {
            *is_alone && self.changes.slots[*slot].is_still(*number) && self.changes.all.quiet().is_some()
        })
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if self.slots.is_empty() {
            self.changes.all.end();
        }
        self.slots.iter().for_each(|(slot, ..)| self.changes.slots[*slot].end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ObjectId = ObjectId([7; 16]);

    #[test]
    fn what_was_read_while_it_changed_does_not_count() {
        let changes = Changes::new();
        let ticket = changes.ticket(ID, 3).unwrap();
        assert!(changes.is_current(ticket));
        let change = changes.begin(ID, 2, 4);
        assert!(!changes.is_current(ticket) && changes.ticket(ID, 3).is_none());
        assert!(change.was_alone(3));
        let other = changes.begin(ID, 3, 3);
        assert!(!change.was_alone(3) && !other.was_alone(3));
        drop(change);
        assert!(changes.ticket(ID, 3).is_none());
        drop(other);
        assert!(!changes.is_current(ticket) && changes.ticket(ID, 3).is_some());
    }

    #[test]
    fn a_change_of_all_is_one_of_each() {
        let changes = Changes::new();
        let ticket = changes.ticket(ID, 3).unwrap();
        let one = changes.begin(ID, 3, 3);
        let many = changes.begin(ID, 0, 1 << 40);
        assert!(!one.was_alone(3) && changes.ticket(ID, 5).is_none() && !many.was_alone(0));
        drop((one, many));
        assert!(!changes.is_current(ticket) && changes.ticket(ID, 3).is_some());
    }
}
