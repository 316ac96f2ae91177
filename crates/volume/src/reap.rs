//! Removal of what spread files had on the tiers (ordering rule 4).
//!
//! When the last name and the last open of a spread file are gone, its objects
//! and its index go too; but only once the removal of the name is durable, so
//! that a crash that brings the name back finds the data. Waiting for that is
//! done for many files at once, in the background.

use crate::Volume;
use crate::namespace::DurabilityDependency;
use crate::sync::{Condvar, Mutex};
use crate::tiers::Tier;
use braid_contract::{Errno, Error, InodeId, ObjectId, Result, Store};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files wait this long for others to go with.
const BATCH_TIME_NS: u64 = 1_000_000_000;

/// As many as this do not wait at all.
const BATCH_MAX: usize = 1024;

/// How long marks of files that were closed or removed wait for that to be
/// durable on every tier, so that many files share one sync of everything.
const BURIAL_TIME_NS: u64 = 30_000_000_000;

/// As many as this do not wait for the time.
const BURIAL_MAX: usize = 16 << 10;

/// Spread files whose data is to be removed, or was.
pub(crate) struct Reaper {
    pending: Mutex<Pending>,
    removed: Mutex<Removed>,
    /// Held while a batch is carried out.
    working: Mutex<()>,
    /// Batches that were carried out.
    batches: AtomicU64,
}

#[derive(Default)]
struct Pending {
    files: Vec<(ObjectId, DurabilityDependency)>,
    since_ns: Option<u64>,
}

/// Files whose marks are still there: until what was done to them is durable
/// on every tier, power loss may undo some of it.
#[derive(Default)]
struct Removed {
    /// Data that could not be removed, since a tier failed.
    failed: Vec<ObjectId>,
    /// Their data is gone.
    done: Vec<ObjectId>,
    /// Not removed, but closed: one mark of each is not needed any more once
    /// the home inode is durable.
    settled: Vec<ObjectId>,
    /// Inodes that lost a name and kept another.
    fewer_names: HashSet<InodeId>,
    /// Those whose removal is being made durable.
    fewer_names_syncing: HashSet<InodeId>,
    /// The last try failed: the next one waits for its time.
    failed_to_sync: bool,
    since_ns: Option<u64>,
}

impl Reaper {
    pub(crate) fn new() -> Self {
        Self {
            pending: Mutex::new(Pending::default()),
            removed: Mutex::new(Removed::default()),
            working: Mutex::new(()),
            batches: AtomicU64::new(0),
        }
    }

    /// Queues a file. `depends_on` is what has to be durable first: the directory
    /// that its last name was in, or the home file that was emptied.
    pub(crate) fn add(&self, volume: &Volume, id: ObjectId, depends_on: DurabilityDependency) {
        let mut pending = self.pending.lock();
        pending.files.push((id, depends_on));
        pending.since_ns.get_or_insert_with(|| volume.environment.monotonic_ns());
    }

    /// Another home directory holds everything durably: nothing of the earlier
    /// one has to be synced any more.
    pub(crate) fn forget_witnesses(&self) {
        self.pending.lock().files.iter_mut().for_each(|(_, depends_on)| *depends_on = None);
    }

    /// The files whose indexes are there still, and that nothing leads to.
    pub(crate) fn ids(&self) -> Vec<ObjectId> {
        let mut ids = self.waiting();
        let removed = self.removed.lock();
        ids.extend(removed.failed.iter().chain(&removed.done));
        ids
    }

    /// The files whose indexes are there still, and whose ranges the tiers do
    /// not count any more.
    pub(crate) fn counted_out(&self) -> HashSet<ObjectId> {
        self.removed.lock().done.iter().copied().collect()
    }

    /// The files whose removal may not be durable.
    pub(crate) fn waiting(&self) -> Vec<ObjectId> {
        self.pending.lock().files.iter().map(|(id, _)| *id).collect()
    }

    pub(crate) fn len(&self) -> u64 {
        self.pending.lock().files.len() as u64
    }

    /// Carries out what is due.
    pub(crate) fn reap_due(&self, volume: &Volume) {
        let now_ns = volume.environment.monotonic_ns();
        let due = {
            let pending = self.pending.lock();
            pending.files.len() >= BATCH_MAX
                || pending.since_ns.is_some_and(|since| now_ns >= since + BATCH_TIME_NS)
        };
        if due {
            self.reap_now(volume);
        }
        let due = {
            let removed = self.removed.lock();
            !removed.failed_to_sync && removed.done.len() + removed.settled.len() >= BURIAL_MAX
                || removed.since_ns.is_some_and(|since| now_ns >= since + BURIAL_TIME_NS)
        };
        if due {
            self.reclaim_orphans(volume);
        }
    }

    /// How many batches of removals were carried out so far.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Acquire)
    }

    /// Carries out everything that is queued; answers whether there was any.
    pub(crate) fn reap_now(&self, volume: &Volume) -> bool {
        let _working = self.working.lock();
        let files = {
            let mut pending = self.pending.lock();
            pending.since_ns = None;
            std::mem::take(&mut pending.files)
        };
        if files.is_empty() {
            return false;
        }
        if let Err(error) = volume.index.sync_marks().and_then(|()| sync_witnesses(volume, &files)) {
            tracing::error!(%error, files = files.len(), "could not make removals durable; it is tried again");
            let mut pending = self.pending.lock();
            pending.since_ns = Some(volume.environment.monotonic_ns());
            pending.files.extend(files);
            return false;
        }
        self.remove(volume, files.iter().map(|(id, _)| *id).collect());
        volume.tiers.measure_again();
        volume.freed.note();
        self.batches.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Removes the data of files whose removal is durable. Their marks stay
    /// until that is durable too.
    pub(crate) fn remove(&self, volume: &Volume, ids: Vec<ObjectId>) {
        let result = volume.remove_objects(&ids);
        if result.is_ok() {
            ids.iter().for_each(|id| volume.count_removed(*id));
        }
        let mut removed = self.removed.lock();
        removed.since_ns.get_or_insert_with(|| volume.environment.monotonic_ns());
        match result {
            Ok(()) => removed.done.extend(ids),
            Err(error) => {
                tracing::error!(%error, "could not remove all data of removed files; it is tried again");
                removed.failed.extend(ids);
            }
        }
    }

    /// Takes over the mark of a file that nobody uses any more.
    pub(crate) fn settle(&self, volume: &Volume, id: ObjectId) {
        let mut removed = self.removed.lock();
        removed.since_ns.get_or_insert_with(|| volume.environment.monotonic_ns());
        removed.settled.push(id);
    }

    /// A file lost a name and has others: until everything is synced, that name
    /// may come back.
    pub(crate) fn lost_a_name(&self, volume: &Volume, ino: InodeId) {
        let mut removed = self.removed.lock();
        removed.since_ns.get_or_insert_with(|| volume.environment.monotonic_ns());
        removed.fewer_names.insert(ino);
    }

    /// Whether a file had names whose removal may not be durable.
    pub(crate) fn had_other_names(&self, ino: InodeId) -> bool {
        let removed = self.removed.lock();
        removed.fewer_names.contains(&ino) || removed.fewer_names_syncing.contains(&ino)
    }

    /// Takes the marks of files away to which nothing can happen any more.
    pub(crate) fn reclaim_orphans(&self, volume: &Volume) {
        let (failed, mut done, mut settled) = {
            let mut removed = self.removed.lock();
            if removed.since_ns.take().is_none() {
                return;
            }
            removed.fewer_names_syncing = std::mem::take(&mut removed.fewer_names);
            let Removed { failed, done, settled, .. } = &mut *removed;
            (std::mem::take(failed), std::mem::take(done), std::mem::take(settled))
        };
        let synced = volume.sync_all_tiers();
        if synced.is_ok() {
            // What can't be taken away now is tried again.
            done = volume.forget_removed(done);
            settled.retain(|id| log_failure(volume.index.unmark(*id)));
        }
        {
            let mut removed = self.removed.lock();
            let syncing = std::mem::take(&mut removed.fewer_names_syncing);
            removed.failed_to_sync = synced.is_err();
            if log_failure(synced) {
                removed.fewer_names.extend(syncing);
            }
            removed.done.extend(done);
            removed.settled.extend(settled);
            if !(removed.done.is_empty() && removed.settled.is_empty() && removed.fewer_names.is_empty()) {
                removed.since_ns.get_or_insert_with(|| volume.environment.monotonic_ns());
            }
        }
        if !failed.is_empty() {
            self.remove(volume, failed);
        }
    }
}

/// The removal of some objects from all tiers at the same time.
#[derive(Default)]
struct Removals {
    /// Tiers on which it has not ended.
    under_way: Mutex<Vec<Arc<Tier>>>,
    failed: Mutex<Option<Error>>,
    ended: Condvar,
}

impl Removals {
    /// How often it is looked whether a tier hangs.
    const LOOK_NS: u64 = 100_000_000;

    fn ended(&self, tier: &Arc<Tier>, result: Result<()>) {
        if let Err(error) = result {
            *self.failed.lock() = Some(error);
        }
        self.under_way.lock().retain(|other| !Arc::ptr_eq(other, tier));
        self.ended.notify_all();
    }

    /// Waits until it has ended everywhere but on tiers on which nothing ends.
    fn wait(&self) -> Result<()> {
        let mut under_way = self.under_way.lock();
        while under_way.iter().any(|tier| !tier.is_stuck()) {
            under_way = self.ended.wait_for(under_way, Self::LOOK_NS);
        }
        match under_way.first() {
            Some(tier) => Err(Error::new(Errno::EIO, format!("tier {}: nothing ends", tier.name))),
            None => self.failed.lock().take().map_or(Ok(()), Err),
        }
    }
}

fn remove_from(tier: &Tier, store: &dyn Store, ids: &[ObjectId]) -> Result<()> {
    store.remove(ids).map_err(|error| tier.note_error(error))
}

/// Logs a failure; answers whether it was one.
fn log_failure(result: Result<()>) -> bool {
    if let Err(error) = &result {
        tracing::warn!(%error, "could not take the marks of removed or closed files away; it is tried again");
    }
    result.is_err()
}

/// Makes the removals durable, syncing each directory once.
fn sync_witnesses(volume: &Volume, files: &[(ObjectId, DurabilityDependency)]) -> Result<()> {
    if !volume.home.keeps_removals() {
        return volume.home.root().sync_fs();
    }
    let mut synced = HashSet::new();
    for (_, depends_on) in files {
        let Some(depends_on) = depends_on else { return volume.home.root().sync_fs() };
        let stat = depends_on.stat()?.attr;
        if !synced.insert(stat.ino) {
            continue;
        }
        // A directory that is itself gone has nothing left to sync: what made
        // it go is somewhere above.
        if stat.nlink == 0 {
            return volume.home.root().sync_fs();
        }
        depends_on.sync(false)?;
    }
    Ok(())
}

impl Volume {
    /// Removes the objects of files that are gone. Indexes and marks stay: as
    /// long as something may be left, they lead there. A tier on which nothing
    /// ends is not waited for: what is under way there goes on.
    fn remove_objects(&self, ids: &[ObjectId]) -> Result<()> {
        let Some(pool) = &self.pool else {
            return self
                .tiers
                .stores()
                .map(|(tier, store)| remove_from(&tier, &*store, ids))
                .fold(Ok(()), Result::and);
        };
        let removals = Arc::new(Removals::default());
        let ids: Arc<[ObjectId]> = ids.into();
        for (tier, store) in self.tiers.stores() {
            removals.under_way.lock().push(Arc::clone(&tier));
            let (removals, ids) = (Arc::clone(&removals), Arc::clone(&ids));
            pool.spawn(move || removals.ended(&tier, remove_from(&tier, &*store, &ids)));
        }
        removals.wait()
    }

    /// Removes indexes and marks of files that are gone; answers those of which
    /// something is left. An index goes when no object can come back: one
    /// without the other is damage.
    fn forget_removed(&self, ids: Vec<ObjectId>) -> Vec<ObjectId> {
        let (mut left, gone): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|id| log_failure(self.forget_index(*id)));
        // Where names come and go in any order, a mark must not go for good
        // before the index that it leads to.
        let may_unmark = match gone.is_empty() || self.home.keeps_removals() {
            true => Ok(()),
            false => self.home.root().sync_fs(),
        };
        match log_failure(may_unmark) {
            true => left.extend(gone),
            false => left.extend(gone.into_iter().filter(|id| log_failure(self.index.unmark_gone(*id)))),
        }
        left
    }

    fn forget_index(&self, id: ObjectId) -> Result<()> {
        self.index.remove_index(id)
    }

    /// Takes the ranges of a file whose data went out of the tiers' counts. Its
    /// index stays for a while.
    fn count_removed(&self, id: ObjectId) {
        // Without an index there was nothing to count.
        let Ok(index) = self.index.open_index(id) else { return };
        let counted = index.for_each(0, |_, entry| {
            self.tiers.count_range(entry.ok().map(|entry| entry.tier), None);
            Ok(())
        });
        if let Err(error) = counted {
            tracing::debug!(%error, "counting the ranges of a removed file");
        }
    }
}
