//! Whole files: all their data is in one object on one tier other than home,
//! and no index is needed to say so. The home inode has the names, the
//! attributes and, as a hole, the size; its id attribute names the tier.
//!
//! The object is to such a file what the home file is to a plain one: it has
//! data and size, and its file system keeps the two in order. As soon as a range
//! is to be on another tier than the others, the file gets an index
//! (`indexing.rs`). This file makes whole files of plain ones.

use crate::core::Core;
use crate::file::copy::{DataLocation, copy_all};
use crate::file::emptying::reap_emptied;
use crate::file::id_attr::id_attr;
use crate::file::indexing::NotSpread;
use crate::file::load::whole_spread;
use crate::file::ranges::range_size_in;
use crate::file::whole_object::count_whole;
use crate::live::{File, Layout, Shape, Spread};
use braid_contract::{Access, Errno, Error, FallocateMode, ObjectId, Result, SetTime};
use braid_format::{RangeSize, Reason, SIZE_MAX, WholeAttr};
use braid_home::Identity;
use braid_index::Whole;
use braid_tiers::{Backend, Tier};
use std::sync::atomic::Ordering;

/// Makes a plain file a whole one on `tier`. An empty one is about to be
/// written up to `end` there; the data of another one is copied.
pub(crate) fn become_whole(
    core: &Core,
    file: &File,
    tier: &Tier,
    reason: Reason,
    (ranges, end): (RangeSize, u64),
) -> std::result::Result<(), NotSpread> {
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
pub(super) fn publish_whole(core: &Core, file: &File, spread: Spread) -> Layout {
    if let Some(whole) = spread.index.whole() {
        count_whole(core, &spread);
        core.observer.placed(file, whole.tier, 0..whole.ranges);
    }
    file.inode.set_shape(Shape::Spread);
    Layout::Spread(Box::new(spread))
}

/// Copies a plain file to an object on `tier`, durably, and lets the attribute
/// name it.
pub(super) fn plain_to_whole(
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
    // Held until the attribute says so: a tier that is on its way out gets no
    // file unseen.
    let _admission = tier.admit()?;
    let id = core.index.take_marked(identity.handle.as_ref(), &|| core.new_object_id())?;
    let durable = size > 0;
    let attr = WholeAttr { tier: tier.id, range_size: ranges, reason, durable };
    let make = || -> Result<()> {
        store.create(id).map_err(|error| tier.note_error(error))?;
        if durable {
            let from = DataLocation::Home(file);
            copy_all(core, from, DataLocation::Object(&**store, id, tier), size)?;
        }
        core.home.set_id_attr(&**file.data(), &id_attr(id, &identity, attr))
    };
    if let Err(error) = make() {
        // Only its mark leads to it so far.
        reap_emptied(core, file.data(), id);
        return Err(error.context("moving a file off home"));
    }
    if durable {
        home_is_left(core, file, &identity, id)?;
    }
    tier.took(size.max(end));
    let spread = made_whole(core, id, &identity, attr, (size, ranges.count(size.max(end))))?;
    // Home has the time: the object is new.
    spread.times.no_object_has_it();
    Ok(spread)
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
    spread.object_was_made(tier);
    spread.trimmed.store(true, Ordering::Release);
    *spread.marked.lock() = true;
    Ok(spread)
}

/// Makes durable that the attribute names another tier; then the data on home
/// goes.
fn home_is_left(core: &Core, file: &File, identity: &Identity, id: ObjectId) -> Result<()> {
    if let Err(error) = file.data().sync(false) {
        // The file stays plain. The object must not go before that is durable.
        core.home.remove_id_attr(&**file.data())?;
        // The attribute may be on the device: what is written next must not be durable without this.
        if let Err(error) = file.data().sync(false) {
            file.note_sync_error(&error);
        }
        reap_emptied(core, file.data(), id);
        return Err(error);
    }
    let released = release_home(core, file, identity);
    if let Err(error) = released {
        tracing::warn!(file = %id, %error, "could not free what a file left on home");
    }
    core.tiers.home().measure_again();
    Ok(())
}

/// Frees the data of a whole file's home file. Its size and times stay.
pub(super) fn release_home(core: &Core, file: &File, identity: &Identity) -> Result<()> {
    if !file.can_write() {
        file.make_writable(core.inodes.open(&core.home, &file.inode, Access::ReadWrite)?);
    }
    let all = identity.size().next_multiple_of(4096);
    file.writable()?.allocate(FallocateMode::PunchHole, 0, all)?;
    // Space that is reserved behind the end goes, too.
    file.writable()?.truncate(identity.size())?;
    file.data().set_times(None, Some(SetTime::At(identity.attr.mtime)))
}

/// Makes a plain file that is empty a whole one of an object that the tier has,
/// durably, under an id that [`take_object_id`] gave. The
/// object is not changed. The caller makes both durable before the file has a
/// name.
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
    let fd = file.data();
    let mtime = core.home.identify(&**fd)?.attr.mtime;
    file.writable()?.truncate(size)?;
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
