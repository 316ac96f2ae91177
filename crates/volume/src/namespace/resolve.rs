//! From names to inodes.

use super::{Identity, Inode};
use crate::Volume;
use braid_contract::{Access, Entry, Errno, Error, Fd, InodeId, NativeFd, Result};
use braid_format::BRAID_DIR;
use std::ffi::OsStr;
use std::sync::Arc;

impl Volume {
    /// A descriptor of the inode, for looking.
    pub(crate) fn path_of(&self, ino: InodeId) -> Result<Fd> {
        let inode = self.inodes.get(ino)?;
        self.inodes.path(&self.home, &inode)
    }

    /// The directory in which `name` is about to be used. `.braid` at the root
    /// is not part of the namespace: it can't be found, nor made.
    pub(crate) fn dir_for(&self, parent: InodeId, name: &OsStr) -> Result<Fd> {
        if parent == InodeId::ROOT && name == BRAID_DIR {
            return Err(Errno::EPERM.into());
        }
        self.path_of(parent)
    }

    pub(crate) fn look_up(&self, parent: InodeId, name: &OsStr) -> Result<Entry> {
        if parent == InodeId::ROOT && name == BRAID_DIR {
            return Err(Errno::ENOENT.into());
        }
        match name.as_encoded_bytes() {
            b"." => return self.find_again(parent),
            b".." => return self.find_parent(parent),
            _ => {}
        }
        let dir = self.path_of(parent)?;
        self.enter_name(&*dir, name)
    }

    /// Looks `name` up in an open directory, and counts the lookup.
    pub(crate) fn enter_name(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<Entry> {
        let (fd, identity) = self.identify_name(dir, name)?;
        self.enter(fd, &identity)
    }

    /// The inode that `name` leads to, not following links.
    pub(crate) fn identify_name(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<(Fd, Identity)> {
        let fd = dir.open_at(name, Access::Path)?;
        let identity = self.home.identify(&*fd)?;
        Ok((fd, identity))
    }

    /// The entry of the inode behind `fd`, with one more lookup.
    pub(crate) fn enter(&self, fd: Fd, identity: &Identity) -> Result<Entry> {
        let inode = self.inodes.enter(&self.home, identity, fd);
        self.entry_of(&inode, identity)
    }

    /// Attributes and generation of an inode that was just entered; the lookup
    /// is given back if they can't be had.
    pub(crate) fn entry_of(&self, inode: &Arc<Inode>, identity: &Identity) -> Result<Entry> {
        match self.attr_from(inode, identity) {
            Ok(attr) => Ok(Entry { attr, generation: inode.generation }),
            Err(error) => {
                self.inodes.forget(inode.ino, 1);
                Err(Error::context(error, format!("inode {}", inode.ino.0)))
            }
        }
    }
}
