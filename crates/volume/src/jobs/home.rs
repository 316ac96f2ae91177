//! The job that moves home to another directory: `rehome` does it, and here it
//! is told how far it has come and whether it is to go on.

use super::list::{Outcome, Rest};
use super::run::Stop;
use crate::Volume;
use crate::rehome::{RehomePhase, RehomeProgress};
use braid_contract::{Amount, Error, JobKind, Result};
use braid_home::Home;
use braid_home::job_files;
use braid_tiers::rate::Pace;

impl Volume {
    /// Carries such a job out, all at once: what was copied before is of no use
    /// after an end that came too early, and is removed.
    pub(super) fn move_home(&self, id: u64, pace: &Pace) -> std::result::Result<Outcome, Stop> {
        let failed = |error: Error| Stop::Failed(error.to_string());
        let begun = self.jobs.update(id, |job| {
            job.record.done = Amount::default();
            (job.rehome.root.clone(), job.record.what.clone())
        });
        let (Some(root), JobKind::ReplaceHome { dir }) = begun.map_err(failed)? else {
            return Err(Stop::Failed("its directory is not known any more".into()));
        };
        let Some(alone) = self.state.overhaul.try_lock() else {
            // A check goes on.
            return Ok(Outcome::Waiting(0, Rest::All));
        };
        let result =
            self.replace_home_for(&root, &dir, (pace, Some(id)), &mut |now| self.tell_of_home(id, now));
        drop(alone);
        if result.is_err() && self.jobs.is_given_up(id) {
            return Ok(Outcome::Interrupted);
        }
        self.jobs.update(id, |job| job.rehome.report = Some(result.clone())).map_err(failed)?;
        match result {
            Ok(_) => Ok(Outcome::Finished),
            Err(why) => Ok(Outcome::Failed(why.to_string())),
        }
    }

    /// Notes how far it is; answers whether it is to go on.
    fn tell_of_home(&self, id: u64, now: &RehomeProgress) -> bool {
        let more = self.jobs.update(id, |job| {
            job.rehome.phase = Some(now.phase);
            job.waiting = now.waiting;
            if now.phase != RehomePhase::Counting {
                let total = Amount { bytes: now.total_bytes, ranges: 0, files: now.total_files };
                job.record.total = Some(total);
            }
            let done = job.record.done;
            let (bytes, files) = (now.bytes - done.bytes, now.files - done.files);
            Amount { bytes, ranges: 0, files }
        });
        let Ok(more) = more else { return false };
        if let Some(record) = self.jobs.moved(id, more) {
            self.try_keep_job(&record);
        }
        !self.jobs.is_given_up(id)
    }

    /// Writes to a home that is about to be complete that the job is done: a
    /// mount finds it there, or, before it is complete, unfinished on the old
    /// one.
    pub(crate) fn keep_done(&self, id: u64, home: &Home) -> Result<()> {
        let mut record = self.jobs.update(id, |job| job.record.clone())?;
        record.be_done(self.core.environment.wall_ns());
        job_files::save(home, &record)
    }

    /// The new directory is home: whatever is written of the job from here on
    /// says that it is done, as what [`keep_done`](Self::keep_done) wrote does.
    /// The barrier is still frozen.
    pub(crate) fn note_switched(&self, id: u64) {
        // A job that has a run is not forgotten.
        let _ = self.jobs.update(id, |job| job.rehome.switched = true);
    }
}
