//! Locks of directories. An operation that finds the inode of a name and then
//! takes the name away must be alone in the directory: an inode that got the
//! name in between would lose it unseen, and its data on other tiers would stay
//! for good. The kernel keeps its callers apart in this way; other front ends
//! may not, so the volume does it by itself.

use braid_contract::InodeId;
use parking_lot::{Mutex, MutexGuard};

/// Directories are spread over this many locks: with so many, two that are used
/// at the same time hardly share one.
const STRIPES: usize = 256;

/// The locks of all directories.
#[derive(Debug)]
pub struct NameLocks([Mutex<()>; STRIPES]);

/// Keeps other operations from changing names in one or two directories.
pub(crate) struct NameGuard<'a> {
    _first: MutexGuard<'a, ()>,
    _second: Option<MutexGuard<'a, ()>>,
}

impl Default for NameLocks {
    fn default() -> Self {
        Self([const { Mutex::new(()) }; STRIPES])
    }
}

impl NameLocks {
    /// Waits until no other operation changes names in this directory. Taken
    /// once, by an operation that passed the volume's barrier, before any other
    /// lock.
    pub(crate) fn alone_in(&self, dir: InodeId) -> NameGuard<'_> {
        NameGuard { _first: self.0[stripe(dir)].lock(), _second: None }
    }

    /// The same for two, which may be one.
    pub(crate) fn alone_in_both(&self, one: InodeId, other: InodeId) -> NameGuard<'_> {
        let (first, second) = (stripe(one).min(stripe(other)), stripe(one).max(stripe(other)));
        let _first = self.0[first].lock();
        NameGuard { _first, _second: (second != first).then(|| self.0[second].lock()) }
    }
}

fn stripe(dir: InodeId) -> usize {
    dir.0 as usize % STRIPES
}
