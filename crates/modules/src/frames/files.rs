//! The files in use, and the known kinds of others.

use super::file::File;
use super::geometry::Geometry;
use super::record::Ranges;
use crate::sync::{Mutex, RwLock};
use braid_contract::{Errno, HandleId, InodeId, Result};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How the data of a file lies in the child's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Plain,
    Framed(Geometry),
}

/// Files, open ones and others.
#[derive(Default)]
pub(crate) struct Files {
    handles: RwLock<HashMap<HandleId, Arc<File>>>,
    used: Mutex<HashMap<InodeId, Used>>,
    /// With the generation, if it is known.
    kinds: Mutex<HashMap<InodeId, (Option<u64>, Kind)>>,
    /// Files that had data in another form, and perhaps still have it durably.
    emptied: Mutex<HashSet<InodeId>>,
    /// Writes that syncs of files not in use any more made durable, until that is known of all.
    synced: Mutex<HashMap<InodeId, Ranges>>,
    /// Looked up once more than the front end knows, and not in use any more.
    unused: Mutex<Vec<InodeId>>,
}

/// A file that is open, or has to be tidied.
struct Used {
    file: Arc<File>,
    opens: u64,
    is_untidy: bool,
    /// It was looked up once more, so that it is found by its number.
    is_held: bool,
}

impl Files {
    /// The file, if it is in use, or as `load` finds it, to be opened. `release` takes that back.
    pub(crate) fn hold(&self, ino: InodeId, load: impl FnOnce() -> Result<File>) -> Result<Arc<File>> {
        let mut used = self.used.lock();
        let entry = match used.entry(ino) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let file = Arc::new(load()?);
                if let Some(synced) = self.synced.lock().remove(&ino) {
                    file.was_synced(synced);
                }
                entry.insert(Used { file, opens: 0, is_untidy: false, is_held: false })
            }
        };
        entry.opens += 1;
        Ok(Arc::clone(&entry.file))
    }

    /// The file, if it is in use.
    pub(crate) fn in_use(&self, ino: InodeId) -> Option<Arc<File>> {
        self.used.lock().get(&ino).map(|used| Arc::clone(&used.file))
    }

    /// One holder less; answers whether it was the last.
    pub(crate) fn release(&self, ino: InodeId) -> bool {
        let mut used = self.used.lock();
        let Some(entry) = used.get_mut(&ino) else { return false };
        entry.opens -= 1;
        let is_last = entry.opens == 0;
        if is_last && !entry.is_untidy {
            self.remove(&mut used, ino);
        }
        is_last
    }

    fn remove(&self, used: &mut HashMap<InodeId, Used>, ino: InodeId) {
        let Some(used) = used.remove(&ino) else { return };
        if let Some(synced) = used.file.synced() {
            self.synced.lock().insert(ino, synced);
        }
        if used.is_held {
            self.unused.lock().push(ino);
        }
    }

    /// Forgets what syncs of single files made durable, where `is_settled` says so of all up to a
    /// number.
    pub(crate) fn were_settled(&self, is_settled: impl Fn(u64) -> bool) {
        self.synced.lock().retain(|_, synced| synced.last().is_some_and(|range| !is_settled(*range.end())));
    }

    /// Whether an inode is in use, and is not held yet.
    pub(crate) fn is_in_use_unheld(&self, ino: InodeId) -> bool {
        self.used.lock().get(&ino).is_some_and(|used| !used.is_held)
    }

    /// The inode was looked up once more.
    pub(crate) fn is_held(&self, ino: InodeId) {
        match self.used.lock().get_mut(&ino) {
            Some(used) if !used.is_held => used.is_held = true,
            _ => self.unused.lock().push(ino),
        }
    }

    /// The inodes that are not in use any more, to be forgotten once.
    pub(crate) fn take_unused(&self) -> Vec<InodeId> {
        std::mem::take(&mut *self.unused.lock())
    }

    pub(crate) fn opened(&self, handle: HandleId, file: Arc<File>) {
        self.handles.write().insert(handle, file);
    }

    /// The open files, each handle with its inode, and the inodes that were looked up once more than
    /// the front end knows.
    pub(crate) fn open(&self) -> (Vec<(HandleId, InodeId)>, Vec<InodeId>) {
        let handles = self.handles.read().iter().map(|(handle, file)| (*handle, file.ino)).collect();
        let used = self.used.lock();
        let held = used.iter().filter(|(_, used)| used.is_held).map(|(ino, _)| *ino).collect();
        (handles, held)
    }

    pub(crate) fn of(&self, handle: HandleId) -> Result<Arc<File>> {
        self.handles.read().get(&handle).cloned().ok_or_else(|| Errno::EBADF.into())
    }

    pub(crate) fn closed(&self, handle: HandleId) -> Option<Arc<File>> {
        self.handles.write().remove(&handle)
    }

    /// Whether there is space to give back. A file is in use until there is not.
    pub(crate) fn set_untidy(&self, ino: InodeId, is_untidy: bool) {
        let mut used = self.used.lock();
        let Some(entry) = used.get_mut(&ino) else { return };
        entry.is_untidy = is_untidy;
        if entry.opens == 0 && !is_untidy {
            self.remove(&mut used, ino);
        }
    }

    pub(crate) fn untidy(&self) -> Vec<Arc<File>> {
        let used = self.used.lock();
        used.values().filter(|used| used.is_untidy).map(|used| Arc::clone(&used.file)).collect()
    }

    /// The kind of a file, if it is known.
    pub(crate) fn kind(&self, ino: InodeId, generation: Option<u64>) -> Option<Kind> {
        let mut kinds = self.kinds.lock();
        let (known, kind) = kinds.get_mut(&ino)?;
        match (*known, generation) {
            (Some(known), Some(now)) if known != now => return None,
            (None, Some(_)) => *known = generation,
            _ => {}
        }
        Some(*kind)
    }

    /// Notes the kind that a file was found to be. A kind noted for the same file meanwhile is
    /// newer.
    pub(crate) fn found(&self, ino: InodeId, generation: Option<u64>, kind: Kind) {
        let mut kinds = self.kinds.lock();
        let known = kinds.entry(ino).or_insert((generation, kind));
        if matches!((known.0, generation), (Some(known), Some(now)) if known != now) {
            *known = (generation, kind);
        }
    }

    /// Sets the kind of a file from now on.
    pub(crate) fn becomes(&self, ino: InodeId, kind: Kind) {
        self.kinds.lock().entry(ino).and_modify(|known| known.1 = kind).or_insert((None, kind));
    }

    pub(crate) fn forget(&self, ino: InodeId) {
        self.kinds.lock().remove(&ino);
    }

    /// The inode is a new one.
    pub(crate) fn is_new(&self, ino: InodeId) {
        self.forget(ino);
        self.emptied.lock().remove(&ino);
        self.synced.lock().remove(&ino);
    }

    /// The file had data in another form until now.
    pub(crate) fn was_emptied(&self, ino: InodeId) {
        self.emptied.lock().insert(ino);
    }

    /// Whether it may still have it after a crash.
    pub(crate) fn is_emptied(&self, ino: InodeId) -> bool {
        self.emptied.lock().contains(&ino)
    }

    /// Its emptiness is durable.
    pub(crate) fn is_durably_empty(&self, ino: InodeId) {
        self.emptied.lock().remove(&ino);
    }
}
