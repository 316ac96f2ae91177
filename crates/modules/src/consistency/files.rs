//! The open files, and which of them were changed since they were last made durable.

use crate::sync::Mutex;
use braid_contract::{HandleId, InodeId};
use std::collections::HashMap;

/// The open files.
#[derive(Default)]
pub(super) struct Files {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    handles: HashMap<HandleId, Handle>,
    inodes: HashMap<InodeId, Inode>,
}

struct Handle {
    ino: InodeId,
    /// Writes do not come this way.
    is_unseen: bool,
}

#[derive(Default)]
struct Inode {
    opens: u64,
    is_changed: bool,
}

impl Files {
    /// A file was opened. Writes that are `is_unseen` will not be noted.
    pub(super) fn open(&self, handle: HandleId, ino: InodeId, is_unseen: bool) {
        let mut known = self.known.lock();
        known.handles.insert(handle, Handle { ino, is_unseen });
        known.inodes.entry(ino).or_default().opens += 1;
    }

    /// The inode of an open file; `None` for one that was opened before the module came.
    pub(super) fn inode(&self, handle: HandleId) -> Option<InodeId> {
        self.known.lock().handles.get(&handle).map(|handle| handle.ino)
    }

    /// The file is about to be changed. The handle does not matter: gathered writes of the kernel
    /// come by any.
    pub(super) fn is_changed(&self, handle: HandleId) {
        let mut known = self.known.lock();
        if let Some(ino) = known.handles.get(&handle).map(|handle| handle.ino)
            && let Some(inode) = known.inodes.get_mut(&ino)
        {
            inode.is_changed = true;
        }
    }

    /// Whether the file may have been changed since the last call.
    pub(super) fn take_change(&self, handle: HandleId) -> bool {
        let mut known = self.known.lock();
        let Some(Handle { ino, is_unseen }) = known.handles.get(&handle) else { return true };
        let (ino, is_unseen) = (*ino, *is_unseen);
        is_unseen || known.inodes.get_mut(&ino).is_none_or(|inode| std::mem::take(&mut inode.is_changed))
    }

    /// The open file is released.
    pub(super) fn close(&self, handle: HandleId) {
        let mut known = self.known.lock();
        let Some(Handle { ino, .. }) = known.handles.remove(&handle) else { return };
        if let Some(inode) = known.inodes.get_mut(&ino) {
            inode.opens -= 1;
            if inode.opens == 0 {
                known.inodes.remove(&ino);
            }
        }
    }
}
