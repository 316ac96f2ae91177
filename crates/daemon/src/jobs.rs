//! Jobs and pins, as the volume has them and as they are told. The control
//! socket calls this.

use crate::wire::VolumeHandle;
use braid_contract::Error;
use braid_ipc::protocol::{ErrorReply, Job, JobChange, JobKind, PinRequest, Pinned, StartJob};
use braid_volume::{JobStatus, PARALLEL_JOBS_MAX};
use std::path::Path;

/// Jobs at the same time that a stack may ask for.
pub(crate) const PARALLEL: std::ops::RangeInclusive<usize> = 1..=PARALLEL_JOBS_MAX;

impl VolumeHandle {
    /// Lets jobs run, so many at a time.
    pub(crate) fn start_jobs(&self, parallel: Option<usize>) -> Result<(), Error> {
        self.volume.start_jobs(parallel)
    }

    /// Starts a job.
    pub(crate) fn start_job(&self, request: &StartJob, mountpoint: &Path) -> Result<Job, ErrorReply> {
        match &request.what {
            JobKind::Move { to: tier, .. }
            | JobKind::Evacuate { tier, .. }
            | JobKind::Replace { tier, .. } => {
                drop(self.known_tier(tier)?);
            }
            JobKind::Promote { .. } | JobKind::Demote { .. } | JobKind::Rebalance {} => {}
            JobKind::ReplaceHome { dir } => {
                return self.start_replacing_home(Path::new(dir), request.bandwidth, mountpoint);
            }
        }
        let started = self.volume.start_job(request.what.clone(), request.bandwidth);
        Ok(started.map(told)?)
    }

    /// All jobs, oldest first.
    pub(crate) fn jobs(&self) -> Vec<Job> {
        self.volume.jobs().into_iter().map(told).collect()
    }

    /// One job, changed first if that is asked for.
    pub(crate) fn job(&self, id: u64, change: Option<JobChange>) -> Result<Job, ErrorReply> {
        let job = match change {
            None => self.volume.job(id),
            Some(JobChange::Pause) => self.volume.pause_job(id),
            Some(JobChange::Resume) => self.volume.resume_job(id),
            Some(JobChange::Cancel) => self.volume.cancel_job(id),
            Some(JobChange::Bandwidth(bandwidth)) => self.volume.set_job_bandwidth(id, bandwidth),
        };
        Ok(job.map(told)?)
    }

    /// Lets a tier that was emptied take new ranges again.
    pub(crate) fn undo_evacuation(&self, tier: &str) -> Result<(), ErrorReply> {
        self.known_tier(tier)?;
        Ok(self.volume.undo_evacuation(tier)?)
    }

    /// Pins files, or unpins them.
    pub(crate) fn pin(&self, request: &PinRequest) -> Result<Pinned, ErrorReply> {
        let tier = request.tier.as_deref();
        if let Some(tier) = tier {
            self.known_tier(tier)?;
        }
        let pinned = match request.pin {
            true => self.volume.pin(&request.path, tier, request.recursive),
            false => self.volume.unpin(&request.path, request.recursive),
        };
        let pinned = pinned?;
        Ok(Pinned { files: pinned.files, changed: pinned.changed })
    }
}

pub(crate) fn told(job: JobStatus) -> Job {
    let record = job.record;
    Job {
        id: record.id,
        text: record.what.to_string(),
        what: record.what,
        state: record.state,
        done: record.done,
        total: record.total,
        skipped: record.skipped,
        errors: record.errors,
        waiting_for: job.waiting_for,
        phase: job.phase.map(|phase| phase.name().to_owned()),
        bandwidth: record.bandwidth,
        // JSON has no other numbers.
        rate: if job.rate.is_finite() { job.rate } else { 0.0 },
        eta_seconds: job.eta_seconds.filter(|seconds| seconds.is_finite()),
        created_ns: record.created_ns,
        started_ns: record.started_ns,
        ended_ns: record.ended_ns,
        message: record.message,
        stack_file: None,
    }
}
