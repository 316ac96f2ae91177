//! The jobs of a volume: their state, in memory and on home.

use super::list::{Job, JobList, unknown};
use crate::rehome::{RehomeOutcome, RehomePhase};
use braid_contract::{JobState, Result};
use braid_core::Core;
use braid_format::JobRecord;
use braid_home::{Home, job_files};
use braid_tiers::rate::Throttles;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The jobs of a volume.
pub(crate) struct Jobs {
    pub(super) core: Arc<Core>,
    pub(super) throttles: Arc<Throttles>,
    /// Shared, since a thread that waits for a job must not hold the volume.
    pub(crate) list: Arc<JobList>,
    /// Held while a record is written, so that they are written in order.
    saving: Mutex<()>,
}

/// A job and its progress.
#[derive(Clone, PartialEq, Debug)]
pub struct JobStatus {
    /// Its record.
    pub record: JobRecord,
    /// Bytes moved per second recently; 0 while it does not run.
    pub rate: f64,
    /// Seconds until it is done, at this rate.
    pub eta_seconds: Option<f64>,
    /// Files in use that it waits for.
    pub waiting_for: u64,
    /// Phase of a replacement of home.
    pub phase: Option<RehomePhase>,
    /// The tiers on which the guard slows jobs down for applications, with the
    /// limit in bytes a second; empty while the job does not run, or is not
    /// guarded.
    pub slowed: BTreeMap<String, f64>,
    /// The outcome of a replacement of home, if it ended since the volume was
    /// opened.
    pub report: Option<RehomeOutcome>,
}

impl Jobs {
    pub(crate) fn new(core: &Arc<Core>, throttles: &Arc<Throttles>) -> Self {
        Self {
            core: Arc::clone(core),
            throttles: Arc::clone(throttles),
            list: Arc::new(JobList::new(Arc::clone(&core.environment), Arc::clone(&throttles.paces))),
            saving: Mutex::new(()),
        }
    }

    /// All known jobs, oldest first.
    pub(crate) fn all(&self) -> Vec<JobStatus> {
        let (now_ns, slowed) =
            (self.core.environment.monotonic_ns(), self.throttles.slowed_tiers(&self.core.tiers));
        self.list.each(|job| status(job, now_ns, &slowed))
    }

    /// One job.
    ///
    /// # Errors
    /// `ENOENT` if there is no job of this number.
    pub(crate) fn one(&self, id: u64) -> Result<JobStatus> {
        let found = self.all().into_iter().find(|job| job.record.id == id);
        found.ok_or_else(|| unknown(id))
    }

    /// Saves a job, as it is now.
    pub(super) fn keep(&self, record: &JobRecord) -> Result<()> {
        let _entered = self.core.barrier.enter();
        self.keep_inside(record)
    }

    /// As [`keep`](Self::keep), for callers inside the barrier.
    pub(super) fn keep_inside(&self, record: &JobRecord) -> Result<()> {
        let _saving = self.saving.lock();
        // The record may have changed since.
        let latest = self.list.update(record.id, |job| job.kept(self.core.environment.wall_ns()));
        job_files::save(&self.core.home, latest.as_ref().unwrap_or(record))
    }

    /// As [`keep`](Self::keep), where a failure can only be logged.
    pub(crate) fn try_keep(&self, record: &JobRecord) {
        let _entered = self.core.barrier.enter();
        self.try_keep_inside(record);
    }

    /// The same for a caller inside the barrier.
    pub(crate) fn try_keep_inside(&self, record: &JobRecord) {
        if let Err(error) = self.keep_inside(record) {
            tracing::warn!(job = record.id, %error, "the state of a job can't be kept");
        }
    }

    /// Removes the files of forgotten jobs.
    pub(super) fn forget(&self, ids: &[u64]) {
        let _entered = self.core.barrier.enter();
        for id in ids {
            if let Err(error) = job_files::remove(&self.core.home, *id) {
                tracing::warn!(job = id, %error, "an old job can't be forgotten");
            }
        }
    }

    /// Records on a new home that is about to be complete that the job is done:
    /// a mount finds that record there, or, before the home is complete, the
    /// unfinished one on the old home.
    pub(crate) fn keep_done(&self, id: u64, home: &Home) -> Result<()> {
        let mut record = self.list.update(id, |job| job.record.clone())?;
        record.be_done(self.core.environment.wall_ns());
        job_files::save(home, &record)
    }

    /// Notes that the new directory is home: all later records of the job say
    /// that it is done, like the one of [`keep_done`](Self::keep_done). The
    /// barrier is still frozen.
    pub(crate) fn note_switched(&self, id: u64) {
        // A running job is not forgotten.
        let _ = self.list.update(id, |job| job.rehome.switched = true);
    }
}

fn status(job: &Job, now_ns: u64, slowed: &BTreeMap<String, f64>) -> JobStatus {
    let record = job.record.clone();
    let rate = if record.state == JobState::Running { job.meter.rate(now_ns) } else { 0.0 };
    let left = record.total.map(|total| total.bytes.saturating_sub(record.done.bytes));
    let eta_seconds = left.filter(|_| rate > 0.0).map(|left| left as f64 / rate);
    let running = record.state == JobState::Running;
    let (phase, report) = (job.rehome.phase, job.rehome.report.clone());
    let slowed = if running && !record.unguarded { slowed.clone() } else { BTreeMap::new() };
    let waiting_for = if running { job.waiting } else { 0 };
    JobStatus { record, rate, eta_seconds, waiting_for, phase, slowed, report }
}
