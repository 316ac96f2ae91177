//! Many workloads, on several threads.

use super::Subject;
use super::explore::{Explorer, Failure, Limits, Totals};
use super::generate;
use super::shrink::shrink;
use super::workload::Workload;
use braid_contract::SplitMix;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Which workloads are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workloads {
    /// All sequences of up to three operations, in a scattered order.
    Enumerated,
    /// Random sequences of 5 to 40 operations.
    Random,
    /// Both in turn.
    Both,
}

/// A search.
#[derive(Clone, Debug)]
pub struct Search {
    /// Which workloads.
    pub workloads: Workloads,
    /// Decides on everything that is drawn.
    pub seed: u64,
    /// Ends after about so many crash states.
    pub states: u64,
    /// Ends after about this long.
    pub time: Duration,
    /// Threads to search with.
    pub threads: usize,
    /// How far each workload is searched.
    pub limits: Limits,
}

/// The result of a search.
#[derive(Debug)]
pub struct Found {
    /// The totals.
    pub totals: Totals,
    /// How long it took.
    pub time: Duration,
    /// The first failure, shrunk.
    pub failure: Option<Failure>,
}

/// State shared by the threads of a search.
struct Shared {
    next: AtomicU64,
    stop: AtomicBool,
    totals: Mutex<Totals>,
    /// The failure of the workload with the lowest number so far.
    failure: Mutex<Option<(u64, Failure)>>,
}

impl Search {
    /// Searches until something is found or an end is reached.
    #[must_use]
    pub fn run(&self, subject: &dyn Subject) -> Found {
        let began = Instant::now();
        let shared = Shared {
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            totals: Mutex::default(),
            failure: Mutex::default(),
        };
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| self.work(subject, &shared, began));
            }
        });
        let time = began.elapsed();
        let failure = shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        let failure =
            failure.map(|(which, failure)| shrink(subject, self.limits, failure, self.seed_of(which)));
        Found { totals: *lock(&shared.totals), time, failure }
    }

    /// Workload number `which`; `None` when there are no more.
    fn workload(&self, subject: &dyn Subject, which: u64) -> Option<Workload> {
        let policies = subject.policies();
        match self.workloads {
            Workloads::Enumerated => generate::enumerated(policies, self.seed, which),
            Workloads::Random => Some(generate::random(policies, self.seed, which)),
            Workloads::Both if which.is_multiple_of(2) => {
                let enumerated = generate::enumerated(policies, self.seed, which / 2);
                Some(enumerated.unwrap_or_else(|| generate::random(policies, self.seed, which)))
            }
            Workloads::Both => Some(generate::random(policies, self.seed, which)),
        }
    }

    fn seed_of(&self, which: u64) -> u64 {
        SplitMix::of(self.seed, which).next_u64()
    }

    fn work(&self, subject: &dyn Subject, shared: &Shared, began: Instant) {
        let explorer = Explorer::new(subject, self.limits);
        while !shared.stop.load(Ordering::Relaxed) {
            let which = shared.next.fetch_add(1, Ordering::Relaxed);
            let Some(workload) = self.workload(subject, which) else { return };
            match explorer.explore(&workload, self.seed_of(which)) {
                Ok(done) => {
                    let mut totals = lock(&shared.totals);
                    totals.add(done);
                    if totals.states >= self.states || began.elapsed() >= self.time {
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                }
                Err(failure) => {
                    shared.stop.store(true, Ordering::Relaxed);
                    let mut first = lock(&shared.failure);
                    if first.as_ref().is_none_or(|(before, _)| which < *before) {
                        *first = Some((which, *failure));
                    }
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
