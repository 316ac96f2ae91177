//! Removing data of a file beyond its size, before the size may grow over it
//! (ordering rule 3).

use crate::core::Core;
use crate::file::presence::{concerning, stores_of};
use crate::file::release::{make_releases_durable, note_release};
use crate::file::whole_object::count_whole;
use crate::live::{File, Layout, Spread};
use braid_contract::{Errno, Error, Result};
use braid_tiers::cut_object;
use std::sync::atomic::Ordering;

/// Removes a spread file's data beyond `size`.
pub(crate) fn trim(core: &Core, file: &File, spread: &Spread, size: u64) -> Result<()> {
    // Copies that are under way were read before this.
    spread.moving.cancel_all();
    let first = spread.range_size().count(size.max(spread.index.reserved()?));
    let mut gone = Vec::new();
    spread.index.for_each(first, |_, entry| {
        gone.push(entry.ok().map(|entry| entry.tier));
        Ok(())
    })?;
    if !gone.is_empty() {
        spread.cleared.store(true, Ordering::Release);
        spread.index.clear_from(first)?;
        if !count_whole(core, spread) {
            gone.into_iter().for_each(|tier| core.tiers.count_range(tier, None));
        }
    }
    let mut result = cut_home_file(core, file, spread, size);
    // A tier in trouble does not keep the others from being cut.
    for (tier, store) in stores_of(core, spread) {
        let cut = cut_object(&*store, spread.id(), size);
        spread.space.changed();
        match cut {
            Ok(false) => {}
            Ok(true) => note_release(spread, tier.id),
            Err(error) => result = result.and(concerning(spread, &tier, tier.note_error(error))),
        }
    }
    result
}

fn cut_home_file(core: &Core, file: &File, spread: &Spread, size: u64) -> Result<()> {
    if file.home_size()? > size {
        note_release(spread, core.tiers.home().id);
        file.writable()?.truncate(size)?;
    }
    Ok(())
}

/// Trims a file, if that failed when it was marked, before it grows to `end`.
pub(crate) fn trim_before(core: &Core, file: &File, end: u64) {
    let owed = match &*file.layout.read() {
        Layout::Plain => false,
        Layout::Spread(spread) => end > spread.size() && owes_trim(spread),
    };
    if owed {
        trim_late(core, file, &file.layout.write());
    }
}

/// Trims a file if that failed when it was marked; the caller holds the layout
/// alone.
pub(super) fn trim_late(core: &Core, file: &File, layout: &Layout) {
    if let Layout::Spread(spread) = layout
        && owes_trim(spread)
        && trim(core, file, spread, spread.size()).is_ok()
    {
        spread.trimmed.store(true, Ordering::Release);
    }
}

/// Whether the file was marked, and a tier in trouble kept it from being
/// trimmed.
fn owes_trim(spread: &Spread) -> bool {
    !spread.trimmed.load(Ordering::Acquire) && *spread.marked.lock()
}

/// Makes the removal of data beyond the size durable, before the file grows.
pub(crate) fn prepare_growth(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    if !spread.trimmed.load(Ordering::Acquire) {
        let what = "a tier is in trouble that may hold something beyond the file's size";
        return Err(Error::new(Errno::EIO, what));
    }
    make_releases_durable(core, file, spread)
}
