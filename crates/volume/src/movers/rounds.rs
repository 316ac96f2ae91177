//! The movers as jobs that stand: they go on for as long as the volume is
//! mounted, can be looked at, paused and slowed down like the others, and are
//! not kept.

use braid_contract::{Amount, Environment, Errno, Error, JobState, Mover, RefusalKind, Result};
use braid_tiers::MoversConfig;
use braid_tiers::rate::{Meter, Pace, Throttles};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// For how long after its last work a mover counts as running: rounds are
/// apart by an epoch.
const RUNS_NS: u64 = 1_000_000_000;

/// A mover, and what became of it since the mount.
struct Standing {
    /// Of the round under way, or the next one.
    pace: Arc<Pace>,
    bandwidth: Option<u64>,
    paused: bool,
    /// It moves something in the round under way.
    busy: bool,
    busy_until_ns: Option<u64>,
    done: Amount,
    meter: Meter,
}

/// A mover and how it is doing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MoverStatus {
    /// Which one.
    pub mover: Mover,
    /// `Running`, `Idle` or `Paused`.
    pub state: JobState,
    /// Most bytes a second that it was set to; `None` has no cap of its own.
    pub bandwidth: Option<u64>,
    /// What it moved since the mount. Files are not counted.
    pub done: Amount,
    /// Bytes moved a second, of late; 0 while it does not run.
    pub rate: f64,
    /// When the volume was opened, in nanoseconds since the epoch.
    pub since_ns: i64,
}

/// The rounds of the movers: which are on, and which are under way.
pub(crate) struct Rounds {
    /// The ways to the tiers, for jobs too; they have the settings of all.
    throttles: Arc<Throttles>,
    /// Those that are on.
    standing: Mutex<BTreeMap<Mover, Standing>>,
    stopped: AtomicBool,
    /// None is to begin a round for a moment.
    held: AtomicBool,
    /// Shared by rounds.
    under_way: RwLock<()>,
    opened_ns: i64,
    environment: Arc<dyn Environment>,
}

/// No mover is at work while this lives.
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

    /// The settings of now.
    pub(crate) fn config(&self) -> MoversConfig {
        self.throttles.config()
    }

    /// Goes by other settings from now on.
    pub(crate) fn set(&self, config: MoversConfig) {
        self.throttles.set(config);
        self.stand();
    }

    /// Ends what is under way, for good.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.end_rounds();
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) || self.stopped.load(Ordering::Acquire)
    }

    /// Ends all rounds, and keeps others from being begun until the answer is
    /// dropped.
    pub(crate) fn hold(&self) -> HeldMovers<'_> {
        self.held.store(true, Ordering::Release);
        self.end_rounds();
        HeldMovers { rounds: self, _under_way: self.under_way.write() }
    }

    /// Lets those stand that are on, and no others.
    fn stand(&self) {
        let config = self.config();
        let now_ns = self.environment.monotonic_ns();
        for (mover, on) in [(Mover::Promote, config.promote), (Mover::Demote, config.demote)] {
            let mut all = self.standing.lock();
            if !on {
                // The round under way ends.
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
            // Who holds movers ends the rounds after having said so, under the
            // same lock.
            let standing = self.standing.lock();
            if self.is_held() {
                return None;
            }
            Arc::clone(&standing.get(&mover).filter(|standing| !standing.paused)?.pace)
        };
        Some(Round { rounds: self, mover, pace, _under_way: rounds })
    }

    /// Whether the mover would move something, if there was anything.
    pub(super) fn is_at_work(&self, mover: Mover) -> bool {
        self.standing.lock().get(&mover).is_some_and(|standing| !standing.paused)
    }

    /// Ends the rounds under way.
    fn end_rounds(&self) {
        for standing in self.standing.lock().values_mut() {
            standing.pace.stop();
            standing.pace = self.new_pace(standing.bandwidth);
        }
    }

    /// A mover is about to move something.
    pub(super) fn begins_work(&self, mover: Mover) {
        let now_ns = self.environment.monotonic_ns();
        if let Some(standing) = self.standing.lock().get_mut(&mover) {
            if !standing.is_running(now_ns) {
                standing.meter = Meter::new(now_ns);
            }
            standing.busy = true;
        }
    }

    /// Notes what a mover moved.
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

    /// Stops a mover until it is resumed, or the volume is opened anew.
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

    /// Lets a paused mover go on.
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

    /// Changes how fast a mover may go on all tiers together, in bytes a second,
    /// until the volume is opened anew; `None` leaves it the tiers' caps.
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
