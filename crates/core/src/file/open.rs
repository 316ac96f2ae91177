//! Takes files into use and out of it.

use crate::core::Core;
use crate::file::access_time::keep_owed;
use crate::file::gather::gather_late;
use crate::file::home_inode::{restore_cached_time, update_home_inode};
use crate::file::learned::{data_gone, last_use_ended};
use crate::file::leave_home::grows_on_home;
use crate::file::load::load_layout;
use crate::file::mark::{handle_of, mark_orphan};
use crate::file::release::{make_releases_durable, release_ahead};
use crate::file::truncate::{give_up_reserved, settle_emptied};
use crate::file::unneeded::remove_late;
use crate::file::whole_object::{count_whole_gone, unclaim};
use crate::live::{DurabilityDependency, File, Inode, Layout, OpenFile};
use braid_contract::{
    Access, Caller, Errno, Error, Fd, FileKind, HandleId, InodeId, IoMode, OpenFlags, OpenRequest, Opened,
    Result,
};
use braid_placement::Origin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The live state of a regular file, made if the file is not in use yet.
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
    // Its data is being removed. The removal of the last name looks for a live
    // file after that, under the same lock.
    if matches!(layout, Layout::Spread(_)) && identity.attr.nlink == 0 {
        return Err(Errno::ESTALE.into());
    }
    if let (Some(rest), Layout::Spread(spread)) = (slot.at_rest(), &layout) {
        spread.remember(&rest);
    }
    let file = Arc::new(File::new(Arc::clone(inode), data, writes, layout));
    slot.set(&file);
    Ok(file)
}

/// The live state of a file that was just made.
pub(crate) fn adopt_file(inode: &Arc<Inode>, data: Fd) -> Result<Arc<File>> {
    let mut slot = inode.file.lock();
    if let Some(file) = slot.upgrade() {
        return Ok(file);
    }
    let file = Arc::new(File::new(Arc::clone(inode), data, true, Layout::Plain));
    slot.set(&file);
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

/// Opens the inode for I/O, as `request` says.
pub fn open_inode(core: &Core, caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
    let inode = core.inode(ino)?;
    let file = file_of(core, &inode)?;
    if request.flags.write && !file.can_write() {
        let fd = core.inodes.open(&core.home, &inode, Access::ReadWrite);
        file.make_writable(fd.or_else(|_| core.inodes.open(&core.home, &inode, Access::Write))?);
    }
    let opener = Origin::of_caller(caller);
    let mode = begin_use(core, &file, request)?;
    // It matters for direct I/O only. Where the mode is unknown, a set-id bit
    // is assumed.
    let set_id =
        matches!(mode, IoMode::Direct) && file.data().stat().map_or(true, |stat| stat.attr.is_set_id());
    let passthrough = matches!(mode, IoMode::Passthrough(_));
    let handle = core.handles.add_file(OpenFile::new(file, request.flags, passthrough, opener));
    Ok(Opened { handle, mode, set_id })
}

/// Counts one more use of the file, by passthrough if the request allows it and
/// the file may be used so; answers the mode of its I/O.
pub(crate) fn begin_use(core: &Core, file: &File, request: OpenRequest) -> Result<IoMode> {
    // Spreading the file holds the layout alone while it looks for uses by
    // passthrough.
    let layout = file.layout.read();
    let passes = request.passthrough_required
        || request.passthrough_allowed && may_pass_through(core, &layout, request);
    let fd = if passes { file.data().kernel_fd() } else { None };
    file.opened(fd.is_some())?;
    match fd {
        Some(fd) => {
            // The kernel's own I/O is not seen; its beginning is.
            core.observer.used(file, core.tiers.home().id, 0..1);
            Ok(IoMode::Passthrough(fd))
        }
        None => Ok(io_mode(request.flags)),
    }
}

/// One open ends.
pub fn close_file(core: &Core, handle: HandleId) -> Result<()> {
    let open = core.handles.remove_file(handle)?;
    let timed = match open.flags.write {
        true => restore_cached_time(core, &open.file),
        false => Ok(()),
    };
    let ended = end_use(core, &open.file, open.passthrough);
    match open.passthrough {
        // The kernel's writes are not known.
        true => core.observer.tail_changed(&open.file.inode, 0),
        false => core.observer.inode_changed(&open.file.inode),
    }
    // Dropping it may free the file's space.
    drop(open);
    core.freed.note_close();
    ended.and(timed)
}

/// As [`end_use`], for movers and jobs, which are outside the barrier.
///
/// # Errors
/// As [`end_use`].
pub fn end_use_entering(core: &Core, file: &File) -> Result<()> {
    let _entered = core.barrier.enter();
    end_use(core, file, false)
}

/// Ends one use of a file that [`File::opened`] began. With the last one, size
/// and times go to the home inode or, if the last name is gone, all data goes.
/// The caller has entered the barrier.
pub fn end_use(core: &Core, file: &File, passthrough: bool) -> Result<()> {
    if !file.inode.is_of(&core.home) {
        // It was taken into use before home was replaced, and without a handle:
        // the file on the new home does not count that use.
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
    let is_plain = matches!(&*file.layout.read(), Layout::Plain);
    match nameless {
        // It may have been emptied since.
        Some(_) if is_plain => Ok(()),
        Some(parent) => last_name_gone(core, file, parent),
        // One that lost its last name while it was plain, or just as it was
        // spread, or never had one, is found only by its link count. Its
        // removal depends on the home file itself only.
        None if !is_plain && file.data().stat()?.attr.nlink == 0 => last_name_gone(core, file, None),
        None => settle(core, file),
    }
}

/// Only the object says how long a whole file is, where the home inode does not: the next open may
/// not believe that.
fn leave_to_next_open(core: &Core, file: &File) {
    if let Layout::Spread(spread) = &*file.layout.read()
        && spread.index.whole().is_some()
        && *spread.marked.lock()
    {
        core.index.leave_unrecovered(spread.id());
    }
}

/// Brings the home inode up to date and gives the mark up, unless the file is
/// in use again.
fn settle(core: &Core, file: &File) -> Result<()> {
    settle_emptied(core, file)?;
    give_up_reserved(core, file)?;
    release_ahead(core, file);
    remove_late(core, file);
    gather_late(core, file);
    update_home_inode(file).inspect_err(|_| leave_to_next_open(core, file))?;
    core.observer.inode_changed(&file.inode);
    let layout = file.layout.read();
    let Layout::Spread(spread) = &*layout else { return Ok(()) };
    keep_owed(core, spread, file);
    last_use_ended(core, file, spread.size());
    // The next open does not know of it.
    make_releases_durable(core, file, spread)?;
    // A writer has the file in use, so the file can't run ahead of its home
    // inode while this lock is held.
    let opens = file.opens.lock();
    if opens.handles == 0 {
        unclaim(core, spread);
    }
    let mut marked = spread.marked.lock();
    let done = !spread.has_leftovers.load(Ordering::Acquire);
    if *marked && done && opens.handles == 0 && opens.nameless.is_none() && !opens.dead {
        spread.ready.store(false, Ordering::Release);
        core.index.is_up_to_date(spread.id());
        // The mark, which led to the last part for the size, goes when this is
        // durable.
        spread.index.settle_size()?;
        core.removals.settle(core.environment.monotonic_ns(), spread.id());
        *marked = false;
    }
    Ok(())
}

/// The last name of a live file is gone: its data goes, with the last use.
pub(crate) fn last_name_gone(core: &Core, file: &File, parent: DurabilityDependency) -> Result<()> {
    let mut opens = file.opens.lock();
    if opens.handles > 0 {
        opens.nameless = Some(parent);
        return Ok(());
    }
    if opens.dead {
        return Ok(());
    }
    // A file that was made without a name may have got one since that was
    // checked. The caller that names it has it in use.
    if file.data().stat()?.attr.nlink > 0 {
        drop(opens);
        return settle(core, file);
    }
    opens.dead = true;
    drop(opens);
    let Layout::Spread(spread) = &*file.layout.read() else { return Ok(()) };
    count_whole_gone(core, spread);
    data_gone(core, file.inode.ino);
    // The mark that it had may be that of an earlier id, or be given up.
    let marked = mark_orphan(core, spread.id(), handle_of(file, spread));
    core.removals.add(core.environment.monotonic_ns(), spread.id(), parent);
    marked
}

/// The I/O mode of a file that is not passed through.
fn io_mode(flags: OpenFlags) -> IoMode {
    if flags.direct { IoMode::Direct } else { IoMode::Cached }
}

/// Whether the kernel may do the I/O of an open by itself: of a plain file, and
/// if it is to be written, one that stays on home as it grows. None begins
/// while home is copied.
fn may_pass_through(core: &Core, layout: &Layout, request: OpenRequest) -> bool {
    let plain = matches!(layout, Layout::Plain) && !core.observer.follows_changes();
    plain && (!request.flags.write || grows_on_home(core))
}

fn may_lack_write(error: &Error) -> bool {
    matches!(error.errno(), Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ETXTBSY)
}
