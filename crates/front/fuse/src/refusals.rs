//! Write-backs that were refused: the kernel does not tell a notification that asks for one how it
//! went. `ops` notes them, and [`KernelCache`](crate::KernelCache) looks before and after.

use braid_contract::{Errno, InodeId};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The refusals of each open inode.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<InodeId, Refused>>);

#[derive(Debug)]
struct Refused {
    count: u64,
    /// How many of them a sync of all has told of.
    told: u64,
    last: Errno,
}

impl Refusals {
    pub(crate) fn note(&self, ino: InodeId, error: Errno) {
        let mut all = self.all();
        let refused = all.entry(ino).or_insert(Refused { count: 0, told: 0, last: error });
        (refused.count, refused.last) = (refused.count + 1, error);
    }

    /// How many there were.
    pub(crate) fn count(&self, ino: InodeId) -> u64 {
        self.all().get(&ino).map_or(0, |refused| refused.count)
    }

    /// The last one since there were so many.
    pub(crate) fn since(&self, ino: InodeId, count: u64) -> Option<Errno> {
        self.all().get(&ino).filter(|refused| refused.count > count).map(|refused| refused.last)
    }

    /// The last one that no sync of all has told of. The kernel may have written back before it.
    pub(crate) fn tell(&self, ino: InodeId) -> Option<Errno> {
        let mut all = self.all();
        let refused = all.get_mut(&ino).filter(|refused| refused.count > refused.told)?;
        refused.told = refused.count;
        Some(refused.last)
    }

    /// The inode is not open any more.
    pub(crate) fn closed(&self, ino: InodeId) {
        self.all().remove(&ino);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<InodeId, Refused>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
