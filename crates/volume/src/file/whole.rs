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
use super::{File, Layout, Spread};
use crate::Volume;
use crate::index::{Index, Whole};
use crate::namespace::{Identity, Inode, Shape};
use crate::tiers::{Backend, Tier, bit};
use braid_contract::{Access, Errno, Error, FallocateMode, Fd, ObjectId, Result, SetTime, Store};
use braid_format::{Header, IdAttr, IdKind, RangeSize, Reason, SIZE_MAX, WholeAttr};
use braid_placement::Credits;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Files of one range up to this size are moved while nobody else is at them,
/// which is short; larger ones beside their users, by an index.
const MOVED_IN_ONE_GO_MAX: u64 = 8 << 20;

/// Why a file could not become a whole one.
type Made<T> = std::result::Result<T, NotSpread>;

impl Volume {
    /// The layout of a whole file that comes into use. Its tier is not asked:
    /// the home inode has its size.
    pub(super) fn load_whole(
        &self,
        inode: &Arc<Inode>,
        (id, attr): (ObjectId, WholeAttr),
        (data, identity): (&Fd, &Identity),
    ) -> Result<Layout> {
        if self.index.is_unrecovered(id) {
            match self.recover_now(inode, id) {
                // It may be of another size now, or a plain one.
                Ok(()) => return self.load_layout(inode, data, &self.home.identify(&**data)?),
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
            self.tiers.home().id,
        );
        whole.counted = whole.ranges;
        let spread = self.whole_spread(id, identity, attr.range_size, whole)?;
        Ok(Layout::Spread(Box::new(spread)))
    }

    fn whole_spread(
        &self,
        id: ObjectId,
        identity: &Identity,
        range_size: RangeSize,
        whole: Whole,
    ) -> Result<Spread> {
        let header = Header {
            volume: self.id,
            id,
            range_size,
            ino: identity.ino(),
            btime_ns: identity.btime_ns(),
            plain_size: 0,
            handle: identity.handle.clone(),
        };
        let mut credits = Credits::new(identity.ino(), range_size.get());
        if whole.ranges > 0
            && let Ok(tier) = self.tiers.get(whole.tier)
        {
            credits.add(whole.tier, whole.ranges * range_size.bytes(), self.share_of(&tier));
        }
        Spread::load(Index::of_whole(header, self.tiers.home().id, whole), credits, &self.environment)
    }

    /// Makes a plain file a whole one on `tier`. An empty one is about to be
    /// written up to `end` there; what another one has is copied.
    pub(crate) fn become_whole(
        &self,
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
        let made = self.plain_to_whole(file, tier, reason, (ranges, end));
        let spread = made.map_err(NotSpread::Failed)?;
        *layout = self.publish_whole(file, spread);
        self.note_from(&file.inode, 0);
        Ok(())
    }

    /// The layout of a file that is a whole one from now on.
    fn publish_whole(&self, file: &File, spread: Spread) -> Layout {
        if let Some(whole) = spread.index.whole() {
            self.count_whole(&spread);
            self.heat.placed(file, whole.tier, 0..whole.ranges);
        }
        file.inode.set_shape(Shape::Spread);
        Layout::Spread(Box::new(spread))
    }

    fn plain_to_whole(
        &self,
        file: &File,
        tier: &Tier,
        reason: Reason,
        (ranges, end): (RangeSize, u64),
    ) -> Result<Spread> {
        let Backend::Store(store) = &tier.backend else { return Err(Errno::EINVAL.into()) };
        let identity = self.home.identify(&**file.data())?;
        let size = identity.size();
        if size > SIZE_MAX {
            return Err(Errno::EFBIG.into());
        }
        // Held until the attribute says so: a tier that is on its way out gets
        // nothing that nobody sees.
        let _admission = tier.admit()?;
        let id = self.index.take_marked(identity.handle.as_ref(), &|| self.new_object_id())?;
        let durable = size > 0;
        let attr = WholeAttr { tier: tier.id, range_size: ranges, reason, durable };
        let make = || -> Result<()> {
            store.create(id).map_err(|error| tier.note_error(error))?;
            if durable {
                let from = Part::Home(file);
                self.copy_all(from, Part::Object(&**store, id, tier), size)?;
            }
            self.home.set_id_attr(&**file.data(), &id_attr(id, &identity, attr))
        };
        if let Err(error) = make() {
            // Nothing leads to it yet but its mark.
            self.reap_emptied(file.data(), id)?;
            return Err(error.context("moving a file off home"));
        }
        if durable {
            self.home_is_left(file, &identity, id)?;
        }
        tier.took(size);
        self.made_whole(id, &identity, attr, (size, ranges.count(size.max(end))))
    }

    /// A whole file that was made just now, with a mark, of so many bytes and
    /// ranges.
    fn made_whole(
        &self,
        id: ObjectId,
        identity: &Identity,
        attr: WholeAttr,
        (size, ranges): (u64, u64),
    ) -> Result<Spread> {
        let WholeAttr { tier, range_size, reason, durable } = attr;
        let whole = Whole::settled((tier, reason), (size, ranges), durable, self.tiers.home().id);
        let spread = self.whole_spread(id, identity, range_size, whole)?;
        spread.created.fetch_or(bit(tier), Ordering::AcqRel);
        spread.trimmed.store(true, Ordering::Release);
        *spread.marked.lock() = true;
        Ok(spread)
    }

    /// The attribute of a file names another tier: once that is durable, what
    /// home has of it goes.
    fn home_is_left(&self, file: &File, identity: &Identity, id: ObjectId) -> Result<()> {
        if let Err(error) = file.data().sync(false) {
            // It stays what it was. The object must not go before that is
            // durable.
            self.home.remove_id_attr(&**file.data())?;
            self.reap_emptied(file.data(), id)?;
            return Err(error);
        }
        let released = self.release_home(file, identity);
        if let Err(error) = released {
            tracing::warn!(file = %id, %error, "could not free what a file left on home");
        }
        self.tiers.home().measure_again();
        Ok(())
    }

    /// Frees what the home file of a whole file has. Its size and times stay.
    fn release_home(&self, file: &File, identity: &Identity) -> Result<()> {
        if !file.can_write() {
            file.make_writable(self.inodes.open(&self.home, &file.inode, Access::ReadWrite)?);
        }
        let fd = file.writable()?;
        fd.allocate(FallocateMode::PunchHole, 0, identity.size().next_multiple_of(4096))?;
        fd.set_times(None, Some(SetTime::At(identity.attr.mtime)))
    }

    /// Whether the file moves in one go, and how many bytes that are; `None`
    /// if it moves range by range.
    pub(crate) fn moves_at_once(&self, file: &File) -> Result<Option<u64>> {
        let layout = file.layout.read();
        let (size, ranges) = match &*layout {
            Layout::Plain => (file.home_size()?, self.range_size_in(file, &layout)?),
            Layout::Spread(spread) if spread.index.whole().is_some() => (spread.size(), spread.range_size()),
            Layout::Spread(_) => return Ok(None),
        };
        Ok((size <= ranges.bytes().min(MOVED_IN_ONE_GO_MAX)).then_some(size))
    }

    /// Moves all of a plain or whole file to a tier, while nobody else is at
    /// it; `None` if it is there already, or became a file with an index.
    pub(crate) fn move_at_once(&self, file: &File, to: &Tier, reason: Reason) -> Made<Option<u64>> {
        let mut layout = file.layout.write();
        let moved = match &*layout {
            Layout::Plain if to.is_home() => return Ok(None),
            Layout::Plain if file.opens.lock().passthrough > 0 => return Err(NotSpread::PassedThrough),
            Layout::Plain => self.plain_off_home(file, &layout, to, reason),
            Layout::Spread(spread) => self.whole_elsewhere(file, spread, to, reason),
        };
        let Some((moved, size)) = moved.map_err(NotSpread::Failed)? else { return Ok(None) };
        *layout = moved;
        self.note_from(&file.inode, 0);
        Ok(Some(size))
    }

    fn plain_off_home(
        &self,
        file: &File,
        layout: &Layout,
        to: &Tier,
        reason: Reason,
    ) -> Result<Option<(Layout, u64)>> {
        let size = file.home_size()?;
        if size == 0 {
            return Ok(None);
        }
        let ranges = self.range_size_in(file, layout)?;
        let spread = self.plain_to_whole(file, to, reason, (ranges, 0))?;
        Ok(Some((self.publish_whole(file, spread), size)))
    }

    fn whole_elsewhere(
        &self,
        file: &File,
        spread: &Spread,
        to: &Tier,
        reason: Reason,
    ) -> Result<Option<(Layout, u64)>> {
        let Some(whole) = spread.index.whole().filter(|whole| whole.tier != to.id) else { return Ok(None) };
        spread.moving.cancel_all();
        self.mark(file, spread)?;
        let size = spread.size();
        let moved = if to.is_home() {
            self.whole_to_plain(file, spread, &whole)?;
            Layout::Plain
        } else {
            Layout::Spread(Box::new(self.whole_to_whole(file, spread, (&whole, to, reason))?))
        };
        Ok(Some((moved, size)))
    }

    fn whole_to_whole(
        &self,
        file: &File,
        spread: &Spread,
        (whole, to, reason): (&Whole, &Tier, Reason),
    ) -> Result<Spread> {
        let Backend::Store(store) = &to.backend else { return Err(Errno::EINVAL.into()) };
        let (id, size) = (spread.id(), spread.size());
        let from = self.tiers.get(whole.tier)?;
        let _admission = to.admit()?;
        let copied = || -> Result<()> {
            // What an earlier move left there is not this file's any more.
            store.remove(&[id]).and_then(|()| store.create(id)).map_err(|error| to.note_error(error))?;
            self.copy_all(Part::Spread(file, spread, &from), Part::Object(&**store, id, to), size)
        };
        if let Err(error) = copied() {
            self.object_left(spread, to);
            return Err(error);
        }
        let identity = self.home.identify(&**file.data())?;
        let attr = WholeAttr { tier: to.id, range_size: spread.range_size(), reason, durable: true };
        // The new object's time is that of the copy.
        super::sync::update_times(file, spread, None)?;
        let before = whole_attr(id, &identity, spread, whole);
        self.switch_attr(file, &id_attr(id, &identity, attr), &before)
            .inspect_err(|_| spread.has_leftovers.store(true, Ordering::Release))?;
        let ranges = spread.range_size().count(size);
        let mut moved = Whole::settled((to.id, reason), (size, ranges), true, self.tiers.home().id);
        moved.owners = whole.owners;
        (moved.owners.size, moved.owners.mtime) = (to.id, self.tiers.home().id);
        (moved.synced_size, moved.gaps) = (whole.synced_size, whole.gaps);
        let index = Index::of_whole(spread.index.header().clone(), self.tiers.home().id, moved);
        let new = spread.moved(index);
        new.created.store(bit(to.id), Ordering::Release);
        new.trimmed.store(true, Ordering::Release);
        new.released.store(0, Ordering::Release);
        self.count_whole_gone(spread);
        self.count_whole(&new);
        self.heat.placed(file, to.id, 0..ranges);
        to.took(size);
        self.object_left(&new, &from);
        Ok(new)
    }

    /// The attribute says something else from now on, durably; or, if that
    /// fails, what it said `before`.
    fn switch_attr(&self, file: &File, now: &IdAttr, before: &IdAttr) -> Result<()> {
        let set = self.home.set_id_attr(&**file.data(), now);
        let set = set.and_then(|()| file.data().sync(false));
        set.inspect_err(|_| drop(self.home.set_id_attr(&**file.data(), before)))
    }

    /// A file's object is not needed on the tier any more, durably.
    fn object_left(&self, spread: &Spread, tier: &Tier) {
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
    fn whole_to_plain(&self, file: &File, spread: &Spread, whole: &Whole) -> Result<()> {
        let home = self.tiers.home();
        let (id, size) = (spread.id(), spread.size());
        let _admission = home.admit()?;
        self.index.sync_marks()?;
        if !file.can_write() {
            file.make_writable(self.inodes.open(&self.home, &file.inode, Access::ReadWrite)?);
        }
        let identity = self.home.identify(&**file.data())?;
        let mtime = spread.times.mtime().unwrap_or(identity.attr.mtime);
        let from = self.tiers.get(whole.tier)?;
        let fd = file.writable()?;
        let come = || -> Result<()> {
            // What is there was left by a move that a crash ended.
            fd.truncate(0)?;
            fd.truncate(size)?;
            self.copy_all(Part::Spread(file, spread, &from), Part::Home(file), size)?;
            fd.set_times(None, Some(SetTime::At(mtime)))?;
            // Only what is durable may take the object's place.
            fd.sync(false)?;
            self.home.remove_id_attr(&**file.data())?;
            if let Err(error) = file.data().sync(false) {
                self.home.set_id_attr(&**file.data(), &whole_attr(id, &identity, spread, whole))?;
                return Err(error);
            }
            Ok(())
        };
        if let Err(error) = come() {
            let _ = self.release_home(file, &self.home.identify(&**file.data())?);
            return Err(error);
        }
        self.count_whole_gone(spread);
        file.inode.set_shape(Shape::Plain);
        self.heat.placed(file, home.id, 0..1);
        home.took(size);
        self.reap_emptied(file.data(), id)
    }

    /// A whole file is about to have ranges on several tiers: it gets an index.
    /// The object is durable first, so that nothing before the size at this
    /// moment is taken for lost; then the index is, and then the attribute that
    /// makes it count, before any range is elsewhere.
    pub(crate) fn make_index(&self, file: &File, spread: &Spread) -> Result<()> {
        let Some(whole) = spread.index.whole() else { return Ok(()) };
        let size = spread.size();
        self.count_whole(spread);
        self.index.sync_marks()?;
        self.ensure_object(spread, &*self.tiers.get(whole.tier)?)?;
        self.sync_tier(file, spread, &*self.tiers.get(whole.tier)?, true)?;
        let identity = self.home.identify(&**file.data())?;
        let before = whole_attr(spread.id(), &identity, spread, &whole);
        let attr = IdAttr { kind: IdKind::Spread, ..before };
        self.index.give_file(&spread.index, size, || {
            self.home.set_id_attr(&**file.data(), &attr)?;
            match file.data().sync(false) {
                Err(error) if self.home.set_id_attr(&**file.data(), &before).is_ok() => Err(error),
                // It says so now, and can't be made to say anything else.
                _ => Ok(()),
            }
        })?;
        spread.inode_dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Stores in the attribute that the object of a whole file is durable, if
    /// it does not say so yet.
    pub(super) fn store_durable(&self, file: &File, spread: &Spread) -> Result<()> {
        // Held meanwhile, so that nobody gives it an index.
        let stored = spread.index.with_whole(|whole| {
            if !whole.durable || whole.durable_stored {
                return Ok(());
            }
            // After a crash, a change of the home inode says that it knows the
            // time of the last write.
            super::sync::update_times(file, spread, None)?;
            let identity = self.home.identify(&**file.data())?;
            self.home.set_id_attr(&**file.data(), &whole_attr(spread.id(), &identity, spread, whole))?;
            spread.inode_dirty.store(true, Ordering::Release);
            whole.durable_stored = true;
            Ok(())
        });
        stored.unwrap_or(Ok(()))
    }

    /// The object of a whole file is as long as the file is said to be.
    pub(super) fn grow_object(&self, spread: &Spread, size: u64) -> Result<()> {
        let Some(whole) = spread.index.whole() else { return Ok(()) };
        let tier = self.tiers.get(whole.tier)?;
        let Backend::Store(store) = &tier.backend else { return Ok(()) };
        self.ensure_object(spread, &tier)?;
        spread.dirty.fetch_or(bit(tier.id), Ordering::AcqRel);
        store.truncate(spread.id(), size).map_err(|error| tier.note_error(error))
    }

    /// The same beside other writers, where space is reserved already.
    pub(super) fn lengthen_object(&self, spread: &Spread, Range { start, end }: Range<u64>) -> Result<()> {
        let Some(whole) = spread.index.whole() else { return Ok(()) };
        let tier = self.tiers.get(whole.tier)?;
        let Backend::Store(store) = &tier.backend else { return Ok(()) };
        store.allocate(spread.id(), start, end - start, false).map_err(|error| tier.note_error(error))
    }

    /// Brings the tier's count of ranges up to date with a whole file; `false`
    /// if the file is none.
    pub(crate) fn count_whole(&self, spread: &Spread) -> bool {
        let counted = spread.index.with_whole(|whole| {
            let before = std::mem::replace(&mut whole.counted, whole.ranges);
            (whole.tier, before, whole.ranges)
        });
        let Some((tier, before, now)) = counted else { return false };
        (now..before).for_each(|_| self.tiers.count_range(Some(tier), None));
        (before..now).for_each(|_| self.tiers.count_range(None, Some(tier)));
        true
    }

    /// Takes the ranges of a whole file out of the counts: it has none any
    /// more.
    pub(crate) fn count_whole_gone(&self, spread: &Spread) {
        if spread.index.whole().is_some() {
            let _ = spread.index.clear_from(0);
            self.count_whole(spread);
        }
    }

    /// Forgets ranges behind the end of a whole file, which a write that failed
    /// was to have.
    pub(super) fn unclaim(&self, spread: &Spread) {
        if spread.index.whole().is_some() {
            let _ = spread.index.clear_from(spread.range_size().count(spread.size()));
            self.count_whole(spread);
        }
    }

    /// The tiers on which a file may have an object.
    pub(crate) fn stores_of(&self, spread: &Spread) -> Vec<(Arc<Tier>, Arc<dyn Store>)> {
        let whole = spread.index.whole_tier();
        self.tiers.stores().filter(|(tier, _)| whole.is_none_or(|whole| whole == tier.id)).collect()
    }

    /// Makes a plain file that is empty a whole one of an object that the tier
    /// has, durably, under an id that [`take_object_id`](Self::take_object_id)
    /// gave. The object is not changed. That both are durable is up to the
    /// caller, before the file has a name.
    pub(crate) fn adopt_object(&self, file: &File, tier: &Tier, id: ObjectId, reason: Reason) -> Result<()> {
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
        let mtime = self.home.identify(&**fd)?.attr.mtime;
        fd.truncate(size)?;
        fd.set_times(None, Some(SetTime::At(mtime)))?;
        let identity = self.home.identify(&**fd)?;
        let ranges = self.range_size_in(file, &layout)?;
        let attr = WholeAttr { tier: tier.id, range_size: ranges, reason, durable: true };
        self.home.set_id_attr(&**fd, &id_attr(id, &identity, attr))?;
        let spread = self.made_whole(id, &identity, attr, (size, ranges.count(size)))?;
        *layout = self.publish_whole(file, spread);
        Ok(())
    }

    /// An id for an object that is about to be put in place by its file system,
    /// with a mark that is durable.
    pub(crate) fn take_object_id(&self, file: &File) -> Result<ObjectId> {
        let identity = self.home.identify(&**file.data())?;
        self.index.take_marked(identity.handle.as_ref(), &|| self.new_object_id())
    }
}

fn id_attr(id: ObjectId, identity: &Identity, attr: WholeAttr) -> IdAttr {
    IdAttr { kind: IdKind::Whole(attr), id, ino: identity.ino(), btime_ns: identity.btime_ns() }
}

/// The attribute that a whole file has, or is to have.
fn whole_attr(id: ObjectId, identity: &Identity, spread: &Spread, whole: &Whole) -> IdAttr {
    let (tier, reason, durable) = (whole.tier, whole.reason, whole.durable);
    id_attr(id, identity, WholeAttr { tier, range_size: spread.range_size(), reason, durable })
}
