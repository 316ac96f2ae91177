//! From names to inodes.

use crate::core::Core;
use crate::live::Inode;
use crate::namespace::attr::attr_from;
use braid_contract::{Access, Attr, Entry, Errno, Error, Fd, InodeId, NativeFd, Result};
use braid_format::BRAID_DIR;
use braid_home::Identity;
use std::ffi::OsStr;
use std::sync::Arc;

/// A descriptor of the inode, for looking.
pub fn path_of(core: &Core, ino: InodeId) -> Result<Fd> {
    let inode = core.inode(ino)?;
    core.inodes.path(&core.home, &inode)
}

/// The directory in which `name` is about to be used. `.braid` at the root
/// is not part of the namespace: it can't be found, nor made.
pub(crate) fn dir_for(core: &Core, parent: InodeId, name: &OsStr) -> Result<Fd> {
    if parent == InodeId::ROOT && name == BRAID_DIR {
        return Err(Errno::EPERM.into());
    }
    path_of(core, parent)
}

/// Looks `name` up in an open directory, and counts the lookup.
pub(crate) fn enter_name(core: &Core, dir: &dyn NativeFd, name: &OsStr) -> Result<Entry> {
    loop {
        let (fd, identity) = identify_name(core, dir, name)?;
        match enter(core, fd, &identity) {
            // It may have lost the name to another since it was found.
            Err(error) if error.errno() == Errno::ESTALE => {
                let (_, now) = identify_name(core, dir, name)?;
                if (now.ino(), now.btime_ns()) == (identity.ino(), identity.btime_ns()) {
                    return Err(error);
                }
            }
            result => return result,
        }
    }
}

/// The inode that `name` leads to, not following links.
pub fn identify_name(core: &Core, dir: &dyn NativeFd, name: &OsStr) -> Result<(Fd, Identity)> {
    let fd = dir.open_at(name, Access::Path)?;
    let identity = core.home.identify(&*fd)?;
    Ok((fd, identity))
}

/// The entry of the inode behind `fd`, with one more lookup.
pub(crate) fn enter(core: &Core, fd: Fd, identity: &Identity) -> Result<Entry> {
    let inode = core.inodes.enter(&core.home, identity, Fd::clone(&fd));
    entry_of(core, &inode, attr_from(core, &inode, || Ok(fd), identity))
}

/// The inode that `name` is listed with, with one more lookup, if it is known and has no index. It
/// is not opened, which would take most of the time of a listing.
pub(crate) fn enter_known(core: &Core, dir: &dyn NativeFd, name: &OsStr, ino: InodeId) -> Option<Entry> {
    if !core.inodes.knows_plain(ino) {
        return None;
    }
    let attr = core.home.attr_at(dir, name).ok()?;
    if core.home.public_ino(attr.ino.0) != ino {
        return None;
    }
    let inode = core.inodes.enter_plain(ino, attr.btime)?;
    let identity = Identity { attr, handle: None };
    let path = || core.inodes.path(&core.home, &inode);
    entry_of(core, &inode, attr_from(core, &inode, path, &identity)).ok()
}

/// Attributes and generation of an inode that was just entered; the lookup
/// is given back if they can't be had.
fn entry_of(core: &Core, inode: &Arc<Inode>, attr: Result<Attr>) -> Result<Entry> {
    match attr {
        Ok(attr) => Ok(Entry { attr, generation: inode.generation }),
        Err(error) => {
            core.inodes.forget(inode.ino, 1);
            Err(Error::context(error, format!("inode {}", inode.ino.0)))
        }
    }
}
