//! References to inodes by jobs, movers and the check, which find them by name,
//! by handle or by their index, without the front end.

use crate::core::Core;
use crate::file::open::file_of;
use crate::live::{File, Inode};
use braid_contract::{Fd, InodeId, Result};
use braid_home::Identity;
use std::sync::Arc;

/// An inode that is known as long as this exists.
pub struct InodeRef<'v> {
    /// The inode.
    pub inode: Arc<Inode>,
    // Dropped after the inode: it is the last user then.
    _lookup: Option<Lookup<'v>>,
}

/// A lookup that is given back when this is dropped.
struct Lookup<'v> {
    core: &'v Core,
    ino: InodeId,
}

impl Drop for Lookup<'_> {
    fn drop(&mut self) {
        self.core.inodes.forget(self.ino, 1);
    }
}

impl InodeRef<'_> {
    /// One that the front end has looked up, and has not forgotten.
    pub fn known(inode: Arc<Inode>) -> Self {
        Self { inode, _lookup: None }
    }
}

/// The inode behind `fd`.
pub fn found<'c>(core: &'c Core, identity: &Identity, fd: Fd) -> InodeRef<'c> {
    let inode = core.inodes.enter(&core.home, identity, fd);
    let lookup = Lookup { core, ino: inode.ino };
    InodeRef { inode, _lookup: Some(lookup) }
}

/// Does something with a file that was found.
pub fn with_file<T>(
    core: &Core,
    fd: &Fd,
    identity: &Identity,
    work: impl FnOnce(&Arc<File>) -> Result<T>,
) -> Result<T> {
    let found = found(core, identity, Fd::clone(fd));
    let file = file_of(core, &found.inode)?;
    work(&file)
}
