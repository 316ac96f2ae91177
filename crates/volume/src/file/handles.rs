//! Open files and directories by handle.

use super::File;
use crate::namespace::DirHandle;
use braid_contract::{Errno, HandleId, OpenFlags, Result};
use papaya::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: Arc<File>,
    pub(crate) flags: OpenFlags,
    pub(crate) passthrough: bool,
}

/// All open files and directories.
pub(crate) struct Handles {
    next: AtomicU64,
    files: HashMap<u64, Arc<OpenFile>>,
    dirs: HashMap<u64, Arc<DirHandle>>,
}

impl Handles {
    pub(crate) fn new() -> Self {
        Self { next: AtomicU64::new(1), files: HashMap::new(), dirs: HashMap::new() }
    }

    pub(crate) fn add_file(&self, open: OpenFile) -> HandleId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.files.pin().insert(id, Arc::new(open));
        HandleId(id)
    }

    pub(crate) fn add_dir(&self, dir: DirHandle) -> HandleId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.dirs.pin().insert(id, Arc::new(dir));
        HandleId(id)
    }

    pub(crate) fn file(&self, handle: HandleId) -> Result<Arc<OpenFile>> {
        self.files.pin().get(&handle.0).cloned().ok_or_else(|| Errno::EBADF.into())
    }

    pub(crate) fn dir(&self, handle: HandleId) -> Result<Arc<DirHandle>> {
        self.dirs.pin().get(&handle.0).cloned().ok_or_else(|| Errno::EBADF.into())
    }

    pub(crate) fn remove_file(&self, handle: HandleId) -> Result<Arc<OpenFile>> {
        self.files.pin().remove(&handle.0).cloned().ok_or_else(|| Errno::EBADF.into())
    }

    pub(crate) fn remove_dir(&self, handle: HandleId) -> Result<()> {
        self.dirs.pin().remove(&handle.0).map(|_| ()).ok_or_else(|| Errno::EBADF.into())
    }

    /// Handles of all files that are open at this moment.
    pub(crate) fn file_handles(&self) -> Vec<HandleId> {
        self.files.pin().keys().copied().map(HandleId).collect()
    }

    /// Open files at this moment.
    pub(crate) fn files(&self) -> Vec<Arc<OpenFile>> {
        self.files.pin().values().cloned().collect()
    }

    pub(crate) fn file_count(&self) -> u64 {
        self.files.len() as u64
    }
}
