//! The ways to the tiers for all that moves data in the background, movers and
//! jobs: what is moved between two tiers takes from the lanes of both. A lane
//! has the cap that is set for a tier, and the pace that the guard leaves there.

use super::guard::{Advice, Guard, Seen};
use crate::Volume;
use crate::config::MoversConfig;
use crate::migrate::{Pace, Paces, Stopped};
use crate::sync::{Mutex, RwLock};
use crate::tiers::{Tier, bit};
use braid_contract::TierId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Operations within a window from which a percentile says something.
const P99_OPS_MIN: u64 = 20;
/// Operations of a thread in the monitor's last second, or epoch where that is
/// longer, that tell which tiers it works on.
const SETTLED_OPS_MIN: u64 = 40;
/// For how long after a job's last range a lane counts as used by jobs.
const JOB_NS: u64 = 2_000_000_000;

/// What moves something: how fast it may go by itself, and by what else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drive<'a> {
    pub(crate) pace: &'a Pace,
    pub(crate) who: Who,
}

/// What else than its own pace something that moves data heeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    /// The tiers' caps, and the guard.
    Mover,
    /// The tiers' caps where they are set, and the guard, which leaves it
    /// something.
    Job,
    /// The tiers' caps where they are set.
    UnguardedJob,
}

/// The way to one tier.
#[derive(Debug)]
pub(crate) struct Lane {
    /// What is set for the tier.
    cap: Pace,
    /// What the guard leaves.
    guarded: Pace,
    guard: Mutex<Guard>,
    /// Jobs that the guard may hold up, on their way or waiting for it.
    jobs: AtomicU32,
    /// When the last of them was.
    job_at_ns: AtomicU64,
    /// The tier was filled to the high watermark, and not yet brought below the
    /// low one.
    pub(super) relieving: AtomicBool,
    /// The namespace is not searched for cold files before this.
    pub(super) search_at_ns: AtomicU64,
}

/// The lanes of all tiers.
#[derive(Debug)]
pub(crate) struct Lanes {
    config: RwLock<MoversConfig>,
    lanes: Mutex<BTreeMap<TierId, Arc<Lane>>>,
    pub(super) paces: Arc<Paces>,
}

/// Something is on its way between tiers, until this is dropped.
pub(crate) struct Passage<'v> {
    volume: &'v Volume,
    /// Those that a job is on.
    lanes: Vec<Arc<Lane>>,
}

impl Lanes {
    pub(super) fn new(config: MoversConfig, paces: Arc<Paces>) -> Self {
        Self { config: RwLock::new(config), lanes: Mutex::new(BTreeMap::new()), paces }
    }

    pub(super) fn of(&self, tier: TierId) -> Arc<Lane> {
        let make = || {
            let config = self.config();
            Arc::new(Lane {
                cap: Pace::new(Some(cap_of(&config)), &self.paces),
                guarded: Pace::new(None, &self.paces),
                guard: Mutex::new(Guard::new(self.tier_cap(), config.latency_factor)),
                jobs: AtomicU32::new(0),
                job_at_ns: AtomicU64::new(0),
                relieving: AtomicBool::new(false),
                search_at_ns: AtomicU64::new(0),
            })
        };
        Arc::clone(self.lanes.lock().entry(tier).or_insert_with(make))
    }

    /// What is set for each tier; infinite where nothing is.
    fn tier_cap(&self) -> f64 {
        self.config().bandwidth.map_or(f64::INFINITY, |cap| cap as f64)
    }

    pub(super) fn config(&self) -> MoversConfig {
        *self.config.read()
    }

    /// Goes by other settings: what the guards learned of other ones counts for
    /// nothing.
    pub(super) fn set(&self, config: MoversConfig) {
        // No lane is made by the settings of before in the meantime.
        let lanes = self.lanes.lock();
        let before = std::mem::replace(&mut *self.config.write(), config);
        if (before.bandwidth, before.latency_factor) == (config.bandwidth, config.latency_factor) {
            return;
        }
        for lane in lanes.values() {
            lane.cap.set_rate(Some(cap_of(&config)));
            *lane.guard.lock() = Guard::new(self.tier_cap(), config.latency_factor);
        }
    }

    /// Forgets the lanes of tiers that are gone.
    fn keep_only(&self, tiers: &[TierId]) {
        self.lanes.lock().retain(|tier, _| tiers.contains(tier));
    }
}

/// What movers take from a tier at most, in bytes a second.
fn cap_of(config: &MoversConfig) -> f64 {
    config.bandwidth.unwrap_or(MoversConfig::BANDWIDTH_DEFAULT) as f64
}

impl Lane {
    fn is_used_by_jobs(&self, now_ns: u64) -> bool {
        let at_ns = self.job_at_ns.load(Ordering::Acquire);
        self.jobs.load(Ordering::Acquire) > 0 || (at_ns > 0 && now_ns.saturating_sub(at_ns) < JOB_NS)
    }

    fn step(&self, seen: &Seen) {
        // The paces follow the guard in order.
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

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let now_ns = self.volume.environment.monotonic_ns();
        for lane in &self.lanes {
            lane.job_at_ns.store(now_ns, Ordering::Release);
            lane.jobs.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Volume {
    /// Waits until so many bytes may be moved between these tiers, as far as
    /// `drive`, the tiers' caps and the guard go.
    pub(crate) fn enter_lanes(
        &self,
        tiers: &[&Tier],
        bytes: u64,
        drive: Drive<'_>,
    ) -> Result<Passage<'_>, Stopped> {
        let lanes: Vec<Arc<Lane>> = tiers.iter().map(|tier| self.movers.lanes.of(tier.id)).collect();
        let mut passage = Passage { volume: self, lanes: Vec::new() };
        if drive.who == Who::Job {
            lanes.iter().for_each(|lane| _ = lane.jobs.fetch_add(1, Ordering::AcqRel));
            passage.lanes.clone_from(&lanes);
        }
        let mut paces = vec![drive.pace];
        if drive.who == Who::Mover || self.movers.config().bandwidth.is_some() {
            paces.extend(lanes.iter().map(|lane| &lane.cap));
        }
        if drive.who != Who::UnguardedJob {
            // What is slow since it is in trouble does not get better by
            // waiting for it.
            let well = tiers.iter().zip(&lanes).filter(|(tier, _)| tier.is_healthy());
            paces.extend(well.map(|(_, lane)| &lane.guarded));
        }
        self.movers.lanes.paces.take(&paces, bytes)?;
        Ok(passage)
    }

    /// Sets the pace of movers and jobs on each tier by what applications feel.
    /// Never waits for a tier. It is done while nothing moves, too: that is when
    /// it is learned how long operations take then.
    pub(crate) fn guard_lanes(&self) {
        // Operations under way, on average, are seconds waited in a second.
        let tiers: Vec<_> = self.tiers.iter().map(|tier| (tier.id, tier.monitor.now())).collect();
        self.movers.lanes.keep_only(&tiers.iter().map(|(tier, _)| *tier).collect::<Vec<_>>());
        let all: f64 = tiers.iter().map(|(_, now)| now.in_flight).sum();
        let settled = self.settled_tiers();
        let now_ns = self.environment.monotonic_ns();
        for (tier, now) in tiers {
            let lane = self.movers.lanes.of(tier);
            let waited = if all > 0.0 { now.in_flight / all } else { 0.0 };
            let floor = if lane.is_used_by_jobs(now_ns) { self.movers.config().job_floor } else { 0 };
            lane.step(&Seen {
                began_ns: now.began_ns,
                ended_ns: now.ended_ns,
                p99_ns: now.latency.map(|kind| (kind.ops >= P99_OPS_MIN).then_some(kind.p99_ns)),
                mover_rate: now.mover_rate.iter().sum(),
                floor: floor as f64,
                waited: if settled & bit(tier) == 0 { waited } else { 1.0 },
            });
        }
    }

    /// The tiers that some thread does nearly all of its work on: whoever that
    /// is feels what happens there, however much others wait elsewhere.
    fn settled_tiers(&self) -> u64 {
        let mut threads: HashMap<u32, Vec<(TierId, u64)>> = HashMap::new();
        for tier in self.tiers.iter() {
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

    /// Bytes a second that movers and jobs may come to on the tier now; `None`
    /// if there is no cap.
    pub(crate) fn mover_limit(&self, tier: TierId) -> Option<f64> {
        let lanes = &self.movers.lanes;
        // What nobody has set holds movers only.
        let of_movers = self.movers.is_on().then(|| self.mover_bandwidth());
        let cap = self.job_bandwidth().or(of_movers).map_or(f64::INFINITY, |cap| cap as f64);
        let limit = lanes.of(tier).guard.lock().limit().min(cap);
        limit.is_finite().then_some(limit)
    }

    /// What movers read from a tier and write to it in a second at most.
    #[must_use]
    pub fn mover_bandwidth(&self) -> u64 {
        self.job_bandwidth().unwrap_or(MoversConfig::BANDWIDTH_DEFAULT)
    }

    /// The same of jobs; `None` if nothing is set.
    #[must_use]
    pub fn job_bandwidth(&self) -> Option<u64> {
        self.movers.config().bandwidth
    }

    /// The tiers on which the guard holds jobs up at present, by name, and how
    /// many bytes a second it leaves them.
    pub(crate) fn slowed_tiers(&self) -> BTreeMap<String, f64> {
        let (lanes, now_ns) = (&self.movers.lanes, self.environment.monotonic_ns());
        let slowed = |tier: Arc<Tier>| {
            let lane = lanes.of(tier.id);
            let limit = lane.guard.lock().limit();
            (lane.is_used_by_jobs(now_ns) && limit < lanes.tier_cap()).then(|| (tier.name.clone(), limit))
        };
        self.tiers.iter().filter_map(slowed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;
    use braid_contract::Environment;

    const MIB: f64 = (1 << 20) as f64;

    fn lanes(config: MoversConfig) -> Lanes {
        let machine: Arc<dyn Environment> = Arc::new(Machine);
        Lanes::new(config, Paces::new(&machine))
    }

    /// What is seen in a second in which operations took so long.
    fn seen(second: u64, p99_ns: u64, mover_rate: f64, floor: f64) -> Seen {
        let [began_ns, ended_ns] = [99, 100].map(|at| (at + second) * 1_000_000_000);
        Seen { began_ns, ended_ns, p99_ns: [Some(p99_ns), None], mover_rate, floor, waited: 1.0 }
    }

    #[test]
    fn what_the_guard_leaves_is_the_pace_of_the_lane() {
        let lanes = lanes(MoversConfig::NONE);
        let lane = lanes.of(TierId(1));
        lane.step(&seen(0, 1000, 0.0, 0.0));
        assert_eq!(lane.guarded.rate(), None, "nobody is disturbed, and no cap is set");
        lane.step(&seen(1, 5000, 100.0 * MIB, 0.0));
        assert_eq!(lane.guarded.rate(), Some(50.0 * MIB));
        lane.step(&seen(2, 5000, 2.0 * MIB, 8.0 * MIB));
        assert_eq!(lane.guarded.rate(), Some(8.0 * MIB), "a job is left its floor");
        lane.step(&seen(9, 5000, 2.0 * MIB, 8.0 * MIB));
        assert_eq!(lane.guard.lock().limit(), 0.0, "it is seen how long it takes without");
        lane.step(&seen(10, 5000, 0.0, 8.0 * MIB));
        assert_eq!(lane.guarded.rate(), None, "it was not for the job");
        assert!(Arc::ptr_eq(&lane, &lanes.of(TierId(1))));
        lanes.keep_only(&[TierId(0)]);
        assert!(!Arc::ptr_eq(&lane, &lanes.of(TierId(1))));
    }

    #[test]
    fn a_lane_is_used_by_a_job_until_shortly_after_its_last_range() {
        let lane = lanes(MoversConfig::NONE).of(TierId(0));
        assert!(!lane.is_used_by_jobs(1));
        lane.jobs.store(1, Ordering::Release);
        assert!(lane.is_used_by_jobs(JOB_NS * 9));
        lane.jobs.store(0, Ordering::Release);
        lane.job_at_ns.store(JOB_NS, Ordering::Release);
        assert!(lane.is_used_by_jobs(2 * JOB_NS - 1) && !lane.is_used_by_jobs(2 * JOB_NS));
    }
}
