//! The queue of removed files whose data is still to go, and of closed ones
//! whose marks are. `reap.rs` works it off.

use braid_contract::{Fd, InodeId, ObjectId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// The descriptor to sync before a removal is durable: the directory that the
/// name was in, or the file that was emptied; `None` for the whole home file
/// system.
pub type DurabilityDependency = Option<Fd>;

/// Spread files whose data is to be removed, or was.
pub struct Removals {
    pub(crate) pending: Mutex<PendingRemovals>,
    pub(crate) removed: Mutex<MarksToRetire>,
    /// Held while a batch is carried out.
    pub(crate) working: Mutex<()>,
    /// Held while marks are retired: a second caller waits for the first.
    pub(crate) retiring: Mutex<()>,
    /// Batches that were carried out.
    pub(crate) batches: AtomicU64,
    /// From when on a writer may carry out a batch for want of room.
    pub(crate) for_room_from_ns: AtomicU64,
}

#[derive(Default)]
pub(crate) struct PendingRemovals {
    /// All that were queued and are not forgotten yet.
    known: HashSet<ObjectId>,
    pub(crate) files: Vec<(ObjectId, DurabilityDependency)>,
    pub(crate) since_ns: Option<u64>,
}

/// Files whose marks are still there: until their removal or close is durable
/// on every tier, power loss may undo some of it.
#[derive(Default)]
pub struct MarksToRetire {
    /// Data that could not be removed, since a tier failed.
    pub(crate) failed: Vec<ObjectId>,
    /// Their data is gone.
    pub(crate) done: Vec<ObjectId>,
    /// Not removed, but closed: one mark of each is not needed any more once
    /// the home inode is durable.
    pub(crate) settled: Vec<ObjectId>,
    /// Inodes that lost a name and kept another.
    pub(crate) fewer_names: HashSet<InodeId>,
    /// The same, while that is being made durable.
    pub(crate) fewer_names_syncing: HashSet<InodeId>,
    /// The last try failed: the next one waits for its time.
    pub(crate) failed_to_sync: bool,
    pub(crate) since_ns: Option<u64>,
}

/// Removals and marks that one process hands to the next.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RemovalState {
    known: Vec<ObjectId>,
    pending: Vec<ObjectId>,
    failed: Vec<ObjectId>,
    done: Vec<ObjectId>,
    settled: Vec<ObjectId>,
    fewer_names: Vec<InodeId>,
}

impl Default for Removals {
    fn default() -> Self {
        Self {
            pending: Mutex::new(PendingRemovals::default()),
            removed: Mutex::new(MarksToRetire::default()),
            working: Mutex::new(()),
            retiring: Mutex::new(()),
            batches: AtomicU64::new(0),
            for_room_from_ns: AtomicU64::new(0),
        }
    }
}

impl Removals {
    /// All of it, for the process that takes the volume over; no operation is under
    /// way.
    pub(crate) fn hand_over(&self) -> RemovalState {
        let (pending, removed) = (self.pending.lock(), self.removed.lock());
        let fewer_names = removed.fewer_names.iter().chain(&removed.fewer_names_syncing);
        RemovalState {
            known: pending.known.iter().copied().collect(),
            pending: pending.files.iter().map(|(id, _)| *id).collect(),
            failed: removed.failed.clone(),
            done: removed.done.clone(),
            settled: removed.settled.clone(),
            fewer_names: fewer_names.copied().collect(),
        }
    }

    /// Goes on where another process ended. The dependencies of its removals are not
    /// known any more: everything is made durable first.
    pub(crate) fn take_over(&self, now_ns: u64, state: RemovalState) {
        let (mut pending, mut removed) = (self.pending.lock(), self.removed.lock());
        pending.known.extend(state.known);
        pending.files.extend(state.pending.into_iter().map(|id| (id, None)));
        pending.since_ns = (!pending.files.is_empty()).then_some(now_ns);
        removed.failed.extend(state.failed);
        removed.done.extend(state.done);
        removed.settled.extend(state.settled);
        removed.fewer_names.extend(state.fewer_names);
        removed.since_ns = Some(now_ns);
    }

    /// Drops all dependencies: another home directory holds everything durably,
    /// so nothing of the earlier one has to be synced.
    pub fn forget_dependencies(&self) {
        self.pending.lock().files.iter_mut().for_each(|(_, depends_on)| *depends_on = None);
    }

    /// The files whose indexes still exist though no name leads to them.
    pub fn ids(&self) -> Vec<ObjectId> {
        self.pending.lock().known.iter().copied().collect()
    }

    /// The files whose indexes still exist though the tiers do not count their
    /// ranges any more.
    pub(crate) fn counted_out(&self) -> HashSet<ObjectId> {
        self.removed.lock().done.iter().copied().collect()
    }

    /// The files whose removal may not be durable.
    pub fn waiting(&self) -> Vec<ObjectId> {
        self.pending.lock().files.iter().map(|(id, _)| *id).collect()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.pending.lock().files.len() as u64
    }

    /// How many batches of removals were carried out so far.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Acquire)
    }

    /// Whether a file had names whose removal may not be durable.
    pub(crate) fn had_other_names(&self, ino: InodeId) -> bool {
        let removed = self.removed.lock();
        removed.fewer_names.contains(&ino) || removed.fewer_names_syncing.contains(&ino)
    }

    /// Queues a file, unless it is queued: the thread that takes the last name
    /// away, the one that closes the file last and one that empties it may each
    /// find that its data is to go. Answers whether this was the first.
    /// `depends_on` has to be durable first: the directory that the last name
    /// was in, or the home file that was emptied.
    pub fn add(&self, now_ns: u64, id: ObjectId, depends_on: DurabilityDependency) -> bool {
        let mut pending = self.pending.lock();
        let first = pending.known.insert(id);
        if first {
            pending.files.push((id, depends_on));
            pending.since_ns.get_or_insert(now_ns);
        }
        first
    }

    /// Files that are removed without having been queued.
    pub(crate) fn know(&self, ids: &[ObjectId]) {
        self.pending.lock().known.extend(ids);
    }

    /// Nothing is left of a file.
    pub(crate) fn forget(&self, id: ObjectId) {
        self.pending.lock().known.remove(&id);
    }

    /// Takes over the mark of a file that is not in use any more.
    pub(crate) fn settle(&self, now_ns: u64, id: ObjectId) {
        let mut removed = self.removed.lock();
        removed.since_ns.get_or_insert(now_ns);
        removed.settled.push(id);
    }

    /// A file lost a name and has others: until everything is synced, that name
    /// may come back.
    pub(crate) fn lost_a_name(&self, now_ns: u64, ino: InodeId) {
        let mut removed = self.removed.lock();
        removed.since_ns.get_or_insert(now_ns);
        removed.fewer_names.insert(ino);
    }
}
