//! How fast a mover may go, and whether it may go on.

use crate::sync::{Condvar, Mutex};
use braid_contract::Environment;
use std::sync::Arc;

/// A cap on bytes per second that can be changed, held at zero and ended while
/// somebody waits for it. One may be shared by several movers.
#[derive(Debug)]
pub(crate) struct Pace {
    state: Mutex<State>,
    changed: Condvar,
    environment: Arc<dyn Environment>,
}

#[derive(Debug)]
struct State {
    /// Bytes a second; `None` is as fast as it goes.
    rate: Option<f64>,
    /// Bytes that may be moved now; below zero, how many were moved too early.
    credit: f64,
    /// When `credit` was reckoned.
    at_ns: u64,
    paused: bool,
    stopped: bool,
}

/// The mover is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stopped;

/// What may be moved at once after a pause, in seconds' worth of the rate.
const BURST_SECONDS: f64 = 0.1;

impl Pace {
    /// `rate` is in bytes a second; `None` has no cap.
    pub(crate) fn new(rate: Option<f64>, environment: &Arc<dyn Environment>) -> Self {
        let state =
            State { rate, credit: 0.0, at_ns: environment.monotonic_ns(), paused: false, stopped: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), environment: Arc::clone(environment) }
    }

    /// Waits until `bytes` more may be moved. Where no threads may be started
    /// there is nobody to wait for, and a cap has no effect.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Stopped> {
        let mut state = self.state.lock();
        if self.environment.threads() {
            while let Some(wait_ns) = state.wait_ns(self.environment.monotonic_ns()) {
                state = self.changed.wait_for(state, wait_ns);
            }
        }
        if state.stopped {
            return Err(Stopped);
        }
        state.credit -= bytes as f64;
        Ok(())
    }

    /// Whether a mover may go on that does not keep to the cap.
    pub(crate) fn go_on(&self) -> Result<(), Stopped> {
        if self.state.lock().stopped { Err(Stopped) } else { Ok(()) }
    }

    /// Changes the cap; who waits sees it at once.
    pub(crate) fn set_rate(&self, rate: Option<f64>) {
        self.state.lock().rate = rate;
        self.changed.notify_all();
    }

    /// The cap in bytes a second.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.state.lock().rate
    }

    /// Holds movers up, or lets them go on.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.state.lock().paused = paused;
        self.changed.notify_all();
    }

    /// Ends all movers: they get [`Stopped`] from now on.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

impl State {
    /// How long to wait before looking again; `None` if there is nothing to
    /// wait for.
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
    use crate::Machine;

    fn pace(rate: Option<f64>) -> Arc<Pace> {
        let machine: Arc<dyn Environment> = Arc::new(Machine);
        Arc::new(Pace::new(rate, &machine))
    }

    #[test]
    fn debt_is_waited_for_at_the_rate() {
        let mut state = State { rate: Some(1e6), credit: 0.0, at_ns: 0, paused: false, stopped: false };
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
        let held = pace(Some(0.0));
        let other = Arc::clone(&held);
        let mover = std::thread::spawn(move || (other.take(10), other.take(10)));
        held.set_rate(None);
        assert_eq!(mover.join().unwrap(), (Ok(()), Ok(())));
        held.set_paused(true);
        let other = Arc::clone(&held);
        let mover = std::thread::spawn(move || other.take(10));
        held.stop();
        assert_eq!(mover.join().unwrap(), Err(Stopped));
    }
}
