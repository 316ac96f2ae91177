//! A spread file that is wholly on home again becomes a plain one: its id
//! attribute goes, and then, as those of a removed file, its index and objects.
//! Called by what moves ranges.

use super::sync::grow_home_file;
use super::{File, Layout, Spread};
use crate::Volume;
use crate::namespace::Shape;
use braid_contract::{Access, Result};
use braid_format::{IdAttr, IdKind};
use std::sync::atomic::Ordering;

impl Volume {
    /// Makes a spread file plain, if all of it is on home; answers whether the
    /// file is plain now. Nobody who has it open notices. While somebody reads
    /// or writes, which may take as long as a tier hangs, it waits for the
    /// file's last close. The caller has the file in use.
    ///
    /// # Errors
    /// Those of the home tier. The file is what it was, then.
    pub(crate) fn gather(&self, file: &File) -> Result<bool> {
        match &*file.layout.read() {
            Layout::Plain => return Ok(true),
            Layout::Spread(spread) if !self.is_at_home(spread)? => return Ok(false),
            Layout::Spread(_) => {}
        }
        let _entered = self.enter_to_move(file)?;
        if !file.can_write() {
            file.make_writable(self.inodes.open(&self.home, &file.inode, Access::ReadWrite)?);
        }
        let Some(mut layout) = file.layout.try_write() else {
            if let Layout::Spread(spread) = &*file.layout.read() {
                spread.gathers.store(true, Ordering::Relaxed);
            }
            return Ok(false);
        };
        let gathered = match &*layout {
            Layout::Plain => return Ok(true),
            Layout::Spread(spread) => self.is_at_home(spread)? && self.bring_home(file, spread)?,
        };
        if gathered {
            *layout = Layout::Plain;
            drop(layout);
            self.note_inode(&file.inode);
        }
        Ok(gathered)
    }

    /// Makes up at the last close for what could not be done before.
    pub(super) fn gather_late(&self, file: &File) {
        let wanted = match &*file.layout.read() {
            Layout::Plain => false,
            Layout::Spread(spread) => spread.gathers.swap(false, Ordering::Relaxed),
        };
        if wanted && let Err(error) = self.gather(file) {
            tracing::debug!(ino = file.inode.ino.0, %error, "a file that is wholly on home stays spread");
        }
    }

    /// Whether every range that the file has is on home.
    fn is_at_home(&self, spread: &Spread) -> Result<bool> {
        let (home, mut elsewhere) = (self.tiers.home().id, false);
        let end = spread.range_size().count(spread.size());
        spread.index.for_each(0, |range, entry| {
            elsewhere |= range < end && entry?.tier != home;
            Ok(())
        })?;
        Ok(!elsewhere)
    }

    /// Makes the home file what the file is, durably, and takes the attribute
    /// away; the caller holds the layout alone. Before that is durable, a crash
    /// brings the spread file back, whose index stays until then; after it,
    /// the mark leads to what has to go.
    fn bring_home(&self, file: &File, spread: &Spread) -> Result<bool> {
        spread.moving.cancel_all();
        self.mark(file, spread)?;
        if !spread.trimmed.load(Ordering::Acquire) {
            // A tier in trouble may have something behind the end.
            return Ok(false);
        }
        self.clear_strays(file, spread)?;
        grow_home_file(file, spread)?;
        file.data().sync(false).inspect_err(|error| file.note_sync_error(error))?;
        self.index.sync_marks()?;
        self.home.remove_id_attr(&**file.data())?;
        // A write to the plain file may be synced without its attributes, and
        // the index must not count then: it may say that there is a hole.
        if let Err(error) = file.data().sync(false) {
            file.note_sync_error(&error);
            let identity = self.home.identify(&**file.data())?;
            let (id, kind) = (spread.id(), IdKind::Spread);
            let attr = IdAttr { kind, id, ino: identity.ino(), btime_ns: identity.btime_ns() };
            self.home.set_id_attr(&**file.data(), &attr)?;
            return Err(error);
        }
        file.inode.set_shape(Shape::Plain);
        self.reap_emptied(file.data(), spread.id())?;
        Ok(true)
    }

    /// What the home file holds in ranges that were never written, or not since
    /// they were on another tier, would be data of the plain file.
    fn clear_strays(&self, file: &File, spread: &Spread) -> Result<()> {
        let (ranges, size) = (spread.range_size(), spread.size());
        let home = self.tiers.home();
        let mut offset = 0;
        while let Some((start, end)) = self.next_home_data(file, offset, size)? {
            for range in ranges.ranges_of(start.max(offset), end) {
                if spread.index.entry(range)?.is_none() {
                    self.release_range(file, spread, home, range)?;
                }
            }
            offset = ranges.round_up(end);
        }
        Ok(())
    }
}
