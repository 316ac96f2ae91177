//! One run of a job: counts the ranges to be moved, then visits the files and
//! moves them. The threads of the volume call it.

use super::goal::{Goal, goal_of, starts, steps};
use super::list::{Rest, RunEnd, RunStop};
use super::records::Jobs;
use super::targets::check_room;
use crate::occupancy::{ranges_counted_on, ranges_on};
use braid_contract::units::show_size_up;
use braid_contract::{Amount, Errno, Error, Fd, JobKind, Result, Shown, counted};
use braid_core::file::{end_use_entering, gather, is_pinned, range_size_of, smallest_range};
use braid_core::live::File;
use braid_core::namespace::with_file;
use braid_core::reap::{reap_now, retire_marks};
use braid_home::{Identity, Seen};
use braid_tiers::rate::Pace;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// Ranges that are collected at a time.
pub(super) const BATCH: usize = 256;

/// Files in use that are remembered; with more, all files are visited again.
const BUSY_MAX: usize = 4096;

/// Errors after which a job is given up.
const ERRORS_MAX: u64 = 1000;

/// Most passes over a tier that should be empty.
const ROUNDS_MAX: usize = 8;

/// A run under way.
pub(super) struct Run<'v> {
    pub(super) jobs: &'v Jobs,
    pub(super) id: u64,
    pub(super) pace: &'v Pace,
    pub(super) goal: Goal,
    /// Only counts.
    counting: bool,
    /// The result of the count.
    counted: Amount,
    /// Files with several names that were visited.
    linked: HashSet<u64>,
    /// Files that are in use.
    busy: Vec<PathBuf>,
    busy_files: u64,
    pub(super) skipped: BTreeMap<String, u64>,
    stop: Option<RunStop>,
}

impl Jobs {
    /// Carries a job on by `carry_on` as far as possible, and saves the
    /// outcome.
    pub(crate) fn run(
        &self,
        id: u64,
        carry_on: impl FnOnce(&JobKind) -> std::result::Result<RunEnd, RunStop>,
    ) {
        let outcome = match self.one(id) {
            Ok(job) => {
                self.try_keep(&job.record);
                match carry_on(&job.record.what) {
                    Ok(outcome) => outcome,
                    Err(RunStop::Interrupted) => RunEnd::Interrupted,
                    Err(RunStop::Failed(why)) => RunEnd::Failed(why),
                }
            }
            Err(_) => RunEnd::Interrupted,
        };
        if matches!(outcome, RunEnd::Failed(_)) {
            // By the time the failure shows, the tier takes new ranges again.
            let _ = self.list.update(id, |job| job.record.holds = false);
            self.apply_draining();
        }
        if let Some((record, old)) = self.list.ended(id, outcome) {
            self.try_keep(&record);
            if record.state.is_final() {
                let why = record.message.as_deref().unwrap_or("");
                tracing::info!(job = id, what = %record.what, state = record.state.name(), why, "a job ended");
            }
            self.forget(&old);
        }
    }

    /// Carries a job that moves ranges as far as possible.
    pub(crate) fn move_ranges(
        &self,
        id: u64,
        what: &JobKind,
        pace: &Pace,
    ) -> std::result::Result<RunEnd, RunStop> {
        let goal = goal_of(&self.core, what).map_err(failed)?;
        let mut run = Run {
            jobs: self,
            id,
            pace,
            goal,
            counting: false,
            counted: Amount::default(),
            linked: HashSet::new(),
            busy: Vec::new(),
            busy_files: 0,
            skipped: BTreeMap::new(),
            stop: None,
        };
        let rest = self.list.update(id, |job| std::mem::take(&mut job.rest)).map_err(failed)?;
        let places = match &rest {
            Rest::Busy(paths) => paths.clone(),
            Rest::All => starts(what),
            Rest::Uncounted => {
                run.count(what)?;
                starts(what)
            }
        };
        run.pass(&places, !matches!(rest, Rest::Busy(_)))?;
        for _ in 0..ROUNDS_MAX {
            if run.busy_files > 0 {
                let rest = match run.busy.len() {
                    1..=BUSY_MAX => Rest::Busy(run.busy),
                    _ => Rest::All,
                };
                return Ok(RunEnd::Waiting(run.busy_files, rest));
            }
            if run.is_empty_at_last()? {
                break;
            }
            run.pass(&starts(what), true)?;
        }
        run.finish()
    }
}

impl Run<'_> {
    /// Counts the data to be moved, and checks that there is room for it.
    fn count(&mut self, what: &JobKind) -> std::result::Result<(), RunStop> {
        self.counting = true;
        self.walk(&starts(what))?;
        self.nameless()?;
        self.counting = false;
        self.linked.clear();
        let left = self.counted;
        let updated = self.jobs.list.update(self.id, |job| {
            let mut total = job.record.done;
            total += left;
            job.record.total = Some(total);
            job.record.clone()
        });
        self.jobs.try_keep(&updated.map_err(failed)?);
        let Goal::To(to) = &self.goal else { return Ok(()) };
        let what =
            format!("{} in {} are to be moved there", show_size_up(left.bytes), counted(left.files, "file"));
        check_room(&what, left.bytes, to).map_err(failed)
    }

    /// Moves the files at and below `places`.
    fn pass(&mut self, places: &[PathBuf], whole: bool) -> std::result::Result<(), RunStop> {
        self.busy.clear();
        self.busy_files = 0;
        if whole {
            self.linked.clear();
            self.skipped.clear();
        }
        self.walk(places)?;
        if whole {
            self.nameless()?;
        }
        if whole {
            let skipped = std::mem::take(&mut self.skipped);
            self.jobs.list.update(self.id, |job| job.record.skipped = skipped).map_err(failed)?;
        }
        Ok(())
    }

    fn walk(&mut self, places: &[PathBuf]) -> std::result::Result<(), RunStop> {
        let home = &self.jobs.core.home;
        let walked = home.walk_below(places, &mut |seen| {
            let done = match seen {
                Seen::File(path, fd, identity) => self.file(path, fd, identity),
                Seen::Failed(_, error) if is_gone(&error) => Ok(()),
                Seen::Failed(path, error) => self.error(&path.shown().to_string(), &error),
            };
            done.map_err(|stop| {
                self.stop = Some(stop);
                Errno::ECANCELED.into()
            })
        });
        match (self.stop.take(), walked) {
            (Some(stop), _) => Err(stop),
            (None, walked) => walked.map_err(failed),
        }
    }

    /// Moves open files without a name: they must leave a tier that is to be
    /// empty too.
    fn nameless(&mut self) -> std::result::Result<(), RunStop> {
        if !matches!(self.goal, Goal::Off { .. }) {
            return Ok(());
        }
        let mut seen = HashSet::new();
        for open in self.jobs.core.handles.files() {
            let nameless = open.file.data().stat().is_ok_and(|stat| stat.attr.nlink == 0);
            // A file may be open several times.
            if nameless && open.file.spread_id().is_some_and(|id| seen.insert(id)) {
                if self.jobs.list.is_interrupted(self.id) {
                    return Err(RunStop::Interrupted);
                }
                let moved = self.visit_file("(removed, and open still)", &open.file);
                self.judge(Path::new(""), moved)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, fd: &Fd, identity: &Identity) -> std::result::Result<(), RunStop> {
        if self.jobs.list.is_interrupted(self.id) {
            return Err(RunStop::Interrupted);
        }
        if identity.attr.nlink > 1 && !self.linked.insert(identity.ino()) {
            return Ok(());
        }
        let done = self.visit(path, fd, identity);
        self.judge(path, done)
    }

    /// Notes the outcome for a file.
    fn judge(&mut self, path: &Path, done: Result<Option<RunStop>>) -> std::result::Result<(), RunStop> {
        match done {
            Ok(None) => Ok(()),
            Ok(Some(stop)) => Err(stop),
            Err(error) if error.errno() == Errno::ECANCELED => Err(RunStop::Interrupted),
            Err(error) if error.errno() == Errno::EBUSY => {
                self.busy_files += 1;
                if self.busy.len() <= BUSY_MAX && !path.as_os_str().is_empty() {
                    self.busy.push(path.to_owned());
                }
                Ok(())
            }
            // The file was removed or emptied meanwhile.
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => self.error(&path.shown().to_string(), &error),
        }
    }

    fn visit(&mut self, path: &Path, fd: &Fd, identity: &Identity) -> Result<Option<RunStop>> {
        let core = &*self.jobs.core;
        let plain = core.home.id_attr(&**fd, identity)?.is_none();
        // Its ranges are only known after a look at the file.
        if plain && !self.goal.wants_plain(identity.size(), smallest_range(core)) {
            return Ok(None);
        }
        let shown = path.shown().to_string();
        with_file(core, fd, identity, |file| {
            if plain && !self.goal.wants_plain(identity.size(), range_size_of(core, file)?) {
                return Ok(None);
            }
            if is_pinned(core, file)? && !self.goal.overrides(file.pin(&core.home)?.as_ref()) {
                if !self.counting && !steps(core, &self.goal, file, 0, 1)?.is_empty() {
                    *self.skipped.entry("pinned".into()).or_default() += 1;
                }
                return Ok(None);
            }
            self.visit_file(&shown, file)
        })
    }

    fn visit_file(&mut self, shown: &str, file: &File) -> Result<Option<RunStop>> {
        if self.counting {
            return self.count_file(file).map(|()| None);
        }
        // Most files have nothing to move, and must not change.
        if steps(&self.jobs.core, &self.goal, file, 0, 1)?.is_empty() {
            return Ok(None);
        }
        // The file's data must not be removed during the move.
        file.opened(false)?;
        let moved = self.move_file(shown, file);
        let moved = moved.and_then(|stop| gather(&self.jobs.core, file).map(|_| stop));
        let ended = end_use_entering(&self.jobs.core, file);
        let moved = moved?;
        ended.map(|()| moved)
    }

    fn count_file(&mut self, file: &File) -> Result<()> {
        let mut amount = Amount::default();
        let mut first = 0;
        loop {
            let steps = steps(&self.jobs.core, &self.goal, file, first, self.batch())?;
            let Some(last) = steps.last() else { break };
            first = last.end();
            amount.ranges += steps.iter().filter(|step| step.len > 0).count() as u64;
            amount.bytes += steps.iter().map(|step| step.len).sum::<u64>();
        }
        amount.files = u64::from(amount.ranges > 0);
        self.counted += amount;
        Ok(())
    }

    /// Ranges to collect at a time: shares need all of a file.
    pub(super) fn batch(&self) -> usize {
        if matches!(self.goal, Goal::Shares) { usize::MAX } else { BATCH }
    }

    /// Notes a failure; the run continues with the rest.
    pub(super) fn error(&mut self, shown: &str, error: &Error) -> std::result::Result<(), RunStop> {
        tracing::warn!(job = self.id, path = shown, %error, "a job could not move something");
        if self.counting {
            // The file is visited again.
            return Ok(());
        }
        let errors = self.jobs.list.update(self.id, |job| {
            job.record.errors += 1;
            job.record.message.get_or_insert_with(|| format!("{shown}: {error}"));
            job.record.errors
        });
        match errors.map_err(failed)? {
            errors if errors >= ERRORS_MAX => {
                Err(RunStop::Failed(format!("{errors} errors; the last: {shown}: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Whether a tier that is to be empty is; `true` for other jobs.
    fn is_empty_at_last(&self) -> std::result::Result<bool, RunStop> {
        let Goal::Off { tier, .. } = &self.goal else { return Ok(true) };
        if self.has_errors()? {
            return Ok(true);
        }
        // Removed files have to leave it too, and their indexes once that is
        // durable.
        reap_now(&self.jobs.core);
        retire_marks(&self.jobs.core);
        // A file that was renamed during a walk may be in the tier's count only.
        let counted = ranges_counted_on(&self.jobs.core, tier);
        Ok(counted == 0 && ranges_on(&self.jobs.core, tier).map_err(failed)? == 0)
    }

    fn has_errors(&self) -> std::result::Result<bool, RunStop> {
        Ok(self.jobs.one(self.id).map_err(failed)?.record.errors > 0)
    }

    /// Ends a run that has nothing left to move.
    fn finish(self) -> std::result::Result<RunEnd, RunStop> {
        let record = self.jobs.one(self.id).map_err(failed)?.record;
        if record.errors > 0 {
            let first = record.message.unwrap_or_default();
            return Ok(RunEnd::Failed(format!("{} could not be moved; the first: {first}", record.errors)));
        }
        let Goal::Off { tier, .. } = &self.goal else { return Ok(RunEnd::Finished) };
        let left = ranges_on(&self.jobs.core, tier).map_err(failed)?;
        if left > 0 {
            let why = format!(
                "still on tier {}, of files that no name leads to: {}; see braid fsck",
                tier.name,
                counted(left, "range")
            );
            return Ok(RunEnd::Failed(why));
        }
        Ok(RunEnd::Finished)
    }
}

pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error.errno(), Errno::ENOENT | Errno::ESTALE | Errno::EAGAIN)
}

fn failed(error: Error) -> RunStop {
    RunStop::Failed(error.to_string())
}
