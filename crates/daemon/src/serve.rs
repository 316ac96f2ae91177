//! The daemon's life: open the volume, mount, answer until unmounted, close.

use crate::config::Config;
use crate::control::{Control, Served};
use crate::handle::VolumeHandle;
use crate::metrics::{self, Listener};
use crate::refusal::{Located, Place, Refusal};
use crate::signals::Watch;
use crate::validate::{self, MountPoint};
use crate::wire;
use braid_contract::Shown;
use braid_ipc::protocol::Ended;
use braid_ipc::{Handler, Server, mounts, socket};
use sd_notify::NotifyState;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Why a daemon did not start, or failed.
#[derive(Debug)]
pub enum ServeError {
    /// The configuration can't be mounted; nothing is.
    Refused(Refusal),
    /// It was mounted, and ended with this error.
    Failed(String),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<Refusal> for ServeError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Creates the volume that `config` describes, without mounting it; answers its
/// id.
///
/// # Errors
/// If it can't be created, or exists already.
pub fn create(config: &Config) -> Result<String, Refusal> {
    validate::create(config.stack.volume())?;
    Ok(wire::create(config.stack.volume())?.to_string())
}

/// Mounts the file system that `config` describes and answers until it is
/// unmounted. `ready` is called once it can be used, with messages about it.
///
/// # Errors
/// If it can't be mounted, or does not end cleanly.
pub fn run(
    config: &Config,
    mountpoint: &Path,
    nonempty: bool,
    ready: impl FnOnce(&[String]),
) -> Result<(), ServeError> {
    let point = validate::mount(config, mountpoint, nonempty)?;
    braid_sys::set_up_allocator();
    // One descriptor per open file of each application, on each tier.
    let open_files_max = braid_sys::raise_open_files();
    tracing::debug!(open_files_max, "starting");
    let listener = listen(config)?;
    wire::prepare_to_write_back(config);
    let volume = wire::open(config, config.create)?;
    let served = serve(config, &point, &volume, listener, ready);
    if let Err(ServeError::Refused(_)) = served {
        // The volume was never used; an error of closing it does not matter.
        let _ = volume.shutdown();
    }
    served
}

/// Changes the generic options of the mount at `point`.
///
/// # Errors
/// Those of the system call.
pub fn remount(point: &Path, options: &[String]) -> io::Result<()> {
    braid_fuse::remount(point, options)
}

fn serve(
    config: &Config,
    point: &MountPoint,
    volume: &VolumeHandle,
    listener: Option<Listener>,
    ready: impl FnOnce(&[String]),
) -> Result<(), ServeError> {
    let place = || Place::flag(format!("mount point {}", point.given.to_string_lossy()));
    let session = wire::mount(volume.file_system(), &point.path, config)
        .map_err(|error| place().refuse(format!("can't be mounted: {error}"), mount_advice(&error)))?;
    let unmounter = session.unmounter();
    volume.volume.set_front_cache(Arc::new(session.cache()), config.mount.inodes_max());
    let control = Arc::new(Control::new(volume.clone(), &point.path, config, Some(Served::of(&session))));
    let (follower, reloader) = (Arc::clone(&control), Arc::clone(&control));
    let prepared = start_control(&point.path, Arc::clone(&control)).and_then(|server| {
        let unmounter = unmounter.clone();
        let metrics = listener.map(|listener| tell_metrics(listener, control)).transpose()?;
        Ok((server, metrics, Watch::start(unmounter, move || reloader.reload_and_log())?))
    });
    let (server, metrics, signals) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            let advice = "without its control socket a mount could not be asked or ended; make room for it";
            let refusal = place().refuse(format!("no control socket: {error}"), advice);
            let _ = unmounter.unmount();
            return Err(refusal.into());
        }
    };
    // A working directory would keep some other file system from being
    // unmounted.
    let _ = std::env::set_current_dir("/");
    let served = Served::of(&session);
    let (cache, transport) = (served.cache, served.transport());
    tracing::info!(mountpoint = %point.path.shown(), cache, transport, "mounted");
    let parallel = config.stack.volume().jobs.as_ref().map(|jobs| jobs.value);
    if let Err(error) = volume.volume.start_jobs(parallel) {
        tracing::error!(%error, "no job runs: there is no thread for them");
    }
    let notices: Vec<String> = volume.volume.strays().iter().map(ToString::to_string).collect();
    notices.iter().for_each(|notice| tracing::warn!("{notice}"));
    ready(&notices);
    tell_manager(&[NotifyState::Ready]);
    let served = session.run();
    tracing::info!("unmounted; closing the volume");
    tell_manager(&[NotifyState::Stopping]);
    drop(metrics);
    follower.end();
    let closed = volume.shutdown();
    // No job does anything any more.
    follower.follow();
    follower.await_recording();
    drop(signals);
    let error = match (served, closed) {
        (Err(error), _) => Some(format!("the connection to the kernel failed: {error}")),
        (_, Err(error)) => Some(format!("the volume was not closed cleanly: {error}")),
        (Ok(()), Ok(())) => None,
    };
    server.finish(Ended { error: error.clone() });
    match error {
        None => Ok(()),
        Some(error) => {
            tracing::error!("{error}");
            Err(ServeError::Failed(error))
        }
    }
}

/// Reports the daemon's state to a service manager that waits for it, as
/// systemd does for a unit of type `notify`.
fn tell_manager(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

/// Binds the address of metrics, before anything is mounted.
fn listen(config: &Config) -> Result<Option<Listener>, Refusal> {
    let Some(Located { value: address, place }) = &config.mount.metrics else { return Ok(None) };
    let listening = Listener::bind(address).map_err(|error| {
        let found = format!("nobody can listen at {address}: {error}");
        place.refuse(found, "end who does, or name another port or socket")
    });
    listening.map(Some)
}

/// Serves metrics.
fn tell_metrics(listener: Listener, control: Arc<Control>) -> io::Result<metrics::Server> {
    let told = move || {
        let status = control.status().map_err(|error| error.to_string())?;
        metrics::exposition(status, control.jobs())
    };
    metrics::Server::start(listener, Arc::new(told))
}

/// Serves the control socket of the mount at `point`. The device number comes
/// from the mount table: a request to the file system itself would never be
/// answered here.
fn start_control(point: &Path, control: Arc<Control>) -> io::Result<Server> {
    let mounts = mounts::list()?;
    let mount = mounts::at(&mounts, point)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the mount is not in the mount table"))?;
    let path = socket::prepare(mount.dev)?;
    Server::start(&path, rustix::process::geteuid().is_root(), control)
}

fn mount_advice(error: &io::Error) -> &'static str {
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
