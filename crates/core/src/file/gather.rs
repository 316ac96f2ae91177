//! Making a spread file plain that is wholly on home again: its id attribute
//! goes, and then, as those of a removed file, its index and objects. Movers
//! and jobs call this.

use crate::core::Core;
use crate::file::access_time;
use crate::file::clear::clear_range;
use crate::file::emptying::reap_emptied;
use crate::file::extents::next_home_data;
use crate::file::home_inode::grow_home_file;
use crate::file::id_attr::kind_of;
use crate::file::mark::mark;
use crate::file::relocate::enter_to_move;
use crate::live::{File, Layout, Shape, Spread};
use braid_contract::{Access, Result};
use braid_format::IdAttr;
use std::sync::atomic::Ordering;

/// Makes a spread file plain, if all of it is on home; answers whether the file
/// is plain now. Users that have it open do not notice. While a read or write
/// is under way, which may take as long as a tier hangs, this is left to the
/// file's last close. The caller has the file in use.
///
/// # Errors
/// Those of the home tier; the file is then unchanged.
pub fn gather(core: &Core, file: &File) -> Result<bool> {
    let _entered = enter_to_move(core, file)?;
    gather_inside(core, file)
}

/// As [`gather`], for callers that have entered the barrier.
fn gather_inside(core: &Core, file: &File) -> Result<bool> {
    match &*file.layout.read() {
        Layout::Plain => return Ok(true),
        Layout::Spread(spread) if !is_at_home(core, spread)? => return Ok(false),
        Layout::Spread(_) => {}
    }
    if !file.can_write() {
        file.make_writable(core.inodes.open(&core.home, &file.inode, Access::ReadWrite)?);
    }
    let Some(mut layout) = file.layout.try_write() else {
        if let Layout::Spread(spread) = &*file.layout.read() {
            spread.gathers.store(true, Ordering::Relaxed);
        }
        return Ok(false);
    };
    let gathered = match &*layout {
        Layout::Plain => return Ok(true),
        Layout::Spread(spread) => is_at_home(core, spread)? && bring_home(core, file, spread)?,
    };
    if gathered {
        *layout = Layout::Plain;
        drop(layout);
        core.observer.inode_changed(&file.inode);
    }
    Ok(gathered)
}

/// Gathers a file at its last close, if that could not be done before. The
/// caller has entered the barrier.
pub(super) fn gather_late(core: &Core, file: &File) {
    let wanted = match &*file.layout.read() {
        Layout::Plain => false,
        Layout::Spread(spread) => spread.gathers.swap(false, Ordering::Relaxed),
    };
    if wanted && let Err(error) = gather_inside(core, file) {
        tracing::debug!(ino = file.inode.ino.0, %error, "a file that is wholly on home stays spread");
    }
}

/// Whether every range that the file has is on home.
fn is_at_home(core: &Core, spread: &Spread) -> Result<bool> {
    let (home, mut elsewhere) = (core.tiers.home().id, false);
    let end = spread.range_size().count(spread.size());
    spread.index.for_each(0, |range, entry| {
        elsewhere |= range < end && entry?.tier != home;
        Ok(())
    })?;
    Ok(!elsewhere)
}

/// Brings the home file up to date, durably, and takes the attribute away; the
/// caller holds the layout alone. Before that is durable, a crash brings the
/// spread file back, whose index stays until then; after it, the mark leads to
/// the index and objects that have to go.
fn bring_home(core: &Core, file: &File, spread: &Spread) -> Result<bool> {
    spread.moving.cancel_all();
    mark(core, file, spread)?;
    if !spread.trimmed.load(Ordering::Acquire) {
        // A tier in trouble may have something behind the end.
        return Ok(false);
    }
    clear_strays(core, file, spread)?;
    grow_home_file(file, spread)?;
    access_time::bring_home(core, file, spread);
    file.data().sync(false).inspect_err(|error| file.note_sync_error(error))?;
    core.index.sync_marks()?;
    core.home.remove_id_attr(&**file.data())?;
    // A write to the plain file may be synced without its attributes, and
    // the index must not count then: it may say that there is a hole.
    if let Err(error) = file.data().sync(false) {
        file.note_sync_error(&error);
        let identity = core.home.identify(&**file.data())?;
        let (id, kind) = (spread.id(), kind_of(spread));
        let attr = IdAttr { kind, id, ino: identity.ino(), btime_ns: identity.btime_ns() };
        core.home.set_id_attr(&**file.data(), &attr)?;
        spread.inode_dirty.store(true, Ordering::Release);
        return Err(error);
    }
    file.inode.set_shape(Shape::Plain);
    reap_emptied(core, file.data(), spread.id());
    Ok(true)
}

/// Removes data of the home file in ranges that were never written, or not
/// since they were on another tier: it would be data of the plain file.
fn clear_strays(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    let (ranges, size) = (spread.range_size(), spread.size());
    let home = core.tiers.home();
    let mut offset = 0;
    while let Some((start, end)) = next_home_data(file, offset, size)? {
        for range in ranges.ranges_of(start.max(offset), end) {
            if spread.index.entry(range)?.is_none() {
                clear_range(file, spread, home, range)?;
            }
        }
        offset = ranges.round_up(end);
    }
    Ok(())
}
