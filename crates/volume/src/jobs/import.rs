//! The job that brings a tier's own files in: `import` does it, and here it is
//! told how far it has come and whether it is to go on.

use super::list::Outcome;
use super::run::Stop;
use crate::Volume;
use crate::import::ImportObserver;
use braid_contract::{Amount, Errno, Error, Result, Shown};
use std::collections::BTreeMap;
use std::path::Path;

/// Why a file was left where it is.
const CONFLICT: &str = "home has something of that name";

struct Watcher<'v> {
    volume: &'v Volume,
    id: u64,
    conflicts: u64,
    errors: u64,
}

impl Volume {
    /// Carries such a job out. What is in already is met no more, so that one
    /// that was interrupted goes on where it was.
    pub(super) fn bring_in(&self, id: u64, tier: &str) -> std::result::Result<Outcome, Stop> {
        let mut watcher = Watcher { volume: self, id, conflicts: 0, errors: 0 };
        let result = self.import_tier(tier, &mut watcher);
        let Watcher { conflicts, errors, .. } = watcher;
        let skipped = match conflicts {
            0 => BTreeMap::new(),
            _ => BTreeMap::from([(CONFLICT.to_owned(), conflicts)]),
        };
        let kept = self.jobs.update(id, |job| {
            job.record.skipped = skipped;
            job.record.message.clone()
        });
        match result {
            Err(error) if error.errno() == Errno::ECANCELED => Ok(Outcome::Interrupted),
            Err(error) => Ok(Outcome::Failed(error.to_string())),
            Ok(()) if errors > 0 => {
                let first = kept.ok().flatten().unwrap_or_default();
                Ok(Outcome::Failed(format!("{errors} could not be brought in; the first: {first}")))
            }
            Ok(()) => Ok(Outcome::Finished),
        }
    }
}

impl Watcher<'_> {
    fn goes_on(&self) -> Result<()> {
        if self.volume.jobs.is_interrupted(self.id) { Err(Errno::ECANCELED.into()) } else { Ok(()) }
    }
}

impl ImportObserver for Watcher<'_> {
    fn came(&mut self, files: u64, bytes: u64) -> Result<()> {
        let more = Amount { bytes, ranges: 0, files };
        if let Some(record) = self.volume.jobs.moved(self.id, more) {
            self.volume.try_keep_job_inside(&record);
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
        let _ = self.volume.jobs.update(self.id, |job| {
            job.record.errors += 1;
            job.record.message.get_or_insert_with(|| format!("{}: {error}", path.shown()));
        });
        self.goes_on()
    }
}
