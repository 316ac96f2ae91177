//! A keeper of descriptors that outlive the process.

use braid_contract::{Fd, InodeId};

/// Keeps descriptors of inodes without a name, for a process that goes on after a crash of
/// this one: nothing else leads to them, and without a descriptor they are gone.
pub trait Keeper: Send + Sync {
    /// Keeps this descriptor, which is there when this returns.
    fn keep(&self, ino: InodeId, fd: &Fd);

    /// The inode got a name, or is in use no more.
    fn release(&self, ino: InodeId);

    /// Applications are about to see numbers of inodes that are not those of home: no
    /// other process can find these.
    fn renumber(&self);
}
