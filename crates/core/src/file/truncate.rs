//! Changing the size (ordering rule 3).

use crate::core::Core;
use crate::file::access_time::bring_home;
use crate::file::emptying::reap_emptied;
use crate::file::id_attr::kind_of;
use crate::file::learned::begin_anew;
use crate::file::leave_home::spread_ahead;
use crate::file::mark::mark;
use crate::file::preallocate::reserve_again;
use crate::file::release::release_end;
use crate::file::set_id::clear_set_id;
use crate::file::trim::{prepare_growth, trim, trim_late};
use crate::file::whole_object::{count_whole, count_whole_gone, grow_object};
use crate::live::{File, Layout, Shape, Spread};
use braid_contract::{Access, Caller, Errno, Result, TierId};
use braid_format::{IdAttr, IdKind, SIZE_MAX};
use braid_placement::Origin;
use std::sync::atomic::Ordering;

/// Sets the size of a file.
pub(crate) fn truncate_file(core: &Core, file: &File, size: u64, caller: &Caller) -> Result<()> {
    if size > SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    if !file.can_write() {
        file.make_writable(core.inodes.open(&core.home, &file.inode, Access::ReadWrite)?);
    }
    clear_set_id(file, caller, caller.keeps_set_id_bits())?;
    let home_size = file.home_size()?;
    if size > home_size {
        spread_ahead(core, file, home_size, size, Origin::of_reserving(caller))?;
    }
    core.freed.note();
    let mut layout = file.layout.write();
    trim_late(core, file, &layout);
    match &*layout {
        Layout::Plain => file.writable()?.truncate(size),
        Layout::Spread(spread) if size == 0 => {
            empty(core, file, spread)?;
            *layout = Layout::Plain;
            Ok(())
        }
        Layout::Spread(spread) if is_cut(spread, size)? => cut(core, file, spread, size),
        Layout::Spread(spread) => {
            mark(core, file, spread)?;
            spread.touch_inode();
            if size > spread.size() {
                prepare_growth(core, file, spread)?;
                spread.index.set_gaps(true)?;
                grow_object(core, spread, size)?;
                let owner = spread.index.whole_tier().unwrap_or(core.tiers.home().id);
                spread.set_size(size, owner)?;
                spread.index.size_was_set();
                count_whole(core, spread);
                spread.gives_up_reserved.fetch_or(spread.index.reserved()? > size, Ordering::AcqRel);
            }
            file.update_times(spread)
        }
    }
}

/// Truncates a spread file to nothing: it becomes plain again, and its
/// index and objects go as those of a removed file do. The attribute says
/// first that this is under way, so that every state in between, after a
/// crash, reads as an empty file.
fn empty(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    spread.moving.cancel_all();
    mark(core, file, spread)?;
    // Without the attribute, only the mark leads to index and objects.
    core.index.sync_marks()?;
    let identity = core.home.identify(&**file.data())?;
    let before = kind_of(spread);
    bring_home(core, file, spread);
    let attr =
        IdAttr { kind: IdKind::Emptied, id: spread.id(), ino: identity.ino(), btime_ns: identity.btime_ns() };
    core.home.set_id_attr(&**file.data(), &attr)?;
    let emptied = file.writable()?.truncate(0);
    if let Err(error) = emptied.and_then(|()| core.home.remove_id_attr(&**file.data())) {
        // The file keeps its kind.
        core.home.set_id_attr(&**file.data(), &IdAttr { kind: before, ..attr })?;
        return Err(error);
    }
    count_whole_gone(core, spread);
    file.inode.set_shape(Shape::Plain);
    begin_anew(core, file);
    reap_emptied(core, file.data(), spread.id());
    Ok(())
}

/// A whole file with nothing in it is a plain one again.
pub(crate) fn settle_emptied(core: &Core, file: &File) -> Result<()> {
    let is_empty = |layout: &Layout| match layout {
        Layout::Spread(spread) => spread.size() == 0 && spread.index.whole().is_some(),
        Layout::Plain => false,
    };
    if !is_empty(&file.layout.read()) || !file.can_write() {
        return Ok(());
    }
    let mut layout = file.layout.write();
    if let Layout::Spread(spread) = &*layout
        && is_empty(&layout)
    {
        empty(core, file, spread)?;
        *layout = Layout::Plain;
    }
    Ok(())
}

/// Whether a file of this size would lose anything. A file that is cut where it
/// ends gives up its reservation behind that, as on other file systems.
fn is_cut(spread: &Spread, size: u64) -> Result<bool> {
    Ok(size < spread.size() || size == spread.size() && spread.index.reserved()? > size)
}

/// Gives up the reservation behind the end of a file that was truncated within
/// it, after its last close. The space up to that size was to stay until all data
/// was there.
pub(super) fn give_up_reserved(core: &Core, file: &File) -> Result<()> {
    let gives_up = |layout: &Layout| match layout {
        Layout::Spread(spread) => spread.gives_up_reserved.swap(false, Ordering::AcqRel),
        Layout::Plain => false,
    };
    if !gives_up(&file.layout.read()) {
        return Ok(());
    }
    match &*file.layout.write() {
        Layout::Spread(spread) if is_cut(spread, spread.size())? => cut(core, file, spread, spread.size())?,
        _ => return Ok(()),
    }
    // The program may have been shown the space meanwhile.
    if let Some(cache) = core.front_cache.get() {
        cache.attributes_changed(file.inode.ino);
    }
    Ok(())
}

/// Cuts a spread file. The shorter size is durable before anything beyond
/// it goes: until then, power loss may undo the truncation, and must find
/// the data.
fn cut(core: &Core, file: &File, spread: &Spread, size: u64) -> Result<()> {
    mark(core, file, spread)?;
    spread.touch_inode();
    let owner = owner_before(core, spread, size)?;
    // Until all of it is gone, the file must not grow over the rest.
    spread.set_trimmed(false);
    let reserved = spread.index.reserved()?;
    let has_reserved = reserved > 0 || !spread.ahead.lock().is_empty();
    if has_reserved {
        spread.index.set_reserved(0)?;
    }
    if spread.index.synced_size()? > size {
        spread.index.set_synced_size(size)?;
    }
    spread.index.settle_size()?;
    spread.set_size(size, owner)?;
    core.index.sync(&spread.index)?;
    trim(core, file, spread, size)?;
    spread.set_trimmed(true);
    if has_reserved {
        spread.ahead.lock().clear();
        // What was reserved below the new end stays so.
        let kept = reserved.min(size);
        let mut again = Ok(());
        for tier in core.tiers.iter() {
            release_end(file, spread, &tier)?;
            again = again.and_then(|()| reserve_again(file, spread, &tier, kept));
        }
        match again {
            Ok(()) => spread.index.set_reserved(kept)?,
            Err(error) => {
                tracing::warn!(file = %spread.id(), %error, "a file that was cut lost space that was reserved");
            }
        }
    }
    file.update_times(spread)
}

/// The tier that holds the byte before `end`, home if it is in a hole.
pub(crate) fn owner_before(core: &Core, spread: &Spread, end: u64) -> Result<TierId> {
    let home = core.tiers.home().id;
    if end == 0 {
        return Ok(home);
    }
    let last = spread.range_size().range_of(end - 1);
    Ok(spread.index.entry(last)?.map_or(home, |entry| entry.tier))
}
