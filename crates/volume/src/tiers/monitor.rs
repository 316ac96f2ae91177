//! What goes through a tier, for whom, and how long it takes: every read and
//! write of data on a tier passes [`Tier::count`].

use super::Tier;
use super::account::{Account, present};
use super::latency::{Counts, Histogram, Latency};
use super::load::Direction;
use super::threads::{ThreadLoad, Threads};
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Epochs that the figures of "now" are taken from: one is too short for a
/// percentile.
const WINDOW: usize = 5;

/// The monitor of one tier.
#[derive(Debug)]
pub(crate) struct Monitor {
    enabled: AtomicBool,
    /// Operations for applications.
    latency: [Histogram; 2],
    foreground_bytes: [AtomicU64; 2],
    mover_bytes: [AtomicU64; 2],
    threads: Threads,
    window: Mutex<VecDeque<Moment>>,
}

/// The counters at the end of an epoch.
#[derive(Debug)]
struct Moment {
    at_ns: u64,
    latency: [Counts; 2],
    foreground_bytes: [u64; 2],
    mover_bytes: [u64; 2],
}

/// What the monitor saw within the last second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Now {
    /// Of applications' reads and writes.
    pub(crate) latency: [Latency; 2],
    /// Applications' operations under way at a time, on average.
    pub(crate) in_flight: f64,
    /// Bytes a second that applications read and wrote.
    pub(crate) foreground_rate: [f64; 2],
    /// Bytes a second that movers read and wrote.
    pub(crate) mover_rate: [f64; 2],
}

impl Monitor {
    pub(super) fn new(now_ns: u64) -> Self {
        let monitor = Self {
            enabled: AtomicBool::new(true),
            latency: [const { Histogram::new() }; 2],
            foreground_bytes: [const { AtomicU64::new(0) }; 2],
            mover_bytes: [const { AtomicU64::new(0) }; 2],
            threads: Threads::default(),
            window: Mutex::new(VecDeque::new()),
        };
        monitor.close_epoch(now_ns);
        monitor
    }

    /// Whether anything is to be watched from now on.
    pub(crate) fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    fn note(&self, direction: Direction, bytes: u64, took_ns: u64) {
        let at = direction as usize;
        match present() {
            Account::Mover => {
                self.mover_bytes[at].fetch_add(bytes, Ordering::Relaxed);
            }
            Account::Thread(thread) => {
                self.latency[at].add(took_ns);
                self.foreground_bytes[at].fetch_add(bytes, Ordering::Relaxed);
                if thread != 0 {
                    self.threads.note(thread, direction, bytes);
                }
            }
        }
    }

    /// Closes an epoch.
    pub(crate) fn close_epoch(&self, now_ns: u64) {
        if !self.is_enabled() {
            return;
        }
        self.threads.close_epoch();
        let load = |counts: &[AtomicU64; 2]| counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let moment = Moment {
            at_ns: now_ns,
            latency: self.latency.each_ref().map(Histogram::counts),
            foreground_bytes: load(&self.foreground_bytes),
            mover_bytes: load(&self.mover_bytes),
        };
        let mut window = self.window.lock();
        window.push_back(moment);
        if window.len() > WINDOW + 1 {
            window.pop_front();
        }
    }

    /// What was seen within the last epochs.
    pub(crate) fn now(&self) -> Now {
        let window = self.window.lock();
        let (Some(first), Some(last)) = (window.front(), window.back()) else { return Now::default() };
        let nanos = last.at_ns.saturating_sub(first.at_ns).max(1) as f64;
        let counts = [0, 1].map(|at: usize| last.latency[at].since(&first.latency[at]));
        let rate = |now: &[u64; 2], then: &[u64; 2]| {
            [0, 1].map(|at: usize| now[at].saturating_sub(then[at]) as f64 / nanos * 1e9)
        };
        Now {
            latency: counts.each_ref().map(Counts::latency),
            in_flight: counts.iter().map(|counts| counts.sum_ns as f64).sum::<f64>() / nanos,
            foreground_rate: rate(&last.foreground_bytes, &first.foreground_bytes),
            mover_rate: rate(&last.mover_bytes, &first.mover_bytes),
        }
    }

    /// How long operations took since the mount.
    pub(crate) fn total(&self) -> [Latency; 2] {
        self.latency.each_ref().map(|histogram| histogram.counts().latency())
    }

    /// How many threads used the tier in the last epoch.
    pub(crate) fn thread_count(&self) -> u32 {
        self.threads.active_count()
    }

    /// Threads that used the tier in the last epoch, by number, and what they
    /// did there.
    pub(crate) fn threads(&self) -> Vec<(u32, ThreadLoad)> {
        self.threads.active()
    }
}

impl Tier {
    /// Runs one operation that moves data, and counts it; it answers the bytes
    /// it moved. `what` is how many it is to move, and whether past the page
    /// cache.
    pub(crate) fn count<E>(
        &self,
        direction: Direction,
        what: (usize, bool),
        op: impl FnOnce() -> Result<usize, E>,
    ) -> Result<usize, E> {
        if !self.monitor.is_enabled() {
            return self.load.count(direction, what, op);
        }
        let began_ns = self.environment.monotonic_ns();
        let result = self.load.count(direction, what, op);
        if let Ok(bytes) = &result {
            let took_ns = self.environment.monotonic_ns().saturating_sub(began_ns);
            self.monitor.note(direction, *bytes as u64, took_ns);
        }
        result
    }

    /// Closes an epoch of all that is counted here.
    pub(crate) fn close_epoch(&self) {
        self.load.close_epoch();
        self.monitor.close_epoch(self.environment.monotonic_ns());
    }

    /// Whether applications leave no room for movers: one direction goes at
    /// what the tier can do, and not because of movers themselves.
    pub(crate) fn is_saturated(&self) -> bool {
        let now = self.monitor.now();
        [Direction::Read, Direction::Write].into_iter().any(|direction| {
            let at = direction as usize;
            self.load.is_saturated(direction) && now.foreground_rate[at] >= now.mover_rate[at]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::act_for;
    use super::*;

    #[test]
    fn movers_are_told_from_applications() {
        let monitor = Monitor::new(0);
        {
            let _for = act_for(Account::Thread(5));
            monitor.note(Direction::Read, 100, 1_000_000);
            monitor.note(Direction::Read, 100, 1_000_000);
        }
        {
            let _for = act_for(Account::Mover);
            monitor.note(Direction::Write, 4000, 9_000_000);
        }
        monitor.close_epoch(1_000_000_000);
        let now = monitor.now();
        assert_eq!((now.latency[0].ops, now.latency[1].ops), (2, 0));
        assert_eq!((now.foreground_rate, now.mover_rate), ([200.0, 0.0], [0.0, 4000.0]));
        assert!((now.in_flight - 0.002).abs() < 1e-9, "{now:?}");
        assert_eq!(monitor.threads(), [(5, ThreadLoad { bytes: [200, 0], ops: [2, 0] })]);
        assert_eq!(monitor.total()[0].mean_ns, 1_000_000);
        for epoch in 2..9 {
            monitor.close_epoch(epoch * 1_000_000_000);
        }
        assert_eq!((monitor.now().latency[0].ops, monitor.total()[0].ops), (0, 2));
        assert_eq!(monitor.thread_count(), 0);
    }
}
