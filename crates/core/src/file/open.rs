//! Files come into use and go out of it.

use crate::core::Core;
use crate::file::ahead::release_ahead;
use crate::file::gather::gather_late;
use crate::file::owner::index_of;
use crate::file::sync::update_home_inode;
use crate::file::truncate::{finish_emptying, make_releases_durable, settle_emptied, trim};
use crate::file::whole::{count_whole_gone, load_whole, unclaim};
use crate::live::{DurabilityDependency, File, Inode, Layout, OpenFile, Shape, Spread};
use crate::namespace::make::io_mode;
use braid_contract::{
    Access, Context, Errno, Error, Fd, FileKind, HandleId, InodeId, IoMode, NativeHandle, ObjectId,
    OpenRequest, Opened, Result,
};
use braid_format::IdKind;
use braid_home::Identity;
use braid_placement::Credits;
use braid_tiers::Tier;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The live state of a regular file, made if nobody uses it yet.
pub fn file_of(core: &Core, inode: &Arc<Inode>) -> Result<Arc<File>> {
    let mut slot = inode.file.lock();
    if let Some(file) = slot.upgrade() {
        return Ok(file);
    }
    if inode.kind != FileKind::Regular {
        return Err(if inode.kind == FileKind::Directory { Errno::EISDIR } else { Errno::EINVAL }.into());
    }
    let (data, writes) = open_home_file(core, inode)?;
    let identity = core.home.identify(&*data)?;
    let layout = load_layout(core, inode, &data, &identity)?;
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
pub(crate) fn adopt_file(inode: &Arc<Inode>, data: Fd) -> Result<Arc<File>> {
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
fn open_home_file(core: &Core, inode: &Inode) -> Result<(Fd, bool)> {
    let open = |access| core.inodes.open(&core.home, inode, access);
    match open(Access::ReadWrite) {
        Ok(fd) => Ok((fd, true)),
        Err(error) if may_lack_write(&error) => match open(Access::Read) {
            Ok(fd) => Ok((fd, false)),
            Err(_) => Ok((open(Access::Write)?, true)),
        },
        Err(error) => Err(error),
    }
}

pub(super) fn load_layout(core: &Core, inode: &Arc<Inode>, data: &Fd, identity: &Identity) -> Result<Layout> {
    let Some(attr) = core.home.id_attr(&**data, identity)? else {
        inode.set_shape(Shape::Plain);
        return Ok(Layout::Plain);
    };
    inode.set_shape(Shape::Spread);
    if attr.kind == IdKind::Emptied {
        finish_emptying(core, data, identity, attr.id)?;
        inode.set_shape(Shape::Plain);
        core.observer.tail_changed(inode, 0);
        return Ok(Layout::Plain);
    }
    if let Some(whole) = attr.kind.whole() {
        return load_whole(core, inode, (attr.id, whole), (data, identity));
    }
    let index = index_of(core, &**data, identity, attr.id)?;
    let credits = Credits::new(identity.ino(), index.range_size().get());
    let spread = Spread::load(index, credits, &core.environment);
    Ok(Layout::Spread(Box::new(spread.with_context(|| format!("file {}", attr.id))?)))
}

/// Opens the inode for I/O, as `request` says.
pub fn open_inode(core: &Core, ino: InodeId, request: OpenRequest) -> Result<Opened> {
    let inode = core.inodes.get(ino)?;
    let file = file_of(core, &inode)?;
    if request.flags.write && !file.can_write() {
        let fd = core.inodes.open(&core.home, &inode, Access::ReadWrite);
        file.make_writable(fd.or_else(|_| core.inodes.open(&core.home, &inode, Access::Write))?);
    }
    let passthrough = {
        // Whoever spreads the file holds the layout alone while it looks
        // for such opens.
        let layout = file.layout.read();
        let passthrough = may_pass_through(&layout, request, !core.observer.follows_changes());
        file.opened(passthrough)?;
        passthrough
    };
    let mode = match file.data().kernel_fd() {
        Some(fd) if passthrough => {
            // What the kernel does by itself is not seen; that it begins is.
            core.observer.used(&file, core.tiers.home().id, 0..1);
            IoMode::Passthrough(fd)
        }
        _ => io_mode(request.flags),
    };
    // Of consequence for direct I/O only. Where it can't be told, it may be.
    let set_id =
        matches!(mode, IoMode::Direct) && file.data().stat().map_or(true, |stat| stat.attr.is_set_id());
    let handle = core.handles.add_file(OpenFile::new(file, request.flags, passthrough));
    Ok(Opened { handle, mode, set_id })
}

/// One open ends.
pub fn close_file(core: &Core, handle: HandleId) -> Result<()> {
    let open = core.handles.remove_file(handle)?;
    let ended = end_use(core, &open.file, open.passthrough);
    match open.passthrough {
        // Nobody knows what the kernel wrote.
        true => core.observer.tail_changed(&open.file.inode, 0),
        false => core.observer.inode_changed(&open.file.inode),
    }
    // It may be what frees the file's space.
    drop(open);
    core.freed.note_close();
    ended
}

/// One use of a file ends, that [`File::opened`] began. With the last one,
/// what is ahead goes to the home inode, or, if the last name is gone, all
/// data goes.
pub fn end_use(core: &Core, file: &File, passthrough: bool) -> Result<()> {
    if !file.inode.is_of(&core.home) {
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
        None => nameless_by_links(core, file)?,
        // It may have been emptied, and spread again, since.
        Some((_, parent)) => match &*file.layout.read() {
            Layout::Plain => return Ok(()),
            Layout::Spread(spread) => Some((spread.id(), parent)),
        },
    };
    match nameless {
        Some((id, parent)) => {
            last_name_gone(core, file, id, parent);
            Ok(())
        }
        None => settle(core, file),
    }
}

/// Whether a spread file has no name any more. One that lost its last name
/// while it was plain, or just as it was spread, is found only so. What has
/// to be durable is the home file's own end.
fn nameless_by_links(core: &Core, file: &File) -> Result<Option<(ObjectId, DurabilityDependency)>> {
    let Layout::Spread(spread) = &*file.layout.read() else { return Ok(None) };
    if file.data().stat()?.attr.nlink > 0 {
        return Ok(None);
    }
    core.index.mark(spread.id(), handle_of(file, spread))?;
    Ok(Some((spread.id(), None)))
}

/// Brings the home inode up to date and gives the mark up, unless somebody
/// uses the file again.
fn settle(core: &Core, file: &File) -> Result<()> {
    settle_emptied(core, file)?;
    release_ahead(core, file);
    gather_late(core, file);
    update_home_inode(file)?;
    core.observer.inode_changed(&file.inode);
    let layout = file.layout.read();
    let Layout::Spread(spread) = &*layout else { return Ok(()) };
    // Whoever opens the file next does not know of it.
    make_releases_durable(core, file, spread)?;
    // Whoever writes has the file in use, so nobody is on the way to make
    // it run ahead while this lock is held.
    let opens = file.opens.lock();
    if opens.handles == 0 {
        unclaim(core, spread);
    }
    let mut marked = spread.marked.lock();
    let done = !spread.has_leftovers.load(Ordering::Acquire);
    if *marked && done && opens.handles == 0 && opens.nameless.is_none() && !opens.dead {
        spread.ready.store(false, Ordering::Release);
        core.removals.settle(core.environment.monotonic_ns(), spread.id());
        *marked = false;
    }
    Ok(())
}

/// Marks the file as ahead of its home inode, unless it is already. What a
/// crash left beyond its size goes before it may grow past that.
pub fn mark(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    // Whoever comes here has the file in use, and keeps it from being
    // settled.
    if spread.ready.load(Ordering::Acquire) {
        return Ok(());
    }
    if spread.index.whole().is_some() && core.index.is_unrecovered(spread.id()) {
        let what = "its tier could not be asked what a crash left of the file: open it again when it is back";
        return Err(Error::new(Errno::EIO, what));
    }
    let mut marked = spread.marked.lock();
    if !*marked {
        core.index.mark(spread.id(), handle_of(file, spread))?;
        *marked = true;
    }
    if !spread.trimmed.load(Ordering::Relaxed) {
        // Nobody changes the file before it is marked, so nobody does now.
        // A tier in trouble must not keep what is on others from being
        // written; the file then does not grow until it was trimmed.
        match trim(core, file, spread, spread.size()) {
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
pub(crate) fn last_name_gone(core: &Core, file: &File, id: ObjectId, parent: DurabilityDependency) {
    let mut opens = file.opens.lock();
    if opens.handles > 0 {
        opens.nameless = Some((id, parent));
    } else if !opens.dead {
        opens.dead = true;
        drop(opens);
        if let Layout::Spread(spread) = &*file.layout.read() {
            count_whole_gone(core, spread);
        }
        core.removals.add(core.environment.monotonic_ns(), id, parent);
    }
}

/// Looks at an error of a tier on which the file may have nothing: then it
/// is no concern of the file's.
pub(crate) fn concerning(spread: &Spread, tier: &Tier, error: Error) -> Result<()> {
    if concerns(spread, tier)? { Err(error) } else { Ok(()) }
}

/// Whether the file has something on the tier.
pub fn concerns(spread: &Spread, tier: &Tier) -> Result<bool> {
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
