//! The pace of a mover or job: its rate limit, and whether it may continue.

use braid_contract::Environment;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Shared by the paces of a volume: a thread that waits for several of them
/// sees a change of any.
#[derive(Debug)]
pub struct Paces {
    /// Held while a thread decides whether to wait, and notified of changes.
    looking: Mutex<()>,
    changed: Condvar,
    environment: Arc<dyn Environment>,
}

/// A limit in bytes per second that can be changed, set to zero, or ended while
/// a thread waits for it. Several movers may share one.
#[derive(Debug)]
pub struct Pace {
    state: Mutex<PaceState>,
    paces: Arc<Paces>,
}

#[derive(Debug)]
struct PaceState {
    /// Bytes a second; `None` is unlimited.
    rate: Option<f64>,
    /// Bytes that may be moved now; if negative, bytes that were moved too
    /// early.
    credit: f64,
    /// The time of `credit`.
    at_ns: u64,
    paused: bool,
    stopped: bool,
}

/// The mover is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopped;

/// Burst that is allowed after a pause, in seconds' worth of the rate.
const BURST_SECONDS: f64 = 0.1;

impl Paces {
    /// The source of their time.
    pub(crate) fn environment(&self) -> &dyn Environment {
        &*self.environment
    }

    /// A pace without limit.
    pub fn new(environment: &Arc<dyn Environment>) -> Arc<Self> {
        Arc::new(Self {
            looking: Mutex::new(()),
            changed: Condvar::new(),
            environment: Arc::clone(environment),
        })
    }

    /// Waits until all of `paces`, which are of this one, allow `bytes` more.
    /// Where threads are not allowed, nothing could end the wait, and limits
    /// have no effect.
    pub(crate) fn take(&self, paces: &[&Pace], bytes: u64) -> Result<(), Stopped> {
        let mut looking = self.looking.lock();
        loop {
            let now_ns = self.environment.monotonic_ns();
            if paces.iter().any(|pace| pace.is_stopped()) {
                return Err(Stopped);
            }
            let wait_ns = paces.iter().filter_map(|pace| pace.state.lock().wait_ns(now_ns)).max();
            match wait_ns {
                Some(wait_ns) if self.environment.threads() => {
                    self.changed.wait_for(&mut looking, Duration::from_nanos(wait_ns));
                }
                _ => break,
            }
        }
        paces.iter().for_each(|pace| pace.state.lock().credit -= bytes as f64);
        Ok(())
    }
}

impl Pace {
    /// `rate` is in bytes a second; `None` is unlimited.
    pub fn new(rate: Option<f64>, paces: &Arc<Paces>) -> Self {
        let at_ns = paces.environment.monotonic_ns();
        let state = PaceState { rate, credit: 0.0, at_ns, paused: false, stopped: false };
        Self { state: Mutex::new(state), paces: Arc::clone(paces) }
    }

    /// Whether a mover that ignores the limit may continue.
    pub fn go_on(&self) -> Result<(), Stopped> {
        if self.state.lock().stopped { Err(Stopped) } else { Ok(()) }
    }

    /// Changes the limit; waiting threads see it at once.
    pub fn set_rate(&self, rate: Option<f64>) {
        self.change(|state| state.rate = rate);
    }

    /// The limit in bytes a second.
    #[cfg(test)]
    pub fn rate(&self) -> Option<f64> {
        self.state.lock().rate
    }

    /// Pauses users of the pace, or lets them continue.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.change(|state| state.paused = paused);
    }

    /// Ends all users of the pace: they get [`Stopped`] from now on.
    pub fn stop(&self) {
        self.change(|state| state.stopped = true);
    }

    /// Whether all users of the pace are to end.
    pub fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    fn change(&self, change: impl FnOnce(&mut PaceState)) {
        change(&mut self.state.lock());
        // A thread that looked before the change is waiting by now, and is
        // woken.
        drop(self.paces.looking.lock());
        self.paces.changed.notify_all();
    }
}

impl PaceState {
    /// Time to wait before the next look; `None` if there is no need to wait.
    fn wait_ns(&mut self, now_ns: u64) -> Option<u64> {
        const FOR_EVER_NS: u64 = 3_600_000_000_000;
        let seconds = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.at_ns = now_ns;
        if self.stopped {
            return None;
        }
        if self.paused {
            return Some(FOR_EVER_NS);
        }
        let Some(rate) = self.rate else {
            self.credit = 0.0;
            return None;
        };
        if rate <= 0.0 {
            return Some(FOR_EVER_NS);
        }
        self.credit = (self.credit + seconds * rate).min(rate * BURST_SECONDS);
        (self.credit < 0.0).then(|| (-self.credit / rate * 1e9).clamp(1e5, 1e9) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_stores::native::Machine;

    fn paces() -> Arc<Paces> {
        let machine: Arc<dyn Environment> = Arc::new(Machine);
        Paces::new(&machine)
    }

    #[test]
    fn debt_is_waited_for_at_the_rate() {
        let mut state = PaceState { rate: Some(1e6), credit: 0.0, at_ns: 0, paused: false, stopped: false };
        assert_eq!(state.wait_ns(0), None);
        state.credit -= 1e6;
        assert_eq!(state.wait_ns(0), Some(1_000_000_000));
        assert_eq!(state.wait_ns(400_000_000), Some(600_000_000));
        assert_eq!(state.wait_ns(1_000_000_000), None);
        // A long pause saves up no more than a short burst.
        assert_eq!(state.wait_ns(60_000_000_000), None);
        assert!(state.credit <= 1e6 * BURST_SECONDS);
    }

    #[test]
    fn who_is_held_up_goes_on_or_ends_when_told() {
        let paces = paces();
        let held = Pace::new(Some(0.0), &paces);
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| (paces.take(&[&held], 10), paces.take(&[&held], 10)));
            held.set_rate(None);
            assert_eq!(mover.join().unwrap(), (Ok(()), Ok(())));
            held.set_paused(true);
            let mover = scope.spawn(|| paces.take(&[&held], 10));
            held.stop();
            assert_eq!(mover.join().unwrap(), Err(Stopped));
        });
    }

    #[test]
    fn all_of_several_are_waited_for_and_any_ends_the_wait() {
        let paces = paces();
        let [own, other] = [None, Some(0.0)].map(|rate| Pace::new(rate, &paces));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| paces.take(&[&own, &other], 10));
            own.stop();
            assert_eq!(waits.join().unwrap(), Err(Stopped));
        });
        let own = Pace::new(Some(1.0), &paces);
        other.set_rate(None);
        assert_eq!(paces.take(&[&own, &other], 10), Ok(()));
        assert!(own.state.lock().credit <= -9.0, "each is charged");
    }
}
