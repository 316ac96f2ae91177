//! Refusals of views, and of settings of their mounts.

use super::settings::ViewSettings;
use crate::config::{Cache, Config, MountSettings};
use crate::refusal::{Place, Refusal};
use braid_contract::Shown;
use braid_fuse::CacheMode;
use braid_ipc::mounts::{self, Mount};
use braid_ipc::protocol::Status;
use braid_ipc::{daemons, socket};
use std::io;
use std::path::{Path, PathBuf};

/// Views of views, at most.
const DEPTH_MAX: usize = 16;

/// The place that a view shows, as found.
pub(super) struct Seen {
    /// The directory, absolute and without symbolic links.
    pub(super) dir: PathBuf,
    /// The mount that it is in.
    pub(super) mount: Mount,
    /// The socket at which sessions with that begin.
    pub(super) socket: PathBuf,
}

/// Refuses a view that can't be mounted like this.
///
/// # Errors
/// The first obstacle.
pub(crate) fn look(view: &ViewSettings, config: &Config) -> Result<(), Refusal> {
    unfit(&config.mount, config.create)?;
    let seen = find(view)?;
    let allows = config.mount.allow_other.as_ref().filter(|allow| allow.value);
    match allows {
        Some(allow) if !acts_for_others(&seen.mount) => {
            let found = "a view of a user acts as that user only: it can't let others in";
            Err(allow.place.refuse(found, "leave it out, or mount the view as root"))
        }
        _ => Ok(()),
    }
}

/// Whether this process may act for others there.
pub(super) fn acts_for_others(mount: &Mount) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    uid == 0 || mount.owner() == Some(uid)
}

/// Refuses a mount point, as written and without symbolic links, inside the mount that the view
/// shows.
///
/// # Errors
/// If it is there.
pub(crate) fn keep_apart(view: &ViewSettings, (given, path): (&Path, &Path)) -> Result<(), Refusal> {
    let mut seen = find(view)?.mount;
    let mounts = mounts::list().unwrap_or_default();
    let Some(at) = mounts::containing(&mounts, path).map(|mount| mount.dev) else { return Ok(()) };
    for _ in 0..DEPTH_MAX {
        if at == seen.dev {
            let (point, of) = (given.shown(), seen.point.shown());
            let place = Place::flag(format!("mount point {point}"));
            let found = format!("it is inside {of}, which this is a view of: names would lead round in it");
            return Err(place.refuse(found, "mount it elsewhere"));
        }
        let Some(of) = status_of(&seen).and_then(|status| status.view) else { return Ok(()) };
        let Some(below) = mounts::containing(&mounts, Path::new(&of)) else { return Ok(()) };
        seen = below.clone();
    }
    Err(view.of.place.refuse(
        format!("more than {DEPTH_MAX} views on top of each other"),
        "make it a view of what is below one of them",
    ))
}

fn status_of(mount: &Mount) -> Option<Status> {
    daemons::list().into_iter().find(|daemon| daemon.dev == mount.dev)?.status()
}

/// Finds the place that a view shows.
///
/// # Errors
/// If there is no mount of Braid, or it has no runtime.
pub(super) fn find(view: &ViewSettings) -> Result<Seen, Refusal> {
    let (of, place) = (&view.of.value, &view.of.place);
    let shown = of.shown();
    let unreachable = |error: io::Error| {
        let advice = "name the mount point of a Braid file system, or a directory in it; mount that first";
        place.refuse(format!("{shown}: {error}"), advice)
    };
    let dir = mounts::resolve(of).map_err(unreachable)?;
    let mounts = mounts::list().map_err(unreachable)?;
    let Some(mount) = mounts::containing(&mounts, &dir).filter(|mount| mount.is_braid()) else {
        let advice = "name the mount point of one, or a directory in it; mount that first";
        return Err(place.refuse(format!("{shown} is in no mounted Braid file system"), advice));
    };
    let point = mount.point.shown();
    if mount.is_dead() {
        let advice = format!("mount it anew first: braid umount {point}, then braid mount");
        return Err(place.refuse(format!("the daemon of {point} has ended"), advice));
    }
    if !std::fs::metadata(&dir).map_err(unreachable)?.is_dir() {
        return Err(place.refuse(format!("{shown} is not a directory"), "name a directory"));
    }
    let socket = socket::of_sessions(mount).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let found = format!("the mount at {point} has no runtime, with which a view has its session");
            place.refuse(found, "mount it with 'runtime: true' below 'mount:', or with --runtime")
        }
        _ => unreachable(error),
    })?;
    Ok(Seen { dir, mount: mount.clone(), socket })
}

/// Refuses settings of a mount that a view can't keep to.
fn unfit(mount: &MountSettings, create: bool) -> Result<(), Refusal> {
    if create {
        let advice = "leave it out; what the view is of has to be mounted";
        return Err(Place::flag("--create").refuse("a view has no volume of its own", advice));
    }
    if let Some(cache) = &mount.cache
        && !matches!(cache.value, Cache::Auto | Cache::Mode(CacheMode::Direct))
    {
        let found = "what the kernel kept of a view would be old when others change it below";
        return Err(cache.place.refuse(found, "write direct, or leave it out"));
    }
    if let Some(inodes) = &mount.inodes {
        let found = "the mount below says how many inodes are known";
        return Err(inodes.place.refuse(found, "leave it out"));
    }
    if braid_fuse::access_times(&mount.options).is_some() {
        let found = "the mount below says when reading renews access times";
        return Err(Place::flag("options of access times").refuse(found, "leave them out here"));
    }
    Ok(())
}
