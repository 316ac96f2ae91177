//! Operations, and how they are drawn.

use braid_contract::SplitMix;

/// Places for names: some in the root, some in each of two directories.
pub(crate) const NAMES: u64 = 12;
/// Open files that are kept.
pub(crate) const SLOTS: u64 = 3;

/// The kind of an operation. Names are numbers, as in [`NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Create,
    Mkdir,
    Symlink,
    Mknod,
    Write,
    Append,
    Truncate,
    Allocate,
    Punch,
    Zero,
    Unlink,
    Rmdir,
    Rename,
    Exchange,
    Whiteout,
    Link,
    SetXattr,
    RemoveXattr,
    Chmod,
    /// Opens a file and keeps it.
    Hold,
    /// Makes a file without a name and keeps it.
    Tmpfile,
    /// Closes a kept file.
    Drop,
    /// Gives a name to a kept file.
    LinkHeld,
    WriteHeld,
    /// Gives a key a value, by one record.
    Put,
    /// Changes several keys, by one record.
    Batch,
    Fsync,
    SyncDir,
    Sync,
    Checkpoint,
    /// Closes and opens the file system.
    Restart,
    /// Gives it away, and goes on with it, with the files that are kept.
    HandOver,
    /// Opens it again without closing it.
    Kill,
    /// Goes on without giving it away, with the memory that outlives a process.
    Crash,
    /// Writes until there is no room.
    Fill,
    /// Removes every file.
    Clear,
    Audit,
}

/// An operation, and the random number that decides its details.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    pub(crate) chance: u64,
}

use Kind::{
    Allocate, Append, Audit, Batch, Checkpoint, Chmod, Clear, Crash, Create, Drop, Exchange, Fill, Fsync,
    HandOver, Hold, Kill, Link, LinkHeld, Mkdir, Mknod, Punch, Put, RemoveXattr, Rename, Restart, Rmdir,
    SetXattr, Symlink, Sync, SyncDir, Tmpfile, Truncate, Unlink, Whiteout, Write, WriteHeld, Zero,
};

/// How often each is drawn.
const WEIGHTS: [(Kind, u64); 37] = [
    (Create, 60),
    (Mkdir, 20),
    (Symlink, 8),
    (Mknod, 4),
    (Write, 90),
    (Append, 60),
    (Truncate, 30),
    (Allocate, 14),
    (Punch, 20),
    (Zero, 10),
    (Unlink, 40),
    (Rmdir, 8),
    (Rename, 40),
    (Exchange, 10),
    (Whiteout, 4),
    (Link, 14),
    (SetXattr, 16),
    (RemoveXattr, 6),
    (Chmod, 6),
    (Hold, 12),
    (Tmpfile, 8),
    (Drop, 12),
    (LinkHeld, 6),
    (WriteHeld, 14),
    (Put, 50),
    (Batch, 40),
    (Fsync, 50),
    (SyncDir, 12),
    (Sync, 24),
    (Checkpoint, 24),
    (Restart, 4),
    (HandOver, 6),
    (Kill, 4),
    (Crash, 6),
    (Fill, 2),
    (Clear, 2),
    (Audit, 8),
];

/// Draws an operation.
pub(crate) fn draw(random: &mut SplitMix) -> Op {
    let all = WEIGHTS.iter().map(|(_, weight)| weight).sum();
    let mut at = random.below(all);
    let drawn = WEIGHTS.iter().find(|(_, weight)| {
        let is_it = at < *weight;
        at = at.saturating_sub(*weight);
        is_it
    });
    Op { kind: drawn.map_or(Sync, |(kind, _)| *kind), chance: random.next_u64() }
}
