//! What a session knows: inodes that it looked up, and files that it has open.

use braid_contract::{Errno, HandleId, InodeId, OpenFlags, Result};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;

/// Inodes that a session may know at a time.
pub(crate) const INODES_MAX: usize = 1 << 17;
/// Files that it may have open at a time.
pub(crate) const HANDLES_MAX: usize = 4096;

/// An open file or directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) ino: InodeId,
    pub(crate) flags: OpenFlags,
    pub(crate) directory: bool,
}

/// What a session knows.
#[derive(Default)]
pub(crate) struct Known {
    /// Lookups that the file system counts for it.
    inodes: Mutex<HashMap<InodeId, u64>>,
    handles: RwLock<HashMap<HandleId, Opened>>,
}

/// What a session knows, for the process that goes on.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    pub(crate) inodes: Vec<(InodeId, u64)>,
    pub(crate) handles: Vec<(HandleId, Opened)>,
}

impl Known {
    /// Notes a lookup.
    ///
    /// # Errors
    /// `ENFILE` if it knows too many inodes.
    pub(crate) fn learn(&self, ino: InodeId) -> Result<()> {
        let mut inodes = self.inodes.lock();
        if inodes.len() >= INODES_MAX && !inodes.contains_key(&ino) {
            return Err(Errno::ENFILE.into());
        }
        *inodes.entry(ino).or_default() += 1;
        Ok(())
    }

    /// Whether the inode was looked up: others may be where the session may not look.
    ///
    /// # Errors
    /// `ESTALE` if not.
    pub(crate) fn has(&self, ino: InodeId) -> Result<()> {
        if self.inodes.lock().contains_key(&ino) { Ok(()) } else { Err(Errno::ESTALE.into()) }
    }

    /// Takes lookups back, at most those that there are; answers how many.
    pub(crate) fn forget(&self, ino: InodeId, count: u64) -> u64 {
        let mut inodes = self.inodes.lock();
        let Some(known) = inodes.get_mut(&ino) else { return 0 };
        let count = count.min(*known);
        *known -= count;
        if *known == 0 {
            inodes.remove(&ino);
        }
        count
    }

    /// Notes an open file.
    ///
    /// # Errors
    /// `EMFILE` if there are too many.
    pub(crate) fn opened(
        &self,
        handle: HandleId,
        ino: InodeId,
        flags: OpenFlags,
        directory: bool,
    ) -> Result<()> {
        let mut handles = self.handles.write();
        if handles.len() >= HANDLES_MAX {
            return Err(Errno::EMFILE.into());
        }
        handles.insert(handle, Opened { ino, flags, directory });
        Ok(())
    }

    /// Forgets an open file or directory; answers whether it is a directory.
    ///
    /// # Errors
    /// `EBADF` if there is none.
    pub(crate) fn close(&self, handle: HandleId) -> Result<bool> {
        let closed = self.handles.write().remove(&handle);
        closed.map(|opened| opened.directory).ok_or_else(|| Errno::EBADF.into())
    }

    /// An open file.
    ///
    /// # Errors
    /// `EBADF` if there is none.
    pub(crate) fn open(&self, handle: HandleId) -> Result<Opened> {
        let opened = self.handles.read().get(&handle).copied();
        opened.filter(|opened| !opened.directory).ok_or_else(|| Errno::EBADF.into())
    }

    /// Whether a file is open for writing.
    ///
    /// # Errors
    /// `EBADF` if not.
    pub(crate) fn writable(&self, handle: HandleId) -> Result<()> {
        if self.open(handle)?.flags.write { Ok(()) } else { Err(Errno::EBADF.into()) }
    }

    /// The inode of an open directory.
    ///
    /// # Errors
    /// `EBADF` if it is none.
    pub(crate) fn directory(&self, handle: HandleId) -> Result<InodeId> {
        let opened = self.handles.read().get(&handle).copied().filter(|opened| opened.directory);
        opened.map(|opened| opened.ino).ok_or_else(|| Errno::EBADF.into())
    }

    /// All of it, which is then forgotten.
    pub(crate) fn take(&self) -> Knowledge {
        let inodes = self.inodes.lock().drain().collect();
        Knowledge { inodes, handles: self.handles.write().drain().collect() }
    }

    /// Goes on with what an earlier process knew.
    pub(crate) fn go_on(&self, known: Knowledge) {
        self.inodes.lock().extend(known.inodes);
        self.handles.write().extend(known.handles);
    }
}
