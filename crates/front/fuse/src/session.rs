//! The life of a mount: mounted, served, unmounted.

use crate::config::{CacheMode, FuseConfig};
use crate::front::{Front, Notifying};
use crate::init::{Agreed, BACKGROUND_MAX};
use crate::invalidate::Invalidator;
use crate::mount::{self, Mounted, Options};
use crate::no_room;
use crate::serve::{self, RequestSource, prepare_rings, serve};
use braid_contract::{Caller, Context, Error, FileSystem, FrontCache, InodeId};
use fuser::{Config, Dispatcher, INodeNo, Notifier, SessionACL};
use rustix::event::Timespec;
use rustix::io::Errno as Os;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A mounted file system that is ready to be served.
pub struct Session {
    /// `None` once it runs.
    dispatcher: Option<Dispatcher<Front>>,
    transport: RequestSource,
    notifier: Notifier,
    unmounter: Unmounter,
    asked: CacheMode,
    agreed: Agreed,
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
    let rings = config.rings && prepare_rings();
    let (threads, background) = match fs.capabilities().holds_up {
        true => serve::where_requests_are_held(config.threads, rings),
        false => (config.threads.max(1), BACKGROUND_MAX),
    };
    let front = Front::new(fs, config, (rings, background), dirty_max);
    let options =
        Options { fs_name: &config.fs_name, allow_other: config.allow_other, generic: &config.options };
    let (device, mounted) = mount::mount(mountpoint, &options)?;
    let unmounter = Unmounter { mounted: Arc::new(mounted) };
    let (notifying, agreed) = (front.notifying(), front.agreed());
    // The kernel decides about access, by the mount's options: the library
    // would refuse processes that the kernel lets in.
    let library = fuser::Session::from_fd(front, device, SessionACL::All, Config::default());
    let library = library.inspect_err(|_| unmounter.end())?;
    let notifier = library.notifier();
    let agreed = agreed.get().copied().unwrap_or_default();
    let transport = RequestSource::new(threads, agreed.rings);
    let invalidator = Invalidator::new(notifier.clone(), transport.limits());
    // Requests are only taken once the session runs.
    let _ = notifying.set(Notifying { notifier: notifier.clone(), invalidator });
    unmounter.mounted.set_read_ahead();
    if agreed.write_back {
        unmounter.mounted.set_dirty_max(dirty_max);
    }
    let dispatcher = Some(library.into_dispatcher());
    Ok(Session { dispatcher, transport, notifier, unmounter, asked: config.cache, agreed })
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
        let dispatcher = self.dispatcher.take();
        dispatcher.map_or(Ok(()), |dispatcher| serve(dispatcher, self.transport.clone()))
    }

    /// A handle to unmount with.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// The kernel's cache of this mount.
    #[must_use]
    pub fn cache(&self) -> KernelCache {
        KernelCache { notifier: self.notifier.clone(), writes_back: self.agreed.write_back }
    }

    /// The mode of that cache that the kernel agreed to. `None`: it caches
    /// reads, and writes reach the file system at once.
    #[must_use]
    pub fn cache_mode(&self) -> Option<CacheMode> {
        let Agreed { passthrough, write_back, direct, .. } = self.agreed;
        let all_direct = direct && self.asked == CacheMode::Direct;
        let agreed = [
            (write_back, CacheMode::WriteBack),
            (passthrough, CacheMode::Passthrough),
            (all_direct, CacheMode::Direct),
        ];
        agreed.into_iter().find_map(|(is, mode)| is.then_some(mode))
    }

    /// Tells whether requests come through io_uring, which is known for sure
    /// once it runs.
    pub fn rings(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let transport = self.transport.clone();
        move || transport.uses_rings()
    }
}

/// Inodes that one notification has the kernel forget.
const FORGET_BATCH: usize = 512;

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

    fn forget(&self, inodes: &[InodeId]) -> braid_contract::Result<()> {
        for batch in inodes.chunks(FORGET_BATCH) {
            let batch: Vec<u64> = batch.iter().map(|ino| ino.0).collect();
            self.notifier.prune(&batch).map_err(Error::from).context("having the kernel forget inodes")?;
        }
        Ok(())
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
        self.unmounter.end();
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

    /// Detaches the mount of a session that serves no more.
    fn end(&self) {
        if let Err(error) = self.detach() {
            tracing::warn!("{error}");
        }
        self.mounted.session_ended();
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
