//! The load of a tier: every read and write of data on it passes
//! [`Tier::count`], which records its account and duration. When switched off,
//! only the counters for placement (`braid_placement::Load`) remain.

use super::account::{Account, present};
use super::latency::{Histogram, LatencyCounts};
use super::threads::{ThreadLoad, ThreadTable, WINDOW_NS};
use braid_contract::{Latency, LatencyHistogram, ThreadStatus};
use braid_placement::Direction;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shortest distance of remembered ends of epochs, so that there are few
/// however short an epoch is.
const STEP_NS: u64 = WINDOW_NS / 10;

/// The monitor of one tier.
#[derive(Debug)]
pub struct Monitor {
    /// If false, nothing is monitored, from the first operation on.
    enabled: bool,
    /// Durations of applications' operations.
    latency: [Histogram; 2],
    foreground_bytes: [AtomicU64; 2],
    mover_bytes: [AtomicU64; 2],
    threads: ThreadTable,
    /// From the start of the window to the end of the last epoch.
    moments: Mutex<VecDeque<Moment>>,
    epoch: Mutex<MovedInEpoch>,
}

/// The movers' work in the last epoch.
#[derive(Debug, Default)]
struct MovedInEpoch {
    ended_ns: u64,
    /// Bytes read and written until then.
    bytes: u64,
    /// Bytes per second.
    rate: f64,
}

/// The counters at the end of an epoch.
#[derive(Debug)]
struct Moment {
    at_ns: u64,
    latency: [LatencyCounts; 2],
    foreground_bytes: [u64; 2],
    mover_bytes: [u64; 2],
}

/// The figures of the monitor's window: the last second, or the last epoch if
/// that is longer.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RecentLoad {
    /// Start and end of the window.
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    /// Latency of applications' reads and writes.
    pub latency: [Latency; 2],
    /// Applications' operations in flight, on average.
    pub in_flight: f64,
    /// Bytes that applications read and wrote per second.
    pub foreground_rate: [f64; 2],
    /// Bytes that movers read and wrote per second.
    pub mover_rate: [f64; 2],
}

impl Monitor {
    pub fn new(now_ns: u64, enabled: bool) -> Self {
        let monitor = Self {
            enabled,
            latency: [const { Histogram::new() }; 2],
            foreground_bytes: [const { AtomicU64::new(0) }; 2],
            mover_bytes: [const { AtomicU64::new(0) }; 2],
            threads: ThreadTable::new(now_ns),
            moments: Mutex::new(VecDeque::new()),
            epoch: Mutex::new(MovedInEpoch { ended_ns: now_ns, ..MovedInEpoch::default() }),
        };
        monitor.close_epoch(now_ns);
        monitor
    }

    /// Whether monitoring is on.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Records an operation of the current account.
    pub(crate) fn note(&self, direction: Direction, bytes: u64, took_ns: u64) {
        let at = direction as usize;
        match present() {
            Account::Mover => {
                self.mover_bytes[at].fetch_add(bytes, Ordering::Relaxed);
            }
            Account::Thread(thread) => {
                self.latency[at].add(took_ns);
                self.foreground_bytes[at].fetch_add(bytes, Ordering::Relaxed);
                if thread != 0 {
                    self.threads.note(thread, direction, bytes, took_ns);
                }
            }
        }
    }

    /// Closes an epoch.
    pub(crate) fn close_epoch(&self, now_ns: u64) {
        if !self.enabled {
            return;
        }
        self.threads.close_epoch(now_ns);
        let load = |counts: &[AtomicU64; 2]| counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let moment = Moment {
            at_ns: now_ns,
            latency: self.latency.each_ref().map(Histogram::counts),
            foreground_bytes: load(&self.foreground_bytes),
            mover_bytes: load(&self.mover_bytes),
        };
        self.epoch.lock().end(now_ns, moment.mover_bytes.iter().sum());
        let mut moments = self.moments.lock();
        let is_near = |kept: &Moment| now_ns.saturating_sub(kept.at_ns) <= STEP_NS;
        if moments.iter().nth_back(1).is_some_and(is_near) {
            moments.pop_back();
        }
        moments.push_back(moment);
        let is_over = |kept: &Moment| now_ns.saturating_sub(kept.at_ns) >= WINDOW_NS;
        while moments.get(1).is_some_and(is_over) {
            moments.pop_front();
        }
    }

    /// The figures of the window.
    pub fn now(&self) -> RecentLoad {
        let moments = self.moments.lock();
        let (Some(first), Some(last)) = (moments.front(), moments.back()) else {
            return RecentLoad::default();
        };
        let nanos = last.at_ns.saturating_sub(first.at_ns).max(1) as f64;
        let counts = [0, 1].map(|at: usize| last.latency[at].since(&first.latency[at]));
        let rate = |now: &[u64; 2], then: &[u64; 2]| {
            [0, 1].map(|at: usize| now[at].saturating_sub(then[at]) as f64 / nanos * 1e9)
        };
        RecentLoad {
            began_ns: first.at_ns,
            ended_ns: last.at_ns,
            latency: counts.each_ref().map(LatencyCounts::latency),
            in_flight: counts.iter().map(|counts| counts.sum_ns as f64).sum::<f64>() / nanos,
            foreground_rate: rate(&last.foreground_bytes, &first.foreground_bytes),
            mover_rate: rate(&last.mover_bytes, &first.mover_bytes),
        }
    }

    /// Bytes per second that movers read and wrote in the last epoch.
    pub(crate) fn moved_in_epoch(&self) -> f64 {
        self.epoch.lock().rate
    }

    /// Latencies since the mount.
    pub fn total(&self) -> [Latency; 2] {
        self.latency.each_ref().map(|histogram| histogram.counts().latency())
    }

    /// Histograms of durations since the mount.
    pub fn histograms(&self) -> [LatencyHistogram; 2] {
        self.latency.each_ref().map(|histogram| histogram.counts().histogram())
    }

    /// Number of threads that used the tier recently.
    pub fn thread_count(&self) -> u32 {
        self.threads.active_count()
    }

    /// The threads that used the tier recently, by number, and their load in
    /// the last complete second, or epoch if that is longer.
    pub(crate) fn threads(&self) -> Vec<(u32, ThreadLoad)> {
        self.threads.active()
    }

    /// Those of them that moved most bytes, at most `most`.
    pub fn busiest_threads(&self, most: usize) -> Vec<ThreadStatus> {
        let period_ns = self.threads.period_ns();
        let mut threads = self.threads.active();
        let work = |load: &ThreadLoad| (load.bytes.iter().sum::<u64>(), load.ops.iter().sum::<u64>());
        threads.sort_by_key(|(_, load)| Reverse(work(load)));
        let told = |(thread, load)| thread_status(thread, &load, period_ns.max(1));
        threads.into_iter().take(most).map(told).collect()
    }
}

impl MovedInEpoch {
    fn end(&mut self, now_ns: u64, bytes: u64) {
        let nanos = now_ns.saturating_sub(self.ended_ns).max(1) as f64;
        let rate = bytes.saturating_sub(self.bytes) as f64 / nanos * 1e9;
        *self = Self { ended_ns: now_ns, bytes, rate };
    }
}

/// The load of a thread per second, from a period of so many nanoseconds.
fn thread_status(thread: u32, load: &ThreadLoad, period_ns: u64) -> ThreadStatus {
    let nanos = period_ns as f64;
    let rate = |count: u64| count as f64 / nanos * 1e9;
    let latency_ns = |at: usize| load.took_ns[at].checked_div(load.ops[at]).unwrap_or(0);
    ThreadStatus {
        thread,
        program: None,
        read_rate: rate(load.bytes[0]),
        write_rate: rate(load.bytes[1]),
        read_op_rate: rate(load.ops[0]),
        write_op_rate: rate(load.ops[1]),
        read_latency_ns: latency_ns(0),
        write_latency_ns: latency_ns(1),
        in_flight: load.took_ns.iter().sum::<u64>() as f64 / nanos,
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::act_for;
    use super::*;

    #[test]
    fn movers_are_told_from_applications() {
        let monitor = Monitor::new(0, true);
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
        let load = ThreadLoad { bytes: [200, 0], ops: [2, 0], took_ns: [2_000_000, 0] };
        assert_eq!(monitor.threads(), [(5, load)]);
        assert_eq!(monitor.total()[0].mean_ns, 1_000_000);
        for epoch in 2..9 {
            monitor.close_epoch(epoch * 1_000_000_000);
        }
        assert_eq!((monitor.now().latency[0].ops, monitor.total()[0].ops), (0, 2));
        assert_eq!(monitor.thread_count(), 0);
    }

    /// One read of an application's thread in each epoch of `epoch_ns`, for
    /// three seconds or two epochs, whichever is longer.
    fn steady(epoch_ns: u64) -> Monitor {
        let monitor = Monitor::new(0, true);
        let _for = act_for(Account::Thread(5));
        for epoch in 1..=(3_000_000_000 / epoch_ns).max(2) {
            monitor.note(Direction::Read, 100, 1_000);
            monitor.close_epoch(epoch * epoch_ns);
        }
        monitor
    }

    #[test]
    fn what_is_told_of_now_is_the_last_second_however_short_an_epoch_is() {
        let ops = |epoch_ns: u64| steady(epoch_ns).now().latency[0].ops;
        assert_eq!(ops(200_000_000), 5);
        assert!((100..=120).contains(&ops(10_000_000)), "{}", ops(10_000_000));
        assert!(steady(10_000_000).moments.lock().len() <= 12, "memory has a bound");
    }

    #[test]
    fn what_is_told_of_now_is_the_last_epoch_where_that_is_longer() {
        assert_eq!(steady(5_000_000_000).now().latency[0].ops, 1);
    }

    #[test]
    fn the_busiest_threads_are_told_with_what_they_do_a_second() {
        let monitor = Monitor::new(0, true);
        for thread in 1..=9 {
            let _for = act_for(Account::Thread(thread));
            (0..4).for_each(|_| monitor.note(Direction::Write, 1000 * u64::from(thread), 3_000_000));
        }
        assert!(monitor.busiest_threads(2).is_empty(), "the period is not over");
        monitor.close_epoch(2_000_000_000);
        let told = monitor.busiest_threads(2);
        assert_eq!(told.iter().map(|told| told.thread).collect::<Vec<_>>(), [9, 8]);
        let first = ThreadStatus {
            thread: 9,
            program: None,
            read_rate: 0.0,
            write_rate: 18_000.0,
            read_op_rate: 0.0,
            write_op_rate: 2.0,
            read_latency_ns: 0,
            write_latency_ns: 3_000_000,
            in_flight: 0.006,
        };
        assert_eq!(told[0], first);
    }
}
