//! The state and progress reports of a copy of home under way.

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

/// The demands of a replacement of home on the rest of the volume.
pub(crate) trait Bystanders {
    /// Ends the current work of movers and other jobs, and prevents more until
    /// the answer is dropped: they find files by facts that go out of date.
    fn hold(&self) -> Box<dyn Held + '_>;

    /// The limits of the copy besides its own pace.
    fn io_class(&self) -> IoClass;

    /// Makes the copy impossible to cancel; `false` if it was cancelled before.
    fn commit(&self) -> bool;

    /// Records on the new home, which is about to be complete, that the job is
    /// done.
    ///
    /// # Errors
    /// Those of the new home.
    fn keep_done(&self, new: &Home) -> Result<()>;

    /// Notes that the new directory is home. The barrier is still frozen.
    fn switched(&self);
}

/// Prevents something while it lives.
pub(crate) trait Held {}

impl<T> Held for T {}

/// The copy of an inode on the new home.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    /// Generation of the old inode.
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
    /// Directory for copies that have lost their name, until it is known
    /// whether they get another one.
    pub(super) limbo: Fd,
    /// Copies, by the native number of their originals.
    pub(super) known: HashMap<u64, Copied>,
    /// Directories that were created and are still empty.
    pub(super) pending: Vec<Identity>,
    /// Directories in which names changed.
    pub(super) touched: HashMap<InodeId, Arc<Inode>>,
    /// Names in limbo of inodes that may have others; they count as links.
    pub(super) linked: HashSet<OsString>,
    /// Names in limbo of open files that have no other name.
    pub(super) orphans: Vec<OsString>,
    /// Copies of open files that have no name at all: they exist as long as
    /// these are open.
    pub(super) unnamed: Vec<Fd>,
    /// By native number, the access time that the copying of a file left, and
    /// the one before.
    pub(super) read_times: HashMap<u64, (Timestamp, Timestamp)>,
    /// Nothing changes any more.
    pub(super) last: bool,
    /// Number of passes over changes.
    pub(super) passes: u32,
    /// The pace is ignored.
    pub(super) hurried: bool,
    pub(super) progress: RehomeProgress,
    pub(super) pace: &'a Pace,
    pub(super) tell: &'a mut dyn FnMut(&RehomeProgress) -> bool,
    pub(super) told_ns: u64,
}

/// Shortest time between two progress reports.
const TELL_NS: u64 = 200_000_000;

impl Copier<'_> {
    /// The copy of an inode, if there is one.
    pub(super) fn copy_of(&self, identity: &Identity) -> Option<&Copied> {
        self.known.get(&identity.ino()).filter(|copied| copied.generation == generation(identity))
    }

    /// The access time that an inode would have without the copying.
    pub(super) fn access_time(&self, identity: &Identity) -> Timestamp {
        let atime = identity.attr.atime;
        match self.read_times.get(&identity.ino()) {
            Some((ours, before)) if *ours == atime => *before,
            _ => atime,
        }
    }

    /// Notes that copying has read an inode, which was as `identity` says
    /// before.
    pub(super) fn was_read(&mut self, identity: &Identity, old: &dyn NativeFd) -> Result<()> {
        let now = old.stat()?.attr.atime;
        let before = self.access_time(identity);
        if now != before {
            self.read_times.insert(identity.ino(), (now, before));
        }
        Ok(())
    }

    /// Reports progress, now and then.
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

    /// Waits until so many bytes may be copied.
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

/// Distinguishes an inode from a later one with the same number.
pub(super) fn generation(identity: &Identity) -> u64 {
    identity.handle.as_ref().map_or(0, braid_contract::NativeHandle::generation)
}
