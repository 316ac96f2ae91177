//! An open directory.

use super::inode::Inode;
use braid_contract::{Fd, InodeId, NativeDirEntry, Result};
use braid_home::Home;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::sync::Arc;

/// An open directory.
#[derive(Debug)]
pub struct DirHandle {
    inode: Arc<Inode>,
    /// Locked while it is read: a descriptor has one position.
    fd: Mutex<Fd>,
    /// The entries of the directory on an earlier home, as of its replacement:
    /// a listing that was under way goes on there.
    listing: Mutex<Option<Vec<Listed>>>,
}

/// An entry as it was read once.
#[derive(Clone, Debug)]
struct Listed {
    name: OsString,
    ino: InodeId,
    kind: u32,
    next_offset: i64,
}

impl DirHandle {
    /// A handle on a directory that was opened.
    pub fn new(inode: Arc<Inode>, fd: Fd) -> Self {
        Self { inode, fd: Mutex::new(fd), listing: Mutex::new(None) }
    }

    /// The directory's descriptor.
    pub fn descriptor(&self) -> Fd {
        Fd::clone(&*self.fd.lock())
    }

    /// The directory's inode.
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// The same open of a directory that is at `fd` now.
    pub fn moved(&self, home: &Home, inode: Arc<Inode>, fd: Fd) -> Result<Self> {
        let mut listing = Vec::new();
        self.read_from(home, 0, &mut |entry, ino| {
            let NativeDirEntry { name, kind, next_offset, .. } = *entry;
            listing.push(Listed { name: name.to_owned(), ino, kind, next_offset });
            Ok(true)
        })?;
        Ok(Self { inode, fd: Mutex::new(fd), listing: Mutex::new(Some(listing)) })
    }

    /// Hands the entries after `offset`, and their inode numbers, to `visit`.
    pub(crate) fn read_from(
        &self,
        home: &Home,
        offset: i64,
        visit: &mut dyn FnMut(&NativeDirEntry<'_>, InodeId) -> Result<bool>,
    ) -> Result<()> {
        let mut listing = self.listing.lock();
        if offset == 0 {
            // A listing from the start reads the present entries.
            *listing = None;
        }
        let Some(entries) = &*listing else {
            let fd = self.fd.lock();
            return fd.read_dir(offset, &mut |entry| visit(entry, home.public_ino(entry.ino)));
        };
        let after = entries.iter().position(|entry| entry.next_offset == offset).map_or(0, |at| at + 1);
        for Listed { name, ino, kind, next_offset } in &entries[after..] {
            let entry = NativeDirEntry { name, ino: ino.0, kind: *kind, next_offset: *next_offset };
            if !visit(&entry, *ino)? {
                break;
            }
        }
        Ok(())
    }

    /// Makes names in the directory durable.
    pub fn sync(&self) -> Result<()> {
        self.fd.lock().sync(false)
    }
}
