//! Durability (ordering rule 2): data of every tier written since the last
//! time, in parallel; then the index; then the home inode.

use crate::core::Core;
use crate::failpoint::Failpoint;
use crate::file::access_time::keep_owed;
use crate::file::extents::part_size;
use crate::file::home_inode::update_home_inode;
use crate::file::id_attr::store_durable;
use crate::file::presence::{concerning, concerns, is_absent};
use crate::live::{File, Layout, OpenFile, Spread};
use braid_contract::{Error, Result};
use braid_tiers::{Backend, Tier, bit};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `fsync` of one descriptor. Every descriptor reports a failure once,
/// whichever of them asked for the sync.
pub fn sync_open(core: &Core, open: &OpenFile, data_only: bool) -> Result<()> {
    let result = sync_file(core, &open.file, data_only);
    match open.take_sync_error() {
        Some(errno) if result.is_ok() => Err(Error::new(errno, "an earlier sync failed")),
        _ => result,
    }
}

/// Makes the file durable: its data, its index, and the home inode if that holds
/// something recorded nowhere else. `data_only` leaves out the time of the last
/// write only.
pub fn sync_file(core: &Core, file: &File, data_only: bool) -> Result<()> {
    sync_in_order(core, file, data_only).inspect_err(|error| file.note_sync_error(error))
}

fn sync_in_order(core: &Core, file: &File, data_only: bool) -> Result<()> {
    if matches!(&*file.layout.read(), Layout::Plain) {
        return file.data().sync(data_only);
    }
    let _syncing = file.syncing.lock();
    let id = match &*file.layout.read() {
        Layout::Plain => return file.data().sync(data_only),
        Layout::Spread(spread) => {
            if !data_only {
                keep_owed(core, spread, file);
            }
            sync_spread(core, file, spread, data_only)?;
            store_durable(core, file, spread)?;
            // The size is in the index or that of the last part, the time of
            // the last write with the tier that did it. Left are facts that
            // only the home inode has, such as the attribute that leads to the
            // index.
            let times = !data_only && spread.inode_timed.swap(false, Ordering::AcqRel);
            if !spread.inode_dirty.swap(false, Ordering::AcqRel) && !times {
                return Ok(());
            }
            spread.id()
        }
    };
    let synced = update_home_inode(file).and_then(|()| file.data().sync(false));
    synced.inspect_err(|_| {
        if let Layout::Spread(spread) = &*file.layout.read()
            && spread.id() == id
        {
            spread.inode_dirty.store(true, Ordering::Release);
        }
    })
}

/// Data and index of a spread file; with `data_only`, not the time of the
/// last write.
fn sync_spread(core: &Core, file: &File, spread: &Spread, data_only: bool) -> Result<()> {
    let size = spread.size();
    let owner = spread.index.owners()?.mtime;
    let timed = match data_only {
        true => 0,
        false => spread.untimed.fetch_and(!bit(owner), Ordering::AcqRel) & bit(owner),
    };
    let concerned = spread.index.whole_tier().map_or(u64::MAX, bit);
    let dirty = (spread.dirty.swap(0, Ordering::AcqRel) | timed) & concerned;
    let result = sync_tiers(core, file, spread, dirty, timed).and_then(|()| {
        if spread.index.synced_size()? != size {
            spread.index.set_synced_size(size)?;
        }
        if timed != 0 {
            spread.mtime_was_synced(owner)?;
            // A change of the home inode that is found without this time, as of
            // a name, would say that the time before is right.
            if spread.index.whole().is_some() {
                spread.inode_dirty.store(true, Ordering::Release);
            }
        }
        // Only now are holes below that size known to be meant.
        spread.index.set_gaps(false)?;
        if data_only && core.fails_at(Failpoint::GrowthIsNotRecorded) {
            return core.index.sync_marks();
        }
        core.index.sync_size(&spread.index, size, data_only, || is_part_size(core, file, spread, size))
    });
    // Data that could not be synced must not be believed clean.
    result.inspect_err(|_| {
        if core.fails_at(Failpoint::FailedSyncIsForgotten) {
            return;
        }
        spread.dirty.fetch_or(dirty, Ordering::AcqRel);
        spread.untimed.fetch_or(timed, Ordering::AcqRel);
    })
}

/// Whether a file of `size` bytes is known to be exactly as long as its part on
/// the tier of its last range. No part is longer than the file.
fn is_part_size(core: &Core, file: &File, spread: &Spread, size: u64) -> bool {
    let last = spread.index.entry(spread.range_size().range_of(size.saturating_sub(1)));
    let Ok(Some(entry)) = last else { return false };
    let part = core.tiers.get(entry.tier).and_then(|tier| part_size(file, spread, &tier));
    part.is_ok_and(|part| part == size)
}

/// Makes the file's data on the tiers in `dirty` durable, in parallel; on
/// those in `timed` the time of the last write too.
fn sync_tiers(core: &Core, file: &File, spread: &Spread, dirty: u64, timed: u64) -> Result<()> {
    let tiers: Vec<Arc<Tier>> = core.tiers.iter().filter(|tier| dirty & bit(tier.id) != 0).collect();
    core.side_by_side(tiers, |tier| sync_if_concerned(file, spread, &tier, timed & bit(tier.id) == 0))
}

/// Which tiers of a file that was just loaded are dirty is not known: all are
/// synced, and one that has nothing of it may fail.
pub(crate) fn sync_if_concerned(file: &File, spread: &Spread, tier: &Tier, data_only: bool) -> Result<()> {
    sync_tier(file, spread, tier, data_only).or_else(|error| concerning(spread, tier, error))
}

/// Makes the file's data on one tier durable.
pub(crate) fn sync_tier(file: &File, spread: &Spread, tier: &Tier, data_only: bool) -> Result<()> {
    let result = match &tier.backend {
        Backend::Home(_) => file.data().sync(data_only),
        Backend::Store(store) => match store.sync(&[spread.id()], data_only) {
            Ok(()) => {
                // Space that was to be allocated late is allocated from now on.
                spread.space.changed();
                return spread.index.set_object_durable(tier.id);
            }
            // The file has nothing there.
            Err(error) if is_absent(spread, tier, &error)? => Ok(()),
            result => result,
        },
    };
    result.map_err(|error| tier.note_error(error)).inspect_err(|error| {
        // The tier reports it once, and perhaps not to the writer.
        if concerns(spread, tier).unwrap_or(true) {
            file.note_sync_error(error);
        }
    })
}
