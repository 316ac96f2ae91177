//! Removal of what spread files had on the tiers (ordering rule 4).
//!
//! When the last name and the last open of a spread file are gone, its objects
//! and its index go too; but only once the removal of the name is durable, so
//! that a crash that brings the name back finds the data. Waiting for that is
//! done for many files at once, in the background.

use crate::Volume;
use crate::namespace::Parent;
use crate::sync::Mutex;
use braid_contract::{ObjectId, Result};
use std::collections::HashSet;

/// Files wait this long for others to go with.
const BATCH_TIME_NS: u64 = 1_000_000_000;

/// As many as this do not wait at all.
const BATCH_MAX: usize = 1024;

/// Spread files whose data is to be removed.
pub(crate) struct Reaper {
    pending: Mutex<Pending>,
    /// Held while a batch is carried out.
    working: Mutex<()>,
}

#[derive(Default)]
struct Pending {
    files: Vec<(ObjectId, Parent)>,
    since_ns: Option<u64>,
}

impl Reaper {
    pub(crate) fn new() -> Self {
        Self { pending: Mutex::new(Pending::default()), working: Mutex::new(()) }
    }

    /// Queues a file. `witness` is what has to be durable first: the directory
    /// that its last name was in, or the home file that was emptied.
    pub(crate) fn add(&self, volume: &Volume, id: ObjectId, witness: Parent) {
        let mut pending = self.pending.lock();
        pending.files.push((id, witness));
        pending.since_ns.get_or_insert_with(|| volume.environment.monotonic_ns());
    }

    pub(crate) fn len(&self) -> u64 {
        self.pending.lock().files.len() as u64
    }

    /// Carries out what is due.
    pub(crate) fn reap_due(&self, volume: &Volume) {
        let due = {
            let pending = self.pending.lock();
            pending.files.len() >= BATCH_MAX
                || pending
                    .since_ns
                    .is_some_and(|since| volume.environment.monotonic_ns() >= since + BATCH_TIME_NS)
        };
        if due {
            self.reap_now(volume);
        }
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
        if let Err(error) = sync_witnesses(volume, &files) {
            tracing::error!(%error, files = files.len(), "could not make removals durable; the next mount tries again");
            return false;
        }
        let ids: Vec<ObjectId> = files.iter().map(|(id, _)| *id).collect();
        for id in &ids {
            volume.count_removed(*id);
        }
        if let Err(error) = volume.remove_everywhere(&ids) {
            tracing::error!(%error, "could not remove all data of removed files; the next mount tries again");
        }
        volume.tiers.iter().for_each(crate::tiers::Tier::measure_again);
        true
    }
}

/// Makes the removals durable, syncing each directory once.
fn sync_witnesses(volume: &Volume, files: &[(ObjectId, Parent)]) -> Result<()> {
    let mut synced = HashSet::new();
    for (_, witness) in files {
        let stat = witness.stat()?.attr;
        if !synced.insert(stat.ino) {
            continue;
        }
        // A directory that is itself gone has nothing left to sync: what made
        // it go is somewhere above.
        if stat.nlink == 0 {
            return volume.home.root().sync_fs();
        }
        witness.sync(false)?;
    }
    Ok(())
}

impl Volume {
    /// Removes objects, indexes and marks of files that are gone. The mark
    /// goes last: as long as something is left, it leads there.
    pub(crate) fn remove_everywhere(&self, ids: &[ObjectId]) -> Result<()> {
        let mut failed = None;
        for (tier, store) in self.tiers.stores() {
            if let Err(error) = store.remove(ids) {
                failed = Some(tier.note_error(error));
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        for id in ids {
            self.index.remove_index(*id)?;
            self.index.unmark_gone(*id)?;
        }
        Ok(())
    }

    /// Takes the ranges of a file that goes out of the tiers' counts.
    fn count_removed(&self, id: ObjectId) {
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
