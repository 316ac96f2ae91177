//! Changing the size (ordering rule 3).

use super::sync::update_times;
use super::{File, Layout, Spread};
use crate::Volume;
use crate::failpoint::Failpoint;
use crate::index::Whole;
use crate::namespace::{Identity, Shape};
use crate::tiers::{bit, cut_object};
use braid_contract::{Access, Caller, Errno, Error, Fd, ObjectId, Result, TierId};
use braid_format::{IdAttr, IdKind, SIZE_MAX, WholeAttr};
use braid_placement::Origin;
use std::sync::atomic::Ordering;

impl Volume {
    pub(crate) fn truncate_file(&self, file: &File, size: u64, caller: &Caller) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Errno::EFBIG.into());
        }
        if !file.can_write() {
            file.make_writable(self.inodes.open(&self.home, &file.inode, Access::ReadWrite)?);
        }
        self.clear_set_id(file, caller, caller.keeps_set_id_bits())?;
        let home_size = file.home_size()?;
        if size > home_size {
            self.spread_ahead(file, home_size, size, Origin::of_reserving(caller))?;
        }
        self.freed.note();
        let mut layout = file.layout.write();
        self.trim_late(file, &layout);
        match &*layout {
            Layout::Plain => file.writable()?.truncate(size),
            Layout::Spread(spread) if size == 0 => {
                self.empty(file, spread)?;
                *layout = Layout::Plain;
                Ok(())
            }
            Layout::Spread(spread) if size < spread.size() => self.cut(file, spread, size),
            Layout::Spread(spread) => {
                self.mark(file, spread)?;
                spread.touch_inode();
                if size > spread.size() {
                    self.prepare_growth(file, spread)?;
                    spread.index.set_gaps(true)?;
                    self.grow_object(spread, size)?;
                    let owner = spread.index.whole_tier().unwrap_or(self.tiers.home().id);
                    spread.set_size(size, owner)?;
                    self.count_whole(spread);
                }
                update_times(file, spread, None)
            }
        }
    }

    /// Truncates a spread file to nothing: it becomes plain again, and its
    /// index and objects go as those of a removed file do. The attribute says
    /// first that this is under way, so that every state in between, after a
    /// crash, reads as an empty file.
    fn empty(&self, file: &File, spread: &Spread) -> Result<()> {
        spread.moving.cancel_all();
        self.mark(file, spread)?;
        // Without the attribute, nothing else leads to what has to go.
        self.index.sync_marks()?;
        let identity = self.home.identify(&**file.data())?;
        let before = kind_of(spread);
        let attr = IdAttr {
            kind: IdKind::Emptied,
            id: spread.id(),
            ino: identity.ino(),
            btime_ns: identity.btime_ns(),
        };
        self.home.set_id_attr(&**file.data(), &attr)?;
        let emptied = file.writable()?.truncate(0);
        if let Err(error) = emptied.and_then(|()| self.home.remove_id_attr(&**file.data())) {
            // It stays what it was.
            self.home.set_id_attr(&**file.data(), &IdAttr { kind: before, ..attr })?;
            return Err(error);
        }
        self.count_whole_gone(spread);
        file.inode.set_shape(Shape::Plain);
        self.reap_emptied(file.data(), spread.id())
    }

    /// A whole file with nothing in it is a plain one again.
    pub(crate) fn settle_emptied(&self, file: &File) -> Result<()> {
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
            self.empty(file, spread)?;
            *layout = Layout::Plain;
        }
        Ok(())
    }

    /// Finishes what a crash left of a truncation to nothing. What the file has
    /// elsewhere goes if its index says that it is the file's; answers whether it
    /// does.
    pub(crate) fn finish_emptying(&self, data: &Fd, identity: &Identity, id: ObjectId) -> Result<bool> {
        let own = match self.index.header_of(id) {
            Ok(header) => self.check_own(&header, identity).map(|()| true)?,
            // A whole file has none: its mark tells.
            Err(error) if error.errno() == Errno::ENOENT => self.index.is_unrecovered(id),
            Err(error) => return Err(error),
        };
        if own {
            self.index.mark(id, None)?;
        }
        data.truncate(0)?;
        self.home.remove_id_attr(&**data)?;
        if own {
            self.reap_emptied(data, id)?;
        }
        Ok(own)
    }

    /// What the file has elsewhere goes.
    pub(super) fn reap_emptied(&self, data: &Fd, id: ObjectId) -> Result<()> {
        // The home file itself is what has to be durable before they go.
        let home_file = data.reopen(Access::Read).or_else(|_| data.reopen(Access::Write))?;
        self.reaper.add(self, id, Some(home_file));
        Ok(())
    }

    /// Cuts a spread file. The shorter size is durable before anything beyond
    /// it goes: until then, power loss may undo the truncation, and must find
    /// the data.
    fn cut(&self, file: &File, spread: &Spread, size: u64) -> Result<()> {
        self.mark(file, spread)?;
        spread.touch_inode();
        let owner = self.owner_before(spread, size)?;
        let has_reserved = spread.index.reserved()? > 0 || !spread.ahead.lock().is_empty();
        if has_reserved {
            spread.index.set_reserved(0)?;
        }
        if spread.index.synced_size()? > size {
            spread.index.set_synced_size(size)?;
        }
        spread.set_size(size, owner)?;
        self.index.sync(&spread.index)?;
        self.trim(file, spread, size)?;
        if has_reserved {
            spread.ahead.lock().clear();
            for tier in self.tiers.iter() {
                self.release_end(file, spread, &tier)?;
            }
        }
        update_times(file, spread, None)
    }

    /// Trims a file that could not be when it was marked, before it grows to
    /// `end`.
    pub(crate) fn trim_before(&self, file: &File, end: u64) {
        let owed = match &*file.layout.read() {
            Layout::Plain => false,
            Layout::Spread(spread) => end > spread.size() && owes_trim(spread),
        };
        if owed {
            self.trim_late(file, &file.layout.write());
        }
    }

    /// Trims a file that could not be when it was marked; the caller holds the
    /// layout alone.
    fn trim_late(&self, file: &File, layout: &Layout) {
        if let Layout::Spread(spread) = layout
            && owes_trim(spread)
            && self.trim(file, spread, spread.size()).is_ok()
        {
            spread.trimmed.store(true, Ordering::Release);
        }
    }

    /// Removes what a spread file has beyond `size`.
    pub(crate) fn trim(&self, file: &File, spread: &Spread, size: u64) -> Result<()> {
        // What is being copied now was read before.
        spread.moving.cancel_all();
        let first = spread.range_size().count(size.max(spread.index.reserved()?));
        let (whole, mut cleared) = (spread.index.whole().is_some(), false);
        spread.index.for_each(first, |_, entry| {
            cleared = true;
            if !whole {
                self.tiers.count_range(entry.ok().map(|entry| entry.tier), None);
            }
            Ok(())
        })?;
        if cleared {
            spread.cleared.store(true, Ordering::Release);
            spread.index.clear_from(first)?;
            self.count_whole(spread);
        }
        if file.home_size()? > size {
            note_release(spread, self.tiers.home().id);
            file.writable()?.truncate(size)?;
        }
        for (tier, store) in self.stores_of(spread) {
            match cut_object(&*store, spread.id(), size) {
                Ok(false) => {}
                Ok(true) => note_release(spread, tier.id),
                Err(error) => self.concerning(spread, &tier, tier.note_error(error))?,
            }
        }
        Ok(())
    }

    /// What is beyond the size of a file is gone, durably, before it grows.
    pub(crate) fn prepare_growth(&self, file: &File, spread: &Spread) -> Result<()> {
        if !spread.trimmed.load(Ordering::Acquire) {
            let what = "a tier is in trouble that may hold something beyond the file's size";
            return Err(Error::new(Errno::EIO, what));
        }
        self.make_releases_durable(file, spread)
    }

    /// Makes durable what was cut off the file. Until then, power loss may
    /// bring it back, so it comes before the size may grow over it (ordering
    /// rule 3).
    pub(crate) fn make_releases_durable(&self, file: &File, spread: &Spread) -> Result<()> {
        let released = spread.released.load(Ordering::Acquire);
        let nothing = released == 0 && !spread.cleared.load(Ordering::Acquire);
        if nothing || self.fails_at(Failpoint::GrowOverUnclearedEntries) {
            return Ok(());
        }
        for tier in self.tiers.iter().filter(|tier| released & bit(tier.id) != 0) {
            self.sync_if_concerned(file, spread, &tier, true)?;
        }
        self.index.sync(&spread.index)?;
        spread.released.fetch_and(!released, Ordering::AcqRel);
        spread.cleared.store(false, Ordering::Release);
        Ok(())
    }
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
