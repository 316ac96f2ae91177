//! Requests about jobs: start, look at and control them. The control socket of
//! the daemon calls this.

use crate::import::ImportSurvey;
use crate::jobs::{JobStatus, pin_below, unpin_below};
use crate::volume::Volume;
use braid_contract::{JobKind, Pinned, Result};

impl Volume {
    /// Starts a job. It runs in the background, at `bandwidth` bytes a second
    /// at most, and continues after the volume was closed and opened again.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier or file, `EINVAL` or `EBUSY` if this
    /// can't be done to it, `EEXIST` if another job does the same, `ENOSPC` if
    /// there is no room; those of the home tier.
    pub fn start_job(&self, what: JobKind, bandwidth: Option<u64>) -> Result<JobStatus> {
        if let JobKind::Import { tier } = &what {
            self.importer.importable(tier)?;
        }
        self.jobs.start(what, bandwidth)
    }

    /// Surveys the effect of `braid import` on a tier, without changing
    /// anything.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `EINVAL` if it is home or no
    /// directory; those of the tier.
    pub fn survey_import(&self, tier: &str) -> Result<ImportSurvey> {
        self.importer.survey(tier)
    }

    /// All known jobs, oldest first.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobStatus> {
        self.jobs.all()
    }

    /// One job.
    ///
    /// # Errors
    /// `ENOENT` if there is no job of this number.
    pub fn job(&self, id: u64) -> Result<JobStatus> {
        self.jobs.one(id)
    }

    /// Stops a job, so that it can go on later.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended or is paused,
    /// or replaces home, `EBUSY` if it is in its last step.
    pub fn pause_job(&self, id: u64) -> Result<JobStatus> {
        self.jobs.pause(id)
    }

    /// Lets a paused job go on.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it is not paused.
    pub fn resume_job(&self, id: u64) -> Result<JobStatus> {
        self.jobs.resume(id)
    }

    /// Ends a job for good. Moved data stays where it is; a tier that was being
    /// emptied takes new ranges again.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended, `EBUSY` if
    /// it is in its last step: it switches to the new home, or removes its
    /// tier.
    pub fn cancel_job(&self, id: u64) -> Result<JobStatus> {
        self.jobs.cancel(id)
    }

    /// Changes how fast a job may go, in bytes a second; `None` is as fast as
    /// it goes.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended; those of the
    /// home tier.
    pub fn set_job_bandwidth(&self, id: u64, bandwidth: Option<u64>) -> Result<JobStatus> {
        self.jobs.set_bandwidth(id, bandwidth)
    }

    /// Sets whether the guard may hold a job up for applications.
    ///
    /// # Errors
    /// `ENOENT` if there is no such job, `EINVAL` if it has ended; those of the
    /// home tier.
    pub fn set_job_guarded(&self, id: u64, guarded: bool) -> Result<JobStatus> {
        self.jobs.set_guarded(id, guarded)
    }

    /// Waits until something changes about jobs, at most for so many
    /// nanoseconds.
    pub fn wait_for_jobs(&self, max_ns: u64) {
        self.jobs.list.wait_for_change(max_ns);
    }

    /// Limit on reads of all jobs from a tier, and on their writes to it, in
    /// bytes a second; `None` without one.
    #[must_use]
    pub fn job_bandwidth(&self) -> Option<u64> {
        self.throttles.job_bandwidth()
    }

    /// Pins the file at `path`, so that movers leave it where it is; with
    /// `tier`, a job may still move it there. With `recursive`, all files of a
    /// directory.
    ///
    /// # Errors
    /// `ENOENT` if there is no such file or tier, `EISDIR` if it is a directory
    /// and `recursive` was not asked for, those of the home tier.
    pub fn pin(&self, path: &str, tier: Option<&str>, recursive: bool) -> Result<Pinned> {
        pin_below(&self.core, path, tier, recursive)
    }

    /// Lets movers move the file at `path` again.
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    pub fn unpin(&self, path: &str, recursive: bool) -> Result<Pinned> {
        unpin_below(&self.core, path, recursive)
    }
}
