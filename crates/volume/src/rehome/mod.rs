//! Another directory becomes home while applications use the volume
//! (`Volume::replace_home`, and a job that does it).
//!
//! The home tree is copied while everything goes on, and what changes meanwhile
//! is noted (`changes`) and copied again (`passes`). At last the volume's barrier
//! is closed, what is left is copied, every inode and handle that somebody
//! holds is opened on the new home (`import`), the new home is made complete by
//! one atomic step (`commit`), and the volume rests on it when the barrier opens.
//! What a mount does with what a crash left of this stands in `braid-home`.

mod changes;
mod commit;
mod copy;
mod engine;
mod import;
mod passes;
mod state;

pub(crate) use changes::Changes;
pub use engine::{RehomeOutcome, RehomePhase, RehomeProgress, RehomeReport};

use crate::Volume;
use braid_contract::{Errno, Error, Fd, InodeId, NativeFd, NativeHandle, RefusalKind, Result, Timestamp};
use braid_core::live::Inode;
use braid_home::{Home, Identity};
use braid_index::Dirs;
use braid_tiers::rate::{IoClass, MoveRate, Pace, Stopped};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::sync::Arc;

/// An inode of the new home that is the copy of one of the old.
#[derive(Clone, Debug)]
struct Copied {
    /// Of the old inode.
    generation: u64,
    new_ino: u64,
    handle: NativeHandle,
}

/// A copy under way.
struct Copier<'a> {
    volume: &'a Volume,
    new: Home,
    /// `.braid` of the new home.
    braid: Fd,
    /// Indexes and marks of the new home.
    dirs: Dirs,
    /// Where copies are that have lost their name, until it is known whether
    /// they get another one.
    limbo: Fd,
    /// Copies by the native number of what they are copies of.
    known: HashMap<u64, Copied>,
    /// Directories that were made and are still empty.
    pending: Vec<Identity>,
    /// Directories in which something changed.
    touched: HashMap<InodeId, Arc<Inode>>,
    /// Names in limbo of inodes that may have others, which count as links.
    linked: HashSet<OsString>,
    /// Names in limbo of files that are open and have none otherwise.
    orphans: Vec<OsString>,
    /// By native number, the access time that reading a file for the copy gave
    /// it, and the one that it had before.
    read_times: HashMap<u64, (Timestamp, Timestamp)>,
    /// Nothing changes any more.
    last: bool,
    /// How often what changed was copied.
    passes: u32,
    /// The pace does not count.
    hurried: bool,
    progress: RehomeProgress,
    pace: &'a Pace,
    /// The job that this is.
    job: Option<u64>,
    tell: &'a mut dyn FnMut(&RehomeProgress) -> bool,
    told_ns: u64,
}

/// How often progress is told, at most.
const TELL_NS: u64 = 200_000_000;

impl Copier<'_> {
    /// The copy of an inode, if there is one.
    fn copy_of(&self, identity: &Identity) -> Option<&Copied> {
        self.known.get(&identity.ino()).filter(|copied| copied.generation == copy::generation(identity))
    }

    /// The access time of an inode, as it would be if it had not been copied.
    fn access_time(&self, identity: &Identity) -> Timestamp {
        let atime = identity.attr.atime;
        match self.read_times.get(&identity.ino()) {
            Some((ours, before)) if *ours == atime => *before,
            _ => atime,
        }
    }

    /// An inode, which was as `identity` says, was read to be copied.
    fn was_read(&mut self, identity: &Identity, old: &dyn NativeFd) -> Result<()> {
        let now = old.stat()?.attr.atime;
        let before = self.access_time(identity);
        if now != before {
            self.read_times.insert(identity.ino(), (now, before));
        }
        Ok(())
    }

    /// Tells how far it has come, now and then.
    fn report(&mut self) -> Result<()> {
        let now_ns = self.volume.core.environment.monotonic_ns();
        if self.last || now_ns < self.told_ns + TELL_NS {
            return Ok(());
        }
        self.tell_now()
    }

    fn tell_now(&mut self) -> Result<()> {
        self.told_ns = self.volume.core.environment.monotonic_ns();
        if (self.tell)(&self.progress) && !self.volume.changes.is_ending() {
            Ok(())
        } else {
            Err(cancelled())
        }
    }

    /// Waits until so much may be read from home.
    fn pass(&self, bytes: u64) -> std::result::Result<(), Stopped> {
        let class = self.job.map_or(IoClass::UnguardedJob, |job| self.volume.jobs.io_class(job));
        let rate = MoveRate { throttles: &self.volume.throttles, pace: self.pace, class };
        rate.throttle(&[self.volume.core.tiers.home()], bytes).map(drop)
    }

    /// Asks whether so many bytes may be copied now.
    fn take(&mut self, bytes: u64) -> Result<()> {
        if self.last {
            return Ok(());
        }
        let allowed = if self.hurried { self.pace.go_on() } else { self.pass(bytes) };
        allowed.map_err(|Stopped| cancelled())?;
        self.report()
    }

    fn phase(&mut self, phase: RehomePhase) -> Result<()> {
        self.progress.phase = phase;
        self.tell_now()
    }
}

fn cancelled() -> Error {
    Error::refused(Errno::ECANCELED, RefusalKind::Request, "the replacement of the home tier was cancelled")
}

/// Whether an inode is gone, or its name is.
fn is_gone(error: &Error) -> bool {
    matches!(error.errno(), Errno::ENOENT | Errno::ESTALE | Errno::ENOTDIR | Errno::EXDEV)
}
