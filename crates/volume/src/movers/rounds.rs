//! The movers as standing jobs: they run for as long as the volume is mounted,
//! can be inspected, paused and slowed down like jobs, and are not saved.

use braid_contract::{Amount, Environment, Errno, Error, JobState, Mover, RefusalKind, Result};
use braid_tiers::MoversConfig;
use braid_tiers::rate::{Meter, Pace, Throttles};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Time after its last work for which a mover counts as running: rounds are an
/// epoch apart.
const RUNS_NS: u64 = 1_000_000_000;

/// A mover, and its work since the mount.
struct Standing {
    /// Pace of the current or next round.
    pace: Arc<Pace>,
    bandwidth: Option<u64>,
    paused: bool,
    /// The mover has moved ranges in this round.
    busy: bool,
    busy_until_ns: Option<u64>,
    done: Amount,
    meter: Meter,
}

/// A mover and its progress.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MoverStatus {
    /// The mover.
    pub mover: Mover,
    /// `Running`, `Idle` or `Paused`.
    pub state: JobState,
    /// Its own limit in bytes a second; `None` without one.
    pub bandwidth: Option<u64>,
    /// Data moved since the mount. Files are not counted.
    pub done: Amount,
    /// Bytes moved per second recently; 0 while it does not run.
    pub rate: f64,
    /// When the volume was opened, in nanoseconds since the epoch.
    pub since_ns: i64,
}

/// The rounds of the movers: which movers are on, and which are running.
pub(crate) struct Rounds {
    /// The throttles of the tiers, shared with jobs; they hold the settings.
    throttles: Arc<Throttles>,
    /// The movers that are on.
    standing: Mutex<BTreeMap<Mover, Standing>>,
    stopped: AtomicBool,
    /// No round may begin for a moment.
    held: AtomicBool,
    /// Held shared by rounds.
    under_way: RwLock<()>,
    opened_ns: i64,
    environment: Arc<dyn Environment>,
}

/// Keeps movers from working while it lives.
pub(crate) struct HeldMovers<'a> {
    rounds: &'a Rounds,
    _under_way: RwLockWriteGuard<'a, ()>,
}

impl Drop for HeldMovers<'_> {
    fn drop(&mut self) {
        self.rounds.held.store(false, Ordering::Release);
    }
}

/// A round of a mover.
pub(super) struct Round<'m> {
    rounds: &'m Rounds,
    mover: Mover,
    /// Stopped when the round is to end.
    pub(super) pace: Arc<Pace>,
    _under_way: RwLockReadGuard<'m, ()>,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let now_ns = self.rounds.environment.monotonic_ns();
        if let Some(standing) = self.rounds.standing.lock().get_mut(&self.mover)
            && std::mem::take(&mut standing.busy)
        {
            standing.busy_until_ns = Some(now_ns + RUNS_NS);
        }
    }
}

impl Standing {
    fn is_running(&self, now_ns: u64) -> bool {
        self.busy || self.busy_until_ns.is_some_and(|until_ns| now_ns < until_ns)
    }

    fn state(&self, now_ns: u64) -> JobState {
        match (self.paused, self.is_running(now_ns)) {
            (true, _) => JobState::Paused,
            (false, true) => JobState::Running,
            (false, false) => JobState::Idle,
        }
    }
}

impl Rounds {
    pub(super) fn new(environment: &Arc<dyn Environment>, throttles: &Arc<Throttles>) -> Self {
        let rounds = Self {
            throttles: Arc::clone(throttles),
            standing: Mutex::new(BTreeMap::new()),
            stopped: AtomicBool::new(false),
            held: AtomicBool::new(false),
            under_way: RwLock::new(()),
            opened_ns: environment.wall_ns(),
            environment: Arc::clone(environment),
        };
        rounds.stand();
        rounds
    }

    /// The current settings.
    pub(crate) fn config(&self) -> MoversConfig {
        self.throttles.config()
    }

    /// Switches to other settings.
    pub(crate) fn set(&self, config: MoversConfig) {
        self.throttles.set(config);
        self.stand();
    }

    /// Ends the current rounds, for good.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.end_rounds();
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) || self.stopped.load(Ordering::Acquire)
    }

    /// Ends all rounds, and prevents new ones until the answer is dropped.
    pub(crate) fn hold(&self) -> HeldMovers<'_> {
        self.held.store(true, Ordering::Release);
        self.end_rounds();
        HeldMovers { rounds: self, _under_way: self.under_way.write() }
    }

    /// Makes the movers that are on stand, and no others.
    fn stand(&self) {
        let config = self.config();
        let now_ns = self.environment.monotonic_ns();
        for (mover, scope) in config.each() {
            let mut all = self.standing.lock();
            if !scope.is_on() {
                // Ends the current round.
                all.remove(&mover).inspect(|standing| standing.pace.stop());
                continue;
            }
            if all.contains_key(&mover) {
                continue;
            }
            let standing = Standing {
                pace: self.new_pace(None),
                bandwidth: None,
                paused: false,
                busy: false,
                busy_until_ns: None,
                done: Amount::default(),
                meter: Meter::new(now_ns),
            };
            all.insert(mover, standing);
        }
    }

    fn new_pace(&self, bandwidth: Option<u64>) -> Arc<Pace> {
        Arc::new(Pace::new(bandwidth.map(|rate| rate as f64), &self.throttles.paces))
    }

    /// Begins a round; `None` while movers are held, or the mover is paused.
    pub(super) fn round(&self, mover: Mover) -> Option<Round<'_>> {
        let rounds = self.under_way.read();
        let pace = {
            // `hold` sets the flag before it ends rounds, under the same lock.
            let standing = self.standing.lock();
            if self.is_held() {
                return None;
            }
            Arc::clone(&standing.get(&mover).filter(|standing| !standing.paused)?.pace)
        };
        Some(Round { rounds: self, mover, pace, _under_way: rounds })
    }

    /// Whether the mover would move ranges, if there were any to move.
    pub(super) fn is_at_work(&self, mover: Mover) -> bool {
        self.standing.lock().get(&mover).is_some_and(|standing| !standing.paused)
    }

    /// Ends the current rounds.
    fn end_rounds(&self) {
        for standing in self.standing.lock().values_mut() {
            standing.pace.stop();
            standing.pace = self.new_pace(standing.bandwidth);
        }
    }

    /// Notes that a mover is about to move ranges.
    pub(super) fn begins_work(&self, mover: Mover) {
        let now_ns = self.environment.monotonic_ns();
        if let Some(standing) = self.standing.lock().get_mut(&mover) {
            if !standing.is_running(now_ns) {
                standing.meter = Meter::new(now_ns);
            }
            standing.busy = true;
        }
    }

    /// Counts moved bytes.
    pub(super) fn moved(&self, mover: Mover, bytes: u64) {
        let now_ns = self.environment.monotonic_ns();
        if let Some(standing) = self.standing.lock().get_mut(&mover) {
            standing.done += Amount { bytes, ranges: 1, files: 0 };
            standing.meter.add(now_ns, bytes);
        }
    }

    fn status(&self, mover: Mover, standing: &Standing) -> MoverStatus {
        let now_ns = self.environment.monotonic_ns();
        let state = standing.state(now_ns);
        let rate = if state == JobState::Running { standing.meter.rate(now_ns) } else { 0.0 };
        let Standing { bandwidth, done, .. } = *standing;
        MoverStatus { mover, state, bandwidth, done, rate, since_ns: self.opened_ns }
    }

    fn change(
        &self,
        mover: Mover,
        change: impl FnOnce(&mut Standing, JobState) -> Result<()>,
    ) -> Result<MoverStatus> {
        let now_ns = self.environment.monotonic_ns();
        let mut all = self.standing.lock();
        let Some(standing) = all.get_mut(&mover) else {
            let name = mover.name();
            let what = format!("there is no job {name}: the stack file has no movers: {{ {name}: true }}");
            return Err(Error::refused(Errno::ENOENT, RefusalKind::Request, what));
        };
        let state = standing.state(now_ns);
        change(standing, state)?;
        Ok(self.status(mover, standing))
    }

    /// The movers that are switched on.
    pub(crate) fn all(&self) -> Vec<MoverStatus> {
        let standing = self.standing.lock();
        standing.iter().map(|(mover, standing)| self.status(*mover, standing)).collect()
    }

    /// One mover.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on.
    pub(crate) fn one(&self, mover: Mover) -> Result<MoverStatus> {
        self.change(mover, |_, _| Ok(()))
    }

    /// Stops a mover until it is resumed, or the volume is opened again.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on, `EINVAL` if it is paused.
    pub(crate) fn pause(&self, mover: Mover) -> Result<MoverStatus> {
        self.change(mover, |standing, state| {
            refuse(state == JobState::Paused, || {
                format!("job {} is paused, not running or idle", mover.name())
            })?;
            standing.paused = true;
            standing.pace.stop();
            standing.pace = self.new_pace(standing.bandwidth);
            Ok(())
        })
    }

    /// Resumes a paused mover.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on, `EINVAL` if it is not paused.
    pub(crate) fn resume(&self, mover: Mover) -> Result<MoverStatus> {
        self.change(mover, |standing, state| {
            refuse(state != JobState::Paused, || {
                format!("job {} is {}, not paused", mover.name(), state.name())
            })?;
            standing.paused = false;
            Ok(())
        })
    }

    /// Changes the limit of a mover on all tiers together, in bytes a second,
    /// until the volume is opened again; with `None`, only the tiers' caps
    /// hold.
    ///
    /// # Errors
    /// `ENOENT` if it is not switched on.
    pub(crate) fn set_bandwidth(&self, mover: Mover, bandwidth: Option<u64>) -> Result<MoverStatus> {
        self.change(mover, |standing, _| {
            standing.bandwidth = bandwidth;
            standing.pace.set_rate(bandwidth.map(|rate| rate as f64));
            Ok(())
        })
    }
}

fn refuse(wrong: bool, why: impl FnOnce() -> String) -> Result<()> {
    if wrong { Err(Error::refused(Errno::EINVAL, RefusalKind::Request, why())) } else { Ok(()) }
}
