//! Making inodes, with the identity of the caller.

use crate::core::Core;
use crate::file::open::{adopt_file, begin_use, end_use, file_of, open_inode};
use crate::live::{Inode, OpenFile};
use crate::namespace::change::{inode_changed, inode_will_change};
use crate::namespace::resolve::{dir_for, enter, enter_name, identify_name, path_of};
use braid_contract::{
    Access, Attr, Caller, Context, Entry, Errno, Fd, FileKind, InodeId, IoMode, NativeFd, OpenFlags,
    OpenRequest, Opened, Result,
};
use braid_placement::Origin;
use braid_sys::{Acting, act_as};
use std::ffi::OsStr;
use std::sync::Arc;

/// Makes a file, device, pipe or socket.
pub fn make_node(
    core: &Core,
    caller: &Caller,
    parent: InodeId,
    name: &OsStr,
    mode: u32,
    umask: u32,
    rdev: u32,
) -> Result<Entry> {
    let _alone = core.names.alone_in(parent);
    let dir = dir_for(core, parent, name)?;
    {
        let _acting = acting(caller, umask)?;
        dir.make_node_at(name, mode, rdev)?;
    }
    enter_name(core, &*dir, name).inspect_err(|_| unmake(&*dir, name, false))
}

/// Makes a directory.
pub fn make_dir(
    core: &Core,
    caller: &Caller,
    parent: InodeId,
    name: &OsStr,
    mode: u32,
    umask: u32,
) -> Result<Entry> {
    let _alone = core.names.alone_in(parent);
    let dir = dir_for(core, parent, name)?;
    {
        let _acting = acting(caller, umask)?;
        dir.make_dir_at(name, mode & 0o7777)?;
    }
    enter_name(core, &*dir, name).inspect_err(|_| unmake(&*dir, name, true))
}

/// Makes a symbolic link.
pub fn make_symlink(
    core: &Core,
    caller: &Caller,
    parent: InodeId,
    name: &OsStr,
    target: &OsStr,
) -> Result<Entry> {
    let _alone = core.names.alone_in(parent);
    let dir = dir_for(core, parent, name)?;
    {
        let _acting = acting(caller, 0)?;
        dir.make_symlink_at(name, target)?;
    }
    enter_name(core, &*dir, name).inspect_err(|_| unmake(&*dir, name, false))
}

/// Gives an inode another name.
pub fn make_link(core: &Core, ino: InodeId, parent: InodeId, name: &OsStr) -> Result<Entry> {
    let _alone = core.names.alone_in(parent);
    let dir = dir_for(core, parent, name)?;
    let inode = core.inode(ino)?;
    let fd = core.inodes.path(&core.home, &inode)?;
    if inode.kind == FileKind::Regular && fd.stat()?.attr.nlink == 0 {
        return make_first_link(core, &inode, &*dir, name);
    }
    link_inode(core, &inode, &*fd, &*dir, name)
}

/// Gives a name to a file that was made without one. It is in use meanwhile,
/// so that its data is not removed for want of a name, and so that one whose
/// data is being removed gets none.
fn make_first_link(core: &Core, inode: &Arc<Inode>, dir: &dyn NativeFd, name: &OsStr) -> Result<Entry> {
    let file = file_of(core, inode)?;
    file.opened(false)?;
    let linked = link_inode(core, inode, &**file.data(), dir, name);
    if linked.is_ok() {
        core.inodes.named(inode.ino);
    }
    if let Err(error) = end_use(core, &file, false) {
        // The name is there. A mark leads to the rest.
        tracing::warn!(inode = inode.ino.0, %error, "a file that got its first name is not up to date");
    }
    linked
}

fn link_inode(
    core: &Core,
    inode: &Inode,
    fd: &dyn NativeFd,
    dir: &dyn NativeFd,
    name: &OsStr,
) -> Result<Entry> {
    inode_will_change(inode)?;
    fd.link_to(dir, name)?;
    let linked = inode_changed(core, inode).and_then(|()| enter_name(core, dir, name));
    linked.inspect_err(|_| unmake(dir, name, false))
}

/// Makes and opens a regular file.
#[expect(clippy::too_many_arguments, reason = "mirrors the contract")]
pub fn make_file(
    core: &Core,
    caller: &Caller,
    parent: InodeId,
    name: &OsStr,
    mode: u32,
    umask: u32,
    exclusive: bool,
    request: OpenRequest,
) -> Result<(Entry, Opened)> {
    let _alone = core.names.alone_in(parent);
    let dir = dir_for(core, parent, name)?;
    let made = {
        let _acting = acting(caller, umask)?;
        dir.create_at(name, mode & 0o7777)
    };
    match made {
        Ok(fd) => open_made(core, caller, fd, request).inspect_err(|_| unmake(&*dir, name, false)),
        Err(error) if error.errno() == Errno::EEXIST && !exclusive => {
            open_existing(core, caller, &*dir, name, request)
        }
        Err(error) => Err(error),
    }
}

/// Makes and opens a regular file without a name. On home it is an inode
/// without one too, so that it goes by itself, whatever happens; its data
/// elsewhere goes as that of a file that lost its last name.
pub fn make_unnamed(
    core: &Core,
    caller: &Caller,
    parent: InodeId,
    mode: u32,
    umask: u32,
    request: OpenRequest,
) -> Result<(Entry, Opened)> {
    let dir = path_of(core, parent)?;
    let fd = {
        let _acting = acting(caller, umask)?;
        dir.create_unnamed(mode & 0o7777)?
    };
    let kept = fd.reopen(Access::Path)?;
    let (entry, opened) = open_made(core, caller, fd, request)?;
    core.inodes.keep_nameless(entry.attr.ino, kept);
    Ok((entry, opened))
}

fn open_made(core: &Core, caller: &Caller, fd: Fd, request: OpenRequest) -> Result<(Entry, Opened)> {
    let identity = core.home.identify(&*fd)?;
    let pin = if core.home.pins(&identity) { fd.reopen(Access::Path)? } else { Fd::clone(&fd) };
    let inode = core.inodes.enter(&core.home, &identity, pin);
    inode.seems_plain();
    let adopted = adopt_file(&inode, fd);
    let file = adopted.inspect_err(|_| _ = core.inodes.forget(inode.ino, 1))?;
    if !identity.attr.is_set_id() {
        // Capabilities are only set later.
        file.set_id.is_new();
    }
    let entry = Entry { attr: Attr { ino: inode.ino, ..identity.attr }, generation: inode.generation };
    let opener = Origin::of_caller(caller);
    let mode = begin_use(core, &file, request).inspect_err(|_| _ = core.inodes.forget(inode.ino, 1))?;
    let passthrough = matches!(mode, IoMode::Passthrough(_));
    let handle = core.handles.add_file(OpenFile::new(file, request.flags, passthrough, opener));
    Ok((entry, Opened { handle, mode, set_id: entry.attr.is_set_id() }))
}

/// Opens a file that appeared after the kernel's lookup. The kernel checked no
/// permission on it, so the caller's are checked here; supplementary groups are
/// not known, and may be missed.
fn open_existing(
    core: &Core,
    caller: &Caller,
    dir: &dyn NativeFd,
    name: &OsStr,
    request: OpenRequest,
) -> Result<(Entry, Opened)> {
    let (fd, identity) = identify_name(core, dir, name)?;
    match identity.kind() {
        FileKind::Regular => {}
        FileKind::Symlink => return Err(Errno::ELOOP.into()),
        FileKind::Directory => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::EAGAIN.into()),
    }
    check_access(caller, &identity.attr, request.flags)?;
    let entry = enter(core, fd, &identity)?;
    let opened = open_inode(core, caller, entry.attr.ino, request.flags.into());
    opened.map(|opened| (entry, opened)).inspect_err(|_| _ = core.inodes.forget(entry.attr.ino, 1))
}

/// Removes a new inode that can't be answered, for lack of descriptors, for
/// example: after a failure, callers expect that nothing was made. The kernel
/// holds the directory, so the name still leads to the new inode.
fn unmake(dir: &dyn NativeFd, name: &OsStr, is_dir: bool) {
    if let Err(error) = dir.remove_at(name, is_dir) {
        tracing::warn!(?name, %error, "what could not be made whole stays");
    }
}

pub(super) fn acting(caller: &Caller, umask: u32) -> Result<Acting> {
    act_as(caller.uid, caller.gid, umask).context("taking on the caller's identity")
}

/// Checks mode bits for owner, group and others.
fn check_access(caller: &Caller, attr: &Attr, flags: OpenFlags) -> Result<()> {
    if caller.uid == 0 {
        return Ok(());
    }
    let wanted = u16::from(flags.read) * 4 + u16::from(flags.write) * 2;
    let shift = if attr.uid == caller.uid {
        6
    } else if attr.gid == caller.gid {
        3
    } else {
        0
    };
    if attr.mode >> shift & wanted == wanted { Ok(()) } else { Err(Errno::EACCES.into()) }
}
