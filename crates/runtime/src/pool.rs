//! The workers and their queues: asks the policy for a plan when a session comes or goes and
//! from time to time (LabStor §III-C.4), and gives each worker its share.

use crate::load::Counts;
use crate::policy::{Demand, Dynamic, Plan, Policy, RoundRobin, Share, is_worth_it};
use crate::queue::Queue;
use crate::worker::{Assignment, Scheduler, Worker};
use braid_contract::{Class, QueueStatus, RuntimeStatus, WorkerStatus};
use parking_lot::{Condvar, Mutex};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Workers, at most.
pub const WORKERS_MAX: usize = 64;

/// How workers are found for queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PolicyKind {
    /// All workers, and queues dealt to them in turn.
    RoundRobin,
    /// As few workers as the load allows.
    #[default]
    Dynamic,
}

impl PolicyKind {
    const NAMES: [(&str, Self); 2] = [("dynamic", Self::Dynamic), ("round-robin", Self::RoundRobin)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, kind)| *kind == self).map_or("dynamic", |(name, _)| name)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// Advice, if there is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, kind)| *kind).ok_or_else(|| "write dynamic or round-robin".to_owned())
    }
}

/// How the runtime works.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Workers, at most (dynamic) or always (round-robin): 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// How workers are found for queues.
    pub policy: PolicyKind,
    /// In which order a worker serves its queues.
    pub scheduler: Scheduler,
    /// How long a worker without work polls before it sleeps.
    pub poll: Duration,
    /// Time between two looks at the load.
    pub rebalance: Duration,
    /// How much busier than with all workers the busiest may be, as a part of 1.
    pub loss: f64,
    /// Requests that take no longer want to be answered soon, unless their application sets a
    /// class.
    pub latency_below: Duration,
    /// Workers for these requests have processors for themselves.
    pub dedicated: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            workers: processors.min(8),
            policy: PolicyKind::default(),
            scheduler: Scheduler::default(),
            poll: Duration::from_micros(100),
            rebalance: Duration::from_millis(50),
            loss: 0.05,
            latency_below: Duration::from_micros(200),
            dedicated: processors >= 4,
        }
    }
}

/// Up to this weight, a worker is not too busy.
const BUSY_MAX: f64 = 0.85;

/// A queue whose requests took long has to be quicker by this factor to count as quick again: else
/// it would change its workers all the time.
const QUICKER: f64 = 0.8;

/// A worker that one request keeps for this long is replaced by another one, if other requests
/// wait.
const HELD_UP: Duration = Duration::from_millis(500);

/// How long a pause waits for a signal before it looks by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Workers and the queues that they serve.
pub(crate) struct Pool {
    shared: Arc<PoolShared>,
    thread: Option<JoinHandle<()>>,
}

struct PoolShared {
    settings: Settings,
    policy: Box<dyn Policy + Sync>,
    state: Mutex<State>,
    changed: Condvar,
    /// A worker took notice of its queues, or ended.
    noticed: Arc<Condvar>,
}

#[derive(Default)]
struct State {
    queues: Vec<MeasuredQueue>,
    workers: Vec<Worker>,
    /// Those that are about to end.
    retired: Vec<Worker>,
    plan: Plan,
    measured_at: Option<Instant>,
    paused: bool,
    ended: bool,
}

/// A queue and its known load.
struct MeasuredQueue {
    queue: Arc<Queue>,
    before: Counts,
    /// Mean time of its requests, in nanoseconds; none was carried out yet if it is 0.
    mean_ns: f64,
    /// They take longer than requests that are to be answered soon.
    takes_long: bool,
    weight: f64,
}

impl Pool {
    /// Starts without workers: they come with the sessions.
    ///
    /// # Errors
    /// If there is no thread.
    pub(crate) fn start(settings: Settings) -> io::Result<Self> {
        let apart = settings.scheduler == Scheduler::BlkSwitch;
        let policy: Box<dyn Policy + Sync> = match settings.policy {
            PolicyKind::RoundRobin => Box::new(RoundRobin { apart }),
            PolicyKind::Dynamic => Box::new(Dynamic { busy_max: BUSY_MAX, loss_max: settings.loss }),
        };
        let shared = Arc::new(PoolShared {
            settings,
            policy,
            state: Mutex::default(),
            changed: Condvar::new(),
            noticed: Arc::default(),
        });
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new().name("orchestrator".into()).spawn(move || its.follow())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Serves these queues from now on.
    ///
    /// # Errors
    /// If there is no thread for a worker; nothing has changed then.
    pub(crate) fn add(&self, queues: &[Arc<Queue>]) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let before = state.queues.len();
        state.queues.extend(queues.iter().map(|queue| MeasuredQueue {
            queue: Arc::clone(queue),
            before: Counts::default(),
            mean_ns: 0.0,
            takes_long: false,
            weight: 0.0,
        }));
        if let Err(error) = self.shared.rebalance(&mut state, true) {
            state.queues.truncate(before);
            // There were workers for these.
            let _ = self.shared.rebalance(&mut state, true);
            return Err(error);
        }
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Does not serve the queues of a session any more. One of its requests may still be
    /// under way.
    pub(crate) fn remove(&self, session: u64) {
        let mut state = self.shared.state.lock();
        state.queues.retain(|known| known.queue.load.of.0 != session);
        if let Err(error) = self.shared.rebalance(&mut state, true) {
            tracing::warn!(%error, "the workers could not be given other queues");
        }
    }

    /// Whether requests of a process that crashed are yet to be answered.
    pub(crate) fn repeats(&self) -> bool {
        self.shared.state.lock().queues.iter().any(|known| known.queue.repeats())
    }

    pub(crate) fn status(&self) -> RuntimeStatus {
        let state = self.shared.state.lock();
        let workers = state.workers.iter().map(|worker| {
            let (done, assignment) = (worker.shared.done(), worker.shared.assignment());
            WorkerStatus {
                queues: assignment.queues(),
                latency: assignment.latency,
                requests: done.requests,
                busy_ns: done.busy_ns,
                slept: done.slept,
                asleep: done.asleep,
            }
        });
        let queues = state.queues.iter().map(|known| {
            let counts = known.queue.load.counts();
            QueueStatus {
                session: known.queue.load.of.0,
                queue: known.queue.load.of.1,
                class: self.shared.class(known),
                requests: counts.requests,
                busy_ns: counts.busy_ns,
                waiting: known.queue.backlog(),
            }
        });
        let Settings { policy, scheduler, workers: workers_max, .. } = self.shared.settings;
        RuntimeStatus {
            policy: policy.name().into(),
            scheduler: scheduler.name().into(),
            workers_max,
            workers: workers.collect(),
            queues: queues.collect(),
            sessions: Vec::new(),
        }
    }

    /// Takes no more requests out of the queues, until [`resume`](Self::resume). Returns
    /// whether none is under way within this time; if not, they are served as before.
    /// (LabStor §III-C.2: the queues are marked, and the workers acknowledge that.)
    pub(crate) fn pause(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut state = self.shared.state.lock();
        state.paused = true;
        state.workers.iter().for_each(|worker| worker.assign(Assignment::default()));
        loop {
            let quiet =
                state.workers.iter().all(Worker::has_noticed) && state.retired.iter().all(Worker::has_ended);
            if quiet {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                break;
            }
            // Workers signal without the lock: it may be missed.
            self.shared.noticed.wait_until(&mut state, until.min(now + LOOK_AGAIN));
        }
        drop(state);
        self.resume();
        false
    }

    /// Goes on after a pause.
    pub(crate) fn resume(&self) {
        let mut state = self.shared.state.lock();
        state.paused = false;
        // They have no queues, although the plan gives them some.
        state.plan = Plan::new();
        if let Err(error) = self.shared.rebalance(&mut state, true) {
            tracing::warn!(%error, "the workers could not be given their queues again");
        }
    }

    /// Serves nothing any more. When it returns, no request is under way.
    pub(crate) fn stop(&self) {
        let (workers, retired) = {
            let mut state = self.shared.state.lock();
            state.ended = true;
            state.queues.clear();
            (std::mem::take(&mut state.workers), std::mem::take(&mut state.retired))
        };
        self.shared.changed.notify_all();
        // Their threads end with them.
        drop((workers, retired));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
        self.thread.take().map(JoinHandle::join);
    }
}

impl PoolShared {
    /// The body of the thread.
    fn follow(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            if state.queues.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            self.changed.wait_for(&mut state, self.settings.rebalance);
            let relieved = self.relieve(&mut state);
            if let Err(error) = relieved.and_then(|()| self.rebalance(&mut state, false)) {
                tracing::debug!(%error, "no thread for another worker");
            }
        }
    }

    /// Has others take the places of workers that one request keeps. They end with that.
    fn relieve(&self, state: &mut State) -> io::Result<()> {
        if state.paused || state.ended {
            return Ok(());
        }
        state.retired.retain(|worker| !worker.has_ended());
        let now = Instant::now();
        let mut is_due = false;
        for at in 0..state.workers.len() {
            let held_up = state.workers[at].is_held_up(now, HELD_UP);
            if held_up && state.retired.len() < WORKERS_MAX {
                let worker = std::mem::replace(&mut state.workers[at], self.hire(at)?);
                worker.retire();
                state.retired.push(worker);
                is_due = true;
            }
        }
        if is_due { self.rebalance(state, true) } else { Ok(()) }
    }

    /// A worker without queues.
    fn hire(&self, number: usize) -> io::Result<Worker> {
        let noticed = Arc::clone(&self.noticed);
        let on_notice = move || {
            noticed.notify_all();
        };
        Worker::start(number, self.settings.poll, on_notice)
    }

    /// The class of a queue's requests.
    fn class(&self, known: &MeasuredQueue) -> Class {
        match known.queue.load.class {
            Class::Auto if known.takes_long => Class::Throughput,
            Class::Auto => Class::Latency,
            said => said,
        }
    }

    /// Measures the queues, and gives workers other ones if that is worth it.
    fn rebalance(&self, state: &mut State, is_due: bool) -> io::Result<()> {
        if state.paused || state.ended {
            return Ok(());
        }
        let now = Instant::now();
        let period = state.measured_at.map(|before| now.duration_since(before));
        // Too short a time shows nothing.
        if period.is_none_or(|period| period * 2 >= self.settings.rebalance) {
            state.measured_at = Some(now);
            let period = period.unwrap_or(self.settings.rebalance);
            state.queues.iter_mut().for_each(|known| known.measure(period, self.settings.latency_below));
        }
        let demands: Vec<Demand> = state.queues.iter().map(|known| self.demand(known)).collect();
        let plan = self.policy.plan(&demands, self.settings.workers);
        if !is_due && (plan == state.plan || !is_worth_it(&state.plan, &plan, &demands, BUSY_MAX)) {
            return Ok(());
        }
        self.apply(state, plan)
    }

    fn demand(&self, known: &MeasuredQueue) -> Demand {
        Demand { class: self.class(known), weight: known.weight, free: known.queue.is_free() }
    }

    /// Gives each worker its share; others end.
    fn apply(&self, state: &mut State, plan: Plan) -> io::Result<()> {
        while state.workers.len() < plan.len() {
            state.workers.push(self.hire(state.workers.len())?);
        }
        let processors = self.processors(&plan);
        for (at, share) in plan.iter().enumerate() {
            let assignment = self.assignment(state, &plan, share, processors[at]);
            state.workers[at].assign(assignment);
        }
        state.plan = plan;
        // Those that are left have nothing to do.
        let left = state.workers.split_off(state.plan.len());
        left.iter().for_each(Worker::retire);
        state.retired.extend(left);
        state.retired.retain(|worker| !worker.has_ended());
        Ok(())
    }

    fn assignment(
        &self,
        state: &State,
        plan: &Plan,
        share: &Share,
        processors: Option<CpuSet>,
    ) -> Assignment {
        let blk_switch = self.settings.scheduler == Scheduler::BlkSwitch;
        let known = |at: &usize| state.queues.get(*at);
        let wants_soon =
            |at: &&usize| blk_switch && known(at).is_some_and(|known| self.class(known) == Class::Latency);
        let queue = |at: &usize| known(at).map(|known| Arc::clone(&known.queue));
        let (soon, others): (Vec<&usize>, Vec<&usize>) = share.queues.iter().partition(|at| wants_soon(at));
        let help: Vec<&usize> = plan
            .iter()
            .filter(|other| blk_switch && !share.latency && !other.latency)
            .flat_map(|other| &other.queues)
            .filter(|at| !share.queues.contains(at))
            .collect();
        Assignment {
            soon: soon.into_iter().filter_map(queue).collect(),
            others: others.into_iter().filter_map(queue).collect(),
            help: help.into_iter().filter_map(queue).collect(),
            processors,
            latency: share.latency,
        }
    }

    /// The processors of each worker: one for each that serves requests that are to be answered
    /// soon, if one is left for the others.
    fn processors(&self, plan: &Plan) -> Vec<Option<CpuSet>> {
        let all = sched_getaffinity(None).ok();
        let numbers: Vec<usize> =
            all.iter().flat_map(|all| (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number))).collect();
        let latency = plan.iter().filter(|share| share.latency).count();
        if !self.settings.dedicated || latency == 0 || latency >= numbers.len() {
            return vec![all; plan.len()];
        }
        let set_of = |numbers: &[usize]| {
            let mut set = CpuSet::new();
            numbers.iter().for_each(|number| set.set(*number));
            Some(set)
        };
        let (own, rest) = numbers.split_at(latency);
        let (mut own, rest) = (own.iter(), set_of(rest));
        let of_share = |share: &Share| {
            let mine = share.latency.then(|| own.next()).flatten();
            mine.map_or(rest, |number| set_of(&[*number]))
        };
        plan.iter().map(of_share).collect()
    }
}

impl MeasuredQueue {
    /// Takes account of the work in this time.
    fn measure(&mut self, period: Duration, latency_below: Duration) {
        let now = self.queue.load.counts();
        let done = now.since(self.before);
        self.before = now;
        if done.requests > 0 {
            let mean = done.busy_ns as f64 / done.requests as f64;
            self.mean_ns = if self.mean_ns == 0.0 { mean } else { (self.mean_ns + mean) / 2.0 };
        }
        let quick = latency_below.as_nanos() as f64 * if self.takes_long { QUICKER } else { 1.0 };
        self.takes_long = self.mean_ns > quick;
        let waiting = self.queue.backlog() as f64 * self.mean_ns;
        let weight = (done.busy_ns as f64 + waiting) / period.as_nanos().max(1) as f64;
        // More is believed at once, less after a while.
        self.weight = weight.max((self.weight + weight) / 2.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Order;
    use crate::queue::testing::{Slow, is_answered, queue, submit};
    use std::sync::mpsc;

    #[test]
    fn a_request_without_end_holds_up_no_queue_of_others() {
        let pool = Pool::start(Settings { workers: 1, ..Settings::default() }).unwrap();
        let (begun, begins) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        let slow = Arc::new(queue(Slow(begun, Mutex::new(ends)), Order::Kept));
        let (begun, _begins) = mpsc::channel();
        let (go, goes) = mpsc::channel();
        let other = Arc::new(queue(Slow(begun, Mutex::new(goes)), Order::Kept));
        pool.add(&[Arc::clone(&slow), Arc::clone(&other)]).unwrap();
        submit(&slow);
        begins.recv().unwrap();
        go.send(()).unwrap();
        submit(&other);
        while !is_answered(&other) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_answered(&slow) && !pool.pause(Duration::ZERO), "it is under way");
        end.send(()).unwrap();
        while !is_answered(&slow) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(pool.pause(Duration::from_secs(60)));
        assert_eq!(pool.status().workers.len(), 1);
    }
}
