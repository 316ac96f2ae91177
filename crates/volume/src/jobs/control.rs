//! What can be asked for of jobs: to look at them, to pause, resume, cancel
//! and slow them down. The daemon calls this; `start` begins new ones.

use super::list::{Job, Jobs, unknown};
use crate::Volume;
use crate::rehome::{RehomeOutcome, RehomePhase};
use braid_contract::{Errno, Error, JobKind, JobState, RefusalKind, Result};
use braid_format::JobRecord;
use braid_home::job_files;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A job and how it is doing.
#[derive(Clone, PartialEq, Debug)]
pub struct JobStatus {
    /// What is known of it.
    pub record: JobRecord,
    /// Bytes moved a second, of late; 0 while it does not run.
    pub rate: f64,
    /// Seconds until it is done, at this rate.
    pub eta_seconds: Option<f64>,
    /// Files that it waits for, since they are in use.
    pub waiting_for: u64,
    /// What a replacement of home is at.
    pub phase: Option<RehomePhase>,
    /// The tiers on which jobs are slowed down for applications, and to how many
    /// bytes a second; none while it does not run, or is not to be.
    pub slowed: BTreeMap<String, f64>,
    /// What it came to, if it ended since the volume was opened.
    pub report: Option<RehomeOutcome>,
}

impl Volume {
    /// All jobs that are known, oldest first.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobStatus> {
        let (now_ns, slowed) =
            (self.core.environment.monotonic_ns(), self.throttles.slowed_tiers(&self.core.tiers));
        self.jobs.each(|job| status(job, now_ns, &slowed))
    }

    /// One job.
    ///
    /// # Errors
    /// `ENOENT` if there is none of this number.
    pub fn job(&self, id: u64) -> Result<JobStatus> {
        let found = self.jobs().into_iter().find(|job| job.record.id == id);
        found.ok_or_else(|| unknown(id))
    }

    /// Stops a job, so that it can go on later.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended or is paused,
    /// or replaces home, `EBUSY` if it is as good as done.
    pub fn pause_job(&self, id: u64) -> Result<JobStatus> {
        if let JobKind::ReplaceHome { .. } = self.job(id)?.record.what {
            let what = format!(
                "job {id} replaces home: it can't be paused, since it follows all that changes; slow it down \
                 (braid job set {id} bandwidth=RATE) or cancel it"
            );
            return Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what));
        }
        self.change_job(id, &[JobState::Queued, JobState::Running], JobState::Paused)
    }

    /// Lets a paused job go on.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it is not paused.
    pub fn resume_job(&self, id: u64) -> Result<JobStatus> {
        self.change_job(id, &[JobState::Paused], JobState::Queued)
    }

    /// Ends a job for good. What was moved stays where it is; a tier that was
    /// being emptied takes new ranges again.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended, `EBUSY` if it
    /// is as good as done: it switches to the new home, or removes its tier.
    pub fn cancel_job(&self, id: u64) -> Result<JobStatus> {
        let from = [JobState::Queued, JobState::Running, JobState::Paused];
        let cancelled = self.change_job(id, &from, JobState::Cancelled)?;
        self.apply_draining();
        self.forget_jobs(&self.jobs.forget_old());
        Ok(cancelled)
    }

    /// Changes how fast a job may go, in bytes a second; `None` is as fast as
    /// it goes.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended; those of the
    /// home tier.
    pub fn set_job_bandwidth(&self, id: u64, bandwidth: Option<u64>) -> Result<JobStatus> {
        self.set_of_job(id, |job| {
            job.record.bandwidth = bandwidth;
            job.pace.set_rate(bandwidth.map(|rate| rate as f64));
        })
    }

    /// Lets the guard hold a job up for applications, or not.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended; those of the
    /// home tier.
    pub fn set_job_guarded(&self, id: u64, guarded: bool) -> Result<JobStatus> {
        self.set_of_job(id, |job| job.record.unguarded = !guarded)
    }

    fn set_of_job(&self, id: u64, set: impl FnOnce(&mut Job)) -> Result<JobStatus> {
        let state = self.job(id)?.record.state;
        if state.is_final() {
            // Says what is wrong.
            let all = [JobState::Queued, JobState::Running, JobState::Paused];
            return self.change_job(id, &all, state);
        }
        let record = self.jobs.update(id, |job| {
            set(job);
            job.record.clone()
        })?;
        self.keep_job(&record)?;
        self.job(id)
    }

    fn change_job(&self, id: u64, from: &[JobState], wanted: JobState) -> Result<JobStatus> {
        let (record, before) = self.jobs.change_state(id, from, wanted)?;
        if let Err(error) = self.keep_job(&record) {
            // What is kept is as before; with this, it can be tried again.
            self.jobs.change_back(id, wanted, before);
            self.apply_draining();
            return Err(error);
        }
        tracing::info!(job = id, what = %record.what, state = wanted.name(), "a job was changed");
        self.job(id)
    }

    /// Reads the jobs that are kept. Whatever is wrong with them, the volume
    /// can be used.
    pub(crate) fn load_jobs(&self) {
        match job_files::load(&self.core.home) {
            Ok(mut shelf) => {
                let settled = shelf.records.iter_mut().filter_map(|record| self.settle_job(record));
                let settled: Vec<JobRecord> = settled.collect();
                self.jobs.restore(shelf.records, shelf.last);
                settled.iter().for_each(|record| self.try_keep_job(record));
            }
            Err(error) => tracing::error!(%error, "the jobs can't be read: none goes on"),
        }
        self.apply_draining();
    }

    /// Ends a job that can't go on after a restart, or has nothing left to do;
    /// answers it if something changed.
    fn settle_job(&self, record: &mut JobRecord) -> Option<JobRecord> {
        let now_ns = self.core.environment.wall_ns();
        if is_lost(record) {
            let why = "the volume was closed before it was done: home is where it was";
            record.be_failed(now_ns, why.into());
            return Some(record.clone());
        }
        let tier =
            record.what.emptied_tier().filter(|tier| self.core.tiers.number(tier).is_none())?.to_owned();
        match (record.state.is_final(), record.what.removed_tier()) {
            (true, _) if !record.holds => return None,
            (true, _) => {}
            // A crash came when it was removed already.
            (false, Some(_)) => record.be_done(now_ns),
            (false, None) => {
                record.be_failed(now_ns, format!("tier {tier} is not part of the volume any more"));
            }
        }
        // Another one may get the name.
        record.holds = false;
        Some(record.clone())
    }

    /// Waits until something changes about jobs, at most for so many
    /// nanoseconds.
    pub fn wait_for_jobs(&self, max_ns: u64) {
        self.jobs.wait_for_change(max_ns);
    }

    /// Lets jobs run, so many at a time; called when the volume can be used.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start_jobs(self: &Arc<Self>, parallel: Option<usize>) -> Result<()> {
        if let Some(parallel) = parallel {
            self.jobs.set_parallel(parallel);
        }
        if self.core.environment.threads() {
            self.background.start_jobs(self)?;
        }
        Ok(())
    }

    /// Writes what is known of a job, as it is now.
    pub(super) fn keep_job(&self, record: &JobRecord) -> Result<()> {
        let _entered = self.core.barrier.enter();
        self.keep_job_inside(record)
    }

    /// As [`keep_job`](Self::keep_job), for those who are through the barrier.
    pub(super) fn keep_job_inside(&self, record: &JobRecord) -> Result<()> {
        let _saving = self.jobs.saving.lock();
        // Somebody may have changed it since.
        let latest = self.jobs.update(record.id, |job| job.kept(self.core.environment.wall_ns()));
        job_files::save(&self.core.home, latest.as_ref().unwrap_or(record))
    }

    /// As [`keep_job`](Self::keep_job), where nobody can be told of a failure.
    pub(super) fn try_keep_job(&self, record: &JobRecord) {
        let _entered = self.core.barrier.enter();
        self.try_keep_job_inside(record);
    }

    /// The same for a caller that is through the barrier.
    pub(super) fn try_keep_job_inside(&self, record: &JobRecord) {
        if let Err(error) = self.keep_job_inside(record) {
            tracing::warn!(job = record.id, %error, "the state of a job can't be kept");
        }
    }

    /// Removes what is kept of jobs that are forgotten.
    pub(super) fn forget_jobs(&self, ids: &[u64]) {
        let _entered = self.core.barrier.enter();
        for id in ids {
            if let Err(error) = job_files::remove(&self.core.home, *id) {
                tracing::warn!(job = id, %error, "an old job can't be forgotten");
            }
        }
    }
}

/// Whether the job can't go on after a restart: what was copied of home is not
/// worth anything then. One that was done says so on the new home.
fn is_lost(record: &JobRecord) -> bool {
    matches!(record.what, JobKind::ReplaceHome { .. }) && !record.state.is_final()
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

/// What the thread of the jobs does until the volume ends.
pub(crate) fn work(jobs: &Jobs, volume: &std::sync::Weak<Volume>) {
    while !jobs.is_stopped() && volume.strong_count() > 0 {
        let Some((id, pace)) = jobs.wait_for_work() else { continue };
        if let Some(volume) = volume.upgrade() {
            volume.run_job(id, &pace);
        }
    }
}
