//! The open files, and their writers since the last record.

use super::who::{Deed, Who, now};
use crate::sync::Mutex;
use braid_contract::{HandleId, InodeId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The open files.
#[derive(Default)]
pub(super) struct Files {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    handles: HashMap<HandleId, Opened>,
    written: HashMap<InodeId, Deed>,
}

/// An open file.
#[derive(Clone)]
pub(super) struct Opened {
    pub(super) ino: InodeId,
    pub(super) opener: Who,
    /// It is open for writing, and its writes do not come here.
    pub(super) is_unseen: bool,
}

impl Files {
    pub(super) fn open(&self, handle: HandleId, opened: Opened) {
        self.known.lock().handles.insert(handle, opened);
    }

    /// The file behind a handle; `None` for one that was opened before the module came.
    pub(super) fn get(&self, handle: HandleId) -> Option<Opened> {
        self.known.lock().handles.get(&handle).cloned()
    }

    /// All that are open, by handle.
    pub(super) fn all(&self) -> Vec<(HandleId, Opened)> {
        let known = self.known.lock();
        let mut all: Vec<_> =
            known.handles.iter().map(|(handle, opened)| (*handle, opened.clone())).collect();
        all.sort_unstable_by_key(|(handle, _)| handle.0);
        all
    }

    /// The file was written just now.
    pub(super) fn is_written(&self, ino: InodeId, who: Who) {
        self.was_written(ino, Deed { who, at: now() });
    }

    /// The file was written, and no record of that was kept.
    pub(super) fn was_written(&self, ino: InodeId, deed: Deed) {
        match self.known.lock().written.entry(ino) {
            Entry::Occupied(mut known) => *known.get_mut() = deed,
            Entry::Vacant(vacant) => _ = vacant.insert(deed),
        }
    }

    /// The last writer of a file since its last record.
    pub(super) fn writer(&self, ino: InodeId) -> Option<Deed> {
        self.known.lock().written.get(&ino).cloned()
    }

    /// The last writers of files since their last records, by inode.
    pub(super) fn writers(&self) -> Vec<(InodeId, Deed)> {
        let known = self.known.lock();
        let mut writers: Vec<_> = known.written.iter().map(|(ino, deed)| (*ino, deed.clone())).collect();
        writers.sort_unstable_by_key(|(ino, _)| ino.0);
        writers
    }

    /// The same, to be kept.
    pub(super) fn take_writer(&self, ino: InodeId) -> Option<Deed> {
        self.known.lock().written.remove(&ino)
    }

    /// All of them, to be kept.
    pub(super) fn take_writers(&self) -> Vec<(InodeId, Deed)> {
        self.known.lock().written.drain().collect()
    }

    /// The handle is gone; answers its file.
    pub(super) fn close(&self, handle: HandleId) -> Option<Opened> {
        self.known.lock().handles.remove(&handle)
    }
}
