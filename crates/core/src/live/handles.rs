//! Open files and directories by handle.

use super::File;
use super::read_stream::ReadStream;
use super::write_stream::WriteStream;
use crate::live::DirHandle;
use braid_contract::{Errno, HandleId, OpenFlags, Result};
use braid_placement::Origin;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    /// The file.
    pub file: Arc<File>,
    /// How it was opened.
    pub flags: OpenFlags,
    /// The kernel does its I/O by itself.
    pub passthrough: bool,
    /// The thread that opened it, for writes that the kernel makes later.
    pub opener: Origin,
    /// Writes through it.
    pub(crate) written: WriteStream,
    /// Reads through it.
    pub(crate) read: ReadStream,
    /// How many failures to sync the file it has reported.
    sync_errors_seen: AtomicU64,
}

impl OpenFile {
    /// A file that was opened with these flags.
    pub fn new(file: Arc<File>, flags: OpenFlags, passthrough: bool, opener: Origin) -> Self {
        let sync_errors_seen = AtomicU64::new(file.sync_errors().0);
        let (written, read) = (WriteStream::default(), ReadStream::default());
        Self { file, flags, passthrough, opener, written, read, sync_errors_seen }
    }

    /// The same open of a file that is on another home directory now.
    pub fn moved(&self, file: Arc<File>) -> Self {
        let new = Self::new(file, self.flags, false, self.opener);
        new.sync_errors_seen.store(self.sync_errors_seen.load(Ordering::Acquire), Ordering::Release);
        new
    }

    /// Whether there is an error of a failed sync that this descriptor has not
    /// reported yet.
    pub(crate) fn owes_sync_error(&self) -> Option<Errno> {
        let (count, last) = self.file.sync_errors();
        last.filter(|_| self.sync_errors_seen.load(Ordering::Acquire) < count)
    }

    /// This descriptor has the error of an earlier sync to report.
    pub(crate) fn owe_sync_error(&self) {
        let (count, _) = self.file.sync_errors();
        self.sync_errors_seen.store(count.saturating_sub(1), Ordering::Release);
    }

    /// The error of a failed sync that this descriptor has not reported yet; it
    /// counts as reported now.
    pub(crate) fn take_sync_error(&self) -> Option<Errno> {
        let (count, last) = self.file.sync_errors();
        let seen = self.sync_errors_seen.swap(count, Ordering::AcqRel);
        last.filter(|_| seen < count)
    }
}

/// All open files and directories.
pub struct Handles {
    next: AtomicU64,
    files: HandleMap<OpenFile>,
    dirs: HandleMap<DirHandle>,
}

impl Default for Handles {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), files: HandleMap::new(), dirs: HandleMap::new() }
    }
}

impl Handles {
    pub(crate) fn add_file(&self, open: OpenFile) -> HandleId {
        let id = HandleId(self.next.fetch_add(1, Ordering::Relaxed));
        self.files.insert(id, open);
        id
    }

    pub(crate) fn add_dir(&self, dir: DirHandle) -> HandleId {
        let id = HandleId(self.next.fetch_add(1, Ordering::Relaxed));
        self.dirs.insert(id, dir);
        id
    }

    /// The open file of this handle. `EBADF` if there is none.
    pub fn file(&self, handle: HandleId) -> Result<Arc<OpenFile>> {
        self.files.get(handle)
    }

    /// The open directory of this handle. `EBADF` if there is none.
    pub fn dir(&self, handle: HandleId) -> Result<Arc<DirHandle>> {
        self.dirs.get(handle)
    }

    pub(crate) fn remove_file(&self, handle: HandleId) -> Result<Arc<OpenFile>> {
        self.files.remove(handle)
    }

    /// Closes a directory. `EBADF` if the handle is none.
    pub fn remove_dir(&self, handle: HandleId) -> Result<()> {
        self.dirs.remove(handle).map(drop)
    }

    /// Handles of all files that are open at this moment.
    pub fn file_handles(&self) -> Vec<HandleId> {
        self.files.shards.iter().flat_map(|shard| shard.read().keys().copied().collect::<Vec<_>>()).collect()
    }

    /// All open files, by handle.
    pub fn all_files(&self) -> Vec<(HandleId, Arc<OpenFile>)> {
        self.files.all()
    }

    /// All open directories, by handle.
    pub fn all_dirs(&self) -> Vec<(HandleId, Arc<DirHandle>)> {
        self.dirs.all()
    }

    /// Replaces all, under the same handles.
    pub fn replace_all(&self, files: Vec<(HandleId, OpenFile)>, dirs: Vec<(HandleId, DirHandle)>) {
        self.files.replace_all(files);
        self.dirs.replace_all(dirs);
    }

    /// The number that the next handle gets.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Goes on with the handles of another process, of which `next` would have been
    /// the next.
    pub(crate) fn take_over(
        &self,
        next: u64,
        files: Vec<(HandleId, OpenFile)>,
        dirs: Vec<(HandleId, DirHandle)>,
    ) {
        self.next.store(next, Ordering::Relaxed);
        self.replace_all(files, dirs);
    }

    /// Open files at this moment.
    pub fn files(&self) -> Vec<Arc<OpenFile>> {
        self.files
            .shards
            .iter()
            .flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// How many files are open.
    pub fn file_count(&self) -> u64 {
        self.files.shards.iter().map(|shard| shard.read().len() as u64).sum()
    }
}

const SHARDS: usize = 16;

/// Values by handle. A removed value is dropped when its last user is done, not
/// later: it may hold the space of a removed file.
struct HandleMap<T> {
    shards: [RwLock<HashMap<HandleId, Arc<T>>>; SHARDS],
}

impl<T> HandleMap<T> {
    fn new() -> Self {
        Self { shards: std::array::from_fn(|_| RwLock::new(HashMap::new())) }
    }

    fn insert(&self, handle: HandleId, value: T) {
        self.shard(handle).write().insert(handle, Arc::new(value));
    }

    fn get(&self, handle: HandleId) -> Result<Arc<T>> {
        self.shard(handle).read().get(&handle).cloned().ok_or_else(|| Errno::EBADF.into())
    }

    fn remove(&self, handle: HandleId) -> Result<Arc<T>> {
        self.shard(handle).write().remove(&handle).ok_or_else(|| Errno::EBADF.into())
    }

    fn all(&self) -> Vec<(HandleId, Arc<T>)> {
        let entries = |shard: &RwLock<HashMap<HandleId, Arc<T>>>| {
            shard.read().iter().map(|(id, value)| (*id, Arc::clone(value))).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(entries).collect()
    }

    fn replace_all(&self, all: Vec<(HandleId, T)>) {
        self.shards.iter().for_each(|shard| shard.write().clear());
        all.into_iter().for_each(|(handle, value)| self.insert(handle, value));
    }

    fn shard(&self, handle: HandleId) -> &RwLock<HashMap<HandleId, Arc<T>>> {
        &self.shards[handle.0 as usize % SHARDS]
    }
}
