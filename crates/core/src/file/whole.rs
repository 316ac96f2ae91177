//! Whole files: all their data is in one object on one tier other than home,
//! and no index is needed to say so. The home inode has the names, the
//! attributes and, as a hole, the size; its id attribute names the tier.
//!
//! The object is to such a file what the home file is to a plain one: it has
//! data and size, and its file system keeps the two in order. A small file
//! moves in one go, while nobody else is at it: its copy is durable, then the
//! attribute names the new place, durably, then the old copy goes (ordering
//! rule 1). As soon as a range is to be on another tier than the others, the
//! file gets an index ([`Volume::make_index`]).

use super::copy::Part;
use super::place::NotSpread;
use crate::core::Core;
use crate::file::choose::share_of;
use crate::file::copy::copy_all;
use crate::file::open::{load_layout, mark};
use crate::file::pieces::ensure_object;
use crate::file::ranges::range_size_in;
use crate::file::recover_whole::recover_now;
use crate::file::sync::sync_tier;
use crate::file::truncate::reap_emptied;
use crate::live::{File, Inode, Layout, Shape, Spread};
use braid_contract::{Access, Errno, Error, FallocateMode, Fd, ObjectId, Result, SetTime, Store};
use braid_format::{Header, IdAttr, IdKind, RangeSize, Reason, SIZE_MAX, WholeAttr};
use braid_home::Identity;
use braid_index::{Index, Whole};
use braid_placement::Credits;
use braid_tiers::{Backend, Tier, bit};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Files of one range up to this size are moved while nobody else is at them,
/// which is short; larger ones beside their users, by an index.
const MOVED_IN_ONE_GO_MAX: u64 = 8 << 20;

/// Why a file could not become a whole one.
type Made<T> = std::result::Result<T, NotSpread>;

/// The layout of a whole file that comes into use. Its tier is not asked:
/// the home inode has its size.
pub(super) fn load_whole(
    core: &Core,
    inode: &Arc<Inode>,
    (id, attr): (ObjectId, WholeAttr),
    (data, identity): (&Fd, &Identity),
) -> Result<Layout> {
    if core.index.is_unrecovered(id) {
        match recover_now(core, inode, id) {
            // It may be of another size now, or a plain one.
            Ok(()) => return load_layout(core, inode, data, &core.home.identify(&**data)?),
            Err(error) => {
                tracing::warn!(file = %id, %error, "a file is not recovered yet: it can be read only");
            }
        }
    }
    let size = identity.size();
    let mut whole = Whole::settled(
        (attr.tier, attr.reason),
        (size, attr.range_size.count(size)),
        attr.durable,
        core.tiers.home().id,
    );
    whole.counted = whole.ranges;
    let spread = whole_spread(core, id, identity, attr.range_size, whole)?;
    Ok(Layout::Spread(Box::new(spread)))
}

fn whole_spread(
    core: &Core,
    id: ObjectId,
    identity: &Identity,
    range_size: RangeSize,
    whole: Whole,
) -> Result<Spread> {
    let header = Header {
        volume: core.id,
        id,
        range_size,
        ino: identity.ino(),
        btime_ns: identity.btime_ns(),
        plain_size: 0,
        handle: identity.handle.clone(),
    };
    let mut credits = Credits::new(identity.ino(), range_size.get());
    if whole.ranges > 0
        && let Ok(tier) = core.tiers.get(whole.tier)
    {
        credits.add(whole.tier, whole.ranges * range_size.bytes(), share_of(core, &tier));
    }
    Spread::load(Index::of_whole(header, core.tiers.home().id, whole), credits, &core.environment)
}

/// Makes a plain file a whole one on `tier`. An empty one is about to be
/// written up to `end` there; what another one has is copied.
pub(crate) fn become_whole(
    core: &Core,
    file: &File,
    tier: &Tier,
    reason: Reason,
    (ranges, end): (RangeSize, u64),
) -> Made<()> {
    let mut layout = file.layout.write();
    if matches!(*layout, Layout::Spread(_)) {
        return Ok(());
    }
    if file.opens.lock().passthrough > 0 {
        return Err(NotSpread::PassedThrough);
    }
    let made = plain_to_whole(core, file, tier, reason, (ranges, end));
    let spread = made.map_err(NotSpread::Failed)?;
    *layout = publish_whole(core, file, spread);
    core.observer.tail_changed(&file.inode, 0);
    Ok(())
}

/// The layout of a file that is a whole one from now on.
fn publish_whole(core: &Core, file: &File, spread: Spread) -> Layout {
    if let Some(whole) = spread.index.whole() {
        count_whole(core, &spread);
        core.observer.placed(file, whole.tier, 0..whole.ranges);
    }
    file.inode.set_shape(Shape::Spread);
    Layout::Spread(Box::new(spread))
}

fn plain_to_whole(
    core: &Core,
    file: &File,
    tier: &Tier,
    reason: Reason,
    (ranges, end): (RangeSize, u64),
) -> Result<Spread> {
    let Backend::Store(store) = &tier.backend else { return Err(Errno::EINVAL.into()) };
    let identity = core.home.identify(&**file.data())?;
    let size = identity.size();
    if size > SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    // Held until the attribute says so: a tier that is on its way out gets
    // nothing that nobody sees.
    let _admission = tier.admit()?;
    let id = core.index.take_marked(identity.handle.as_ref(), &|| core.new_object_id())?;
    let durable = size > 0;
    let attr = WholeAttr { tier: tier.id, range_size: ranges, reason, durable };
    let make = || -> Result<()> {
        store.create(id).map_err(|error| tier.note_error(error))?;
        if durable {
            let from = Part::Home(file);
            copy_all(core, from, Part::Object(&**store, id, tier), size)?;
        }
        core.home.set_id_attr(&**file.data(), &id_attr(id, &identity, attr))
    };
    if let Err(error) = make() {
        // Nothing leads to it yet but its mark.
        reap_emptied(core, file.data(), id)?;
        return Err(error.context("moving a file off home"));
    }
    if durable {
        home_is_left(core, file, &identity, id)?;
    }
    tier.took(size);
    made_whole(core, id, &identity, attr, (size, ranges.count(size.max(end))))
}

/// A whole file that was made just now, with a mark, of so many bytes and
/// ranges.
fn made_whole(
    core: &Core,
    id: ObjectId,
    identity: &Identity,
    attr: WholeAttr,
    (size, ranges): (u64, u64),
) -> Result<Spread> {
    let WholeAttr { tier, range_size, reason, durable } = attr;
    let whole = Whole::settled((tier, reason), (size, ranges), durable, core.tiers.home().id);
    let spread = whole_spread(core, id, identity, range_size, whole)?;
    spread.created.fetch_or(bit(tier), Ordering::AcqRel);
    spread.trimmed.store(true, Ordering::Release);
    *spread.marked.lock() = true;
    Ok(spread)
}

/// The attribute of a file names another tier: once that is durable, what
/// home has of it goes.
fn home_is_left(core: &Core, file: &File, identity: &Identity, id: ObjectId) -> Result<()> {
    if let Err(error) = file.data().sync(false) {
        // It stays what it was. The object must not go before that is
        // durable.
        core.home.remove_id_attr(&**file.data())?;
        reap_emptied(core, file.data(), id)?;
        return Err(error);
    }
    let released = release_home(core, file, identity);
    if let Err(error) = released {
        tracing::warn!(file = %id, %error, "could not free what a file left on home");
    }
    core.tiers.home().measure_again();
    Ok(())
}

/// Frees what the home file of a whole file has. Its size and times stay.
fn release_home(core: &Core, file: &File, identity: &Identity) -> Result<()> {
    if !file.can_write() {
        file.make_writable(core.inodes.open(&core.home, &file.inode, Access::ReadWrite)?);
    }
    let fd = file.writable()?;
    fd.allocate(FallocateMode::PunchHole, 0, identity.size().next_multiple_of(4096))?;
    fd.set_times(None, Some(SetTime::At(identity.attr.mtime)))
}

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

/// Moves all of a plain or whole file to a tier, while nobody else is at
/// it; `None` if it is there already, or became a file with an index.
pub(crate) fn move_at_once(core: &Core, file: &File, to: &Tier, reason: Reason) -> Made<Option<u64>> {
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
        // What an earlier move left there is not this file's any more.
        store.remove(&[id]).and_then(|()| store.create(id)).map_err(|error| to.note_error(error))?;
        copy_all(core, Part::Spread(file, spread, &from), Part::Object(&**store, id, to), size)
    };
    if let Err(error) = copied() {
        object_left(spread, to);
        return Err(error);
    }
    let identity = core.home.identify(&**file.data())?;
    let attr = WholeAttr { tier: to.id, range_size: spread.range_size(), reason, durable: true };
    // The new object's time is that of the copy.
    file.update_times(spread, None)?;
    let before = whole_attr(id, &identity, spread, whole);
    switch_attr(core, file, &id_attr(id, &identity, attr), &before)
        .inspect_err(|_| spread.has_leftovers.store(true, Ordering::Release))?;
    let ranges = spread.range_size().count(size);
    let mut moved = Whole::settled((to.id, reason), (size, ranges), true, core.tiers.home().id);
    moved.owners = whole.owners;
    (moved.owners.size, moved.owners.mtime) = (to.id, core.tiers.home().id);
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

/// The attribute says something else from now on, durably; or, if that
/// fails, what it said `before`.
fn switch_attr(core: &Core, file: &File, now: &IdAttr, before: &IdAttr) -> Result<()> {
    let set = core.home.set_id_attr(&**file.data(), now);
    let set = set.and_then(|()| file.data().sync(false));
    set.inspect_err(|_| drop(core.home.set_id_attr(&**file.data(), before)))
}

/// A file's object is not needed on the tier any more, durably.
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

/// The file's data comes home; its object goes as those of removed files
/// do.
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
    let fd = file.writable()?;
    let come = || -> Result<()> {
        // What is there was left by a move that a crash ended.
        fd.truncate(0)?;
        fd.truncate(size)?;
        copy_all(core, Part::Spread(file, spread, &from), Part::Home(file), size)?;
        fd.set_times(None, Some(SetTime::At(mtime)))?;
        // Only what is durable may take the object's place.
        fd.sync(false)?;
        core.home.remove_id_attr(&**file.data())?;
        if let Err(error) = file.data().sync(false) {
            core.home.set_id_attr(&**file.data(), &whole_attr(id, &identity, spread, whole))?;
            return Err(error);
        }
        Ok(())
    };
    if let Err(error) = come() {
        let _ = release_home(core, file, &core.home.identify(&**file.data())?);
        return Err(error);
    }
    count_whole_gone(core, spread);
    file.inode.set_shape(Shape::Plain);
    core.observer.placed(file, home.id, 0..1);
    home.took(size);
    reap_emptied(core, file.data(), id)
}

/// A whole file is about to have ranges on several tiers: it gets an index.
/// The object is durable first, so that nothing before the size at this
/// moment is taken for lost; then the index is, and then the attribute that
/// makes it count, before any range is elsewhere.
pub(crate) fn make_index(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    let Some(whole) = spread.index.whole() else { return Ok(()) };
    let size = spread.size();
    count_whole(core, spread);
    core.index.sync_marks()?;
    ensure_object(spread, &*core.tiers.get(whole.tier)?)?;
    sync_tier(file, spread, &*core.tiers.get(whole.tier)?, true)?;
    let identity = core.home.identify(&**file.data())?;
    let before = whole_attr(spread.id(), &identity, spread, &whole);
    let attr = IdAttr { kind: IdKind::Spread, ..before };
    core.index.give_file(&spread.index, size, || {
        core.home.set_id_attr(&**file.data(), &attr)?;
        match file.data().sync(false) {
            Err(error) if core.home.set_id_attr(&**file.data(), &before).is_ok() => Err(error),
            // It says so now, and can't be made to say anything else.
            _ => Ok(()),
        }
    })?;
    spread.inode_dirty.store(true, Ordering::Release);
    Ok(())
}

/// Stores in the attribute that the object of a whole file is durable, if
/// it does not say so yet.
pub(super) fn store_durable(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    // Held meanwhile, so that nobody gives it an index.
    let stored = spread.index.with_whole(|whole| {
        if !whole.durable || whole.durable_stored {
            return Ok(());
        }
        // After a crash, a change of the home inode says that it knows the
        // time of the last write.
        file.update_times(spread, None)?;
        let identity = core.home.identify(&**file.data())?;
        core.home.set_id_attr(&**file.data(), &whole_attr(spread.id(), &identity, spread, whole))?;
        spread.inode_dirty.store(true, Ordering::Release);
        whole.durable_stored = true;
        Ok(())
    });
    stored.unwrap_or(Ok(()))
}

/// The object of a whole file is as long as the file is said to be.
pub(super) fn grow_object(core: &Core, spread: &Spread, size: u64) -> Result<()> {
    let Some(whole) = spread.index.whole() else { return Ok(()) };
    let tier = core.tiers.get(whole.tier)?;
    let Backend::Store(store) = &tier.backend else { return Ok(()) };
    ensure_object(spread, &tier)?;
    spread.dirty.fetch_or(bit(tier.id), Ordering::AcqRel);
    store.truncate(spread.id(), size).map_err(|error| tier.note_error(error))
}

/// The same beside other writers, where space is reserved already.
pub(super) fn lengthen_object(core: &Core, spread: &Spread, Range { start, end }: Range<u64>) -> Result<()> {
    let Some(whole) = spread.index.whole() else { return Ok(()) };
    let tier = core.tiers.get(whole.tier)?;
    let Backend::Store(store) = &tier.backend else { return Ok(()) };
    store.allocate(spread.id(), start, end - start, false).map_err(|error| tier.note_error(error))
}

/// Brings the tier's count of ranges up to date with a whole file; `false`
/// if the file is none.
pub(crate) fn count_whole(core: &Core, spread: &Spread) -> bool {
    let counted = spread.index.with_whole(|whole| {
        let before = std::mem::replace(&mut whole.counted, whole.ranges);
        (whole.tier, before, whole.ranges)
    });
    let Some((tier, before, now)) = counted else { return false };
    (now..before).for_each(|_| core.tiers.count_range(Some(tier), None));
    (before..now).for_each(|_| core.tiers.count_range(None, Some(tier)));
    true
}

/// Takes the ranges of a whole file out of the counts: it has none any
/// more.
pub(crate) fn count_whole_gone(core: &Core, spread: &Spread) {
    if spread.index.whole().is_some() {
        let _ = spread.index.clear_from(0);
        count_whole(core, spread);
    }
}

/// Forgets ranges behind the end of a whole file, which a write that failed
/// was to have.
pub(super) fn unclaim(core: &Core, spread: &Spread) {
    if spread.index.whole().is_some() {
        let _ = spread.index.clear_from(spread.range_size().count(spread.size()));
        count_whole(core, spread);
    }
}

/// The tiers on which a file may have an object.
pub(crate) fn stores_of(core: &Core, spread: &Spread) -> Vec<(Arc<Tier>, Arc<dyn Store>)> {
    let whole = spread.index.whole_tier();
    core.tiers.stores().filter(|(tier, _)| whole.is_none_or(|whole| whole == tier.id)).collect()
}

/// Makes a plain file that is empty a whole one of an object that the tier
/// has, durably, under an id that [`take_object_id`](take_object_id)
/// gave. The object is not changed. That both are durable is up to the
/// caller, before the file has a name.
pub fn adopt_object(core: &Core, file: &File, tier: &Tier, id: ObjectId, reason: Reason) -> Result<()> {
    let mut layout = file.layout.write();
    if !matches!(*layout, Layout::Plain) || file.home_size()? > 0 {
        return Err(Error::new(Errno::EEXIST, "the file has data of its own"));
    }
    let Backend::Store(store) = &tier.backend else { return Err(Errno::EINVAL.into()) };
    let _admission = tier.admit()?;
    let size = store.stat(id)?.size;
    if size > SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    let fd: &Fd = file.writable()?;
    let mtime = core.home.identify(&**fd)?.attr.mtime;
    fd.truncate(size)?;
    fd.set_times(None, Some(SetTime::At(mtime)))?;
    let identity = core.home.identify(&**fd)?;
    let ranges = range_size_in(core, file, &layout)?;
    let attr = WholeAttr { tier: tier.id, range_size: ranges, reason, durable: true };
    core.home.set_id_attr(&**fd, &id_attr(id, &identity, attr))?;
    let spread = made_whole(core, id, &identity, attr, (size, ranges.count(size)))?;
    *layout = publish_whole(core, file, spread);
    Ok(())
}

/// An id for an object that is about to be put in place by its file system,
/// with a mark that is durable.
pub fn take_object_id(core: &Core, file: &File) -> Result<ObjectId> {
    let identity = core.home.identify(&**file.data())?;
    core.index.take_marked(identity.handle.as_ref(), &|| core.new_object_id())
}

fn id_attr(id: ObjectId, identity: &Identity, attr: WholeAttr) -> IdAttr {
    IdAttr { kind: IdKind::Whole(attr), id, ino: identity.ino(), btime_ns: identity.btime_ns() }
}

/// The attribute that a whole file has, or is to have.
fn whole_attr(id: ObjectId, identity: &Identity, spread: &Spread, whole: &Whole) -> IdAttr {
    let (tier, reason, durable) = (whole.tier, whole.reason, whole.durable);
    id_attr(id, identity, WholeAttr { tier, range_size: spread.range_size(), reason, durable })
}
