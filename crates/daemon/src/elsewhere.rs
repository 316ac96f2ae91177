//! Detecting that a volume to be mounted is already served by another daemon.

use crate::config::{TierSettings, VolumeSettings};
use braid_contract::Shown;
use braid_ipc::daemons::{self, Daemon};
use braid_ipc::mounts::Mount;
use braid_ipc::{holders, mounts};
use braid_stores::native::open_tier_dir;
use std::path::{Path, PathBuf};

/// The daemon that serves a volume.
#[derive(Debug)]
pub struct Elsewhere {
    /// Its process id.
    pub pid: u32,
    /// Where it mounted the volume.
    pub mountpoint: PathBuf,
    /// A current mount of the whole volume, in this process's mount namespace.
    pub now: Option<PathBuf>,
    dev: u64,
}

/// The daemon that serves the volume with the home tier of `volume`.
#[must_use]
pub fn find(volume: &VolumeSettings) -> Option<Elsewhere> {
    let home = volume.tier(&volume.home.value)?;
    using(&home.dir.value, |daemon, dir| {
        daemon.status().is_some_and(|status| {
            status.tiers.iter().any(|tier| tier.home && Path::new(&tier.location) == dir)
        })
    })
}

/// The daemon that uses a tier's directory.
pub(crate) fn of_tier(tier: &TierSettings) -> Option<Elsewhere> {
    using(&tier.dir.value, |daemon, dir| {
        daemon.status().is_some_and(|status| status.tiers.iter().any(|tier| Path::new(&tier.location) == dir))
    })
}

fn using(dir: &Path, is_it: impl Fn(&mut Daemon, &Path) -> bool) -> Option<Elsewhere> {
    let dir = std::fs::canonicalize(dir).ok()?;
    // A tier in use is locked. Without a lock, there is no daemon to ask.
    open_tier_dir(&dir).err()?;
    let daemon =
        daemons::list().into_iter().find_map(|mut daemon| is_it(&mut daemon, &dir).then_some(daemon))?;
    let whole = |mount: &&Mount| mount.dev == daemon.dev && mount.root == Path::new("/");
    let mounts = mounts::list().unwrap_or_default();
    let now = mounts.iter().find(whole).map(|mount| mount.point.clone());
    let Daemon { dev, hello, .. } = daemon;
    Some(Elsewhere { pid: hello.pid, mountpoint: hello.mountpoint.into(), now, dev })
}

impl Elsewhere {
    /// A description of its location or owner, and advice.
    #[must_use]
    pub fn describe(&self) -> (String, String) {
        let pid = self.pid;
        match &self.now {
            Some(point) => {
                let point = point.shown();
                (
                    format!("is mounted at {point}, by daemon {pid}"),
                    format!("unmount it first: braid umount {point}"),
                )
            }
            None => {
                let users = holders::lines(&holders::list(self.dev));
                let found = format!(
                    "is not mounted at {} any more, but served by daemon {pid} as long as it is used:{users}",
                    self.mountpoint.shown()
                );
                (
                    found,
                    format!("end the programs that use it, or end it for them: braid umount --force {pid}"),
                )
            }
        }
    }
}
