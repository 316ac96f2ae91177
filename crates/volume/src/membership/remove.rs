//! Removing an empty tier from the volume.
//!
//! It takes no new ranges from the start. Once no index names it any more,
//! durably, the volume table marks it as *leaving*, and it is not part of the
//! volume any more. The rest is done at once, or, after a crash, at the next
//! mount: indexes forget their objects there, and its directory is cleared.
//! Only then may its number be reused.

use super::shared::Membership;
use crate::config::VolumeConfig;
use crate::occupancy::{ranges_counted_on, whole_files_on};
use braid_contract::{Errno, Error, ObjectId, RefusalKind, Result, Store, TierId, counted};
use braid_core::file::{disown, prepare_leave};
use braid_core::namespace::with_file;
use braid_core::reap::{reap_now, retire_marks};
use braid_core::recover::{find_owner, walk_if_needed};
use braid_format::{Label, Mark, Removed, TABLE_LEN, VolumeTable};
use braid_index::Index;
use braid_tiers::{Backend, Tier, TierConfig};
use std::collections::HashSet;
use std::sync::Arc;

/// A tier that was removed.
#[derive(Clone, Debug)]
pub struct RemovedTier {
    /// Its number.
    pub id: TierId,
    /// Its location.
    pub location: String,
    /// The error, if its store could not be cleared: its label is still there.
    /// [`Volume::add_tier`](crate::Volume::add_tier) accepts such a store
    /// nevertheless.
    pub not_cleared: Option<String>,
}

/// The references of an index to one tier.
#[derive(Clone, Copy, Debug, Default)]
struct Mentions {
    /// Ranges on the tier.
    ranges: u64,
    /// Ranges on it behind the end of the file, which have no data.
    beyond: bool,
    /// The tier owns the size or a time.
    owner: bool,
}

impl Mentions {
    fn any(self) -> bool {
        self.ranges > 0 || self.beyond || self.owner
    }
}

/// Most attempts to make removals durable that happen meanwhile.
const REAPS_MAX: u32 = 3;

/// Files whose indexes name the tier, and obstacles.
#[derive(Default)]
struct Naming {
    /// Files without data there, whose index or home inode has to be corrected.
    files: Vec<ObjectId>,
    ranges: u64,
    ranges_in: u64,
}

impl Membership {
    /// Removes an empty tier from the volume, and clears its store, so that it
    /// can be used again. From then on, a mount that names it leaves it out.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `EBUSY` if it is home or the policy
    /// names it, `ENOTEMPTY` if a file has data on it, `EUCLEAN` if an index
    /// can't be read, so that the tier may hold data; those of the home tier.
    /// The tier is then unchanged.
    pub(crate) fn remove(&self, name: &str) -> Result<RemovedTier> {
        let _entered = self.core.barrier.enter();
        self.remove_inside(&mut self.core.table.lock(), name)
    }

    /// As [`remove`](Self::remove), for callers that have entered the barrier and
    /// hold the table.
    pub(super) fn remove_inside(&self, table: &mut VolumeTable, name: &str) -> Result<RemovedTier> {
        let tier = self.core.tiers.named(name)?;
        self.may_leave(&tier)?;
        let was_draining = tier.is_draining();
        tier.set_draining(true);
        // Asked now: later users of the tier find no store, and would take that
        // for trouble.
        let healthy = tier.is_healthy();
        let store = self.take_out(table, &tier).inspect_err(|_| tier.set_draining(was_draining))?;
        tracing::info!(tier = %tier.name, location = %tier.location(), "tier was removed");
        self.claims.release(&tier.name);
        self.renew_policy();
        // Failed steps from here on are repeated at the next mount.
        if let Err(error) = self.forget_leaving(table) {
            tracing::warn!(tier = %tier.name, %error, "the number of a removed tier stays taken until the next mount");
        }
        let cleared = match store {
            None => Err(Error::new(Errno::ENODEV, "the tier is not there")),
            Some(_) if !healthy => Err(Error::new(Errno::EIO, "the tier is in trouble")),
            Some(store) => store.clear(),
        };
        let not_cleared = cleared.err().map(|error| error.to_string());
        Ok(RemovedTier { id: tier.id, location: tier.location(), not_cleared })
    }

    /// Checks that the volume does not need the tier, wherever its ranges are.
    pub(crate) fn may_leave(&self, tier: &Tier) -> Result<()> {
        let refuse = |why, what: String| Err(Error::refused(Errno::EBUSY, why, what));
        let name = tier.name.as_str();
        if tier.is_home() {
            return refuse(
                RefusalKind::Home,
                format!("tier {name} is the home tier, which holds the names of all files"),
            );
        }
        let others = |of: &str| self.core.tiers.number(of).filter(|_| of != name);
        if let Some(who) = self.placement.names_more_than(others) {
            return refuse(RefusalKind::Policy, format!("{who} names tier {name}"));
        }
        Ok(())
    }

    /// Makes sure that the tier is empty, and switches the table. Answers its
    /// store.
    fn take_out(&self, table: &mut VolumeTable, tier: &Tier) -> Result<Option<Arc<dyn Store>>> {
        let counted = || ranges_counted_on(&self.core, tier);
        if counted() > 0 {
            // It may hold only removed files.
            reap_now(&self.core);
            retire_marks(&self.core);
        }
        self.put_right(tier)?;
        if counted() > 0 {
            // Another look: the first may have overlooked a file that was
            // renamed meanwhile.
            self.put_right(tier)?;
            tracing::warn!(tier = %tier.name, ranges = counted(), "ranges were counted that there are not");
            self.core.tiers.distrust_counts();
        }
        self.explain_objects(tier)?;
        let mut next = table.clone();
        next.tiers.retain(|(number, _)| *number != tier.id);
        next.removed.retain(|old| old.name != tier.name || old.leaving);
        next.removed.push(Removed { tier: tier.id, name: tier.name.clone(), leaving: true });
        self.core.switch_table(table, next)?;
        Ok(self.core.tiers.remove(tier))
    }

    /// Makes sure that every object on the tier is one of a file that has an
    /// index or was removed. Only names lead to the objects of others, and a walk
    /// of all names may overlook a file that is renamed meanwhile.
    fn explain_objects(&self, tier: &Tier) -> Result<()> {
        let Backend::Store(store) = &tier.backend else { return Ok(()) };
        // It is not cleared either.
        if !tier.is_healthy() {
            return Ok(());
        }
        // Before the objects are listed: a removal that ends is forgotten.
        let removed: HashSet<ObjectId> = self.core.removals.ids().into_iter().collect();
        let mut objects = Vec::new();
        store.list(&mut |id| objects.push(id))?;
        let has_no_index = |id: &&ObjectId| match self.core.index.open_index(**id) {
            Err(error) => error.errno() == Errno::ENOENT,
            Ok(_) => false,
        };
        match objects.iter().filter(|id| !removed.contains(*id)).filter(has_no_index).count() as u64 {
            0 => Ok(()),
            left => {
                let what = format!(
                    "tier {} is not empty: it has {} that no index explains; evacuate it again, and if that \
                     does not help, unmount, and run braid fsck --repair",
                    tier.name,
                    counted(left, "object")
                );
                Err(Error::refused(Errno::ENOTEMPTY, RefusalKind::Occupied, what))
            }
        }
    }

    /// Makes all indexes independent of the tier, durably.
    fn put_right(&self, tier: &Tier) -> Result<()> {
        let found = self.look_for(tier)?;
        if found.ranges > 0 {
            return Err(not_empty(tier, found.ranges, Some(found.ranges_in)));
        }
        // Times and sizes come to the home inodes, durably, and only then home
        // becomes their owner in the indexes, durably: the tier may be gone
        // when they are needed.
        let mut ranges = 0;
        self.for_files(&found.files, &mut |file| {
            ranges += prepare_leave(&self.core, file, tier)?;
            Ok(())
        })?;
        if ranges > 0 {
            return Err(not_empty(tier, ranges, None));
        }
        if !found.files.is_empty() {
            self.core.home.root().sync_fs()?;
            self.for_files(&found.files, &mut |file| disown(&self.core, file, tier))?;
            self.core.home.root().sync_fs()?;
        }
        self.reap_from(tier)
    }

    /// Removed files with data on the tier must not come back after power loss.
    /// More may be removed meanwhile.
    fn reap_from(&self, tier: &Tier) -> Result<()> {
        for _ in 0..REAPS_MAX {
            reap_now(&self.core);
            let mut left = 0;
            for id in self.core.removals.waiting() {
                match self.mentions(id, tier.id) {
                    Ok(mentions) => left += u64::from(mentions.any()),
                    // A whole file, if it has an object there.
                    Err(error) if error.errno() == Errno::ENOENT => left += u64::from(has_object(tier, id)),
                    Err(error) => return Err(error),
                }
            }
            if left == 0 {
                return Ok(());
            }
        }
        let what = format!("removed files have data on tier {}, and their removal is not durable", tier.name);
        Err(Error::refused(Errno::EBUSY, RefusalKind::Busy, what))
    }

    fn look_for(&self, tier: &Tier) -> Result<Naming> {
        let mut found = Naming::default();
        let mut nameless = Vec::new();
        let whole = whole_files_on(&self.core, tier)?;
        found.ranges += whole.iter().map(|file| file.ranges).sum::<u64>();
        found.ranges_in += whole.len() as u64;
        self.core.index.list(&mut |id| {
            let mentions = match self.mentions(id, tier.id) {
                Ok(mentions) => mentions,
                // The file was removed.
                Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
                // A crash interrupted its creation.
                Err(_) if self.core.index.is_unfinished(id).unwrap_or(false) => return Ok(()),
                Err(error) => return Err(error),
            };
            if mentions.ranges > 0 {
                nameless.push((id, mentions.ranges));
            } else if mentions.any() {
                found.files.push(id);
            }
            Ok(())
        })?;
        // Some may belong to files that are gone for good.
        let ids: Vec<ObjectId> = nameless.iter().map(|(id, _)| *id).collect();
        self.for_files(&ids, &mut |file| {
            let ranges = file.spread_id().and_then(|id| nameless.iter().find(|(of, _)| *of == id));
            if let Some((_, ranges)) = ranges {
                found.ranges += ranges;
                found.ranges_in += 1;
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn mentions(&self, id: ObjectId, tier: TierId) -> Result<Mentions> {
        let index = self.core.index.open_index(id)?;
        let end = index.range_size().count(index.size()?);
        let owners = index.owners()?;
        let mut mentions = Mentions {
            owner: [owners.size, owners.mtime, owners.atime, owners.synced_mtime].contains(&tier),
            ..Mentions::default()
        };
        index.for_each(0, |range, entry| {
            if entry?.tier == tier {
                if range < end {
                    mentions.ranges += 1;
                } else {
                    mentions.beyond = true;
                }
            }
            Ok(())
        })?;
        Ok(mentions)
    }

    /// Finishes the removal of tiers that are leaving by the table: makes all
    /// indexes forget their objects there.
    fn forget_leaving(&self, table: &mut VolumeTable) -> Result<()> {
        let leaving: Vec<TierId> =
            table.removed.iter().filter(|old| old.leaving).map(|old| old.tier).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        // After this, no operation uses the tier any more.
        for open in self.core.handles.files() {
            leaving.iter().try_for_each(|tier| open.file.forget_tier(*tier))?;
        }
        self.core.index.list(&mut |id| {
            let index = match self.core.index.open_index(id) {
                Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
                Err(_) if self.core.index.is_unfinished(id).unwrap_or(false) => return Ok(()),
                result => result?,
            };
            leaving.iter().try_for_each(|tier| index.clear_object_durable(*tier))
        })?;
        self.core.home.root().sync_fs()?;
        let mut next = table.clone();
        next.removed.iter_mut().for_each(|old| old.leaving = false);
        self.core.switch_table(table, next)
    }

    /// Finishes removals that a crash interrupted. `left_out` are tiers given
    /// at the mount that were removed before.
    pub(crate) fn finish_removals(&self, left_out: Vec<TierConfig>) -> Result<()> {
        let mut table = self.core.table.lock();
        if let Err(error) = self.forget_leaving(&mut table) {
            tracing::warn!(%error, "the removal of a tier can't be finished; it is tried again at the next mount");
        }
        for tier in left_out {
            tracing::warn!(
                tier = %tier.name, location = %tier.location,
                "tier was removed from the volume: the mount goes without it; take it out of its settings"
            );
            if let Some(store) = tier.store
                && let Err(error) = self.clear_remains(&table, &tier.name, &*store)
            {
                tracing::warn!(tier = %tier.name, %error, "what is left of a removed tier can't be cleared");
            }
            self.left_out.lock().push(tier.name);
        }
        Ok(())
    }

    /// Clears the store of a removed tier, if the store still is that tier's.
    fn clear_remains(&self, table: &VolumeTable, name: &str, store: &dyn Store) -> Result<()> {
        let Some(label) = store.label()?.and_then(|bytes| Label::decode(&bytes).ok()) else { return Ok(()) };
        let is = |old: &Removed| old.name == name && old.tier == label.tier;
        if label.volume == self.core.id && label.name == name && table.removed.iter().any(is) {
            store.clear()?;
        }
        Ok(())
    }
}

fn has_object(tier: &Tier, id: ObjectId) -> bool {
    match &tier.backend {
        Backend::Store(store) => !store.stat(id).is_err_and(|error| error.errno() == Errno::ENOENT),
        Backend::Home(_) => false,
    }
}

/// Drops from a configuration the tiers that were removed from the volume, and
/// that an outdated stack file still names. Reads the table only; damage there
/// is found later.
pub(crate) fn leave_out_removed(config: &mut VolumeConfig) -> Vec<TierConfig> {
    let table = config.home.root.read_small(".braid/volume", TABLE_LEN).ok().flatten();
    let Some(table) = table.and_then(|bytes| VolumeTable::decode(&bytes).ok()) else { return Vec::new() };
    let is_removed = |tier: &TierConfig| {
        !table.tiers.iter().any(|(_, name)| *name == tier.name)
            && table.removed.iter().any(|old| old.name == tier.name)
            && !belongs_elsewhere(&table, tier)
    };
    let (left_out, tiers) = std::mem::take(&mut config.tiers).into_iter().partition(is_removed);
    config.tiers = tiers;
    left_out
}

/// Whether the store is that of another volume: that is refused as usual.
fn belongs_elsewhere(table: &VolumeTable, tier: &TierConfig) -> bool {
    let label = tier.store.as_ref().and_then(|store| store.label().ok().flatten());
    label.and_then(|bytes| Label::decode(&bytes).ok()).is_some_and(|label| label.volume != table.volume)
}

fn not_empty(tier: &Tier, ranges: u64, files: Option<u64>) -> Error {
    let of = files.map_or_else(String::new, |files| format!(" of {}", counted(files, "file")));
    let what = format!("tier {} is not empty: it has {}{of}", tier.name, counted(ranges, "range"));
    Error::refused(Errno::ENOTEMPTY, RefusalKind::Occupied, what)
}

impl Membership {
    /// Calls `visit` with the live state of each of these files that has a
    /// name, or is open without one.
    fn for_files(
        &self,
        ids: &[ObjectId],
        visit: &mut dyn FnMut(&braid_core::live::File) -> Result<()>,
    ) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut search = walk_if_needed(&self.core, ids)?;
        for id in ids {
            let index: Option<Index> = self.core.index.open_index(*id).ok();
            match find_owner(&self.core, &Mark { id: *id, handle: None }, index.as_ref(), &mut search)? {
                Some(owner) => {
                    match with_file(&self.core, &owner.fd, &owner.identity, |file| visit(file)) {
                        // The file is gone by now.
                        Err(error) if error.errno() == Errno::ESTALE => {}
                        visited => visited?,
                    }
                }
                None => {
                    let files = self.core.handles.files();
                    if let Some(open) = files.iter().find(|open| open.file.spread_id() == Some(*id)) {
                        visit(&open.file)?;
                    }
                }
            }
        }
        Ok(())
    }
}
