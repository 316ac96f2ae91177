//! Objects in which nothing of their file is any more, on tiers that free only
//! whole objects.

use crate::core::Core;
use crate::file::access_time::hand_over;
use crate::file::recover_whole::OwnerInode;
use crate::file::truncate::owner_before;
use crate::live::{File, Layout, Spread};
use braid_contract::{Errno, ObjectStat, Result, SetTime, Store, TierId};
use braid_format::Owners;
use braid_index::Index;
use braid_tiers::{Backend, Tier, bit};
use std::sync::atomic::Ordering;

/// Something of the file left a tier: its object goes, if only that frees the
/// space, and nothing of the file is there any more. While the file is read,
/// written or moved, this is left to its last close. The caller holds nothing.
pub(super) fn left(core: &Core, file: &File, tier: &Tier) {
    if tier.capabilities().punch {
        return;
    }
    if let Layout::Spread(spread) = &*file.layout.read() {
        spread.left.fetch_or(bit(tier.id), Ordering::AcqRel);
    }
    if let Some(layout) = file.layout.try_write() {
        remove_left(core, file, &layout);
    }
}

/// Removes, after the last use of a file, objects that could not be removed
/// before.
pub(super) fn remove_late(core: &Core, file: &File) {
    let some = match &*file.layout.read() {
        Layout::Plain => false,
        Layout::Spread(spread) => spread.left.load(Ordering::Acquire) != 0,
    };
    if some {
        remove_left(core, file, &file.layout.write());
    }
}

/// Removes the objects on tiers that were left; the caller holds the layout
/// alone.
fn remove_left(core: &Core, file: &File, layout: &Layout) {
    let Layout::Spread(spread) = layout else { return };
    if spread.moving.is_active() {
        return;
    }
    let left = spread.left.load(Ordering::Acquire);
    for tier in core.tiers.iter().filter(|tier| left & bit(tier.id) != 0) {
        match remove_from(core, file, spread, &tier) {
            Ok(()) => _ = spread.left.fetch_and(!bit(tier.id), Ordering::AcqRel),
            Err(error) => {
                tracing::debug!(file = %spread.id(), tier = %tier.name, %error, "an object that is not needed stays");
            }
        }
    }
}

fn remove_from(core: &Core, file: &File, spread: &Spread, tier: &Tier) -> Result<()> {
    let Backend::Store(store) = &tier.backend else { return Ok(()) };
    // The object of a whole file goes as it moves.
    if spread.index.whole().is_some() || is_named(&spread.index, tier.id)? {
        return Ok(());
    }
    let last = owner_before(core, spread, spread.size())?;
    spread.change_owners(|owners| size_goes_to(owners, tier.id, last))?;
    hand_over(core, file, spread, tier)?;
    if has_times(spread.index.owners()?, tier.id) {
        return Ok(());
    }
    spread.forget(tier.id)?;
    remove_object(core, &spread.index, tier, &**store)
}

/// Removes, at recovery, objects of a file that a crash kept from being removed.
/// The times are home's.
pub(crate) fn remove_after_crash(core: &Core, owner: &OwnerInode, index: &Index) {
    for (tier, store) in core.tiers.stores().filter(|(tier, _)| !tier.capabilities().punch) {
        let remove = || -> Result<()> {
            let stat = match store.stat(index.id()) {
                Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
                stat => stat?,
            };
            if is_named(index, tier.id)? {
                return Ok(());
            }
            take_atime_home(core, owner, index, (tier.id, &stat))?;
            if has_times(index.owners()?, tier.id) {
                return Ok(());
            }
            index.set_owners(size_goes_to(index.owners()?, tier.id, core.tiers.home().id))?;
            index.clear_object_durable(tier.id)?;
            remove_object(core, index, &tier, &*store)
        };
        if let Err(error) = remove() {
            tracing::debug!(file = %index.id(), tier = %tier.name, %error, "an object that is not needed stays");
        }
    }
}

/// The access time goes to the home inode, if the tier owns it.
fn take_atime_home(
    core: &Core,
    owner: &OwnerInode,
    index: &Index,
    (tier, stat): (TierId, &ObjectStat),
) -> Result<()> {
    let owners = index.owners()?;
    if owners.atime != tier {
        return Ok(());
    }
    if let Some(atime) = stat.atime.filter(|atime| *atime > owner.identity.attr.atime) {
        owner.fd.set_times(Some(SetTime::At(atime)), None)?;
    }
    index.set_owners(Owners { atime: core.tiers.home().id, ..owners })
}

/// Removes an object of which the index does not say any more that it is there,
/// once that is durable: an object that the index has for durable must not be
/// missing. Power loss may bring it back, and must not bring back its data,
/// which would be taken for that of a range that the tier gets anew.
fn remove_object(core: &Core, index: &Index, tier: &Tier, store: &dyn Store) -> Result<()> {
    core.index.sync(index)?;
    let id = index.id();
    let emptied = store.truncate(id, 0).and_then(|()| store.sync(&[id], true));
    let removed = match emptied.and_then(|()| store.remove(&[id])) {
        Err(error) if error.errno() == Errno::ENOENT => Ok(()),
        result => result.map_err(|error| tier.note_error(error)),
    };
    tier.measure_again();
    removed
}

/// Whether an entry says that a range is on the tier.
fn is_named(index: &Index, tier: TierId) -> Result<bool> {
    let mut named = false;
    index.for_each(0, |_, entry| {
        // A damaged entry may have named it.
        named |= entry.map_or(true, |entry| entry.tier == tier);
        Ok(())
    })?;
    Ok(named)
}

fn size_goes_to(owners: Owners, from: TierId, to: TierId) -> Owners {
    if owners.size == from { Owners { size: to, ..owners } } else { owners }
}

fn has_times(owners: Owners, tier: TierId) -> bool {
    [owners.mtime, owners.atime, owners.synced_mtime].contains(&tier)
}
