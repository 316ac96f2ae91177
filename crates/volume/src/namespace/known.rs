//! Inodes that are looked at without the front end: by jobs, movers and the
//! check, which found them by name, by handle or by their index.

use super::{Identity, Inode};
use crate::Volume;
use crate::file::File;
use braid_contract::{Fd, InodeId, Result};
use std::sync::Arc;

/// An inode that is known as long as this exists.
pub(crate) struct Found<'v> {
    pub(crate) inode: Arc<Inode>,
    // Dropped after the inode: it is the last user then.
    _lookup: Option<Lookup<'v>>,
}

/// A lookup that is given back when this is dropped.
struct Lookup<'v> {
    volume: &'v Volume,
    ino: InodeId,
}

impl Drop for Lookup<'_> {
    fn drop(&mut self) {
        self.volume.inodes.forget(self.ino, 1);
    }
}

impl Found<'_> {
    /// One that somebody else has looked up, and has not forgotten.
    pub(crate) fn known(inode: Arc<Inode>) -> Self {
        Self { inode, _lookup: None }
    }
}

impl Volume {
    /// The inode behind `fd`.
    pub(crate) fn found(&self, identity: &Identity, fd: Fd) -> Found<'_> {
        let inode = self.inodes.enter(&self.home, identity, fd);
        let lookup = Lookup { volume: self, ino: inode.ino };
        Found { inode, _lookup: Some(lookup) }
    }

    /// Does something with a file that was found.
    pub(crate) fn with_file<T>(
        &self,
        fd: &Fd,
        identity: &Identity,
        work: impl FnOnce(&Arc<File>) -> Result<T>,
    ) -> Result<T> {
        let found = self.found(identity, Fd::clone(fd));
        let file = self.file_of(&found.inode)?;
        work(&file)
    }
}
