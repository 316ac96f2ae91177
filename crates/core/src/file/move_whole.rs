//! Moving all of a small file in one go, while it is locked: its copy is
//! durable, then the attribute names the new place, durably, then the old copy
//! goes (ordering rule 1).

use crate::core::Core;
use crate::file::access_time::bring_home;
use crate::file::copy::{DataLocation, copy_all};
use crate::file::emptying::reap_emptied;
use crate::file::id_attr::{id_attr, switch_attr, whole_attr};
use crate::file::indexing::NotSpread;
use crate::file::mark::mark;
use crate::file::ranges::range_size_in;
use crate::file::whole::{plain_to_whole, publish_whole, release_home};
use crate::file::whole_object::{count_whole, count_whole_gone};
use crate::live::{File, Layout, Shape, Spread};
use braid_contract::{Access, Errno, Result, SetTime};
use braid_format::{Reason, WholeAttr};
use braid_index::{Index, Whole};
use braid_tiers::{Backend, Tier, bit};
use std::sync::atomic::Ordering;

/// Files of one range up to this size are moved while they are locked, which is
/// short; larger ones beside their users, by an index.
const MOVED_IN_ONE_GO_MAX: u64 = 8 << 20;

/// Whether the file moves in one go, and how many bytes that are; `None`
/// if it moves range by range.
pub fn moves_at_once(core: &Core, file: &File) -> Result<Option<u64>> {
    let layout = file.layout.read();
    let (size, ranges) = match &*layout {
        Layout::Plain => (file.home_size()?, range_size_in(core, file, &layout)?),
        Layout::Spread(spread) if spread.index.whole().is_some() => (spread.size(), spread.range_size()),
        Layout::Spread(_) => return Ok(None),
    };
    Ok((size <= ranges.bytes().min(MOVED_IN_ONE_GO_MAX)).then_some(size))
}

/// Moves all of a plain or whole file to a tier, while it is locked; `None` if
/// it is there already, or became a file with an index.
pub(crate) fn move_at_once(
    core: &Core,
    file: &File,
    to: &Tier,
    reason: Reason,
) -> std::result::Result<Option<u64>, NotSpread> {
    let mut layout = file.layout.write();
    let moved = match &*layout {
        Layout::Plain if to.is_home() => return Ok(None),
        Layout::Plain if file.opens.lock().passthrough > 0 => return Err(NotSpread::PassedThrough),
        Layout::Plain => plain_off_home(core, file, &layout, to, reason),
        Layout::Spread(spread) => whole_elsewhere(core, file, spread, to, reason),
    };
    let Some((moved, size)) = moved.map_err(NotSpread::Failed)? else { return Ok(None) };
    *layout = moved;
    core.observer.tail_changed(&file.inode, 0);
    Ok(Some(size))
}

fn plain_off_home(
    core: &Core,
    file: &File,
    layout: &Layout,
    to: &Tier,
    reason: Reason,
) -> Result<Option<(Layout, u64)>> {
    let size = file.home_size()?;
    if size == 0 {
        return Ok(None);
    }
    let ranges = range_size_in(core, file, layout)?;
    let spread = plain_to_whole(core, file, to, reason, (ranges, 0))?;
    Ok(Some((publish_whole(core, file, spread), size)))
}

fn whole_elsewhere(
    core: &Core,
    file: &File,
    spread: &Spread,
    to: &Tier,
    reason: Reason,
) -> Result<Option<(Layout, u64)>> {
    let Some(whole) = spread.index.whole().filter(|whole| whole.tier != to.id) else { return Ok(None) };
    spread.moving.cancel_all();
    mark(core, file, spread)?;
    let size = spread.size();
    let moved = if to.is_home() {
        whole_to_plain(core, file, spread, &whole)?;
        Layout::Plain
    } else {
        Layout::Spread(Box::new(whole_to_whole(core, file, spread, (&whole, to, reason))?))
    };
    Ok(Some((moved, size)))
}

fn whole_to_whole(
    core: &Core,
    file: &File,
    spread: &Spread,
    (whole, to, reason): (&Whole, &Tier, Reason),
) -> Result<Spread> {
    let Backend::Store(store) = &to.backend else { return Err(Errno::EINVAL.into()) };
    let (id, size) = (spread.id(), spread.size());
    let from = core.tiers.get(whole.tier)?;
    let _admission = to.admit()?;
    let copied = || -> Result<()> {
        // An object that an earlier move left there is out of date.
        store.remove(&[id]).and_then(|()| store.create(id)).map_err(|error| to.note_error(error))?;
        copy_all(
            core,
            DataLocation::Spread(file, spread, &from),
            DataLocation::Object(&**store, id, to),
            size,
        )
    };
    if let Err(error) = copied() {
        object_left(spread, to);
        return Err(error);
    }
    let identity = core.home.identify(&**file.data())?;
    let attr = WholeAttr { tier: to.id, range_size: spread.range_size(), reason, durable: true };
    // The new object's times are those of the copy.
    file.update_times(spread)?;
    bring_home(core, file, spread);
    let before = whole_attr(id, &identity, spread, whole);
    switch_attr(core, file, &id_attr(id, &identity, attr), &before).inspect_err(|_| {
        spread.has_leftovers.store(true, Ordering::Release);
        // Which attribute is durable is not known: the next fsync settles it.
        spread.inode_dirty.store(true, Ordering::Release);
    })?;
    let ranges = spread.range_size().count(size);
    let mut moved = Whole::settled((to.id, reason), (size, ranges), true, core.tiers.home().id);
    moved.owners = whole.owners;
    (moved.owners.size, moved.owners.mtime, moved.owners.atime) = (to.id, core.tiers.home().id, to.id);
    (moved.synced_size, moved.gaps) = (whole.synced_size, whole.gaps);
    let index = Index::of_whole(spread.index.header().clone(), core.tiers.home().id, moved);
    let new = spread.moved(index);
    new.created.store(bit(to.id), Ordering::Release);
    new.trimmed.store(true, Ordering::Release);
    new.released.store(0, Ordering::Release);
    count_whole_gone(core, spread);
    count_whole(core, &new);
    core.observer.placed(file, to.id, 0..ranges);
    to.took(size);
    object_left(&new, &from);
    Ok(new)
}

/// Removes the file's object from a tier that does not hold the file any more,
/// durably.
fn object_left(spread: &Spread, tier: &Tier) {
    let id = spread.id();
    let Backend::Store(store) = &tier.backend else { return };
    if let Err(error) = store.remove(&[id]) {
        let error = tier.note_error(error);
        tracing::warn!(file = %id, tier = %tier.name, %error, "could not free what a file left");
        spread.has_leftovers.store(true, Ordering::Release);
    }
    tier.measure_again();
}

/// Brings the file's data home; its object goes as those of removed files do.
fn whole_to_plain(core: &Core, file: &File, spread: &Spread, whole: &Whole) -> Result<()> {
    let home = core.tiers.home();
    let (id, size) = (spread.id(), spread.size());
    let _admission = home.admit()?;
    core.index.sync_marks()?;
    if !file.can_write() {
        file.make_writable(core.inodes.open(&core.home, &file.inode, Access::ReadWrite)?);
    }
    let identity = core.home.identify(&**file.data())?;
    let mtime = spread.times.mtime().unwrap_or(identity.attr.mtime);
    let from = core.tiers.get(whole.tier)?;
    // The attribute names the object durably: the copy may go.
    let mut is_named = true;
    let mut come = || -> Result<()> {
        // A move that a crash ended may have left data.
        file.writable()?.truncate(0)?;
        file.writable()?.truncate(size)?;
        copy_all(core, DataLocation::Spread(file, spread, &from), DataLocation::Home(file), size)?;
        file.data().set_times(None, Some(SetTime::At(mtime)))?;
        bring_home(core, file, spread);
        // The copy takes the object's place only when it is durable.
        file.data().sync(false)?;
        core.home.remove_id_attr(&**file.data())?;
        if let Err(error) = file.data().sync(false) {
            is_named = false;
            core.home.set_id_attr(&**file.data(), &whole_attr(id, &identity, spread, whole))?;
            file.data().sync(false)?;
            is_named = true;
            return Err(error);
        }
        Ok(())
    };
    if let Err(error) = come() {
        let _ = file.writable().and_then(|home| home.truncate(size));
        if is_named {
            // The time is that of before the copy.
            let _ = release_home(core, file, &identity);
        }
        return Err(error);
    }
    count_whole_gone(core, spread);
    file.inode.set_shape(Shape::Plain);
    core.observer.placed(file, home.id, 0..1);
    home.took(size);
    reap_emptied(core, file.data(), id);
    Ok(())
}
