//! Inodes that the kernel asks for by their number alone: somebody who has a
//! file handle (`name_to_handle_at(2)`, an NFS client) comes back after the
//! inode was forgotten, or after a restart.

use crate::core::Core;
use crate::namespace::resolve::{enter, identify_name};
use braid_contract::{Entry, Fd, InodeId, Result};
use braid_home::Identity;
use std::ffi::OsStr;

/// The inode of this number. The kernel compares the generation: it may be
/// another inode than the handle was got for. A directory is only opened if
/// the kernel finds its name, and those above it, from the root.
pub(super) fn find_again(core: &Core, ino: InodeId) -> Result<Entry> {
    let (fd, identity) = opened_again(core, ino)?;
    enter(core, fd, &identity)
}

/// The directory that this one is in.
pub(super) fn find_parent(core: &Core, ino: InodeId) -> Result<Entry> {
    if ino == InodeId::ROOT {
        return find_again(core, ino);
    }
    let (fd, _) = opened_again(core, ino)?;
    let (parent, identity) = identify_name(core, &*fd, OsStr::new(".."))?;
    enter(core, parent, &identity)
}

fn opened_again(core: &Core, ino: InodeId) -> Result<(Fd, Identity)> {
    let fd = match core.inodes.get(ino) {
        Ok(inode) => core.inodes.path(&core.home, &inode)?,
        Err(_) => core.home.open_number(ino)?,
    };
    let identity = core.home.identify(&*fd)?;
    Ok((fd, identity))
}
