//! Files come into use and go out of it.

use super::{File, Layout, OpenFile, Spread};
use crate::Volume;
use crate::namespace::{DurabilityDependency, Identity, Inode, Shape, io_mode};
use crate::tiers::Tier;
use braid_contract::{
    Access, Context, Errno, Error, Fd, FileKind, HandleId, InodeId, IoMode, NativeHandle, ObjectId,
    OpenRequest, Opened, Result,
};
use braid_format::IdKind;
use braid_placement::Credits;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Volume {
    /// The live state of a regular file, made if nobody uses it yet.
    pub(crate) fn file_of(&self, inode: &Arc<Inode>) -> Result<Arc<File>> {
        let mut slot = inode.file.lock();
        if let Some(file) = slot.upgrade() {
            return Ok(file);
        }
        if inode.kind != FileKind::Regular {
            return Err(if inode.kind == FileKind::Directory { Errno::EISDIR } else { Errno::EINVAL }.into());
        }
        let (data, writes) = self.open_home_file(inode)?;
        let identity = self.home.identify(&*data)?;
        let layout = self.load_layout(inode, &data, &identity)?;
        // Its data is being removed. Whoever removed the last name looks for a
        // live file after that, under the same lock.
        if matches!(layout, Layout::Spread(_)) && identity.attr.nlink == 0 {
            return Err(Errno::ESTALE.into());
        }
        let file = Arc::new(File::new(Arc::clone(inode), data, writes, layout));
        *slot = Arc::downgrade(&file);
        Ok(file)
    }

    /// The live state of a file that was just made.
    pub(crate) fn adopt_file(&self, inode: &Arc<Inode>, data: Fd) -> Result<Arc<File>> {
        let mut slot = inode.file.lock();
        if let Some(file) = slot.upgrade() {
            return Ok(file);
        }
        let file = Arc::new(File::new(Arc::clone(inode), data, true, Layout::Plain));
        *slot = Arc::downgrade(&file);
        Ok(file)
    }

    /// Opens the home file for as much as is allowed; a privileged daemon may
    /// do both unless the file system is read-only or the file immutable.
    fn open_home_file(&self, inode: &Inode) -> Result<(Fd, bool)> {
        let open = |access| self.inodes.open(&self.home, inode, access);
        match open(Access::ReadWrite) {
            Ok(fd) => Ok((fd, true)),
            Err(error) if may_lack_write(&error) => match open(Access::Read) {
                Ok(fd) => Ok((fd, false)),
                Err(_) => Ok((open(Access::Write)?, true)),
            },
            Err(error) => Err(error),
        }
    }

    pub(super) fn load_layout(&self, inode: &Arc<Inode>, data: &Fd, identity: &Identity) -> Result<Layout> {
        let Some(attr) = self.home.id_attr(&**data, identity)? else {
            inode.set_shape(Shape::Plain);
            return Ok(Layout::Plain);
        };
        inode.set_shape(Shape::Spread);
        if attr.kind == IdKind::Emptied {
            self.finish_emptying(data, identity, attr.id)?;
            inode.set_shape(Shape::Plain);
            self.note_from(inode, 0);
            return Ok(Layout::Plain);
        }
        if let Some(whole) = attr.kind.whole() {
            return self.load_whole(inode, (attr.id, whole), (data, identity));
        }
        let index = self.index_of(&**data, identity, attr.id)?;
        let credits = Credits::new(identity.ino(), index.range_size().get());
        let spread = Spread::load(index, credits, &self.environment);
        Ok(Layout::Spread(Box::new(spread.with_context(|| format!("file {}", attr.id))?)))
    }

    pub(crate) fn open_inode(&self, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        let inode = self.inodes.get(ino)?;
        let file = self.file_of(&inode)?;
        if request.flags.write && !file.can_write() {
            let fd = self.inodes.open(&self.home, &inode, Access::ReadWrite);
            file.make_writable(fd.or_else(|_| self.inodes.open(&self.home, &inode, Access::Write))?);
        }
        let passthrough = {
            // Whoever spreads the file holds the layout alone while it looks
            // for such opens.
            let layout = file.layout.read();
            let passthrough = may_pass_through(&layout, request, !self.changes.is_on());
            file.opened(passthrough)?;
            passthrough
        };
        let mode = match file.data().kernel_fd() {
            Some(fd) if passthrough => {
                // What the kernel does by itself is not seen; that it begins is.
                self.heat.used(&file, self.tiers.home().id, 0..1);
                IoMode::Passthrough(fd)
            }
            _ => io_mode(request.flags),
        };
        // Of consequence for direct I/O only. Where it can't be told, it may be.
        let set_id =
            matches!(mode, IoMode::Direct) && file.data().stat().map_or(true, |stat| stat.attr.is_set_id());
        let handle = self.handles.add_file(OpenFile::new(file, request.flags, passthrough));
        Ok(Opened { handle, mode, set_id })
    }

    /// One open ends.
    pub(crate) fn close_file(&self, handle: HandleId) -> Result<()> {
        let open = self.handles.remove_file(handle)?;
        let ended = self.end_use(&open.file, open.passthrough);
        match open.passthrough {
            // Nobody knows what the kernel wrote.
            true => self.note_from(&open.file.inode, 0),
            false => self.note_inode(&open.file.inode),
        }
        // It may be what frees the file's space.
        drop(open);
        self.freed.note_close();
        ended
    }

    /// One use of a file ends, that [`File::opened`] began. With the last one,
    /// what is ahead goes to the home inode, or, if the last name is gone, all
    /// data goes.
    pub(crate) fn end_use(&self, file: &File, passthrough: bool) -> Result<()> {
        if !file.inode.is_of(&self.home) {
            // It was taken into use before home was replaced, by somebody who
            // has no handle: the file on the new home knows nothing of that.
            return Ok(());
        }
        let nameless = {
            let mut opens = file.opens.lock();
            opens.handles -= 1;
            opens.passthrough -= u32::from(passthrough);
            if opens.handles > 0 || opens.dead {
                return Ok(());
            }
            opens.nameless.take()
        };
        let nameless = match nameless {
            None => self.nameless_by_links(file)?,
            // It may have been emptied, and spread again, since.
            Some((_, parent)) => match &*file.layout.read() {
                Layout::Plain => return Ok(()),
                Layout::Spread(spread) => Some((spread.id(), parent)),
            },
        };
        match nameless {
            Some((id, parent)) => {
                self.last_name_gone(file, id, parent);
                Ok(())
            }
            None => self.settle(file),
        }
    }

    /// Whether a spread file has no name any more. One that lost its last name
    /// while it was plain, or just as it was spread, is found only so. What has
    /// to be durable is the home file's own end.
    fn nameless_by_links(&self, file: &File) -> Result<Option<(ObjectId, DurabilityDependency)>> {
        let Layout::Spread(spread) = &*file.layout.read() else { return Ok(None) };
        if file.data().stat()?.attr.nlink > 0 {
            return Ok(None);
        }
        self.index.mark(spread.id(), handle_of(file, spread))?;
        Ok(Some((spread.id(), None)))
    }

    /// Brings the home inode up to date and gives the mark up, unless somebody
    /// uses the file again.
    fn settle(&self, file: &File) -> Result<()> {
        self.settle_emptied(file)?;
        self.release_ahead(file);
        self.gather_late(file);
        self.update_home_inode(file)?;
        self.note_inode(&file.inode);
        let layout = file.layout.read();
        let Layout::Spread(spread) = &*layout else { return Ok(()) };
        // Whoever opens the file next does not know of it.
        self.make_releases_durable(file, spread)?;
        // Whoever writes has the file in use, so nobody is on the way to make
        // it run ahead while this lock is held.
        let opens = file.opens.lock();
        if opens.handles == 0 {
            self.unclaim(spread);
        }
        let mut marked = spread.marked.lock();
        let done = !spread.has_leftovers.load(Ordering::Acquire);
        if *marked && done && opens.handles == 0 && opens.nameless.is_none() && !opens.dead {
            spread.ready.store(false, Ordering::Release);
            self.reaper.settle(self, spread.id());
            *marked = false;
        }
        Ok(())
    }

    /// Marks the file as ahead of its home inode, unless it is already. What a
    /// crash left beyond its size goes before it may grow past that.
    pub(crate) fn mark(&self, file: &File, spread: &Spread) -> Result<()> {
        // Whoever comes here has the file in use, and keeps it from being
        // settled.
        if spread.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        if spread.index.whole().is_some() && self.index.is_unrecovered(spread.id()) {
            let what =
                "its tier could not be asked what a crash left of the file: open it again when it is back";
            return Err(Error::new(Errno::EIO, what));
        }
        let mut marked = spread.marked.lock();
        if !*marked {
            self.index.mark(spread.id(), handle_of(file, spread))?;
            *marked = true;
        }
        if !spread.trimmed.load(Ordering::Relaxed) {
            // Nobody changes the file before it is marked, so nobody does now.
            // A tier in trouble must not keep what is on others from being
            // written; the file then does not grow until it was trimmed.
            match self.trim(file, spread, spread.size()) {
                Ok(()) => spread.trimmed.store(true, Ordering::Release),
                Err(error) if error.errno() == Errno::EIO => {
                    tracing::debug!(file = %spread.id(), %error, "a file is trimmed later");
                }
                Err(error) => return Err(error),
            }
        }
        spread.ready.store(spread.trimmed.load(Ordering::Acquire), Ordering::Release);
        Ok(())
    }

    /// The last name of a live file is gone.
    pub(crate) fn last_name_gone(&self, file: &File, id: ObjectId, parent: DurabilityDependency) {
        let mut opens = file.opens.lock();
        if opens.handles > 0 {
            opens.nameless = Some((id, parent));
        } else if !opens.dead {
            opens.dead = true;
            drop(opens);
            if let Layout::Spread(spread) = &*file.layout.read() {
                self.count_whole_gone(spread);
            }
            self.reaper.add(self, id, parent);
        }
    }

    /// Looks at an error of a tier on which the file may have nothing: then it
    /// is no concern of the file's.
    pub(crate) fn concerning(&self, spread: &Spread, tier: &Tier, error: Error) -> Result<()> {
        if self.concerns(spread, tier)? { Err(error) } else { Ok(()) }
    }

    /// Whether the file has something on the tier.
    pub(crate) fn concerns(&self, spread: &Spread, tier: &Tier) -> Result<bool> {
        if let Some(whole) = spread.index.whole_tier() {
            return Ok(whole == tier.id);
        }
        let mut concerns = tier.is_home();
        spread.index.for_each(0, |_, entry| {
            // A damaged entry names no tier; reading it says so.
            concerns |= entry.is_ok_and(|entry| entry.tier == tier.id);
            Ok(())
        })?;
        Ok(concerns)
    }
}

/// A plain file that is opened for reading can be read by the kernel itself;
/// one that is being read so must be opened so again.
/// None begins while home is copied.
fn may_pass_through(layout: &Layout, request: OpenRequest, may_begin: bool) -> bool {
    let plain = may_begin && matches!(layout, Layout::Plain);
    request.passthrough_required || request.passthrough_allowed && plain && !request.flags.write
}

/// What the mark of a whole file tells; of others, the index does.
fn handle_of<'a>(file: &'a File, spread: &Spread) -> Option<&'a NativeHandle> {
    spread.index.whole().and_then(|_| file.inode.handle())
}

fn may_lack_write(error: &Error) -> bool {
    matches!(error.errno(), Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ETXTBSY)
}
