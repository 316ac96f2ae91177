//! The copy of home under way: what is known of it, and how it is told.

use super::changes::Changes;
use super::progress::{RehomePhase, RehomeProgress};
use crate::heat::Heat;
use braid_contract::{Errno, Error, Fd, InodeId, NativeFd, NativeHandle, RefusalKind, Result, Timestamp};
use braid_core::Core;
use braid_core::live::Inode;
use braid_home::{Home, Identity};
use braid_index::Dirs;
use braid_tiers::rate::Throttles;
use braid_tiers::rate::{IoClass, MoveRate, Pace, Stopped};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::sync::Arc;

/// What a replacement of home asks of the rest of the volume.
pub(crate) trait Bystanders {
    /// Ends what movers and other jobs are at, and keeps more from being begun
    /// until the answer is dropped: they come to files by what they found out
    /// earlier.
    fn hold(&self) -> Box<dyn Held + '_>;

    /// What the copy heeds beside its own pace.
    fn io_class(&self) -> IoClass;

    /// From here on it can't be cancelled; `false` if it was.
    fn commit(&self) -> bool;

    /// Writes to the new home, which is about to be complete, that this is done.
    ///
    /// # Errors
    /// Those of the new home.
    fn keep_done(&self, new: &Home) -> Result<()>;

    /// The new directory is home. The barrier is still frozen.
    fn switched(&self);
}

/// Keeps something from happening while it lives.
pub(crate) trait Held {}

impl<T> Held for T {}

/// An inode of the new home that is the copy of one of the old.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    /// Of the old inode.
    pub(super) generation: u64,
    pub(super) new_ino: u64,
    pub(super) handle: NativeHandle,
}

/// A copy under way.
pub(super) struct Copier<'a> {
    pub(super) core: &'a Core,
    pub(super) throttles: &'a Throttles,
    pub(super) changes: &'a Changes,
    pub(super) heat: &'a Heat,
    pub(super) host: &'a dyn Bystanders,
    pub(super) new: Home,
    /// `.braid` of the new home.
    pub(super) braid: Fd,
    /// Indexes and marks of the new home.
    pub(super) dirs: Dirs,
    /// Where copies are that have lost their name, until it is known whether
    /// they get another one.
    pub(super) limbo: Fd,
    /// Copies by the native number of what they are copies of.
    pub(super) known: HashMap<u64, Copied>,
    /// Directories that were made and are still empty.
    pub(super) pending: Vec<Identity>,
    /// Directories in which something changed.
    pub(super) touched: HashMap<InodeId, Arc<Inode>>,
    /// Names in limbo of inodes that may have others, which count as links.
    pub(super) linked: HashSet<OsString>,
    /// Names in limbo of files that are open and have none otherwise.
    pub(super) orphans: Vec<OsString>,
    /// By native number, the access time that reading a file for the copy gave
    /// it, and the one that it had before.
    pub(super) read_times: HashMap<u64, (Timestamp, Timestamp)>,
    /// Nothing changes any more.
    pub(super) last: bool,
    /// How often what changed was copied.
    pub(super) passes: u32,
    /// The pace does not count.
    pub(super) hurried: bool,
    pub(super) progress: RehomeProgress,
    pub(super) pace: &'a Pace,
    pub(super) tell: &'a mut dyn FnMut(&RehomeProgress) -> bool,
    pub(super) told_ns: u64,
}

/// How often progress is told, at most.
const TELL_NS: u64 = 200_000_000;

impl Copier<'_> {
    /// The copy of an inode, if there is one.
    pub(super) fn copy_of(&self, identity: &Identity) -> Option<&Copied> {
        self.known.get(&identity.ino()).filter(|copied| copied.generation == generation(identity))
    }

    /// The access time of an inode, as it would be if it had not been copied.
    pub(super) fn access_time(&self, identity: &Identity) -> Timestamp {
        let atime = identity.attr.atime;
        match self.read_times.get(&identity.ino()) {
            Some((ours, before)) if *ours == atime => *before,
            _ => atime,
        }
    }

    /// An inode, which was as `identity` says, was read to be copied.
    pub(super) fn was_read(&mut self, identity: &Identity, old: &dyn NativeFd) -> Result<()> {
        let now = old.stat()?.attr.atime;
        let before = self.access_time(identity);
        if now != before {
            self.read_times.insert(identity.ino(), (now, before));
        }
        Ok(())
    }

    /// Tells how far it has come, now and then.
    pub(super) fn report(&mut self) -> Result<()> {
        let now_ns = self.core.environment.monotonic_ns();
        if self.last || now_ns < self.told_ns + TELL_NS {
            return Ok(());
        }
        self.tell_now()
    }

    pub(super) fn tell_now(&mut self) -> Result<()> {
        self.told_ns = self.core.environment.monotonic_ns();
        if (self.tell)(&self.progress) && !self.changes.is_ending() { Ok(()) } else { Err(cancelled()) }
    }

    /// Waits until so much may be read from home.
    pub(super) fn pass(&self, bytes: u64) -> std::result::Result<(), Stopped> {
        let rate = MoveRate { throttles: self.throttles, pace: self.pace, class: self.host.io_class() };
        rate.throttle(&[self.core.tiers.home()], bytes).map(drop)
    }

    /// Asks whether so many bytes may be copied now.
    pub(super) fn take(&mut self, bytes: u64) -> Result<()> {
        if self.last {
            return Ok(());
        }
        let allowed = if self.hurried { self.pace.go_on() } else { self.pass(bytes) };
        allowed.map_err(|Stopped| cancelled())?;
        self.report()
    }

    pub(super) fn phase(&mut self, phase: RehomePhase) -> Result<()> {
        self.progress.phase = phase;
        self.tell_now()
    }
}

pub(super) fn cancelled() -> Error {
    Error::refused(Errno::ECANCELED, RefusalKind::Request, "the replacement of the home tier was cancelled")
}

/// Whether an inode is gone, or its name is.
pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error.errno(), Errno::ENOENT | Errno::ESTALE | Errno::ENOTDIR | Errno::EXDEV)
}

/// What tells an inode from another one that has its number later.
pub(super) fn generation(identity: &Identity) -> u64 {
    identity.handle.as_ref().map_or(0, braid_contract::NativeHandle::generation)
}
