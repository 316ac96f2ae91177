//! Goes on with a file system whose process crashed (`LabStor` §3.3, crash recovery), so that every
//! operation that was answered is there, synced or not. Its records are on the device, or in memory
//! that outlived it ([`tail`](crate::tail)); what was open is known by others. Used by `open`.

use crate::core::{Core, Open};
use crate::inode::Inode;
use crate::load::Left;
use crate::record::{Begin, Change};
use braid_contract::{Caller, FileKind, OpenBefore, next_handle};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What is left of a file system in use whose process crashed, beside its device.
#[derive(Debug, Default)]
pub struct CrashedLog {
    /// The memory of records, from [`LogFs::outlive`](crate::LogFs::outlive).
    pub memory: Vec<OwnedFd>,
    /// Files and directories that were open.
    pub open: Vec<OpenBefore>,
    /// How many processes have crashed.
    pub crashes: u64,
}

impl CrashedLog {
    /// The part that counts when the device is read.
    pub(crate) fn left(&mut self) -> Left {
        let open = self.open.iter().map(|open| open.ino.0).collect();
        Left { open, tails: Some(std::mem::take(&mut self.memory)) }
    }

    /// Opens the files again.
    pub(crate) fn restore(self, core: &Core) {
        core.table.iter().for_each(|inode| inode.may_be_known.store(true, Ordering::Release));
        core.next_handle.fetch_max(next_handle(&self.open, self.crashes), Ordering::Relaxed);
        for OpenBefore { handle, ino, flags, opener: [uid, gid, tid], .. } in self.open {
            let is_dir = flags.is_none();
            let inode = core.table.get(ino.0).unwrap_or_else(|| removed(core, ino.0, is_dir));
            let caller = Caller { uid, gid, pid: tid, tid, groups: None, of_stack: false };
            let (flags, actor) = (flags.unwrap_or_default(), core.actor(&caller));
            core.open_again(handle.0, Open { inode, flags, is_dir, actor });
        }
    }
}

/// A directory that was removed while it was open, or a file that was about to be closed and has no
/// blocks any more: nothing of it is on the device.
fn removed(core: &Core, ino: u64, is_dir: bool) -> Arc<Inode> {
    let inode = Arc::new(Inode::new(ino));
    let kind = if is_dir { FileKind::Directory } else { FileKind::Regular };
    let begin = Begin {
        mode: kind.mode() | 0o700,
        uid: 0,
        gid: 0,
        rdev: 0,
        nlink: 0,
        parent: ino,
        generation: 0,
        time: core.now(),
        actor: Arc::default(),
    };
    let gone = vec![Change::Begin(Box::new(begin)), Change::End];
    inode.state.write().apply(0, gone, &mut Vec::new());
    core.table.insert(ino, Arc::clone(&inode));
    inode
}
