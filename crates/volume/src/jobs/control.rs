//! Requests about existing jobs: look at, pause, resume, cancel and slow them
//! down. The daemon calls this; `start` creates jobs.

use super::list::Job;
use super::records::{JobStatus, Jobs};
use braid_contract::{Errno, Error, JobKind, JobState, RefusalKind, Result};
use braid_format::JobRecord;
use braid_home::job_files;

impl Jobs {
    /// Stops a job, so that it can go on later.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended or is paused,
    /// or replaces home, `EBUSY` if it is in its last step.
    pub(crate) fn pause(&self, id: u64) -> Result<JobStatus> {
        if let JobKind::ReplaceHome { .. } = self.one(id)?.record.what {
            let what = format!(
                "job {id} replaces home: it can't be paused, since it follows all that changes; slow it down \
                 (braid job set {id} bandwidth=RATE) or cancel it"
            );
            return Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what));
        }
        self.change(id, &[JobState::Queued, JobState::Running], JobState::Paused)
    }

    /// Lets a paused job go on.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it is not paused.
    pub(crate) fn resume(&self, id: u64) -> Result<JobStatus> {
        self.change(id, &[JobState::Paused], JobState::Queued)
    }

    /// Ends a job for good. Moved data stays where it is; a tier that was being
    /// emptied takes new ranges again.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended, `EBUSY` if
    /// it is in its last step: it switches to the new home, or removes its
    /// tier.
    pub(crate) fn cancel(&self, id: u64) -> Result<JobStatus> {
        let from = [JobState::Queued, JobState::Running, JobState::Paused];
        let cancelled = self.change(id, &from, JobState::Cancelled)?;
        self.apply_draining();
        self.forget(&self.list.forget_old());
        Ok(cancelled)
    }

    /// Changes how fast a job may go, in bytes a second; `None` is as fast as
    /// it goes.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended; those of the
    /// home tier.
    pub(crate) fn set_bandwidth(&self, id: u64, bandwidth: Option<u64>) -> Result<JobStatus> {
        self.set(id, |job| {
            job.record.bandwidth = bandwidth;
            job.pace.set_rate(bandwidth.map(|rate| rate as f64));
        })
    }

    /// Sets whether the guard may hold a job up for applications.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended; those of the
    /// home tier.
    pub(crate) fn set_guarded(&self, id: u64, guarded: bool) -> Result<JobStatus> {
        self.set(id, |job| job.record.unguarded = !guarded)
    }

    fn set(&self, id: u64, set: impl FnOnce(&mut Job)) -> Result<JobStatus> {
        let state = self.one(id)?.record.state;
        if state.is_final() {
            // Answers the right error.
            let all = [JobState::Queued, JobState::Running, JobState::Paused];
            return self.change(id, &all, state);
        }
        let record = self.list.update(id, |job| {
            set(job);
            job.record.clone()
        })?;
        self.keep(&record)?;
        self.one(id)
    }

    fn change(&self, id: u64, from: &[JobState], wanted: JobState) -> Result<JobStatus> {
        let (record, before) = self.list.change_state(id, from, wanted)?;
        if let Err(error) = self.keep(&record) {
            // The saved record is unchanged; restoring the state allows another
            // try.
            self.list.change_back(id, wanted, before);
            self.apply_draining();
            return Err(error);
        }
        tracing::info!(job = id, what = %record.what, state = wanted.name(), "a job was changed");
        self.one(id)
    }

    /// Loads the saved jobs. Errors do not keep the volume from being used.
    pub(crate) fn load(&self) {
        match job_files::load(&self.core.home) {
            Ok(mut shelf) => {
                let settled = shelf.records.iter_mut().filter_map(|record| self.settle(record));
                let settled: Vec<JobRecord> = settled.collect();
                self.list.restore(shelf.records, shelf.last);
                settled.iter().for_each(|record| self.try_keep(record));
            }
            Err(error) => tracing::error!(%error, "the jobs can't be read: none goes on"),
        }
        self.apply_draining();
    }

    /// Ends a job that can't go on after a restart, or has nothing left to do;
    /// answers its new record if that changed.
    fn settle(&self, record: &mut JobRecord) -> Option<JobRecord> {
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
            // The tier was removed before the crash.
            (false, Some(_)) => record.be_done(now_ns),
            (false, None) => {
                record.be_failed(now_ns, format!("tier {tier} is not part of the volume any more"));
            }
        }
        // Another tier may get the name.
        record.holds = false;
        Some(record.clone())
    }
}

/// Whether the job can't continue after a restart: copies of home are worthless
/// then. A job that completed is recorded on the new home.
fn is_lost(record: &JobRecord) -> bool {
    matches!(record.what, JobKind::ReplaceHome { .. }) && !record.state.is_final()
}
