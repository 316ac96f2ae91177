//! The crash explorer: searches for a crash after which a volume has lost or
//! mixed up promised data.
//!
//! A [`Workload`] runs through the real code of a [`Subject`] over simulated
//! disks ([`crate::sim`]). The power goes at every effect on a disk; for each
//! such moment, disks that a machine may find afterwards are built (all of them
//! when they are few, sampled by a seed when they are many; always those on
//! which everything, nothing, and all but one effect or just one persisted, as
//! far as the budget goes), recovery runs on them, and its result is compared
//! with the record of the workload:
//!
//! * every name that is there leads to a file that can be opened and read in
//!   full, and no other names are there;
//! * the names are those after some step at or after the durable one (where the
//!   file system keeps no order: any of the changes since may be missing), and
//!   a rename happened as a whole or not at all;
//! * each 8-byte word of a file is as at the file's last completed sync, or as
//!   a later step, up to the one in flight, made it, zeros where one of these
//!   had zeros or nothing; never another file's bytes, never older ones, and
//!   within a sector of 512 bytes all from the same write (but for zeros at its
//!   end, where a size was lost and the data was not);
//! * a file that is found larger than it ever was before it was cut has nothing
//!   of the part that was cut off;
//! * the size is between the smallest and the largest since that sync, so never
//!   below it unless the file was cut since;
//! * the modification time is not before that of the last full sync and not
//!   after the crash (after a crash of the recovery, it may be the time of
//!   that);
//! * after a crash of the process alone, everything that was answered is there,
//!   and at most the step in flight in part;
//! * the volume can be used again: files grow with zeros, and take data;
//! * a second recovery changes nothing that can be seen, and a crash during
//!   recovery leaves a state that the first crash might have left;
//! * the check of the volume (fsck) finds nothing, and nothing was done to the
//!   disks that would have killed a process.
//!
//! `fsync`, `fdatasync`, a write with `O_SYNC`, `sync` and a clean unmount are
//! syncs of a file; `sync`, `fsync` of the directory, a clean unmount and,
//! where the file system promises it, `fsync` of the file are of a name.
//!
//! Everything is deterministic: a failure prints a line that repeats it.

mod cli;
mod content;
mod examine;
mod explore;
mod generate;
mod history;
mod machine;
mod op;
mod oracle;
mod recorder;
mod replay;
mod run;
mod search;
mod shrink;
mod stamp;
mod states;
mod tree;
mod workload;

pub use cli::{Arguments, RunnerWord, run as run_cli};
pub use explore::{Explorer, Failure, Limits, Totals};
pub use machine::Setup;
pub use op::{Dir, Name, Op, ParseError};
pub use replay::{Crash, Left, Replay};
pub use search::{Found, Search, Workloads};
pub use workload::{BLOCK, RANGE, Start, Workload};

use crate::sim::{Disk, SimEnvironment, SimZoned};
use braid_contract::{FileSystem, InodeId, Result};
use std::sync::Arc;

/// The drives of a volume.
#[derive(Clone, Debug)]
pub struct Drives {
    /// The disks, home first.
    pub disks: Vec<Disk>,
    /// A zoned device, in place of the last disk.
    pub zoned: Option<Arc<SimZoned>>,
    /// Time and chance.
    pub environment: Arc<SimEnvironment>,
}

/// A kind of volume that is searched.
pub trait Subject: Sync {
    /// Names of the placement policies that workloads are run under.
    fn policies(&self) -> &[&str];

    /// Opens the volume on these drives: makes it, or recovers it.
    ///
    /// # Errors
    /// The error that kept it from being opened, which is a failure.
    fn open(&self, setup: &Setup, drives: Drives) -> Result<Box<dyn Mounted>>;

    /// Checks the drives, without a repair: each problem as a line.
    ///
    /// # Errors
    /// The error that prevented the check, which is a failure.
    fn check(&self, setup: &Setup, drives: Drives) -> Result<Vec<String>>;
}

/// An open volume. To drop it is to crash the process.
pub trait Mounted {
    /// Its files.
    fn fs(&self) -> &dyn FileSystem;

    /// Does background work, once.
    fn tick(&self);

    /// Moves the range that `offset` is in to the tier on disk `to_tier`.
    ///
    /// # Errors
    /// The error that kept it from being moved; `EINVAL`, `ENOENT` and
    /// `EOPNOTSUPP` mean that there was nothing to be moved.
    fn migrate(&self, ino: InodeId, offset: u64, to_tier: usize, between: &mut dyn FnMut()) -> Result<()>;

    /// Moves everything off the tier on disk `tier`, and lets it take new data
    /// again.
    ///
    /// # Errors
    /// As [`migrate`](Self::migrate).
    fn evacuate(&self, tier: usize) -> Result<()>;

    /// Takes the tier on disk `disk` out of the volume, if it is one. From then
    /// on, an open that is given the disk goes without it.
    ///
    /// # Errors
    /// The error that kept it in the volume; `EBUSY`, `ENOENT` and `ENOTEMPTY`
    /// mean that it is not to be removed.
    fn remove_tier(&self, disk: usize) -> Result<()>;

    /// Makes disk `disk` a tier of the volume.
    ///
    /// # Errors
    /// The error that kept it out; `EEXIST` means that it is one.
    fn add_tier(&self, disk: usize) -> Result<()>;

    /// Has another process go on with it, and handles with that; `None` if it is not to
    /// be handed over at present.
    ///
    /// # Errors
    /// The error that kept it from that, which is a failure.
    fn hand_over(&self) -> Result<Option<Box<dyn Mounted>>>;

    /// Unmounts it cleanly.
    ///
    /// # Errors
    /// The error that kept it from being unmounted, which is a failure.
    fn shutdown(&self) -> Result<()>;
}
