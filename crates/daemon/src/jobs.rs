//! Jobs and pins, as the volume has them and as they are told. The control
//! socket calls this.

use crate::wire::VolumeHandle;
use braid_contract::{Errno, Error};
use braid_ipc::protocol::{Amount, ErrorReply, Job, JobChange, JobKind, PinRequest, Pinned, StartJob};
use braid_volume::{JobStatus, PARALLEL_JOBS_MAX};

/// Jobs at the same time that a stack may ask for.
pub(crate) const PARALLEL: std::ops::RangeInclusive<usize> = 1..=PARALLEL_JOBS_MAX;

impl VolumeHandle {
    /// Lets jobs run, so many at a time.
    pub(crate) fn start_jobs(&self, parallel: Option<usize>) -> Result<(), Error> {
        self.volume.start_jobs(parallel)
    }

    /// Starts a job.
    pub(crate) fn start_job(&self, request: &StartJob) -> Result<Job, ErrorReply> {
        match &request.what {
            JobKind::Move { to: tier, .. } | JobKind::Evacuate { tier, .. } => drop(self.known_tier(tier)?),
            JobKind::Promote { .. } | JobKind::Demote { .. } | JobKind::Rebalance {} => {}
        }
        let started = self.volume.start_job(asked(&request.what), request.bandwidth);
        started.map(told).map_err(|error| plain(&error))
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
        job.map(told).map_err(|error| plain(&error))
    }

    /// Lets a tier that was emptied take new ranges again.
    pub(crate) fn undo_evacuation(&self, tier: &str) -> Result<(), ErrorReply> {
        self.known_tier(tier)?;
        self.volume.undo_evacuation(tier).map_err(|error| plain(&error))
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
        let pinned = pinned.map_err(|error| plain(&error))?;
        Ok(Pinned { files: pinned.files, changed: pinned.changed })
    }
}

/// An error whose text says it all: the system's words for its number are left
/// out where the volume has its own.
pub(crate) fn plain(error: &Error) -> ErrorReply {
    let text = error.to_string();
    let system = format!(": {}", std::io::Error::from_raw_os_error(error.errno().0));
    let own =
        matches!(error.errno(), Errno::EINVAL | Errno::EBUSY | Errno::EEXIST | Errno::ENOSPC | Errno::EAGAIN);
    let unknown = error.errno() == Errno::ENOENT && text.starts_with("there is no ");
    let message = match text.strip_suffix(&system) {
        Some(short) if own || unknown => short.to_owned(),
        _ => text,
    };
    ErrorReply { errno: Some(error.errno().0), message }
}

fn asked(what: &JobKind) -> braid_volume::JobKind {
    use braid_volume::JobKind as Kind;
    match what.clone() {
        JobKind::Move { path, to } => Kind::Move { path, to },
        JobKind::Promote { path } => Kind::Promote { path },
        JobKind::Demote { path } => Kind::Demote { path },
        JobKind::Rebalance {} => Kind::Rebalance {},
        JobKind::Evacuate { tier, then_remove } => Kind::Evacuate { tier, then_remove },
    }
}

fn kind(what: braid_volume::JobKind) -> JobKind {
    use braid_volume::JobKind as Kind;
    match what {
        Kind::Move { path, to } => JobKind::Move { path, to },
        Kind::Promote { path } => JobKind::Promote { path },
        Kind::Demote { path } => JobKind::Demote { path },
        Kind::Rebalance {} => JobKind::Rebalance {},
        Kind::Evacuate { tier, then_remove } => JobKind::Evacuate { tier, then_remove },
    }
}

fn amount(amount: braid_volume::Amount) -> Amount {
    Amount { bytes: amount.bytes, ranges: amount.ranges, files: amount.files }
}

fn told(job: JobStatus) -> Job {
    let record = job.record;
    Job {
        id: record.id,
        text: record.what.to_string(),
        what: kind(record.what),
        state: record.state.name().into(),
        done: amount(record.done),
        total: record.total.map(amount),
        skipped: record.skipped,
        errors: record.errors,
        waiting_for: job.waiting_for,
        bandwidth: record.bandwidth,
        // JSON has no other numbers.
        rate: if job.rate.is_finite() { job.rate } else { 0.0 },
        eta_seconds: job.eta_seconds.filter(|seconds| seconds.is_finite()),
        created_ns: record.created_ns,
        started_ns: record.started_ns,
        ended_ns: record.ended_ns,
        message: record.message,
    }
}
