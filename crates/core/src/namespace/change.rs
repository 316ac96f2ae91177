//! Changing attributes.

use crate::core::Core;
use crate::failpoint::Failpoint;
use crate::file::access_time;
use crate::file::open::{end_use, file_of};
use crate::file::set_id::{change_rights, take_set_id};
use crate::file::truncate::truncate_file;
use crate::live::{File, Inode};
use crate::namespace::attr::attr_now;
use braid_contract::{Attr, Caller, Errno, Fd, FileKind, HandleId, InodeId, NativeFd, Result, SetAttr};
use std::sync::Arc;

/// Prepares a change of something that only the home inode has, such as a name
/// or an extended attribute.
pub(super) fn inode_will_change(inode: &Inode) -> Result<()> {
    let live = inode.file.lock().upgrade();
    live.map_or(Ok(()), |file| file.inode_will_change())
}

/// Records such a change: the next `fsync` of the file makes it durable.
pub(super) fn inode_changed(core: &Core, inode: &Inode) -> Result<()> {
    let live = inode.file.lock().upgrade();
    let live = live.filter(|_| !core.fails_at(Failpoint::AttributesAreNotSynced));
    live.map_or(Ok(()), |file| file.inode_is_set(false))
}

/// Changes attributes of an inode; answers all of them.
pub fn set_attr(
    core: &Core,
    caller: &Caller,
    ino: InodeId,
    handle: Option<HandleId>,
    changes: &SetAttr,
) -> Result<Attr> {
    let inode = core.inode(ino)?;
    let live = match handle.and_then(|handle| core.handles.file(handle).ok()) {
        Some(open) => Some(open.file.clone()),
        None => inode.file.lock().upgrade(),
    };
    if let Some(size) = changes.size {
        if inode.kind != FileKind::Regular {
            return Err(if inode.kind == FileKind::Directory { Errno::EISDIR } else { Errno::EINVAL }.into());
        }
        let file = match &live {
            Some(file) => file.clone(),
            None => file_of(core, &inode)?,
        };
        file.opened(false)?;
        let truncated = truncate_file(core, &file, size, caller);
        let ended = end_use(core, &file, false);
        truncated.and(ended)?;
    }
    let fd = match &live {
        Some(file) => Fd::clone(file.data()),
        None => core.inodes.path(&core.home, &inode)?,
    };
    if let Some(file) = &live {
        file.inode_will_change()?;
    }
    let new_owner = changes.uid.is_some() || changes.gid.is_some();
    if new_owner || changes.kill_set_id {
        change_rights(&inode, || {
            if inode.kind == FileKind::Regular {
                take_set_id(&*fd, caller)?;
            }
            if new_owner { fd.set_owner(changes.uid, changes.gid) } else { Ok(()) }
        })?;
    }
    if let Some(mode) = changes.mode {
        // A link's own mode can't be changed, and no caller asks for it.
        fd.set_mode(mode & 0o7777)?;
        // It may have come into use meanwhile.
        if let Some(file) = inode.file.lock().upgrade() {
            file.set_id.changed();
        }
    }
    if changes.atime.is_some() || changes.mtime.is_some() {
        set_times(core, &inode, live.as_deref(), &*fd, changes)?;
    }
    if let Some(file) = &live
        && !core.fails_at(Failpoint::AttributesAreNotSynced)
    {
        let times_only =
            changes.size.is_none() && changes.mode.is_none() && !new_owner && !changes.kill_set_id;
        file.inode_is_set(times_only)?;
    }
    attr_now(core, &inode, || Ok(fd))
}

/// Sets times of an inode, by `fd` if it is not a file in use.
fn set_times(
    core: &Core,
    inode: &Arc<Inode>,
    live: Option<&File>,
    fd: &dyn NativeFd,
    SetAttr { atime, mtime, .. }: &SetAttr,
) -> Result<()> {
    let of_file = |file: &File| {
        access_time::set_times(core, file, *atime, *mtime)?;
        mtime.inspect(|mtime| file.cached_time.was_set(*mtime));
        Ok(())
    };
    if let Some(file) = live {
        return of_file(file);
    }
    // Held, so that no mover takes the file into use meanwhile.
    let slot = inode.file.lock();
    // A spread file has to record the owner of the times.
    if inode.may_be_spread() || slot.uses() > 0 {
        drop(slot);
        return match file_of(core, inode) {
            // Its data is being removed. The kernel may have held its times
            // back, and a failed write-back fails a later `syncfs`.
            Err(error) if error.errno() == Errno::ESTALE => fd.set_times(*atime, *mtime),
            file => of_file(&*file?),
        };
    }
    fd.set_times(*atime, *mtime)
}
