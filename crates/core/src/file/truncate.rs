//! Changing the size (ordering rule 3).

use crate::core::Core;
use crate::failpoint::Failpoint;
use crate::file::allocate::release_end;
use crate::file::open::{concerning, mark};
use crate::file::owner::check_own;
use crate::file::place::{owner_before, spread_ahead};
use crate::file::set_id::clear_set_id;
use crate::file::sync::sync_if_concerned;
use crate::file::whole::{count_whole, count_whole_gone, grow_object, stores_of};
use crate::live::{File, Layout, Shape, Spread};
use braid_contract::{Access, Caller, Errno, Error, Fd, ObjectId, Result, TierId};
use braid_format::{IdAttr, IdKind, SIZE_MAX, WholeAttr};
use braid_home::Identity;
use braid_index::Whole;
use braid_placement::Origin;
use braid_tiers::{bit, cut_object};
use std::sync::atomic::Ordering;

pub(crate) fn truncate_file(core: &Core, file: &File, size: u64, caller: &Caller) -> Result<()> {
    if size > SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    if !file.can_write() {
        file.make_writable(core.inodes.open(&core.home, &file.inode, Access::ReadWrite)?);
    }
    clear_set_id(core, file, caller, caller.keeps_set_id_bits())?;
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
        Layout::Spread(spread) if size < spread.size() => cut(core, file, spread, size),
        Layout::Spread(spread) => {
            mark(core, file, spread)?;
            spread.touch_inode();
            if size > spread.size() {
                prepare_growth(core, file, spread)?;
                spread.index.set_gaps(true)?;
                grow_object(core, spread, size)?;
                let owner = spread.index.whole_tier().unwrap_or(core.tiers.home().id);
                spread.set_size(size, owner)?;
                count_whole(core, spread);
            }
            file.update_times(spread, None)
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
    // Without the attribute, nothing else leads to what has to go.
    core.index.sync_marks()?;
    let identity = core.home.identify(&**file.data())?;
    let before = kind_of(spread);
    let attr =
        IdAttr { kind: IdKind::Emptied, id: spread.id(), ino: identity.ino(), btime_ns: identity.btime_ns() };
    core.home.set_id_attr(&**file.data(), &attr)?;
    let emptied = file.writable()?.truncate(0);
    if let Err(error) = emptied.and_then(|()| core.home.remove_id_attr(&**file.data())) {
        // It stays what it was.
        core.home.set_id_attr(&**file.data(), &IdAttr { kind: before, ..attr })?;
        return Err(error);
    }
    count_whole_gone(core, spread);
    file.inode.set_shape(Shape::Plain);
    reap_emptied(core, file.data(), spread.id())
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

/// Finishes what a crash left of a truncation to nothing. What the file has
/// elsewhere goes if its index says that it is the file's; answers whether it
/// does.
pub(crate) fn finish_emptying(core: &Core, data: &Fd, identity: &Identity, id: ObjectId) -> Result<bool> {
    let own = match core.index.header_of(id) {
        Ok(header) => check_own(core, &header, identity).map(|()| true)?,
        // A whole file has none: its mark tells.
        Err(error) if error.errno() == Errno::ENOENT => core.index.is_unrecovered(id),
        Err(error) => return Err(error),
    };
    if own {
        core.index.mark(id, None)?;
    }
    data.truncate(0)?;
    core.home.remove_id_attr(&**data)?;
    if own {
        reap_emptied(core, data, id)?;
    }
    Ok(own)
}

/// What the file has elsewhere goes.
pub(super) fn reap_emptied(core: &Core, data: &Fd, id: ObjectId) -> Result<()> {
    // The home file itself is what has to be durable before they go.
    let home_file = data.reopen(Access::Read).or_else(|_| data.reopen(Access::Write))?;
    core.removals.add(core.environment.monotonic_ns(), id, Some(home_file));
    Ok(())
}

/// Cuts a spread file. The shorter size is durable before anything beyond
/// it goes: until then, power loss may undo the truncation, and must find
/// the data.
fn cut(core: &Core, file: &File, spread: &Spread, size: u64) -> Result<()> {
    mark(core, file, spread)?;
    spread.touch_inode();
    let owner = owner_before(core, spread, size)?;
    let has_reserved = spread.index.reserved()? > 0 || !spread.ahead.lock().is_empty();
    if has_reserved {
        spread.index.set_reserved(0)?;
    }
    if spread.index.synced_size()? > size {
        spread.index.set_synced_size(size)?;
    }
    spread.set_size(size, owner)?;
    core.index.sync(&spread.index)?;
    trim(core, file, spread, size)?;
    if has_reserved {
        spread.ahead.lock().clear();
        for tier in core.tiers.iter() {
            release_end(file, spread, &tier)?;
        }
    }
    file.update_times(spread, None)
}

/// Trims a file that could not be when it was marked, before it grows to
/// `end`.
pub(crate) fn trim_before(core: &Core, file: &File, end: u64) {
    let owed = match &*file.layout.read() {
        Layout::Plain => false,
        Layout::Spread(spread) => end > spread.size() && owes_trim(spread),
    };
    if owed {
        trim_late(core, file, &file.layout.write());
    }
}

/// Trims a file that could not be when it was marked; the caller holds the
/// layout alone.
fn trim_late(core: &Core, file: &File, layout: &Layout) {
    if let Layout::Spread(spread) = layout
        && owes_trim(spread)
        && trim(core, file, spread, spread.size()).is_ok()
    {
        spread.trimmed.store(true, Ordering::Release);
    }
}

/// Removes what a spread file has beyond `size`.
pub(crate) fn trim(core: &Core, file: &File, spread: &Spread, size: u64) -> Result<()> {
    // What is being copied now was read before.
    spread.moving.cancel_all();
    let first = spread.range_size().count(size.max(spread.index.reserved()?));
    let (whole, mut cleared) = (spread.index.whole().is_some(), false);
    spread.index.for_each(first, |_, entry| {
        cleared = true;
        if !whole {
            core.tiers.count_range(entry.ok().map(|entry| entry.tier), None);
        }
        Ok(())
    })?;
    if cleared {
        spread.cleared.store(true, Ordering::Release);
        spread.index.clear_from(first)?;
        count_whole(core, spread);
    }
    if file.home_size()? > size {
        note_release(spread, core.tiers.home().id);
        file.writable()?.truncate(size)?;
    }
    for (tier, store) in stores_of(core, spread) {
        match cut_object(&*store, spread.id(), size) {
            Ok(false) => {}
            Ok(true) => note_release(spread, tier.id),
            Err(error) => concerning(spread, &tier, tier.note_error(error))?,
        }
    }
    Ok(())
}

/// What is beyond the size of a file is gone, durably, before it grows.
pub(crate) fn prepare_growth(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    if !spread.trimmed.load(Ordering::Acquire) {
        let what = "a tier is in trouble that may hold something beyond the file's size";
        return Err(Error::new(Errno::EIO, what));
    }
    make_releases_durable(core, file, spread)
}

/// Makes durable what was cut off the file. Until then, power loss may
/// bring it back, so it comes before the size may grow over it (ordering
/// rule 3).
pub(crate) fn make_releases_durable(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    let released = spread.released.load(Ordering::Acquire);
    let nothing = released == 0 && !spread.cleared.load(Ordering::Acquire);
    if nothing || core.fails_at(Failpoint::GrowOverUnclearedEntries) {
        return Ok(());
    }
    for tier in core.tiers.iter().filter(|tier| released & bit(tier.id) != 0) {
        sync_if_concerned(file, spread, &tier, true)?;
    }
    core.index.sync(&spread.index)?;
    spread.released.fetch_and(!released, Ordering::AcqRel);
    spread.cleared.store(false, Ordering::Release);
    Ok(())
}

/// Whether the file was marked, and a tier in trouble kept it from being
/// trimmed.
fn owes_trim(spread: &Spread) -> bool {
    !spread.trimmed.load(Ordering::Acquire) && *spread.marked.lock()
}

/// What the attribute of the file says it is.
fn kind_of(spread: &Spread) -> IdKind {
    let of_whole = |whole: Whole| WholeAttr {
        tier: whole.tier,
        range_size: spread.range_size(),
        reason: whole.reason,
        durable: whole.durable_stored,
    };
    spread.index.whole().map_or(IdKind::Spread, |whole| IdKind::Whole(of_whole(whole)))
}

/// Notes that something of the file was cut or punched on a tier.
pub(super) fn note_release(spread: &Spread, tier: TierId) {
    spread.dirty.fetch_or(bit(tier), Ordering::AcqRel);
    spread.released.fetch_or(bit(tier), Ordering::AcqRel);
}
