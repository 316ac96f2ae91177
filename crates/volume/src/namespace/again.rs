//! Inodes that the kernel asks for by their number alone: somebody who has a
//! file handle (`name_to_handle_at(2)`, an NFS client) comes back after the
//! inode was forgotten, or after a restart.

use super::Identity;
use crate::Volume;
use braid_contract::{Entry, Fd, InodeId, Result};
use std::ffi::OsStr;

impl Volume {
    /// The inode of this number. The kernel compares the generation: it may be
    /// another inode than the handle was got for. A directory is only opened if
    /// the kernel finds its name, and those above it, from the root.
    pub(super) fn find_again(&self, ino: InodeId) -> Result<Entry> {
        let (fd, identity) = self.opened_again(ino)?;
        self.enter(fd, &identity)
    }

    /// The directory that this one is in.
    pub(super) fn find_parent(&self, ino: InodeId) -> Result<Entry> {
        if ino == InodeId::ROOT {
            return self.find_again(ino);
        }
        let (fd, _) = self.opened_again(ino)?;
        let (parent, identity) = self.identify_name(&*fd, OsStr::new(".."))?;
        self.enter(parent, &identity)
    }

    fn opened_again(&self, ino: InodeId) -> Result<(Fd, Identity)> {
        let fd = match self.inodes.get(ino) {
            Ok(inode) => self.inodes.path(&self.home, &inode)?,
            Err(_) => self.home.open_number(ino)?,
        };
        let identity = self.home.identify(&*fd)?;
        Ok((fd, identity))
    }
}
