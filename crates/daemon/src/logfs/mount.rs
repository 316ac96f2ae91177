//! The life of a mount of a log file system.

use super::control::Control;
use super::refuse;
use crate::config::{DIRTY_DEFAULT, THREADS_DEFAULT};
use crate::kv::settings::KvSettings;
use crate::kv::{self, Buckets, Owner, Prepared, Serving};
use crate::refusal::{Place, Refusal};
use crate::runtime::{self, RuntimeSettings};
use crate::serve::{ServeError, device_of, mount_advice, start_control, tell_manager};
use crate::signals::Watch;
use crate::validate;
use braid_contract::{FileSystem, FrontCache, Shown};
use braid_fuse::{CacheMode, FuseConfig, Session};
use braid_ipc::Handler;
use braid_ipc::protocol::Ended;
use braid_log::{Device, Disk, LogFs, Settings, Use};
use braid_runtime::{Before, Runtime, Values};
use braid_stores::native::Machine;
use sd_notify::NotifyState;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many workers there can be.
pub const WORKERS: RangeInclusive<usize> = 1..=braid_log::WORKERS_MAX;

/// Workers for each processor, without being asked for: at least one, at most so many.
const WORKERS_DEFAULT_MAX: usize = 8;

/// What is to be mounted, and how.
#[derive(Clone, Debug)]
pub struct LogMount {
    /// The device or file.
    pub path: PathBuf,
    /// Where to mount.
    pub mountpoint: PathBuf,
    /// Workers, each with a log of its own.
    pub workers: Option<usize>,
    /// Whether other users may use it; if it is not said, they may where root mounts.
    pub allow_other: Option<bool>,
    /// Whether the mount point may hold something.
    pub nonempty: bool,
    /// Whether applications may have sessions.
    pub runtime: Option<RuntimeSettings>,
    /// How keys and values are served; not at all if it is not set.
    pub kv: Option<KvSettings>,
}

/// A mount that is in use.
pub struct Mounted {
    session: Session,
    server: braid_ipc::Server,
    signals: Watch,
    kv: Option<Serving>,
    fs: Arc<LogFs>,
    runtime: Option<Arc<Runtime>>,
}

/// Refuses what can't be mounted; answers where it would be.
///
/// # Errors
/// The first obstacle.
pub fn look(wanted: &LogMount) -> Result<PathBuf, Refusal> {
    let point = validate::look_at_mount_point(&wanted.mountpoint, wanted.nonempty)?;
    if let Some(count) = wanted.workers.filter(|count| !WORKERS.contains(count)) {
        let advice = format!("write a whole number from {} to {}", WORKERS.start(), WORKERS.end());
        return Err(Place::flag(format!("--workers {count}")).refuse("out of bounds", advice));
    }
    Disk::open(&wanted.path, Use::Write).map_err(|error| refuse(&wanted.path, &error))?;
    Ok(point.path)
}

/// Opens a log file system, recovers it if need be, and mounts it.
///
/// # Errors
/// If it can't be opened or mounted; nothing is mounted then.
pub fn mount(wanted: &LogMount) -> Result<Mounted, Refusal> {
    let point = look(wanted)?;
    let doors = kv::prepare(wanted.kv.as_ref())?;
    braid_sys::set_up_allocator();
    // What is written back must not wait for what is to be written back.
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!(%error, "the kernel may hold back what is written back");
    }
    let told = |error| refuse(&wanted.path, &error);
    let device: Arc<dyn Device> = Arc::new(Disk::open(&wanted.path, Use::Write).map_err(told)?);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = wanted.workers.unwrap_or(processors.min(WORKERS_DEFAULT_MAX));
    let settings = Settings { workers, ..Settings::default() };
    let fs = Arc::new(LogFs::open(device, settings, Arc::new(Machine)).map_err(told)?);
    doors.as_ref().map_or(Ok(()), |doors| doors.look(&Owner::Log(Arc::clone(&fs))))?;
    let session = braid_fuse::mount(Arc::clone(&fs) as Arc<dyn FileSystem>, &point, &front(wanted));
    let session = session.map_err(|error| {
        let place = Place::flag(format!("mount point {}", wanted.mountpoint.to_string_lossy()));
        place.refuse(format!("can't be mounted: {error}"), mount_advice(&error))
    })?;
    let how = (front(wanted).allow_other, &[][..]);
    let owner = Owner::Log(Arc::clone(&fs));
    let buckets = Arc::new(Buckets::new(owner, Arc::new(session.cache()), &point, how));
    begin(session, fs, &point, (buckets, doors), wanted.runtime.as_ref()).map_err(|error| {
        let place = Place::flag(format!("mount point {}", wanted.mountpoint.to_string_lossy()));
        place.refuse(format!("no socket: {error}"), "make room for it")
    })
}

fn front(wanted: &LogMount) -> FuseConfig {
    let root = rustix::process::geteuid().is_root();
    FuseConfig {
        ledger: None,
        threads: THREADS_DEFAULT,
        rings: true,
        allow_other: wanted.allow_other.unwrap_or(root),
        xattrs: true,
        cache: CacheMode::WriteBack,
        dirty_max: DIRTY_DEFAULT,
        fs_name: crate::paths::real(&wanted.path).to_string_lossy().into_owned(),
        options: Vec::new(),
    }
}

/// Starts what answers beside the session.
fn begin(
    session: Session,
    fs: Arc<LogFs>,
    point: &Path,
    (buckets, doors): (Arc<Buckets>, Option<Prepared>),
    wanted: Option<&RuntimeSettings>,
) -> io::Result<Mounted> {
    let begun = || {
        let control = Arc::new(Control::new(Arc::clone(&fs), session.unmounter(), Arc::clone(&buckets)));
        let server = start_control(point, Arc::clone(&control) as Arc<dyn Handler>)?;
        let kv = doors.map(|doors| doors.serve(&buckets)).transpose()?;
        let (path, _) = server.socket()?;
        let mounted = || {
            let top = Arc::clone(&fs) as Arc<dyn FileSystem>;
            let kernel: Arc<dyn FrontCache> = Arc::new(session.cache());
            let values = Arc::clone(&buckets) as Arc<dyn Values>;
            let device = device_of(point)?;
            Ok(braid_runtime::Mounted { top, kernel: Some(kernel), values: Some(values), device })
        };
        let wanted = RuntimeSettings::wanted(wanted);
        let runtime = runtime::start(wanted, &path, mounted, Before::default())?;
        runtime.iter().for_each(|runtime| control.serves_sessions(runtime));
        let signals =
            Watch::start(session.unmounter(), || tracing::info!("there is no stack file to reload"))?;
        Ok((server, kv, signals, runtime))
    };
    match begun() {
        Ok((server, kv, signals, runtime)) => {
            // A working directory would keep some other file system from being unmounted.
            let _ = std::env::set_current_dir("/");
            tracing::info!(mountpoint = %point.shown(), "mounted");
            tell_manager(&[NotifyState::Ready]);
            Ok(Mounted { session, server, signals, kv, fs, runtime })
        }
        Err(error) => {
            let _ = session.unmounter().unmount();
            Err(error)
        }
    }
}

impl Mounted {
    /// Serves until it is unmounted, and closes the file system.
    ///
    /// # Errors
    /// If the connection to the kernel failed, or the file system was not closed cleanly.
    pub fn serve(self) -> Result<(), ServeError> {
        let Self { session, server, signals, kv, fs, runtime } = self;
        let served = session.run();
        runtime.iter().for_each(|runtime| runtime.stop());
        tracing::info!("unmounted; closing the file system");
        tell_manager(&[NotifyState::Stopping]);
        drop((signals, kv));
        let closed = fs.close();
        let error = match (served, closed) {
            (Err(error), _) => Some(format!("the connection to the kernel failed: {error}")),
            (_, Err(error)) => Some(format!("the file system was not closed cleanly: {error}")),
            (Ok(_), Ok(())) => None,
        };
        // Who waits for the end may use the device then.
        drop(fs);
        server.finish(Ended { error: error.clone() });
        error.map_or(Ok(()), |error| {
            tracing::error!("{error}");
            Err(ServeError::Failed(error))
        })
    }
}
