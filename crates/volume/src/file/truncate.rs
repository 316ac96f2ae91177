//! Changing the size (ordering rule 3).

use super::{File, Layout, Spread};
use crate::Volume;
use crate::format::{IdAttr, IdKind, SIZE_MAX};
use crate::namespace::{Shape, reopen};
use crate::tiers::{bit, cut_object};
use braid_contract::{Errno, Result};
use rustix::fs::OFlags;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Volume {
    pub(crate) fn truncate_file(&self, file: &File, size: u64, kill_set_id: bool) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Errno::EFBIG.into());
        }
        if !file.can_write() {
            let fd = self.inodes.open(&self.home, &file.inode, OFlags::RDWR)?;
            file.make_writable(braid_sys::DataFile::new(fd));
        }
        if kill_set_id {
            self.clear_set_id(file)?;
        }
        let home_size = file.home_size()?;
        if size > home_size {
            self.spread_ahead(file, home_size, size)?;
        }
        let mut layout = file.layout.write();
        match &*layout {
            Layout::Plain => Ok(rustix::fs::ftruncate(file.writable()?, size)?),
            Layout::Spread(spread) if size == 0 => {
                self.empty(file, spread)?;
                *layout = Layout::Plain;
                Ok(())
            }
            Layout::Spread(spread) if size < spread.size() => self.cut(file, spread, size),
            Layout::Spread(spread) => {
                self.mark(file, spread)?;
                spread.times.touch_mtime();
                if size > spread.size() {
                    spread.set_size(size, self.tiers.home().id)?;
                }
                Ok(())
            }
        }
    }

    /// Truncates a spread file to nothing: it becomes plain again, and its
    /// index and objects go as those of a removed file do. The attribute says
    /// first that this is under way, so that every state in between, after a
    /// crash, reads as an empty file.
    fn empty(&self, file: &File, spread: &Spread) -> Result<()> {
        self.mark(file, spread)?;
        let identity = self.home.identify(file.data())?;
        let attr = IdAttr {
            kind: IdKind::Emptied,
            id: spread.id(),
            ino: identity.ino(),
            btime_ns: identity.btime_ns(),
        };
        self.home.set_id_attr(file.data(), &attr)?;
        let emptied = rustix::fs::ftruncate(file.writable()?, 0);
        if let Err(error) = emptied.map_err(Into::into).and_then(|()| self.home.remove_id_attr(file.data())) {
            // It stays what it was.
            self.home.set_id_attr(file.data(), &IdAttr { kind: IdKind::Spread, ..attr })?;
            return Err(error);
        }
        file.inode.set_shape(Shape::Plain);
        // The home file itself is what has to be durable before they go.
        let home_file =
            reopen(file.data(), OFlags::RDONLY).or_else(|_| reopen(file.data(), OFlags::WRONLY))?;
        self.reaper.add(spread.id(), Arc::new(home_file));
        Ok(())
    }

    /// Cuts a spread file. The shorter size is durable before anything beyond
    /// it goes: until then, power loss may undo the truncation, and must find
    /// the data.
    fn cut(&self, file: &File, spread: &Spread, size: u64) -> Result<()> {
        self.mark(file, spread)?;
        spread.times.touch_mtime();
        let owner = self.owner_before(spread, size)?;
        spread.set_size(size, owner)?;
        self.index.sync(&spread.index)?;
        self.trim(file, spread, size)
    }

    /// Removes what a spread file has beyond `size`.
    pub(crate) fn trim(&self, file: &File, spread: &Spread, size: u64) -> Result<()> {
        let first = size.div_ceil(u64::from(self.range_size));
        let mut cleared = false;
        spread.index.for_each(first, |_, entry| {
            cleared = true;
            self.tiers.count_range(entry.ok().map(|entry| entry.tier), None);
            Ok(())
        })?;
        if cleared {
            spread.index.clear_from(first)?;
        }
        if file.home_size()? > size {
            spread.dirty.fetch_or(bit(self.tiers.home().id), Ordering::AcqRel);
            rustix::fs::ftruncate(file.writable()?, size)?;
        }
        for (tier, store) in self.tiers.stores() {
            match cut_object(store.as_ref(), spread.id(), size) {
                Ok(false) => {}
                Ok(true) => {
                    spread.dirty.fetch_or(bit(tier.id), Ordering::AcqRel);
                }
                Err(error) => self.concerning(spread, tier, tier.note_error(error))?,
            }
        }
        Ok(())
    }
}
