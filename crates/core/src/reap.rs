//! Removing the data of removed spread files from the tiers (ordering rule 4).
//!
//! When the last name and the last open of a spread file are gone, its objects
//! and its index go too; but only once the removal of the name is durable, so
//! that a crash that brings the name back finds the data. Many files wait for
//! that together, in the background.

use crate::core::Core;
use crate::live::{DurabilityDependency, MarksToRetire};
use braid_contract::{Errno, Error, ObjectId, Result, Store};
use braid_tiers::Tier;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Files wait this long for others, to share one sync.
const BATCH_TIME_NS: u64 = 1_000_000_000;

/// As many as this do not wait at all.
const BATCH_MAX: usize = 1024;

/// How long marks of files that were closed or removed wait for that to be
/// durable on every tier, so that many files share one sync of everything.
const RETIRE_AFTER_NS: u64 = 30_000_000_000;

/// As many as this do not wait for the time.
const RETIRE_MAX: usize = 16 << 10;

/// Carries out due removals.
pub fn reap_due(core: &Core) {
    let now_ns = core.environment.monotonic_ns();
    let due = {
        let pending = core.removals.pending.lock();
        pending.files.len() >= BATCH_MAX
            || pending.since_ns.is_some_and(|since| now_ns >= since + BATCH_TIME_NS)
    };
    if due {
        reap_now(core);
    }
    let due = {
        let removed = core.removals.removed.lock();
        !removed.failed_to_sync && removed.done.len() + removed.settled.len() >= RETIRE_MAX
            || removed.since_ns.is_some_and(|since| now_ns >= since + RETIRE_AFTER_NS)
    };
    if due {
        retire_marks(core);
    }
}

/// Carries out queued removals for data that would have to go to another tier
/// than it should, for want of room; answers whether there were any. A writer
/// waits for that meanwhile: it takes a tenth of the time at most, and else the
/// data goes there.
pub(crate) fn reap_for_room(core: &Core) -> bool {
    let started_ns = core.environment.monotonic_ns();
    if core.removals.count() == 0 || started_ns < core.removals.for_room_from_ns.load(Ordering::Acquire) {
        return false;
    }
    let reaped = reap_now(core);
    let ended_ns = core.environment.monotonic_ns();
    core.removals.for_room_from_ns.store(ended_ns + 9 * (ended_ns - started_ns), Ordering::Release);
    reaped
}

/// Carries out everything that is queued; answers whether there was any.
pub fn reap_now(core: &Core) -> bool {
    let _working = core.removals.working.lock();
    let files = {
        let mut pending = core.removals.pending.lock();
        pending.since_ns = None;
        std::mem::take(&mut pending.files)
    };
    if files.is_empty() {
        return false;
    }
    if let Err(error) = core.index.sync_marks().and_then(|()| sync_dependencies(core, &files)) {
        tracing::error!(%error, files = files.len(), "could not make removals durable; it is tried again");
        let mut pending = core.removals.pending.lock();
        pending.since_ns = Some(core.environment.monotonic_ns());
        pending.files.extend(files);
        return false;
    }
    remove_data(core, files.iter().map(|(id, _)| *id).collect());
    core.tiers.measure_again();
    core.freed.note();
    core.removals.batches.fetch_add(1, Ordering::AcqRel);
    true
}

/// Removes the data of files whose removal is durable. Their marks stay
/// until that is durable too.
pub(crate) fn remove_data(core: &Core, ids: Vec<ObjectId>) {
    core.removals.know(&ids);
    let result = remove_objects(core, &ids);
    if result.is_ok() {
        ids.iter().for_each(|id| count_removed(core, *id));
    }
    let mut removed = core.removals.removed.lock();
    removed.since_ns.get_or_insert_with(|| core.environment.monotonic_ns());
    match result {
        Ok(()) => removed.done.extend(ids),
        Err(error) => {
            tracing::error!(%error, "could not remove all data of removed files; it is tried again");
            removed.failed.extend(ids);
        }
    }
}

/// Removes marks and indexes of files whose removal, or last close, is durable
/// on every tier: it syncs all of them first.
pub fn retire_marks(core: &Core) {
    let _retiring = core.removals.retiring.lock();
    let (failed, mut done, mut settled) = {
        let mut removed = core.removals.removed.lock();
        if removed.since_ns.take().is_none() {
            return;
        }
        removed.fewer_names_syncing = std::mem::take(&mut removed.fewer_names);
        let MarksToRetire { failed, done, settled, .. } = &mut *removed;
        (std::mem::take(failed), std::mem::take(done), std::mem::take(settled))
    };
    let synced = core.sync_all_tiers();
    if synced.is_ok() {
        // Files for which this fails are tried again.
        done = forget_removed(core, done);
        settled.retain(|id| log_failure(core.index.unmark(*id)));
    }
    {
        let mut removed = core.removals.removed.lock();
        let syncing = std::mem::take(&mut removed.fewer_names_syncing);
        removed.failed_to_sync = synced.is_err();
        if log_failure(synced) {
            removed.fewer_names.extend(syncing);
        }
        removed.done.extend(done);
        removed.settled.extend(settled);
        if !(removed.done.is_empty() && removed.settled.is_empty() && removed.fewer_names.is_empty()) {
            removed.since_ns.get_or_insert_with(|| core.environment.monotonic_ns());
        }
    }
    if !failed.is_empty() {
        remove_data(core, failed);
    }
}

/// The removal of some objects from all tiers at the same time.
#[derive(Default)]
struct RemovalRound {
    /// Tiers on which it has not ended.
    under_way: Mutex<Vec<Arc<Tier>>>,
    failed: Mutex<Option<Error>>,
    ended: Condvar,
}

impl RemovalRound {
    /// Interval at which it is checked whether a tier hangs.
    const LOOK: Duration = Duration::from_millis(100);

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
            self.ended.wait_for(&mut under_way, Self::LOOK);
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
fn sync_dependencies(core: &Core, files: &[(ObjectId, DurabilityDependency)]) -> Result<()> {
    if !core.home.keeps_removals() {
        return core.home.root().sync_fs();
    }
    let mut synced = HashSet::new();
    for (_, depends_on) in files {
        let Some(depends_on) = depends_on else { return core.home.root().sync_fs() };
        let stat = depends_on.stat()?.attr;
        if !synced.insert(stat.ino) {
            continue;
        }
        // A directory that is itself removed can't be synced: its own removal
        // is a matter of one above it.
        if stat.nlink == 0 {
            return core.home.root().sync_fs();
        }
        depends_on.sync(false)?;
    }
    Ok(())
}

/// Removes the objects of files that are gone. Indexes and marks stay: as long
/// as something may be left, they lead there. A tier that hangs is not waited
/// for: removals there go on.
fn remove_objects(core: &Core, ids: &[ObjectId]) -> Result<()> {
    let Some(pool) = &core.pool else {
        return core
            .tiers
            .stores()
            .map(|(tier, store)| remove_from(&tier, &*store, ids))
            .fold(Ok(()), Result::and);
    };
    let removals = Arc::new(RemovalRound::default());
    let ids: Arc<[ObjectId]> = ids.into();
    for (tier, store) in core.tiers.stores() {
        removals.under_way.lock().push(Arc::clone(&tier));
        let (removals, ids) = (Arc::clone(&removals), Arc::clone(&ids));
        pool.spawn(move || removals.ended(&tier, remove_from(&tier, &*store, &ids)));
    }
    removals.wait()
}

/// Removes indexes and marks of files that are gone; answers those that are
/// left. An index goes when no object can come back: one without the other is
/// damage.
fn forget_removed(core: &Core, ids: Vec<ObjectId>) -> Vec<ObjectId> {
    let (mut left, gone): (Vec<_>, Vec<_>) =
        ids.into_iter().partition(|id| log_failure(forget_index(core, *id)));
    // Where names come and go in any order, a mark must not go for good
    // before the index that it leads to.
    let may_unmark = match gone.is_empty() || core.home.keeps_removals() {
        true => Ok(()),
        false => core.home.root().sync_fs(),
    };
    if log_failure(may_unmark) {
        left.extend(gone);
        return left;
    }
    for id in gone {
        match log_failure(core.index.unmark_gone(id)) {
            true => left.push(id),
            false => core.removals.forget(id),
        }
    }
    left
}

fn forget_index(core: &Core, id: ObjectId) -> Result<()> {
    core.index.remove_index(id)
}

/// Takes the ranges of a file whose data went out of the tiers' counts. Its
/// index stays for a while.
fn count_removed(core: &Core, id: ObjectId) {
    // Without an index there was nothing to count.
    let Ok(index) = core.index.open_index(id) else { return };
    let counted = index.for_each(0, |_, entry| {
        core.tiers.count_range(entry.ok().map(|entry| entry.tier), None);
        Ok(())
    });
    if let Err(error) = counted {
        tracing::debug!(%error, "counting the ranges of a removed file");
    }
}
