//! Observers of operations: the heat of ranges, the notes of changes while home
//! is copied, and data to be written to devices.

use crate::cache_work::{CacheWork, Task};
use crate::heat::Heat;
use crate::rehome::Changes;
use braid_contract::{ObjectId, TierId};
use braid_core::Observer;
use braid_core::live::{File, Inode};
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

/// Passes on the core's notifications.
pub(crate) struct Watch {
    pub(crate) heat: Arc<Heat>,
    pub(crate) changes: Arc<Changes>,
    pub(crate) cache_work: Arc<CacheWork>,
}

impl Observer for Watch {
    fn used(&self, file: &File, tier: TierId, ranges: Range<u64>) {
        self.heat.used(file, tier, ranges);
    }

    fn written_through_cache(&self, file: &File, id: ObjectId, tier: TierId, bytes: Range<u64>) {
        self.cache_work.add(Task::WriteOut, file.data(), id, (tier, bytes));
    }

    fn needed_soon(&self, file: &File, id: ObjectId, tier: TierId, bytes: Range<u64>) {
        self.cache_work.add(Task::ReadIn, file.data(), id, (tier, bytes));
    }

    fn placed(&self, file: &File, tier: TierId, ranges: Range<u64>) {
        self.heat.placed(file, tier, ranges);
    }

    fn follows_changes(&self) -> bool {
        self.changes.is_on()
    }

    fn inode_changed(&self, inode: &Arc<Inode>) {
        self.changes.note_inode(inode);
    }

    fn data_changed(&self, inode: &Arc<Inode>, bytes: Range<u64>) {
        self.changes.note_data(inode, bytes);
    }

    fn tail_changed(&self, inode: &Arc<Inode>, from: u64) {
        self.changes.note_from(inode, from);
    }

    fn name_changed(&self, dir: &Arc<Inode>, name: &OsStr) {
        self.changes.note_name(dir, name);
    }
}
