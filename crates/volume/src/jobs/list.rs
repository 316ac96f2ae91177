//! The list of jobs: their states, and which of them may run now. Plain data
//! behind one lock; threads wait here for work.

use crate::rehome::{RehomeOutcome, RehomePhase};
use braid_contract::{Amount, Environment, Errno, Error, Fd, JobKind, JobState, RefusalKind, Result};
use braid_format::JobRecord;
use braid_tiers::rate::{IoClass, Meter, Pace, Paces};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Jobs that run at the same time, unless the stack says otherwise.
const PARALLEL_DEFAULT: usize = 2;

/// Most jobs that may run at the same time.
pub const PARALLEL_MAX: usize = 8;

/// Jobs that have not ended, at most.
const UNFINISHED_MAX: usize = 256;

/// Finished jobs that are still reported.
const FINISHED_KEPT: usize = 32;

/// How often the progress of a running job is saved.
const SAVE_NS: u64 = 5_000_000_000;

/// Time between two tries to move files that are in use, first and longest.
const RETRY_FIRST_NS: u64 = 250_000_000;
const RETRY_MAX_NS: u64 = 8_000_000_000;

/// Longest wait for work before checking whether the volume is gone.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A job and how it is doing.
pub(crate) struct Job {
    pub(crate) record: JobRecord,
    pub(crate) pace: Arc<Pace>,
    /// A thread is working on it.
    active: bool,
    not_before_ns: u64,
    retry_ns: u64,
    pub(crate) rest: Rest,
    /// Files that the job waits for.
    pub(crate) waiting: u64,
    pub(crate) meter: Meter,
    saved_ns: u64,
    /// The job can't be ended any more.
    committed: bool,
    pub(crate) rehome: Rehome,
}

/// State of a replacement of home that is not saved.
#[derive(Default)]
pub(crate) struct Rehome {
    /// The directory that becomes home.
    pub(crate) root: Option<Fd>,
    pub(crate) phase: Option<RehomePhase>,
    /// The new directory is home now.
    pub(crate) switched: bool,
    pub(crate) report: Option<RehomeOutcome>,
}

/// The state of a job before a request changed it.
pub(super) struct Before {
    state: JobState,
    holds: bool,
    root: Option<Fd>,
}

/// The files that a job has yet to visit.
#[derive(Clone, Default)]
pub(crate) enum Rest {
    /// Nothing was counted yet.
    #[default]
    Uncounted,
    /// Everything.
    All,
    /// Files that were in use.
    Busy(Vec<PathBuf>),
}

/// The end of a run of a job.
pub(crate) enum RunEnd {
    /// There is nothing left to do.
    Finished,
    /// The same, with a remark.
    FinishedBut(String),
    /// Files are in use; these are to be tried again.
    Waiting(u64, Rest),
    /// The job was paused or cancelled, or the volume ends.
    Interrupted,
    /// It can't be done.
    Failed(String),
}

/// The reason why a run stops early.
pub(crate) enum RunStop {
    Interrupted,
    Failed(String),
}

/// All jobs.
pub(crate) struct JobList {
    state: Mutex<ListState>,
    changed: Condvar,
    paces: Arc<Paces>,
    environment: Arc<dyn Environment>,
}

struct ListState {
    jobs: BTreeMap<u64, Job>,
    last: u64,
    parallel: usize,
    stopped: bool,
    /// No job may run for a moment.
    held: bool,
    /// No scrub may run any more: the modules are about to end.
    scrubs_ended: bool,
}

impl ListState {
    fn may_run(&self, job: &Job) -> bool {
        job.may_run() && !(self.scrubs_ended && job.is_scrub())
    }
}

/// Keeps all jobs from running while it lives.
pub(crate) struct HeldJobs<'a>(&'a JobList);

impl Drop for HeldJobs<'_> {
    fn drop(&mut self) {
        self.0.state.lock().held = false;
        self.0.changed.notify_all();
    }
}

impl JobList {
    pub(crate) fn new(environment: Arc<dyn Environment>, paces: Arc<Paces>) -> Self {
        let state = ListState {
            jobs: BTreeMap::new(),
            last: 0,
            parallel: PARALLEL_DEFAULT,
            stopped: false,
            held: false,
            scrubs_ended: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), paces, environment }
    }

    /// Restores the saved jobs.
    pub(super) fn restore(&self, records: Vec<JobRecord>, last: u64) {
        let mut state = self.state.lock();
        state.last = state.last.max(last);
        for record in records {
            let job = self.job(record);
            state.jobs.insert(job.record.id, job);
        }
    }

    fn job(&self, record: JobRecord) -> Job {
        let now_ns = self.environment.monotonic_ns();
        Job {
            pace: Arc::new(Pace::new(record.bandwidth.map(|rate| rate as f64), &self.paces)),
            record,
            active: false,
            not_before_ns: 0,
            retry_ns: RETRY_FIRST_NS,
            rest: Rest::Uncounted,
            waiting: 0,
            meter: Meter::new(now_ns),
            saved_ns: now_ns,
            committed: false,
            rehome: Rehome::default(),
        }
    }

    /// Adds a new job, which does not run before [`release`](Self::release): it
    /// has to be saved first. `allowed` checks it against the others.
    pub(super) fn add(
        &self,
        what: JobKind,
        bandwidth: Option<u64>,
        allowed: impl Fn(&JobRecord) -> Result<()>,
    ) -> Result<JobRecord> {
        let mut state = self.state.lock();
        let unfinished = state.jobs.values().filter(|job| !job.record.state.is_final()).count();
        if unfinished >= UNFINISHED_MAX {
            let what = format!("{unfinished} jobs have not ended; wait for some, or cancel them");
            return Err(Error::refused(Errno::EAGAIN, RefusalKind::Job, what));
        }
        state.jobs.values().try_for_each(|job| allowed(&job.record))?;
        state.last += 1;
        let record = JobRecord::new(state.last, what, bandwidth, self.environment.wall_ns());
        let job = Job { active: true, ..self.job(record.clone()) };
        state.jobs.insert(record.id, job);
        Ok(record)
    }

    /// Lets a new job run; or forgets it, if it could not be saved.
    pub(super) fn release(&self, id: u64, kept: bool) {
        let mut state = self.state.lock();
        match state.jobs.get_mut(&id) {
            Some(job) if kept => job.active = false,
            _ => drop(state.jobs.remove(&id)),
        }
        self.changed.notify_all();
    }

    /// Sets how many jobs run at the same time.
    pub(crate) fn set_parallel(&self, parallel: usize) {
        self.state.lock().parallel = parallel.clamp(1, PARALLEL_MAX);
        self.changed.notify_all();
    }

    /// Ends all runs; running jobs continue at the next mount.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.jobs.values().for_each(|job| job.pace.stop());
        self.changed.notify_all();
    }

    /// Interrupts all runs but that of the job `but`, and prevents new ones.
    /// Waits for those under way; interrupted jobs continue when the answer is
    /// dropped.
    pub(crate) fn hold(&self, but: Option<u64>) -> HeldJobs<'_> {
        let mut state = self.state.lock();
        state.held = true;
        let others = |job: &&Job| Some(job.record.id) != but;
        state.jobs.values().filter(others).for_each(|job| job.pace.stop());
        while self.environment.threads() && state.jobs.values().filter(others).any(|job| job.active) {
            self.changed.wait_for(&mut state, WAIT_MAX);
        }
        HeldJobs(self)
    }

    /// Ends all scrubs, which continue at the next mount, and waits for those under way: the modules
    /// that they read through may end then.
    pub(crate) fn end_scrubs(&self) {
        let mut state = self.state.lock();
        state.scrubs_ended = true;
        state.jobs.values().filter(|job| job.is_scrub()).for_each(|job| job.pace.stop());
        while self.environment.threads() && state.jobs.values().any(|job| job.is_scrub() && job.active) {
            self.changed.wait_for(&mut state, WAIT_MAX);
        }
    }

    /// Waits for a job that may run, a second at most, and takes it.
    pub(crate) fn wait_for_work(&self) -> Option<(u64, Arc<Pace>)> {
        let now_ns = self.environment.monotonic_ns();
        let mut state = self.state.lock();
        let ready = self.take(&mut state, now_ns);
        if ready.is_some() || state.stopped {
            return ready;
        }
        // At the limit of parallel jobs, the end of one wakes all threads.
        let waiting = state.jobs.values().filter(|job| state.may_run(job) && job.not_before_ns > now_ns);
        let next = waiting.map(|job| job.not_before_ns).min();
        let wait = next.map_or(WAIT_MAX, |at| Duration::from_nanos(at - now_ns)).min(WAIT_MAX);
        self.changed.wait_for(&mut state, wait);
        None
    }

    /// Takes a job above `after`, even before its retry is due: without
    /// threads, no time passes between tries.
    pub(crate) fn take_after(&self, after: u64) -> Option<(u64, Arc<Pace>)> {
        let mut state = self.state.lock();
        if state.held {
            return None;
        }
        let id = state.jobs.range(after + 1..).find(|(_, job)| state.may_run(job)).map(|(id, _)| *id)?;
        self.begin(&mut state, id)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    fn take(&self, state: &mut ListState, now_ns: u64) -> Option<(u64, Arc<Pace>)> {
        let active = state.jobs.values().filter(|job| job.active).count();
        if state.stopped || state.held || active >= state.parallel {
            return None;
        }
        let ready = |job: &Job| state.may_run(job) && job.not_before_ns <= now_ns;
        let id = state.jobs.iter().find(|(_, job)| ready(job)).map(|(id, _)| *id)?;
        self.begin(state, id)
    }

    fn begin(&self, state: &mut ListState, id: u64) -> Option<(u64, Arc<Pace>)> {
        let job = state.jobs.get_mut(&id)?;
        job.active = true;
        job.record.state = JobState::Running;
        job.record.started_ns.get_or_insert_with(|| self.environment.wall_ns());
        if matches!(job.rest, Rest::Uncounted) && job.record.position.is_none() {
            // Retries the files that could not be moved.
            (job.record.errors, job.record.message) = (0, None);
        }
        let rate = job.record.bandwidth.map(|rate| rate as f64);
        job.pace = Arc::new(Pace::new(rate, &self.paces));
        job.meter = Meter::new(self.environment.monotonic_ns());
        Some((id, Arc::clone(&job.pace)))
    }

    /// Whether a run has to end.
    pub(crate) fn is_interrupted(&self, id: u64) -> bool {
        let state = self.state.lock();
        let goes_on =
            |job: &Job| job.record.state == JobState::Running && !(state.scrubs_ended && job.is_scrub());
        state.stopped || state.held || !state.jobs.get(&id).is_some_and(goes_on)
    }

    /// Whether a job was paused or cancelled, or the volume ends.
    pub(crate) fn is_given_up(&self, id: u64) -> bool {
        let state = self.state.lock();
        state.stopped || state.jobs.get(&id).is_none_or(|job| job.record.state != JobState::Running)
    }

    /// The limits of a job besides its own pace.
    pub(crate) fn io_class(&self, id: u64) -> IoClass {
        let state = self.state.lock();
        let unguarded = state.jobs.get(&id).is_some_and(|job| job.record.unguarded);
        if unguarded { IoClass::UnguardedJob } else { IoClass::Job }
    }

    /// Protects a job from being ended; `false` if it was ended already.
    pub(crate) fn commit(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        if state.stopped {
            return false;
        }
        let job = state.jobs.get_mut(&id).filter(|job| job.record.state == JobState::Running);
        job.map(|job| job.committed = true).is_some()
    }

    /// Waits for a change, at most so long.
    pub(crate) fn wait_for_change(&self, max_ns: u64) {
        self.changed.wait_for(&mut self.state.lock(), Duration::from_nanos(max_ns));
    }

    /// Notes the end of a run. Answers the record to be saved, and the jobs
    /// that are forgotten.
    pub(super) fn ended(&self, id: u64, outcome: RunEnd) -> Option<(JobRecord, Vec<u64>)> {
        let mut state = self.state.lock();
        let job = state.jobs.get_mut(&id)?;
        job.active = false;
        job.waiting = 0;
        (job.rehome.phase, job.rehome.switched, job.committed) = (None, false, false);
        match outcome {
            // The job was ended first.
            _ if job.record.state.is_final() => {}
            RunEnd::Interrupted => job.rest = Rest::Uncounted,
            RunEnd::Waiting(files, rest) => {
                job.waiting = files;
                job.rest = rest;
                job.not_before_ns = self.environment.monotonic_ns() + job.retry_ns;
                job.retry_ns = (job.retry_ns * 2).min(RETRY_MAX_NS);
            }
            RunEnd::Finished => job.record.be_done(self.environment.wall_ns()),
            RunEnd::FinishedBut(what) => {
                job.record.be_done(self.environment.wall_ns());
                job.record.message = Some(what);
            }
            RunEnd::Failed(why) => job.record.be_failed(self.environment.wall_ns(), why),
        }
        if job.record.state.is_final() {
            // The directory is free for other uses.
            job.rehome.root = None;
        }
        let record = job.record.clone();
        let old = forget_old(&mut state);
        self.changed.notify_all();
        Some((record, old))
    }

    /// Counts moved data; answers, now and then, the record to be saved.
    pub(crate) fn moved(&self, id: u64, more: Amount) -> Option<JobRecord> {
        let now_ns = self.environment.monotonic_ns();
        let mut state = self.state.lock();
        let job = state.jobs.get_mut(&id)?;
        job.record.done += more;
        job.meter.add(now_ns, more.bytes);
        if more.ranges > 0 {
            job.retry_ns = RETRY_FIRST_NS;
        }
        if now_ns.saturating_sub(job.saved_ns) < SAVE_NS {
            return None;
        }
        job.saved_ns = now_ns;
        Some(job.record.clone())
    }

    /// Changes the record of a running job, for which nothing waits.
    pub(crate) fn note(&self, id: u64, change: impl FnOnce(&mut JobRecord)) {
        if let Some(job) = self.state.lock().jobs.get_mut(&id) {
            change(&mut job.record);
        }
    }

    /// Changes a job.
    pub(crate) fn update<T>(&self, id: u64, change: impl FnOnce(&mut Job) -> T) -> Result<T> {
        let mut state = self.state.lock();
        let job = state.jobs.get_mut(&id).ok_or_else(|| unknown(id))?;
        let done = change(job);
        self.changed.notify_all();
        Ok(done)
    }

    /// Reads all jobs.
    pub(super) fn each<T>(&self, look: impl FnMut(&Job) -> T) -> Vec<T> {
        self.state.lock().jobs.values().map(look).collect()
    }

    /// Changes the state of a job to `wanted` on request, if it is one of
    /// `from`.
    pub(super) fn change_state(
        &self,
        id: u64,
        from: &[JobState],
        wanted: JobState,
    ) -> Result<(JobRecord, Before)> {
        let now_ns = self.environment.wall_ns();
        self.update(id, |job| {
            let state = job.record.state;
            if !from.contains(&state) {
                let which: Vec<&str> = from.iter().map(|state| state.name()).collect();
                let mut which = which.join(", ");
                if let Some(last) = which.rfind(", ") {
                    which.replace_range(last..last + 2, " or ");
                }
                let what = format!("job {id} is {}, not {which}", state.name());
                return Err(Error::refused(Errno::EINVAL, RefusalKind::Request, what));
            }
            if job.committed {
                let what = format!("job {id} is about to be done: it is too late for that");
                return Err(Error::refused(Errno::EBUSY, RefusalKind::Busy, what));
            }
            let mut before = Before { state, holds: job.record.holds, root: None };
            job.record.state = wanted;
            job.not_before_ns = 0;
            if wanted != JobState::Queued {
                job.pace.stop();
                job.waiting = 0;
            }
            if wanted == JobState::Cancelled {
                job.record.ended_ns = Some(now_ns);
                job.record.holds = false;
                before.root = job.rehome.root.take();
            }
            Ok((job.record.clone(), before))
        })?
    }

    /// Undoes a change to `wanted` that could not be saved: the job is as it
    /// was `before`, unless it changed again.
    pub(super) fn change_back(&self, id: u64, wanted: JobState, before: Before) {
        // A job that was forgotten meanwhile does not matter.
        let _ = self.update(id, |job| {
            if job.record.state == wanted {
                (job.record.state, job.record.holds) = (before.state, before.holds);
                job.record.ended_ns = None;
                job.rehome.root = job.rehome.root.take().or(before.root);
            }
        });
    }

    /// Forgets the oldest finished jobs beyond the limit; answers which.
    pub(super) fn forget_old(&self) -> Vec<u64> {
        forget_old(&mut self.state.lock())
    }
}

fn forget_old(state: &mut ListState) -> Vec<u64> {
    // The next job's number is the highest plus one.
    let last = state.last;
    let over =
        |job: &&Job| job.record.state.is_final() && !job.record.holds && !job.active && job.record.id != last;
    let mut ended: Vec<(Option<i64>, u64)> =
        state.jobs.values().filter(over).map(|job| (job.record.ended_ns, job.record.id)).collect();
    ended.sort_unstable();
    let kept = FINISHED_KEPT - 1;
    ended.truncate(ended.len().saturating_sub(kept));
    ended.iter().for_each(|(_, id)| drop(state.jobs.remove(id)));
    ended.into_iter().map(|(_, id)| id).collect()
}

impl Job {
    /// The record to be saved at the time `now_ns`. A replacement of home is
    /// done once the new home is in use, even while its run still cleans up.
    pub(super) fn kept(&self, now_ns: i64) -> JobRecord {
        let mut record = self.record.clone();
        if self.rehome.switched && !record.state.is_final() {
            record.be_done(now_ns);
        }
        record
    }

    fn is_scrub(&self) -> bool {
        matches!(self.record.what, JobKind::Scrub { .. })
    }

    /// Whether the job runs, or will run.
    pub(super) fn is_at_work(&self) -> bool {
        self.active || !self.record.state.is_final()
    }

    fn may_run(&self) -> bool {
        !self.active && matches!(self.record.state, JobState::Queued | JobState::Running)
    }
}

/// The error for an unknown job.
pub(super) fn unknown(id: u64) -> Error {
    Error::refused(Errno::ENOENT, RefusalKind::Request, format!("there is no job {id}"))
}
