//! A worker: a thread that serves the queues of its share, polls them for a while when there
//! is nothing to do, and then sleeps until an application wakes it.

use crate::polling::Polling;
use crate::queue::{Buffers, Queue};
use braid_sys::{FutexScope, futex_wait_any, futex_wake};
use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Requests of a queue that are served before the next has its turn.
const BATCH: usize = 16;

/// The order in which a worker serves its queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scheduler {
    /// In turn, regardless of their class.
    Noop,
    /// Requests that want to be answered soon first, and a worker without work takes some of
    /// the others (blk-switch, OSDI'21, as LabStor has it).
    #[default]
    BlkSwitch,
}

impl Scheduler {
    const NAMES: [(&str, Self); 2] = [("blk-switch", Self::BlkSwitch), ("noop", Self::Noop)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, one)| *one == self).map_or("noop", |(name, _)| name)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// Advice, if there is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, one)| *one).ok_or_else(|| "write blk-switch or noop".to_owned())
    }
}

/// The queues that a worker is to serve, and how.
#[derive(Default)]
pub(crate) struct Assignment {
    /// Those whose requests want to be answered soon.
    pub(crate) soon: Vec<Arc<Queue>>,
    pub(crate) others: Vec<Arc<Queue>>,
    /// Those of other workers that it helps with when it has nothing to do.
    pub(crate) help: Vec<Arc<Queue>>,
    /// The processors it may use; all, if there are none.
    pub(crate) processors: Option<CpuSet>,
    pub(crate) latency: bool,
}

impl Assignment {
    fn own(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.soon.iter().chain(&self.others)
    }

    /// How many queues are its own.
    pub(crate) fn queues(&self) -> usize {
        self.soon.len() + self.others.len()
    }
}

/// The shared state of a worker's thread and its pool.
pub(crate) struct WorkerShared {
    assignment: Mutex<Arc<Assignment>>,
    /// Raised when the assignment changes.
    changed: AtomicU64,
    /// The last change that the worker has taken notice of.
    noticed: AtomicU64,
    ends: AtomicBool,
    /// It serves nothing any more.
    ended: AtomicBool,
    /// Where the worker sleeps; raised to wake it.
    doorbell: AtomicU64,
    asleep: AtomicBool,
    /// Its thread gets a processor sooner than others.
    hurries: AtomicBool,
    /// Raised with each request and each look for one.
    steps: AtomicU64,
    requests: AtomicU64,
    busy_ns: AtomicU64,
    slept: AtomicU64,
    /// Called when the worker has taken notice of a change.
    on_notice: Box<dyn Fn() + Send + Sync>,
}

/// The counts of a worker so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) requests: u64,
    pub(crate) busy_ns: u64,
    pub(crate) slept: u64,
    pub(crate) asleep: bool,
}

/// A worker's thread, seen from the pool.
pub(crate) struct Worker {
    pub(crate) shared: Arc<WorkerShared>,
    thread: Option<JoinHandle<()>>,
    /// Its steps when they were last looked at, and the time since which they have not changed.
    seen: (u64, Instant),
}

impl Worker {
    /// Starts a worker without queues, which polls for the time `poll` before it sleeps, and calls
    /// `on_notice` after each change.
    ///
    /// # Errors
    /// If there is no thread.
    pub(crate) fn start(
        number: usize,
        poll: Duration,
        on_notice: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(WorkerShared {
            assignment: Mutex::default(),
            changed: AtomicU64::new(0),
            noticed: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            doorbell: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            hurries: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            slept: AtomicU64::new(0),
            on_notice: Box::new(on_notice),
        });
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new().name(format!("worker {number}")).spawn(move || its.run(poll))?;
        Ok(Self { shared, thread: Some(thread), seen: (0, Instant::now()) })
    }

    /// Gives it other queues. It may still serve one of those before for one request.
    pub(crate) fn assign(&self, assignment: Assignment) {
        *self.shared.assignment.lock() = Arc::new(assignment);
        self.shared.changed.fetch_add(1, Ordering::AcqRel);
        self.shared.wake();
    }

    /// Whether it serves only the queues that it was given last.
    pub(crate) fn has_noticed(&self) -> bool {
        self.shared.noticed.load(Ordering::Acquire) == self.shared.changed.load(Ordering::Acquire)
    }

    /// Has it end after the request that it carries out; waits for that when it is dropped.
    pub(crate) fn retire(&self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.changed.fetch_add(1, Ordering::AcqRel);
        self.shared.wake();
    }

    /// Whether one request has kept it for so long, as far as the looks show, and others of its
    /// queues wait.
    pub(crate) fn is_held_up(&mut self, now: Instant, patience: Duration) -> bool {
        let steps = self.shared.steps.load(Ordering::Relaxed);
        if steps != self.seen.0 || self.shared.asleep.load(Ordering::Relaxed) {
            self.seen = (steps, now);
        }
        now.duration_since(self.seen.1) >= patience
            && self.shared.assignment().own().any(|queue| queue.has_work())
    }

    /// Whether it serves nothing any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.retire();
        // A panic of it was logged.
        self.thread.take().map(JoinHandle::join);
    }
}

impl WorkerShared {
    fn wake(&self) {
        self.doorbell.fetch_add(1, Ordering::AcqRel);
        futex_wake(&self.doorbell, 1, FutexScope::Process);
    }

    pub(crate) fn assignment(&self) -> Arc<Assignment> {
        Arc::clone(&self.assignment.lock())
    }

    pub(crate) fn done(&self) -> Done {
        Done {
            requests: self.requests.load(Ordering::Relaxed),
            busy_ns: self.busy_ns.load(Ordering::Relaxed),
            slept: self.slept.load(Ordering::Relaxed),
            asleep: self.asleep.load(Ordering::Relaxed),
        }
    }

    /// The body of the thread.
    fn run(&self, poll: Duration) {
        self.work(poll);
        *self.assignment.lock() = Arc::default();
        self.ended.store(true, Ordering::Release);
        (self.on_notice)();
    }

    fn work(&self, poll: Duration) {
        let mut buffers = Buffers::default();
        let (mut known, mut assignment) = (0, self.assignment());
        let polling = Polling::default();
        loop {
            let changed = self.changed.load(Ordering::Acquire);
            if changed != known {
                if self.ends.load(Ordering::Acquire) {
                    return;
                }
                (known, assignment) = (changed, self.assignment());
                self.take_notice(known, &assignment);
            }
            self.step();
            if self.serve(&assignment, &mut buffers) {
                continue;
            }
            let is_work = || {
                self.changed.load(Ordering::Relaxed) != known
                    || assignment.own().any(|queue| queue.has_work())
            };
            if !polling.until(poll, is_work) {
                self.sleep(&assignment, known);
            }
        }
    }

    fn take_notice(&self, change: u64, assignment: &Assignment) {
        assignment.processors.iter().for_each(|processors| {
            // If it is refused, any processor will do.
            let _ = sched_setaffinity(None, processors);
        });
        if assignment.latency != self.hurries.swap(assignment.latency, Ordering::Relaxed) {
            braid_sys::hurry(assignment.latency);
        }
        self.noticed.store(change, Ordering::Release);
        (self.on_notice)();
    }

    /// Only its own thread does so.
    fn step(&self) {
        self.steps.store(self.steps.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    fn serve_one(&self, queue: &Queue, buffers: &mut Buffers) -> bool {
        let served = queue.serve_one(buffers);
        if served {
            self.step();
        }
        served
    }

    /// Serves each queue for a while; returns whether there was any request.
    fn serve(&self, assignment: &Assignment, buffers: &mut Buffers) -> bool {
        let begun = Instant::now();
        let mut served = 0;
        for queue in &assignment.soon {
            served += (0..BATCH).take_while(|_| self.serve_one(queue, buffers)).count() as u64;
        }
        for queue in &assignment.others {
            served += u64::from(self.serve_one(queue, buffers));
            // Requests that came meanwhile have waited for one request, and not for all of them.
            for soon in &assignment.soon {
                served += u64::from(self.serve_one(soon, buffers));
            }
        }
        if served == 0 {
            served = u64::from(assignment.help.iter().any(|queue| self.serve_one(queue, buffers)));
        }
        if served > 0 {
            self.requests.fetch_add(served, Ordering::Relaxed);
            let busy = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.busy_ns.fetch_add(busy, Ordering::Relaxed);
        }
        served > 0
    }

    /// Sleeps until there may be work.
    fn sleep(&self, assignment: &Assignment, known: u64) {
        let own = self.doorbell.load(Ordering::Acquire);
        let mut words: Vec<(&AtomicU64, u64, FutexScope)> = vec![(&self.doorbell, own, FutexScope::Process)];
        for doorbell in assignment.own().map(|queue| queue.shared.doorbell()) {
            if !words.iter().any(|(word, ..)| std::ptr::eq(*word, doorbell)) {
                words.push((doorbell, doorbell.load(Ordering::Acquire), FutexScope::Shared));
            }
        }
        assignment.own().for_each(|queue| queue.set_asleep(true));
        self.asleep.store(true, Ordering::Relaxed);
        let nothing =
            self.changed.load(Ordering::Acquire) == known && !assignment.own().any(|queue| queue.has_work());
        if nothing {
            self.slept.fetch_add(1, Ordering::Relaxed);
            futex_wait_any(&words);
        }
        self.asleep.store(false, Ordering::Relaxed);
        assignment.own().for_each(|queue| queue.set_asleep(false));
    }
}
