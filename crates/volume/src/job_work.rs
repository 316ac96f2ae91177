//! Carrying out jobs: the list of jobs moves ranges itself, and services do the
//! other kinds. A thread calls this; in a simulation, each tick does.

use crate::api::Replacer;
use crate::import::ImportObserver;
use crate::jobs::{Jobs, Rest, RunEnd, RunStop};
use crate::rehome::{RehomePhase, RehomeProgress};
use crate::scrub::scrub;
use crate::volume::Volume;
use braid_contract::{Amount, Errno, Error, JobKind, Result, Shown};
use braid_tiers::rate::Pace;
use std::collections::BTreeMap;
use std::path::Path;

/// Why a file was left where it is.
const CONFLICT: &str = "home has something of that name";

/// A job that imports a tier's own files.
struct ImportJob<'v> {
    jobs: &'v Jobs,
    id: u64,
    conflicts: u64,
    errors: u64,
}

impl ImportJob<'_> {
    fn goes_on(&self) -> Result<()> {
        if self.jobs.list.is_interrupted(self.id) { Err(Errno::ECANCELED.into()) } else { Ok(()) }
    }
}

impl ImportObserver for ImportJob<'_> {
    fn came(&mut self, files: u64, bytes: u64) -> Result<()> {
        let more = Amount { bytes, ranges: 0, files };
        if let Some(record) = self.jobs.list.moved(self.id, more) {
            self.jobs.try_keep_inside(&record);
        }
        self.goes_on()
    }

    fn conflict(&mut self, path: &Path) {
        self.conflicts += 1;
        tracing::info!(job = self.id, path = %path.shown(), "a file stays on its tier: {CONFLICT}");
    }

    fn failed(&mut self, path: &Path, error: &Error) -> Result<()> {
        self.errors += 1;
        tracing::warn!(job = self.id, path = %path.shown(), %error, "something could not be brought in");
        let _ = self.jobs.list.update(self.id, |job| {
            job.record.errors += 1;
            job.record.message.get_or_insert_with(|| format!("{}: {error}", path.shown()));
        });
        self.goes_on()
    }
}

impl Volume {
    /// Runs jobs where no threads may be started: each once.
    pub(crate) fn step_jobs(&self) {
        let mut last = 0;
        while let Some((id, pace)) = self.jobs.list.take_after(last) {
            self.run_job(id, &pace);
            last = id;
        }
    }

    /// Carries a job on as far as possible.
    pub(crate) fn run_job(&self, id: u64, pace: &Pace) {
        self.jobs.run(id, |what| self.carry_on(id, what, pace));
    }

    fn carry_on(&self, id: u64, what: &JobKind, pace: &Pace) -> std::result::Result<RunEnd, RunStop> {
        match what {
            JobKind::Import { tier } => return self.bring_in(id, tier),
            JobKind::ReplaceHome { .. } => return self.move_home(id, pace),
            JobKind::Scrub { path } => return scrub(self, id, path, pace),
            _ => {}
        }
        let Some(removed) = what.removed_tier() else { return self.jobs.move_ranges(id, what, pace) };
        if self.core.tiers.number(removed).is_none() {
            // The tier was removed otherwise.
            return Ok(RunEnd::Finished);
        }
        match self.jobs.move_ranges(id, what, pace)? {
            RunEnd::Finished => self.remove_emptied(id, removed),
            end => Ok(end),
        }
    }

    /// Removes the tier that the job emptied from the volume.
    fn remove_emptied(&self, id: u64, tier: &str) -> std::result::Result<RunEnd, RunStop> {
        // A job that was cancelled or paused, with that reported, keeps the
        // tier.
        if !self.jobs.list.commit(id) {
            return Err(RunStop::Interrupted);
        }
        let removed = self.membership.remove(tier).map_err(|error| RunStop::Failed(error.to_string()))?;
        Ok(match removed.not_cleared {
            None => RunEnd::Finished,
            Some(why) => RunEnd::FinishedBut(format!(
                "{} could not be cleared ({why}): remove its .braid directory before it is used anew",
                removed.location
            )),
        })
    }

    /// Moves home to the directory of the job, in one go: copies are of no use
    /// after an early end, and are removed.
    fn move_home(&self, id: u64, pace: &Pace) -> std::result::Result<RunEnd, RunStop> {
        let failed = |error: Error| RunStop::Failed(error.to_string());
        let begun = self.jobs.list.update(id, |job| {
            job.record.done = Amount::default();
            (job.rehome.root.clone(), job.record.what.clone())
        });
        let (Some(root), JobKind::ReplaceHome { dir }) = begun.map_err(failed)? else {
            return Err(RunStop::Failed("its directory is not known any more".into()));
        };
        let Some(alone) = self.core.maintenance.try_lock() else {
            // A check is under way.
            return Ok(RunEnd::Waiting(0, Rest::All));
        };
        let beside = Replacer { volume: self, job: Some(id) };
        let result =
            self.home_replacement.replace(&root, &dir, (pace, &beside), &mut |now| self.note_copied(id, now));
        drop(alone);
        if result.is_err() && self.jobs.list.is_given_up(id) {
            return Ok(RunEnd::Interrupted);
        }
        self.jobs.list.update(id, |job| job.rehome.report = Some(result.clone())).map_err(failed)?;
        match result {
            Ok(_) => Ok(RunEnd::Finished),
            Err(why) => Ok(RunEnd::Failed(why.to_string())),
        }
    }

    /// Notes progress; answers whether to continue.
    fn note_copied(&self, id: u64, now: &RehomeProgress) -> bool {
        let more = self.jobs.list.update(id, |job| {
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
        if let Some(record) = self.jobs.list.moved(id, more) {
            self.jobs.try_keep(&record);
        }
        !self.jobs.list.is_given_up(id)
    }

    /// Imports a tier's own files. Files that came in are gone from there, so
    /// an interrupted job continues where it was.
    fn bring_in(&self, id: u64, tier: &str) -> std::result::Result<RunEnd, RunStop> {
        let mut import = ImportJob { jobs: &self.jobs, id, conflicts: 0, errors: 0 };
        // The notices of new names to the front end may wait for requests: the
        // barrier must not be frozen meanwhile.
        let result = match self.core.maintenance.try_lock() {
            Some(_alone) => self.importer.import(tier, &mut import),
            None => {
                let what = "a check or the replacement of home is under way; try again after it";
                Err(Error::new(Errno::EBUSY, what))
            }
        };
        let ImportJob { conflicts, errors, .. } = import;
        let skipped = match conflicts {
            0 => BTreeMap::new(),
            _ => BTreeMap::from([(CONFLICT.to_owned(), conflicts)]),
        };
        let kept = self.jobs.list.update(id, |job| {
            job.record.skipped = skipped;
            job.record.message.clone()
        });
        match result {
            Err(error) if error.errno() == Errno::ECANCELED => Ok(RunEnd::Interrupted),
            Err(error) => Ok(RunEnd::Failed(error.to_string())),
            Ok(()) if errors > 0 => {
                let first = kept.ok().flatten().unwrap_or_default();
                Ok(RunEnd::Failed(format!("{errors} could not be brought in; the first: {first}")))
            }
            Ok(()) => Ok(RunEnd::Finished),
        }
    }
}
