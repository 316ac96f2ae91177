//! Replacing the home tier by another directory (`braid tier replace` for
//! home), and handling an interrupted replacement at a mount.

use crate::advice::Asked;
use crate::handle::VolumeHandle;
use crate::reply::{cant_open, invalid, refused};
use crate::{job_reply, validate};
use braid_contract::{AccessTimes, Errno, Error, Fd, JobKind};
use braid_ipc::protocol::{ErrorReply, HomeReplaced, Job, NamedTier, Saved};
use braid_stores::native::open_tier_dir;
use braid_volume::JobStatus;
use std::io;
use std::path::Path;

/// Longest time between two progress reports to a waiting client.
const TELL_NS: u64 = 200_000_000;

/// Starts a job that makes `dir` the home tier.
pub(crate) fn start(
    handle: &VolumeHandle,
    dir: &Path,
    bandwidth: Option<u64>,
    mountpoint: &Path,
) -> Result<Job, ErrorReply> {
    let tiers = handle.volume.status().tiers;
    let others = tiers.iter().map(|tier| (tier.name.as_str(), Path::new(&tier.location)));
    let dir = validate::replacement((dir, None), others, mountpoint).map_err(invalid)?;
    let Some(location) = dir.to_str() else {
        return Err(refused(Errno::EINVAL, "the directory's name is not UTF-8", "name another one"));
    };
    let failed = |error| Asked::ReplaceHome { dir: &dir }.failed(&error);
    handle.volume.may_replace_home().map_err(failed)?;
    let root = open_tier_dir(&dir).map_err(|error| cant_open(&dir, &error))?;
    let root = with_access_times(root, handle.volume.access_times());
    let started = handle.volume.start_replacing_home(root, location, bandwidth);
    started.map(|job| job_reply::job(&handle.volume, job)).map_err(failed)
}

/// Waits for the end of such a job, and passes its progress to `tell`. If that
/// fails, the job goes on.
pub(crate) fn wait(
    handle: &VolumeHandle,
    id: u64,
    tell: &mut dyn FnMut(Job) -> io::Result<()>,
) -> Result<HomeReplaced, ErrorReply> {
    loop {
        let job = handle.volume.job(id)?;
        if job.record.state.is_final() {
            return replaced(handle, job);
        }
        tell(job_reply::job(&handle.volume, job)).map_err(|error| ErrorReply::new(error.to_string()))?;
        handle.volume.wait_for_jobs(TELL_NS);
    }
}

/// The outcome of such a job.
fn replaced(handle: &VolumeHandle, job: JobStatus) -> Result<HomeReplaced, ErrorReply> {
    let JobKind::ReplaceHome { dir } = &job.record.what else {
        return Err(ErrorReply::new(format!("job {} does something else", job.record.id)));
    };
    let report = match job.report {
        Some(Ok(report)) => report,
        Some(Err(error)) => return Err(Asked::ReplaceHome { dir: Path::new(dir) }.failed(&error)),
        None => {
            let what = format!("job {}: {}: {}", job.record.id, job.record.what, job.record.state.name());
            return Err(refused(Errno::ECANCELED, &what, "home is where it was"));
        }
    };
    let tiers = handle.volume.status().tiers;
    let home = tiers.iter().find(|tier| tier.home);
    let home = home.ok_or_else(|| ErrorReply::from(Error::from(Errno::ENOENT)))?;
    Ok(HomeReplaced {
        tier: NamedTier { id: home.id, name: home.name.clone() },
        old_location: report.old_location,
        location: dir.clone(),
        files: report.files,
        bytes: report.bytes,
        held_up: report.held_up_ns as f64 / 1e9,
        next_mount: handle.places.known(&home.name)?.next_mount(Path::new(dir)),
        saved: Saved::default(),
    })
}

/// The home tier's directory, with access times updated by the mount's options,
/// if they set that and it is possible.
pub(crate) fn with_access_times(home: Fd, times: Option<AccessTimes>) -> Fd {
    let Some(times) = times else { return home };
    braid_stores::native::with_access_times(&home, times).unwrap_or_else(|error| {
        tracing::warn!(%error, "access times are renewed as the home tier's file system is mounted");
        home
    })
}

/// Before a mount, checks whether home was being replaced when the daemon or
/// the machine went down, and looks at the other directory if so. The records
/// that the volume then finds decide. A copy that was never completed is
/// removed, in parallel to the mount: it may be large.
pub(crate) fn settle(home: &Fd) {
    match braid_volume::settle_home(home, &mut |place| open_tier_dir(Path::new(place))) {
        Ok(None) => {}
        Ok(Some(copy)) => {
            tracing::warn!("home was being replaced and that did not come to its end: the copy is removed");
            let removal = std::thread::Builder::new().name("discard-copy".into()).spawn(move || {
                if let Err(error) = braid_volume::discard_copy(&copy) {
                    tracing::warn!(%error, "the unfinished copy of the home tier could not be removed");
                }
            });
            if let Err(error) = removal {
                tracing::warn!(%error, "the unfinished copy of the home tier is not removed");
            }
        }
        // Opening the volume reports it better.
        Err(error) => tracing::debug!(%error, "looking for a replacement of the home tier"),
    }
}
