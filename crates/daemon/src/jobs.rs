//! Jobs and pins, as the volume has them and as they are told. The control
//! socket calls this.

use crate::wire::VolumeHandle;
use braid_contract::{Errno, Error, JobId, JobKind, Mover, RefusalKind, Shown};
use braid_ipc::protocol::{
    ErrorReply, ImportFailure, ImportSurvey, Job, JobChange, PinRequest, Pinned, StartJob,
};
use braid_volume::{JobStatus, MoverStatus, PARALLEL_JOBS_MAX};
use std::collections::BTreeMap;
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
            | JobKind::Import { tier }
            | JobKind::Replace { tier, .. } => {
                drop(self.known_tier(tier)?);
            }
            JobKind::Promote { .. } | JobKind::Demote { .. } | JobKind::Rebalance {} => {}
            JobKind::ReplaceHome { dir } => {
                return self.start_replacing_home(Path::new(dir), request.bandwidth, mountpoint);
            }
        }
        let started = self.volume.start_job(request.what.clone(), request.bandwidth);
        Ok(started.map(|job| self.told(job))?)
    }

    /// The movers, then all jobs, oldest first.
    pub(crate) fn jobs(&self) -> Vec<Job> {
        let movers = self.volume.movers().into_iter().map(|mover| self.told_mover(mover));
        movers.chain(self.volume.jobs().into_iter().map(|job| self.told(job))).collect()
    }

    /// One job, changed first if that is asked for.
    pub(crate) fn job(&self, id: JobId, change: Option<JobChange>) -> Result<Job, ErrorReply> {
        let id = match id {
            JobId::Number(id) => id,
            JobId::Mover(mover) => return self.mover(mover, change),
        };
        let job = match change {
            None => self.volume.job(id),
            Some(JobChange::Pause) => self.volume.pause_job(id),
            Some(JobChange::Resume) => self.volume.resume_job(id),
            Some(JobChange::Cancel) => self.volume.cancel_job(id),
            Some(JobChange::Bandwidth(bandwidth)) => self.volume.set_job_bandwidth(id, bandwidth),
            Some(JobChange::Guard(guarded)) => self.volume.set_job_guarded(id, guarded),
        };
        Ok(job.map(|job| self.told(job))?)
    }

    /// A mover as a job, changed first if that is asked for.
    fn mover(&self, mover: Mover, change: Option<JobChange>) -> Result<Job, ErrorReply> {
        let name = mover.name();
        let refuse = |what: String| Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what));
        let status = match change {
            None => self.volume.mover(mover),
            Some(JobChange::Pause) => self.volume.pause_mover(mover),
            Some(JobChange::Resume) => self.volume.resume_mover(mover),
            Some(JobChange::Bandwidth(bandwidth)) => self.volume.set_mover_bandwidth(mover, bandwidth),
            Some(JobChange::Cancel) => self.volume.mover(mover).and_then(|_| {
                refuse(format!(
                    "job {name} stands, and does not end: pause it (braid job pause {name}), or switch it off \
                     with movers: {{ {name}: false }} in the stack file"
                ))
            }),
            Some(JobChange::Guard(_)) => self.volume.mover(mover).and_then(|_| {
                refuse(format!(
                    "job {name} is always guarded: movers: {{ latency_factor: … }} in the stack file says how much"
                ))
            }),
        };
        Ok(status.map(|status| self.told_mover(status))?)
    }

    fn told_mover(&self, status: MoverStatus) -> Job {
        Job {
            id: JobId::Mover(status.mover),
            text: status.mover.to_string(),
            what: None,
            state: status.state,
            done: status.done,
            total: None,
            skipped: BTreeMap::new(),
            errors: 0,
            waiting_for: 0,
            phase: None,
            bandwidth: status.bandwidth,
            tier_bandwidth: Some(self.volume.mover_bandwidth()),
            guarded: true,
            slowed: BTreeMap::new(),
            rate: if status.rate.is_finite() { status.rate } else { 0.0 },
            eta_seconds: None,
            created_ns: status.since_ns,
            started_ns: None,
            ended_ns: None,
            message: None,
            stack_file: None,
        }
    }

    /// What is told of a job.
    pub(crate) fn told(&self, job: JobStatus) -> Job {
        let record = job.record;
        Job {
            id: record.id.into(),
            text: record.what.to_string(),
            what: Some(record.what),
            state: record.state,
            done: record.done,
            total: record.total,
            skipped: record.skipped,
            errors: record.errors,
            waiting_for: job.waiting_for,
            phase: job.phase.map(|phase| phase.name().to_owned()),
            bandwidth: record.bandwidth,
            tier_bandwidth: self.volume.job_bandwidth(),
            guarded: !record.unguarded,
            slowed: job.slowed,
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

    /// What an import would do with a tier.
    pub(crate) fn survey_import(&self, tier: &str) -> Result<ImportSurvey, ErrorReply> {
        self.known_tier(tier)?;
        let found = self.volume.survey_import(tier)?;
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
        Ok(pinned?)
    }
}
