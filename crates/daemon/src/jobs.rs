//! Jobs and pins, translated between the volume and the control socket.

use crate::handle::VolumeHandle;
use crate::{job_reply, rehome};
use braid_contract::{Errno, Error, JobId, JobKind, Mover, RefusalKind, Shown};
use braid_ipc::protocol::{
    ErrorReply, ImportFailure, ImportSurvey, Job, JobChange, PinRequest, Pinned, StartJob,
};
use braid_volume::Volume;
use std::path::Path;

/// Starts a job.
pub(crate) fn start(handle: &VolumeHandle, request: &StartJob, mountpoint: &Path) -> Result<Job, ErrorReply> {
    match &request.what {
        JobKind::Move { to: tier, .. }
        | JobKind::Evacuate { tier, .. }
        | JobKind::Import { tier }
        | JobKind::Replace { tier, .. } => {
            drop(handle.places.known(tier)?);
        }
        JobKind::Promote { .. } | JobKind::Demote { .. } | JobKind::Rebalance {} | JobKind::Scrub { .. } => {}
        JobKind::ReplaceHome { dir } => {
            return rehome::start(handle, Path::new(dir), request.bandwidth, mountpoint);
        }
    }
    let started = handle.volume.start_job(request.what.clone(), request.bandwidth);
    Ok(started.map(|job| job_reply::job(&handle.volume, job))?)
}

/// The movers, then all jobs, oldest first.
pub(crate) fn all(volume: &Volume) -> Vec<Job> {
    let movers = volume.movers().into_iter().map(|mover| job_reply::mover(volume, mover));
    movers.chain(volume.jobs().into_iter().map(|job| job_reply::job(volume, job))).collect()
}

/// One job, after a change if one is requested.
pub(crate) fn one(volume: &Volume, id: JobId, change: Option<JobChange>) -> Result<Job, ErrorReply> {
    let id = match id {
        JobId::Number(id) => id,
        JobId::Mover(mover) => return one_mover(volume, mover, change),
    };
    let job = match change {
        None => volume.job(id),
        Some(JobChange::Pause) => volume.pause_job(id),
        Some(JobChange::Resume) => volume.resume_job(id),
        Some(JobChange::Cancel) => volume.cancel_job(id),
        Some(JobChange::Bandwidth(bandwidth)) => volume.set_job_bandwidth(id, bandwidth),
        Some(JobChange::Guard(guarded)) => volume.set_job_guarded(id, guarded),
    };
    Ok(job.map(|job| job_reply::job(volume, job))?)
}

/// A mover as a job, after a change if one is requested.
fn one_mover(volume: &Volume, mover: Mover, change: Option<JobChange>) -> Result<Job, ErrorReply> {
    let name = mover.name();
    let refuse = |what: String| Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what));
    let status = match change {
        None => volume.mover(mover),
        Some(JobChange::Pause) => volume.pause_mover(mover),
        Some(JobChange::Resume) => volume.resume_mover(mover),
        Some(JobChange::Bandwidth(bandwidth)) => volume.set_mover_bandwidth(mover, bandwidth),
        Some(JobChange::Cancel) => volume.mover(mover).and_then(|_| {
            refuse(format!(
                "job {name} stands, and does not end: pause it (braid job pause {name}), or switch it off \
                 with movers: {{ {name}: false }} in the stack file"
            ))
        }),
        Some(JobChange::Guard(_)) => volume.mover(mover).and_then(|_| {
            refuse(format!(
                "job {name} is always guarded: movers: {{ latency_factor: … }} in the stack file says how much"
            ))
        }),
    };
    Ok(status.map(|status| job_reply::mover(volume, status))?)
}

/// The effect that an import of a tier would have.
pub(crate) fn survey_import(handle: &VolumeHandle, tier: &str) -> Result<ImportSurvey, ErrorReply> {
    handle.places.known(tier)?;
    let found = handle.volume.survey_import(tier)?;
    let shown = |path: &Path| path.shown().to_string();
    let failures =
        found.failed.iter().map(|(path, why)| ImportFailure { path: shown(path), why: why.clone() });
    Ok(ImportSurvey {
        tier: tier.to_owned(),
        files: found.files,
        bytes: found.bytes,
        others: found.others,
        dirs: found.dirs,
        conflicts: found.conflicts,
        conflicting: found.named.iter().map(|path| shown(path)).collect(),
        failures: failures.collect(),
    })
}

/// Lets a tier that was emptied take new ranges again.
pub(crate) fn undo_evacuation(handle: &VolumeHandle, tier: &str) -> Result<(), ErrorReply> {
    handle.places.known(tier)?;
    Ok(handle.volume.undo_evacuation(tier)?)
}

/// Pins files, or unpins them.
pub(crate) fn pin(handle: &VolumeHandle, request: &PinRequest) -> Result<Pinned, ErrorReply> {
    let tier = request.tier.as_deref();
    if let Some(tier) = tier {
        handle.places.known(tier)?;
    }
    let pinned = match request.pin {
        true => handle.volume.pin(&request.path, tier, request.recursive),
        false => handle.volume.unpin(&request.path, request.recursive),
    };
    Ok(pinned?)
}
