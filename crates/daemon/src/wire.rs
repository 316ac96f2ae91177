//! The only file that names concrete stores, the volume and the front end.

use crate::check::{Problem, Report};
use crate::config::{self, Config, Large, Policy, THREADS_DEFAULT, TierSettings, VolumeSettings};
use crate::refusal::Refusal;
use braid_contract::{Errno, Error, FileSystem, InodeId};
use braid_fuse::{FuseConfig, Session};
use braid_ipc::protocol::{Explanation, Hello, Run, RunTier, Status, TierStatus};
use braid_stores::dir::DirStore;
use braid_stores::native::open_tier_dir;
use braid_volume::{
    HomeConfig, LargeFiles, Layout, Machine, OpenError, PolicyConfig, Reserve, TierConfig, Volume,
    VolumeConfig,
};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A volume that is open.
#[derive(Clone)]
pub(crate) struct VolumeHandle(Arc<Volume>);

/// Opens the volume, or makes it.
pub(crate) fn open(settings: &VolumeSettings) -> Result<VolumeHandle, Refusal> {
    let opened = Volume::open(volume_config(settings)?);
    opened.map(VolumeHandle).map_err(|error| refuse(&error, settings))
}

/// Checks the volume offline.
pub(crate) fn check(
    settings: &VolumeSettings,
    repair: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, Refusal> {
    let report = braid_volume::check(volume_config(settings)?, repair, progress);
    let report = report.map_err(|error| refuse(&error, settings))?;
    let problem = |problem: braid_volume::Problem| Problem {
        path: problem.path,
        object: problem.id.map(|id| id.to_string()),
        what: problem.what,
        repaired: problem.repaired,
    };
    Ok(Report {
        files: report.files,
        spread_files: report.spread_files,
        ranges: report.ranges,
        objects: report.objects,
        problems: report.problems.into_iter().map(problem).collect(),
    })
}

/// Mounts `fs`; it is mounted when this returns, and served by
/// [`Session::run`].
pub(crate) fn mount(fs: Arc<dyn FileSystem>, point: &Path, config: &Config) -> io::Result<Session> {
    let settings = &config.mount;
    let names: Vec<&str> = config.stack.volume().tiers.iter().map(|tier| tier.name.as_str()).collect();
    let root = rustix::process::geteuid().is_root();
    let front = FuseConfig {
        threads: settings.threads.as_ref().map_or(THREADS_DEFAULT, |threads| threads.value),
        allow_other: settings.allow_other.as_ref().map_or(root, |allow| allow.value),
        passthrough: settings.passthrough.as_ref().is_none_or(|passthrough| passthrough.value),
        fs_name: names.join("+"),
    };
    braid_fuse::mount(fs, point, &front)
}

impl VolumeHandle {
    /// The volume as a file system.
    pub(crate) fn file_system(&self) -> Arc<dyn FileSystem> {
        self.0.clone()
    }

    /// Writes back what is held in memory and closes the volume.
    pub(crate) fn shutdown(&self) -> Result<(), Error> {
        self.0.shutdown()
    }

    /// Where the data of an inode is.
    pub(crate) fn explain(&self, ino: u64) -> Result<Explanation, Error> {
        let explanation = self.0.explain(InodeId(ino))?;
        let (layout, object) = match explanation.layout {
            Layout::Plain => ("plain", None),
            Layout::Spread { id } => ("spread", Some(id.to_string())),
        };
        let run = |run: braid_volume::Run| Run {
            offset: run.offset,
            len: run.len,
            ranges: run.ranges,
            tier: run.tier.map(|(id, name)| RunTier { id: id.0, name }),
            reason: run.reason,
        };
        Ok(Explanation {
            layout: layout.into(),
            object,
            size: explanation.size,
            range_size: explanation.range_size,
            runs: explanation.runs.into_iter().map(run).collect(),
        })
    }

    /// The state of the volume.
    pub(crate) fn status(&self, hello: &Hello) -> Status {
        let status = self.0.status();
        Status {
            volume: status.id.to_string(),
            mountpoint: hello.mountpoint.clone(),
            version: hello.version.clone(),
            pid: hello.pid,
            range_size: status.range_size,
            policy: status.policy,
            open_files: status.open_files,
            known_inodes: status.known_inodes,
            pending_removals: status.pending_removals,
            tiers: status.tiers.into_iter().map(tier_status).collect(),
        }
    }
}

fn tier_status(tier: braid_volume::TierStatus) -> TierStatus {
    // JSON has no other numbers.
    let finite = |number: f64| if number.is_finite() { number } else { 0.0 };
    TierStatus {
        id: tier.id.0,
        name: tier.name,
        location: tier.location,
        home: tier.home,
        state: tier.state.name().into(),
        weight: finite(tier.weight),
        reserve: tier.reserve,
        total: tier.total,
        free: tier.free,
        available: tier.available,
        used: tier.used,
        ranges: tier.ranges,
        read_bytes: tier.read_bytes,
        read_ops: tier.read_ops,
        write_bytes: tier.write_bytes,
        write_ops: tier.write_ops,
        read_rate: finite(tier.read_rate),
        write_rate: finite(tier.write_rate),
    }
}

fn volume_config(settings: &VolumeSettings) -> Result<VolumeConfig, Refusal> {
    let (mut home, mut tiers) = (None, Vec::new());
    for tier in &settings.tiers {
        let weight = tier.weight.as_ref().map(|weight| weight.value);
        let (name, reserve) = (tier.name.clone(), reserve(tier));
        // The daemon leaves its working directory, and `status` tells others.
        let dir = std::fs::canonicalize(&tier.dir.value).unwrap_or_else(|_| tier.dir.value.clone());
        let location = dir.display().to_string();
        if tier.name == settings.home.value {
            let root = open_tier_dir(&dir).map_err(|error| cant_open(tier, &error))?;
            home = Some(HomeConfig { name, root, location, weight, reserve });
        } else {
            let store = DirStore::open(&dir).map_err(|error| cant_open(tier, &error))?;
            tiers.push(TierConfig { name, store: Some(Arc::new(store)), location, weight, reserve });
        }
    }
    let Some(home) = home else {
        let found = format!("there is no tier '{}'", settings.home.value);
        return Err(settings.home.place.refuse(found, "name one of the tiers"));
    };
    let range_size = settings.range.as_ref().map(|range| range.value);
    let policy = policy(&settings.policy.value);
    Ok(VolumeConfig { home, tiers, range_size, policy, environment: Arc::new(Machine) })
}

fn cant_open(tier: &TierSettings, error: &Error) -> Refusal {
    let dir = tier.dir.value.display();
    match error.errno() {
        Errno::EBUSY => tier.dir.place.refuse(
            format!("{dir}: the directory is a tier of a volume that is mounted now"),
            "unmount that first: braid umount MOUNTPOINT",
        ),
        _ => tier.dir.place.refuse(error.to_string(), "check the directory and its file system"),
    }
}

fn reserve(tier: &TierSettings) -> Reserve {
    match tier.reserve.as_ref().map(|reserve| reserve.value) {
        None => Reserve::default(),
        Some(config::Reserve::Bytes(bytes)) => Reserve::Bytes(bytes),
        Some(config::Reserve::Percent(percent)) => Reserve::Percent(percent),
    }
}

fn policy(policy: &Policy) -> PolicyConfig {
    match policy {
        Policy::Weighted => PolicyConfig::Weighted,
        Policy::HomeFirst { watermark } => PolicyConfig::HomeFirst { watermark_percent: *watermark },
        Policy::Size { small, large } => PolicyConfig::Size {
            small: *small,
            large: match large {
                Large::Spread => LargeFiles::Spread,
                Large::Tier(tier) => LargeFiles::Tier(tier.value.clone()),
            },
        },
    }
}

/// Says where the setting stands that the volume could not be opened for. What
/// the volume says is what it found and then, after a semicolon, what to do.
fn refuse(error: &OpenError, settings: &VolumeSettings) -> Refusal {
    let text = error.to_string();
    let otherwise = match error {
        OpenError::NeedsRoot { .. } => "mount it as root, or make a volume of your own in other directories",
        _ => "check the directory and its file system; the log may say more",
    };
    let (found, advice) = text.split_once("; ").unwrap_or((&text, otherwise));
    match (error, error.tier().and_then(|name| settings.tier(name))) {
        (OpenError::RangeSizeDiffers { .. }, _) => {
            let place = settings.range.as_ref().map_or(&settings.place, |range| &range.place);
            place.refuse(found, advice)
        }
        (_, Some(tier)) => tier.dir.place.refuse(format!("{}: {found}", tier.dir.value.display()), advice),
        (_, None) => settings.place.refuse(found, advice),
    }
}
