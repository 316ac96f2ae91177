//! Servers beside a session while it runs, for any file system: the control socket, metrics, keys
//! and values, sessions of applications, and signals.

use crate::config::MountSettings;
use crate::fuse_session::FuseSession;
use crate::guard::States;
use crate::kv::{self, Buckets, Owner};
use crate::metrics::{self, Listener};
use crate::mount_control::MountControl;
use crate::refusal::Refusal;
use crate::runtime::{self, RuntimeSettings, WithoutXattrs};
use crate::signals::Watch;
use braid_contract::{FileSystem, FrontCache, Shown};
use braid_fuse::Session;
use braid_ipc::{Handler, Server, VolumeHandler, mounts, socket};
use braid_runtime::{Before, Mounted, Runtime, Values};
use sd_notify::NotifyState;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Addresses that are bound before anything is mounted.
#[derive(Default)]
pub(crate) struct Bound {
    metrics: Option<Listener>,
    kv: Option<kv::Prepared>,
}

impl Bound {
    /// Binds those of a mount.
    ///
    /// # Errors
    /// If one can't be.
    pub(crate) fn of(mount: &MountSettings) -> Result<Self, Refusal> {
        Ok(Self { metrics: listen(mount)?, kv: kv::prepare(mount.kv.as_ref())? })
    }

    /// Binds those that can be bound: without the mount, the earlier ones are of no use.
    pub(crate) fn again(mount: &MountSettings) -> Self {
        let metrics = listen(mount).unwrap_or_else(|refusal| {
            tracing::error!("no metrics any more: {refusal}");
            None
        });
        let kv = kv::prepare(mount.kv.as_ref()).unwrap_or_else(|refusal| {
            tracing::error!("no keys and values any more: {refusal}");
            None
        });
        Self { metrics, kv }
    }

    /// Refuses a directory of keys and values that is not there.
    ///
    /// # Errors
    /// If it is not there.
    pub(crate) fn look(&self, owner: &Owner) -> Result<(), Refusal> {
        self.kv.as_ref().map_or(Ok(()), |kv| kv.look(owner))
    }
}

/// Handles requests at the control socket of a mount.
pub(crate) trait MountHandler: Handler {
    /// The part that all mounts have.
    fn mount(&self) -> &MountControl;

    /// Reloads at a signal.
    fn reload_and_log(&self) {
        match self.reload(false) {
            Ok(reloaded) if reloaded.changes.is_empty() => {
                tracing::info!(file = reloaded.file, "asked to read the stack file anew: nothing changed");
            }
            Ok(_) => {}
            Err(error) => tracing::error!("asked to read the stack file anew; nothing is changed: {error}"),
        }
    }
}

/// A session, and the file system that it serves.
pub(crate) struct Front<'a> {
    pub(crate) session: &'a Session,
    pub(crate) mount: &'a MountSettings,
    pub(crate) point: &'a Path,
    /// The whole stack.
    pub(crate) top: Arc<dyn FileSystem>,
    /// The owner of the directories that are served as keys and values.
    pub(crate) owner: Owner,
}

/// The servers beside a session, while it runs.
pub(crate) struct Beside<C> {
    pub(crate) control: Arc<C>,
    pub(crate) server: Server,
    pub(crate) metrics: Option<metrics::Server>,
    pub(crate) kv: Option<kv::KvServer>,
    /// Doors to keys and values that are still to be opened.
    held: Option<kv::Prepared>,
    buckets: Arc<Buckets>,
    pub(crate) signals: Watch,
    pub(crate) runtime: Option<Arc<Runtime>>,
    /// Has a guard keep the states of modules.
    pub(crate) states: Option<States>,
}

impl<C: MountHandler + 'static> Beside<C> {
    /// Starts the servers; `start` opens the control socket.
    ///
    /// # Errors
    /// If there is no room, or there are no descriptors or threads left.
    pub(crate) fn begin(
        front: Front<'_>,
        control: C,
        bound: Bound,
        before: Before,
        start: impl FnOnce(Arc<C>) -> io::Result<Server>,
    ) -> io::Result<Self> {
        let Front { session, mount, point, top, owner } = front;
        let control = Arc::new(control);
        let kernel: Arc<dyn FrontCache> = Arc::new(session.cache());
        let is_root = rustix::process::geteuid().is_root();
        let allow_other = mount.allow_other.as_ref().map_or(is_root, |allow| allow.value);
        let how = (allow_other, &mount.options[..]);
        let buckets = Arc::new(Buckets::new(owner, Arc::clone(&kernel), point, how));
        control.mount().set_buckets(&buckets);
        let waits = before.waits;
        if waits {
            // No one uses it yet.
            let _ = buckets.gate().pause(Instant::now());
        }
        let server = start(Arc::clone(&control))?;
        let (path, _) = server.socket()?;
        let mounted = || {
            let serves_xattrs = mount.xattr.as_ref().is_none_or(|xattr| xattr.value);
            let top = if serves_xattrs { top } else { Arc::new(WithoutXattrs(top)) };
            let values = Arc::clone(&buckets) as Arc<dyn Values>;
            Ok(Mounted { top, kernel: Some(kernel), values: Some(values), device: device_of(point)? })
        };
        let runtime =
            runtime::start(RuntimeSettings::wanted(mount.runtime.as_ref()), &path, mounted, before)?;
        runtime.iter().for_each(|runtime| control.mount().set_runtime(runtime));
        let metrics =
            bound.metrics.map(|listener| serve_metrics(listener, Arc::clone(&control))).transpose()?;
        let (held, at_once) = if waits { (bound.kv, None) } else { (None, bound.kv) };
        let kv = at_once.map(|prepared| prepared.serve(&buckets)).transpose()?;
        let reloader = Arc::clone(&control);
        let signals = Watch::start(session.unmounter(), move || reloader.reload_and_log())?;
        // A working directory would keep some other file system from being
        // unmounted.
        let _ = std::env::set_current_dir("/");
        let fuse = FuseSession::of(session);
        let (cache, transport) = (fuse.cache, fuse.transport());
        tracing::info!(mountpoint = %point.shown(), cache, transport, "mounted");
        Ok(Self { control, server, metrics, kv, held, buckets, signals, runtime, states: None })
    }

    /// Carries out requests of sessions and about keys and values from now on, where they wait: the
    /// process before has ended its use of the file system for good.
    pub(crate) fn release(mut self) -> Self {
        self.buckets.gate().resume();
        if let Some(prepared) = self.held.take() {
            self.kv = prepared.serve(&self.buckets).map_or_else(
                |error| {
                    tracing::error!("no keys and values any more: {error}");
                    None
                },
                Some,
            );
        }
        self.runtime.iter().for_each(|runtime| runtime.resume());
        self
    }
}

/// Binds the address of metrics, before anything is mounted.
fn listen(mount: &MountSettings) -> Result<Option<Listener>, Refusal> {
    mount.metrics.as_ref().map(Listener::at).transpose()
}

/// Serves metrics.
fn serve_metrics<C: MountHandler + 'static>(
    listener: Listener,
    control: Arc<C>,
) -> io::Result<metrics::Server> {
    let source = move || {
        let status = control.status().map_err(|error| error.to_string())?;
        let jobs = control.volume().map(VolumeHandler::jobs).unwrap_or_default();
        metrics::exposition(status, jobs)
    };
    metrics::Server::start(listener, Arc::new(source))
}

/// The number of the file system that is mounted there, by the mount table: a request to the
/// file system itself would never be answered here.
pub(crate) fn device_of(point: &Path) -> io::Result<u64> {
    let mounts = mounts::list()?;
    let mount = mounts::at(&mounts, point)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the mount is not in the mount table"))?;
    Ok(mount.dev)
}

/// Serves the control socket of the mount at `point`.
pub(crate) fn start_control(point: &Path, control: Arc<dyn Handler>) -> io::Result<Server> {
    let path = socket::prepare(device_of(point)?)?;
    Server::start(&path, rustix::process::geteuid().is_root(), control)
}

/// Reports the daemon's state to a service manager that waits for it, as
/// systemd does for a unit of type `notify`.
pub(crate) fn tell_manager(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

pub(crate) fn mount_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "check that this user may use /dev/fuse, and that fusermount3 (Debian package fuse3) is installed"
        }
        io::ErrorKind::NotFound => {
            "install fusermount3 (Debian package fuse3), and check that /dev/fuse exists"
        }
        _ => "the log may say more",
    }
}
