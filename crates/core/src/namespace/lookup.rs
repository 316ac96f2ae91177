//! Looking inodes up: by name, or by their number alone. The kernel does the
//! latter for a file handle (`name_to_handle_at(2)`, an NFS client) that is
//! used after the inode was forgotten, or after a restart.

use crate::core::Core;
use crate::namespace::resolve::{enter, enter_name, identify_name, path_of};
use braid_contract::{Entry, Errno, Fd, InodeId, Result};
use braid_format::BRAID_DIR;
use braid_home::Identity;
use std::ffi::OsStr;

/// The inode of a name, which counts as looked up.
pub fn look_up(core: &Core, parent: InodeId, name: &OsStr) -> Result<Entry> {
    if parent == InodeId::ROOT && name == BRAID_DIR {
        return Err(Errno::ENOENT.into());
    }
    match name.as_encoded_bytes() {
        b"." => return find_again(core, parent),
        b".." => return find_parent(core, parent),
        _ => {}
    }
    let dir = path_of(core, parent)?;
    enter_name(core, &*dir, name)
}

/// The inode of this number. The kernel compares the generation: it may not be
/// the inode of the handle any more. A directory is only opened if the kernel
/// finds its name, and those above it, from the root.
fn find_again(core: &Core, ino: InodeId) -> Result<Entry> {
    let (fd, identity) = opened_again(core, ino)?;
    enter(core, fd, &identity)
}

/// The directory that this one is in.
fn find_parent(core: &Core, ino: InodeId) -> Result<Entry> {
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
