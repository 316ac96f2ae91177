//! The throttles of tiers for all background moves, by movers and jobs: a move
//! between two tiers takes from the throttles of both. A throttle has the limit
//! set for the tier, and the pace that the guard allows there.

use super::latency_controller::{Advice, LatencyController, Observation};
use crate::config::MoversConfig;
use crate::rate::pace::{Pace, Paces, Stopped};
use crate::{Tier, Tiers, bit};
use braid_contract::{Environment, TierId};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Operations within a window that a percentile needs.
const P99_OPS_MIN: u64 = 20;
/// Operations of a thread in the monitor's last second, or epoch if that is
/// longer, that show which tiers it works on.
const SETTLED_OPS_MIN: u64 = 40;
/// Time after a job's last range for which a throttle counts as used by jobs.
const JOB_NS: u64 = 2_000_000_000;

/// The limits of a mover or job: its own pace, and others.
#[derive(Clone, Copy, Debug)]
pub struct MoveRate<'a> {
    /// The throttles that it takes from.
    pub throttles: &'a Throttles,
    /// Its own pace.
    pub pace: &'a Pace,
    /// The other limits.
    pub class: IoClass,
}

/// The limits of a move besides its own pace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoClass {
    /// The tiers' limits, and the guard.
    Mover,
    /// The tiers' limits if set, and the guard, which leaves it a minimum.
    Job,
    /// The tiers' limits if set.
    UnguardedJob,
}

/// The throttle of one tier.
#[derive(Debug)]
pub struct Throttle {
    /// The limit set for the tier.
    cap: Pace,
    /// The pace that the guard allows.
    guarded: Pace,
    guard: Mutex<LatencyController>,
    /// Moves of guarded jobs, under way or waiting for it.
    jobs: AtomicU32,
    /// Time of the last of them.
    job_at_ns: AtomicU64,
    /// The tier reached its high watermark, and is not below the low one yet.
    pub relieving: AtomicBool,
    /// The namespace is not searched for cold files before this.
    pub search_at_ns: AtomicU64,
}

/// The throttles of all tiers.
#[derive(Debug)]
pub struct Throttles {
    config: RwLock<MoversConfig>,
    throttles: Mutex<BTreeMap<TierId, Arc<Throttle>>>,
    /// Shared by these and other paces of the volume.
    pub paces: Arc<Paces>,
}

/// A move between tiers, until this is dropped.
pub struct ThrottledMove<'v> {
    environment: &'v dyn Environment,
    /// The throttles that a job uses.
    throttles: Vec<Arc<Throttle>>,
}

impl Throttles {
    /// Throttles are created on first use.
    pub fn new(config: MoversConfig, paces: Arc<Paces>) -> Self {
        Self { config: RwLock::new(config), throttles: Mutex::new(BTreeMap::new()), paces }
    }

    /// The throttle of a tier.
    pub fn of(&self, tier: TierId) -> Arc<Throttle> {
        let make = || {
            let config = self.config();
            Arc::new(Throttle {
                cap: Pace::new(Some(cap_of(&config)), &self.paces),
                guarded: Pace::new(None, &self.paces),
                guard: Mutex::new(LatencyController::new(self.tier_cap(), config.latency_factor)),
                jobs: AtomicU32::new(0),
                job_at_ns: AtomicU64::new(0),
                relieving: AtomicBool::new(false),
                search_at_ns: AtomicU64::new(0),
            })
        };
        Arc::clone(self.throttles.lock().entry(tier).or_insert_with(make))
    }

    /// The limit of each tier; infinite if none is set.
    fn tier_cap(&self) -> f64 {
        self.config().bandwidth.map_or(f64::INFINITY, |cap| cap as f64)
    }

    /// The current settings.
    pub fn config(&self) -> MoversConfig {
        *self.config.read()
    }

    /// Switches to other settings: the guards start afresh.
    pub fn set(&self, config: MoversConfig) {
        // No throttle is created with the old settings meanwhile.
        let throttles = self.throttles.lock();
        let before = std::mem::replace(&mut *self.config.write(), config);
        if (before.bandwidth, before.latency_factor) == (config.bandwidth, config.latency_factor) {
            return;
        }
        for throttle in throttles.values() {
            throttle.cap.set_rate(Some(cap_of(&config)));
            *throttle.guard.lock() = LatencyController::new(self.tier_cap(), config.latency_factor);
        }
    }

    /// Forgets the throttles of tiers that are gone.
    fn keep_only(&self, tiers: &[TierId]) {
        self.throttles.lock().retain(|tier, _| tiers.contains(tier));
    }
}

/// Limit of movers on a tier, in bytes a second.
fn cap_of(config: &MoversConfig) -> f64 {
    config.bandwidth.unwrap_or(MoversConfig::BANDWIDTH_DEFAULT) as f64
}

impl Throttle {
    fn is_used_by_jobs(&self, now_ns: u64) -> bool {
        let at_ns = self.job_at_ns.load(Ordering::Acquire);
        self.jobs.load(Ordering::Acquire) > 0 || (at_ns > 0 && now_ns.saturating_sub(at_ns) < JOB_NS)
    }

    fn step(&self, seen: &Observation) {
        // In order: the paces follow the guard.
        let mut guard = self.guard.lock();
        match guard.step(seen) {
            Advice::Wait => self.guarded.set_paused(true),
            Advice::Go(rate) => {
                self.guarded.set_rate(rate.is_finite().then_some(rate));
                self.guarded.set_paused(false);
            }
        }
    }
}

impl Drop for ThrottledMove<'_> {
    fn drop(&mut self) {
        let now_ns = self.environment.monotonic_ns();
        for throttle in &self.throttles {
            throttle.job_at_ns.store(now_ns, Ordering::Release);
            throttle.jobs.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl<'a> MoveRate<'a> {
    /// Waits until this rate, the tiers' limits and their controllers allow so
    /// many bytes between these tiers.
    pub fn throttle(&self, tiers: &[&Tier], bytes: u64) -> Result<ThrottledMove<'a>, Stopped> {
        let throttles: Vec<Arc<Throttle>> = tiers.iter().map(|tier| self.throttles.of(tier.id)).collect();
        let environment = self.throttles.paces.environment();
        let mut moving = ThrottledMove { environment, throttles: Vec::new() };
        if self.class == IoClass::Job {
            throttles.iter().for_each(|throttle| _ = throttle.jobs.fetch_add(1, Ordering::AcqRel));
            moving.throttles.clone_from(&throttles);
        }
        let mut paces = vec![self.pace];
        if self.class == IoClass::Mover || self.throttles.config().bandwidth.is_some() {
            paces.extend(throttles.iter().map(|throttle| &throttle.cap));
        }
        if self.class != IoClass::UnguardedJob {
            // A tier that is slow because of trouble does not get better by
            // waiting.
            let well = tiers.iter().zip(&throttles).filter(|(tier, _)| tier.is_healthy());
            paces.extend(well.map(|(_, throttle)| &throttle.guarded));
        }
        self.throttles.paces.take(&paces, bytes)?;
        Ok(moving)
    }
}

impl Throttles {
    /// Sets the pace of movers and jobs on each tier by the latency of
    /// applications. Never waits for a tier. To be called while nothing moves,
    /// too: that shows the latency without movement.
    pub fn adjust(&self, tiers: &Tiers) {
        // The average number of operations in flight is the seconds waited per
        // second.
        let seen: Vec<_> = tiers.iter().map(|tier| (tier.id, tier.monitor.now())).collect();
        self.keep_only(&seen.iter().map(|(tier, _)| *tier).collect::<Vec<_>>());
        let all: f64 = seen.iter().map(|(_, now)| now.in_flight).sum();
        let settled = Self::settled_tiers(tiers);
        let now_ns = self.paces.environment().monotonic_ns();
        for (tier, now) in seen {
            let throttle = self.of(tier);
            let waited = if all > 0.0 { now.in_flight / all } else { 0.0 };
            let floor = if throttle.is_used_by_jobs(now_ns) { self.config().job_floor } else { 0 };
            throttle.step(&Observation {
                began_ns: now.began_ns,
                ended_ns: now.ended_ns,
                p99_ns: now.latency.map(|kind| (kind.ops >= P99_OPS_MIN).then_some(kind.p99_ns)),
                mover_rate: now.mover_rate.iter().sum(),
                floor: floor as f64,
                waited: if settled & bit(tier) == 0 { waited } else { 1.0 },
            });
        }
    }

    /// The tiers that some thread does nearly all of its work on: that thread
    /// notices any slowdown there, however much others wait elsewhere.
    fn settled_tiers(tiers: &Tiers) -> u64 {
        let mut threads: HashMap<u32, Vec<(TierId, u64)>> = HashMap::new();
        for tier in tiers.iter() {
            for (thread, load) in tier.monitor.threads() {
                threads.entry(thread).or_default().push((tier.id, load.ops.iter().sum()));
            }
        }
        let mut settled = 0;
        for work in threads.values() {
            let all: u64 = work.iter().map(|(_, ops)| ops).sum();
            let own = work.iter().filter(|(_, ops)| all >= SETTLED_OPS_MIN && ops * 10 >= all * 9);
            own.for_each(|(tier, _)| settled |= bit(*tier));
        }
        settled
    }

    /// Bytes a second that movers and jobs may move on the tier now; `None`
    /// without a limit.
    pub fn mover_limit(&self, tier: TierId) -> Option<f64> {
        // The default limit holds for movers only.
        let of_movers = self.is_on().then(|| self.mover_bandwidth());
        let cap = self.job_bandwidth().or(of_movers).map_or(f64::INFINITY, |cap| cap as f64);
        let limit = self.of(tier).guard.lock().limit().min(cap);
        limit.is_finite().then_some(limit)
    }

    /// Whether movers are on.
    pub(crate) fn is_on(&self) -> bool {
        self.config().each().iter().any(|(_, scope)| scope.is_on())
    }

    /// Limit on reads of movers from a tier, and on their writes to it, in
    /// bytes a second.
    pub fn mover_bandwidth(&self) -> u64 {
        self.job_bandwidth().unwrap_or(MoversConfig::BANDWIDTH_DEFAULT)
    }

    /// The same for jobs; `None` without one.
    pub fn job_bandwidth(&self) -> Option<u64> {
        self.config().bandwidth
    }

    /// The tiers on which the guard slows jobs down now, by name, with the
    /// bytes a second that it allows.
    pub fn slowed_tiers(&self, tiers: &Tiers) -> BTreeMap<String, f64> {
        let now_ns = self.paces.environment().monotonic_ns();
        let slowed = |tier: Arc<Tier>| {
            let throttle = self.of(tier.id);
            let limit = throttle.guard.lock().limit();
            (throttle.is_used_by_jobs(now_ns) && limit < self.tier_cap()).then(|| (tier.name.clone(), limit))
        };
        tiers.iter().filter_map(slowed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::Environment;
    use braid_stores::native::Machine;

    const MIB: f64 = (1 << 20) as f64;

    fn throttles(config: MoversConfig) -> Throttles {
        let machine: Arc<dyn Environment> = Arc::new(Machine);
        Throttles::new(config, Paces::new(&machine))
    }

    /// The observation of a second with this latency.
    fn seen(second: u64, p99_ns: u64, mover_rate: f64, floor: f64) -> Observation {
        let [began_ns, ended_ns] = [99, 100].map(|at| (at + second) * 1_000_000_000);
        Observation { began_ns, ended_ns, p99_ns: [Some(p99_ns), None], mover_rate, floor, waited: 1.0 }
    }

    #[test]
    fn what_the_guard_leaves_is_the_pace_of_the_throttle() {
        let throttles = throttles(MoversConfig::NONE);
        let throttle = throttles.of(TierId(1));
        throttle.step(&seen(0, 1000, 0.0, 0.0));
        assert_eq!(throttle.guarded.rate(), None, "no application is disturbed, and no cap is set");
        throttle.step(&seen(1, 5000, 100.0 * MIB, 0.0));
        assert_eq!(throttle.guarded.rate(), Some(50.0 * MIB));
        throttle.step(&seen(2, 5000, 2.0 * MIB, 8.0 * MIB));
        assert_eq!(throttle.guarded.rate(), Some(8.0 * MIB), "a job is left its floor");
        throttle.step(&seen(9, 5000, 2.0 * MIB, 8.0 * MIB));
        assert_eq!(throttle.guard.lock().limit(), 0.0, "it is seen how long it takes without");
        throttle.step(&seen(10, 5000, 0.0, 8.0 * MIB));
        assert_eq!(throttle.guarded.rate(), None, "it was not for the job");
        assert!(Arc::ptr_eq(&throttle, &throttles.of(TierId(1))));
        throttles.keep_only(&[TierId(0)]);
        assert!(!Arc::ptr_eq(&throttle, &throttles.of(TierId(1))));
    }

    #[test]
    fn a_throttle_is_used_by_a_job_until_shortly_after_its_last_range() {
        let throttle = throttles(MoversConfig::NONE).of(TierId(0));
        assert!(!throttle.is_used_by_jobs(1));
        throttle.jobs.store(1, Ordering::Release);
        assert!(throttle.is_used_by_jobs(JOB_NS * 9));
        throttle.jobs.store(0, Ordering::Release);
        throttle.job_at_ns.store(JOB_NS, Ordering::Release);
        assert!(throttle.is_used_by_jobs(2 * JOB_NS - 1) && !throttle.is_used_by_jobs(2 * JOB_NS));
    }
}
