//! Reading directories.

use super::{BRAID_DIR, Inode};
use crate::Volume;
use crate::sync::Mutex;
use braid_contract::{
    Access, DirEntry, DirSink, Errno, Fd, FileKind, HandleId, InodeId, NativeDirEntry, NativeFd, Result,
};
use std::ffi::OsStr;
use std::sync::Arc;

/// An open directory.
#[derive(Debug)]
pub(crate) struct DirHandle {
    inode: Arc<Inode>,
    /// Locked while it is read: a descriptor has one place where reading is at.
    fd: Mutex<Fd>,
}

impl DirHandle {
    pub(crate) fn sync(&self) -> Result<()> {
        self.fd.lock().sync(false)
    }
}

impl Volume {
    pub(crate) fn open_directory(&self, ino: InodeId) -> Result<HandleId> {
        let inode = self.inodes.get(ino)?;
        let fd = self.inodes.open(&self.home, &inode, Access::Directory)?;
        Ok(self.handles.add_dir(DirHandle { inode, fd: Mutex::new(fd) }))
    }

    /// Hands entries after `offset` to the sink. Offsets are the home file
    /// system's own cookies, which it keeps stable.
    pub(crate) fn read_directory(
        &self,
        handle: HandleId,
        offset: i64,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let dir = self.handles.dir(handle)?;
        let fd = dir.fd.lock();
        fd.read_dir(offset, &mut |entry| {
            if dir.inode.ino == InodeId::ROOT && entry.name == BRAID_DIR {
                return Ok(true);
            }
            self.list_entry(&**fd, entry, plus, sink)
        })
    }

    /// Hands one entry to the sink; answers whether that took it.
    fn list_entry(
        &self,
        dir: &dyn NativeFd,
        entry: &NativeDirEntry<'_>,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<bool> {
        let dots = entry.name == "." || entry.name == "..";
        let looked_up = if plus && !dots { self.entry_for_listing(dir, entry.name)? } else { None };
        let taken = sink.add(&DirEntry {
            ino: looked_up.map_or_else(|| self.home.public_ino(entry.ino), |entry| entry.attr.ino),
            next_offset: entry.next_offset,
            kind: FileKind::from_mode(entry.kind),
            name: entry.name,
            entry: looked_up,
        });
        if let Some(entry) = looked_up.filter(|_| !taken) {
            self.inodes.forget(entry.attr.ino, 1);
        }
        Ok(taken)
    }

    /// The entry of a name for `readdirplus`. A name that went away meanwhile,
    /// or whose file is damaged, is listed without: looking it up tells why.
    fn entry_for_listing(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<Option<braid_contract::Entry>> {
        match self.enter_name(dir, name) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if matches!(error.errno(), Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => {
                Err(error)
            }
            Err(_) => Ok(None),
        }
    }
}
