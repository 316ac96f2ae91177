//! The life of a mount: mounted, served, unmounted.

use crate::cache_mode::CacheMode;
use crate::front::{Front, Notifying};
use crate::invalidate::Invalidator;
use crate::mount::{self, Mounted, Options};
use crate::no_room;
use braid_contract::{Caller, Context, Error, FileSystem, FrontCache, InodeId};
use fuser::{Config, INodeNo, Notifier, SessionACL};
use rustix::event::Timespec;
use rustix::io::Errno as Os;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How to mount.
#[derive(Clone, Debug)]
pub struct FuseConfig {
    /// Threads that serve requests; at least one is used.
    pub threads: usize,
    /// Whether to let other users than the mounting one in, as far as
    /// permissions go.
    pub allow_other: bool,
    /// How the kernel treats the data of open files.
    pub cache: CacheMode,
    /// The most bytes that the kernel keeps before it writes back.
    pub dirty_max: u64,
    /// Source in the mount table.
    pub fs_name: String,
    /// Options that mean the same for every mount: some of
    /// [`generic_options`](crate::generic_options).
    pub options: Vec<String>,
}

/// A mounted file system that is ready to be served.
pub struct Session {
    /// `None` once it runs.
    library: Option<fuser::Session<Front>>,
    unmounter: Unmounter,
    /// The kernel keeps writes back; set by the negotiation.
    writes_back: Arc<AtomicBool>,
}

/// Unmounts a session from another thread. Does nothing once it is unmounted.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mounted: Arc<Mounted>,
}

/// Mounts `fs` at `mountpoint`. When this returns, the mount exists and the
/// protocol is negotiated; requests wait until the session
/// [runs](Session::run).
///
/// # Errors
/// The problem of the mount point, the device, privileges or the helper, with
/// advice.
pub fn mount(fs: Arc<dyn FileSystem>, mountpoint: &Path, config: &FuseConfig) -> io::Result<Session> {
    let total = fs.statfs(&Caller::root()).map_or(u64::MAX, |room| room.total);
    let dirty_max = no_room::dirty_max(total, config.dirty_max);
    let front = Front::new(fs, config.cache, dirty_max);
    let options =
        Options { fs_name: &config.fs_name, allow_other: config.allow_other, generic: &config.options };
    let (device, mounted) = mount::mount(mountpoint, &options)?;
    let unmounter = Unmounter { mounted: Arc::new(mounted) };
    // From here on, a failure removes the mount again.
    let mut session = Session { library: None, unmounter, writes_back: front.shown_to_session() };
    // The kernel decides about access, by the mount's options: the library
    // would refuse processes that the kernel lets in.
    let notifying = front.notifying();
    let library = fuser::Session::from_fd(front, device, SessionACL::All, library_config(config))?;
    let notifier = library.notifier();
    let invalidator = Invalidator::new(notifier.clone());
    // Requests are only taken once the session runs.
    let _ = notifying.set(Notifying { notifier, invalidator });
    session.library = Some(library);
    session.unmounter.mounted.set_read_ahead();
    if session.writes_back.load(Ordering::Acquire) {
        session.unmounter.mounted.set_dirty_max(dirty_max);
    }
    Ok(session)
}

fn library_config(config: &FuseConfig) -> Config {
    let mut library = Config::default();
    library.n_threads = Some(config.threads.max(1));
    // A queue of its own for each thread's requests in progress. In
    // measurements, it makes no difference on few processors; it shares least
    // on many. It needs to open the device again, which a helper may have
    // opened for this process.
    library.clone_fd = mount::device_opens();
    library
}

impl Session {
    /// Serves requests until the file system is unmounted and no longer in use,
    /// and all threads have ended. The kernel does not return its state at that
    /// moment: lookups remain, and handles of files that were closed right
    /// before.
    ///
    /// # Errors
    /// The error that ended it before that. The mount is then removed too.
    pub fn run(mut self) -> io::Result<()> {
        match self.library.take().map_or(Ok(()), fuser::Session::run) {
            // A thread was about to take a request when the mount went away.
            // This is the normal end, and the other threads saw it too.
            Err(error) if error.raw_os_error() == Some(Os::CONNABORTED.raw_os_error()) => Ok(()),
            result => result,
        }
    }

    /// A handle to unmount with.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// The kernel's cache of this mount; `None` once it is served.
    #[must_use]
    pub fn cache(&self) -> Option<KernelCache> {
        let writes_back = self.writes_back.load(Ordering::Acquire);
        self.library.as_ref().map(|library| KernelCache { notifier: library.notifier(), writes_back })
    }
}

/// The kernel's cache of a mount.
pub struct KernelCache {
    notifier: Notifier,
    writes_back: bool,
}

impl FrontCache for KernelCache {
    fn names_came(&self, dir: InodeId, names: &[OsString]) {
        let ino = INodeNo(dir.0);
        // A missing entry needs no drop.
        for name in names {
            let _ = self.notifier.inval_entry(ino, name);
        }
        // Its listing too.
        let _ = self.notifier.inval_inode(ino, 0, 0);
    }

    fn attributes_changed(&self, ino: InodeId) {
        let _ = self.notifier.inval_inode(INodeNo(ino.0), -1, 0);
    }

    fn write_back(&self, ino: InodeId) -> braid_contract::Result<()> {
        if !self.writes_back {
            return Ok(());
        }
        match self.notifier.inval_inode(INodeNo(ino.0), 0, 0) {
            // The kernel has forgotten it, and its data with it.
            Err(error) if error.raw_os_error() == Some(Os::NOENT.raw_os_error()) => Ok(()),
            result => result.map_err(Error::from).context("writing back the kernel's cache"),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = self.unmounter.detach() {
            tracing::warn!("{error}");
        }
        self.unmounter.mounted.session_ended();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("mountpoint", &self.unmounter.mountpoint()).finish_non_exhaustive()
    }
}

impl Unmounter {
    /// Unmounts; the session's `run` returns soon after. May be tried again.
    ///
    /// # Errors
    /// `ResourceBusy` while files are in use, or another obstacle.
    pub fn unmount(&self) -> io::Result<()> {
        self.mounted.unmount()
    }

    /// Detaches the mount from its path at once, so that it gets no new users.
    /// The session ends when the last file in use is closed.
    ///
    /// # Errors
    /// The obstacle.
    pub fn detach(&self) -> io::Result<()> {
        self.mounted.detach()
    }

    /// Whether the kernel has dropped the file system: it is not mounted, and
    /// not in use.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.mounted.is_over().unwrap_or(false)
    }

    /// Waits until the kernel has dropped the file system; answers whether it
    /// did in time.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> bool {
        let patience = Timespec::try_from(patience).unwrap_or_default();
        self.mounted.wait(patience).unwrap_or(false)
    }

    /// Device number of the file system.
    #[must_use]
    pub fn device(&self) -> u64 {
        self.mounted.device_number()
    }

    /// The mount point.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mounted.path
    }
}
