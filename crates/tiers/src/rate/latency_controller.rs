//! The pace of movers and jobs on one tier, so that applications do not notice
//! them: when operations take longer than without movement, the pace is halved,
//! and recovers slowly. Pure: `throttle` feeds it, once per epoch, with the
//! figures of the monitor.

/// The monitor's figures of one tier within its window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// Start and end of the window.
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    /// 99th percentile of applications' reads and writes; `None` if there were
    /// too few.
    pub(super) p99_ns: [Option<u64>; 2],
    /// Bytes a second that movers and jobs moved.
    pub(super) mover_rate: f64,
    /// Bytes a second that they keep, however slow applications are.
    pub(super) floor: f64,
    /// Share of the time that applications waited for tiers which they waited
    /// for this one, 0 to 1; 1 if some of them use no other.
    pub(super) waited: f64,
}

impl Observation {
    /// The duration of so many windows, in nanoseconds.
    fn windows(&self, count: u64) -> u64 {
        count * self.ended_ns.saturating_sub(self.began_ns)
    }
}

/// Slowest pace of movers, in bytes a second: a move that has begun must end.
const RATE_MIN: f64 = (1 << 20) as f64;

/// Growth of the pace per window, while all is well.
const GROWTH: f64 = 1.25;

/// If all is well at a pace of so many times the actual rate, the guard is not
/// the limit.
const UNUSED: f64 = 4.0;

/// Number of windows for which a latency without movement is trusted while
/// movers are slowed down for it: load may have changed. Each time that it had
/// not, the number doubles.
const BELIEVED_WINDOWS: u64 = 3;

/// The highest such number. A job, which moves without a break, is paused that
/// often for a new look.
const BELIEVED_WINDOWS_MAX: u64 = 60;

/// Longest pause, in windows: something may move that does not heed the guard,
/// and then it is never quiet.
const PAUSE_WINDOWS_MAX: u64 = 5;

/// Windows until the next pause, if one did not teach enough.
const PAUSE_AGAIN_WINDOWS: u64 = 10;

/// Below this share of their waiting, applications do not notice this tier: the
/// first ranges of hot data on a fast tier need not hold up the others, which
/// applications wait for.
const WAITED_MIN: f64 = 0.1;

/// Weight of a new latency without movement against the earlier ones.
const NEW_SHARE: f64 = 0.3;

/// The guard of one tier.
#[derive(Debug)]
pub(super) struct LatencyController {
    cap: f64,
    factor: f64,
    rate: f64,
    /// End of the window for which the pace was last reconsidered.
    changed_ns: u64,
    /// Time of the last move.
    moved_at_ns: u64,
    /// 99th percentiles without movement, and the time of the last.
    quiet_ns: [Option<f64>; 2],
    quiet_at_ns: u64,
    /// The percentiles for which movers were slowed down or paused.
    felt_ns: Option<[Option<u64>; 2]>,
    /// Start of the current pause, which shows how long operations take without
    /// movers.
    paused_ns: Option<u64>,
    /// Earliest start of the next pause.
    pause_at_ns: u64,
    /// Number of windows for which the latencies without movement are trusted
    /// now.
    believed: u64,
}

/// The advice to movers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Advice {
    /// Move at this many bytes a second.
    Go(f64),
    /// Wait.
    Wait,
}

impl LatencyController {
    /// `cap` is in bytes a second, and may be infinite.
    pub(crate) fn new(cap: f64, factor: f64) -> Self {
        let cap = cap.max(RATE_MIN);
        Self {
            cap,
            factor,
            rate: cap,
            changed_ns: 0,
            moved_at_ns: 0,
            quiet_ns: [None; 2],
            quiet_at_ns: 0,
            felt_ns: None,
            paused_ns: None,
            pause_at_ns: 0,
            believed: BELIEVED_WINDOWS,
        }
    }

    /// Bytes a second allowed now; 0 during a pause.
    pub(super) fn limit(&self) -> f64 {
        if self.paused_ns.is_some() { 0.0 } else { self.rate }
    }

    /// Takes an observation, and answers the advice until the next.
    pub(super) fn step(&mut self, seen: &Observation) -> Advice {
        if seen.mover_rate > 0.0 {
            self.moved_at_ns = seen.ended_ns;
        }
        if seen.mover_rate <= 0.0 {
            self.note_quiet(seen);
        } else if let Some(since_ns) = self.paused_ns {
            if seen.ended_ns.saturating_sub(since_ns) >= seen.windows(PAUSE_WINDOWS_MAX) {
                // It does not become quiet.
                self.paused_ns = None;
                self.changed_ns = seen.ended_ns;
                self.pause_at_ns = seen.ended_ns + seen.windows(BELIEVED_WINDOWS_MAX);
            }
        } else {
            self.adjust(seen);
        }
        self.rate = self.rate.max(RATE_MIN.max(seen.floor)).min(self.cap);
        if self.paused_ns.is_some() { Advice::Wait } else { Advice::Go(self.rate) }
    }

    /// Learns from a window without movement.
    fn note_quiet(&mut self, seen: &Observation) {
        for (quiet, p99) in self.quiet_ns.iter_mut().zip(seen.p99_ns) {
            if let Some(p99) = p99 {
                let new = p99 as f64;
                // Old observations say nothing about the current load.
                let old = quiet.filter(|_| self.felt_ns.is_none());
                *quiet = Some(old.map_or(new, |old| old + (new - old) * NEW_SHARE));
            }
        }
        self.quiet_at_ns = seen.ended_ns;
        let paused = self.paused_ns.take().is_some();
        if paused {
            self.changed_ns = seen.ended_ns;
        }
        if seen.ended_ns.saturating_sub(self.moved_at_ns) > seen.windows(BELIEVED_WINDOWS_MAX) {
            // The next move starts afresh.
            (self.rate, self.believed) = (self.cap, BELIEVED_WINDOWS);
        }
        let Some(felt) = self.felt_ns.take() else { return };
        if paused && self.is_unknown(felt) {
            self.pause_at_ns = seen.ended_ns + seen.windows(PAUSE_AGAIN_WINDOWS);
        }
        if self.slowdown(felt) <= self.factor {
            // The slowness was not due to the movers.
            (self.rate, self.believed) = (self.cap, BELIEVED_WINDOWS);
        } else if paused {
            self.believed = (self.believed * 2).min(BELIEVED_WINDOWS_MAX);
        }
    }

    /// Whether there were operations whose latency without movement is unknown.
    fn is_unknown(&self, p99_ns: [Option<u64>; 2]) -> bool {
        p99_ns.iter().zip(self.quiet_ns).any(|(p99, quiet)| p99.is_some() && quiet.is_none())
    }

    /// The latency relative to that without movement; below 1 if unknown.
    fn slowdown(&self, p99_ns: [Option<u64>; 2]) -> f64 {
        let both = p99_ns.iter().zip(self.quiet_ns).filter_map(|(p99, quiet)| Some(((*p99)?, quiet?)));
        both.map(|(p99, quiet)| p99 as f64 / quiet.max(1.0)).fold(0.0, f64::max)
    }

    fn adjust(&mut self, seen: &Observation) {
        if seen.began_ns < self.changed_ns {
            // The window began before the current pace was in force.
            return;
        }
        let p99_ns = if seen.waited < WAITED_MIN { [None; 2] } else { seen.p99_ns };
        let (unknown, slower) = (self.is_unknown(p99_ns), self.slowdown(p99_ns));
        let believed_for_ns = seen.ended_ns.saturating_sub(self.quiet_at_ns);
        let felt = slower > self.factor;
        let doubted = felt && self.rate < self.cap / 2.0 && believed_for_ns > seen.windows(self.believed);
        let old = p99_ns != [None; 2] && believed_for_ns > seen.windows(BELIEVED_WINDOWS_MAX);
        if (unknown || doubted || old) && seen.ended_ns >= self.pause_at_ns {
            (self.paused_ns, self.felt_ns) = (Some(seen.ended_ns), Some(p99_ns));
        } else if felt {
            self.rate = self.rate.min(seen.mover_rate) / 2.0;
            self.felt_ns = Some(p99_ns);
        } else if !unknown {
            self.rate *= GROWTH;
            if self.rate > seen.mover_rate * UNUSED {
                self.rate = self.cap;
            }
        }
        self.changed_ns = seen.ended_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = (1 << 20) as f64;

    /// A guard with a cap of 64 MiB/s, stepped once in a window.
    struct Bed {
        guard: LatencyController,
        window_ns: u64,
        windows: u64,
        floor: f64,
    }

    impl Bed {
        fn new() -> Self {
            Self::with_window(1_000_000_000)
        }

        fn with_window(window_ns: u64) -> Self {
            Self { guard: LatencyController::new(64.0 * MIB, 2.0), window_ns, windows: 100, floor: 0.0 }
        }

        fn step(&mut self, p99_us: Option<u64>, mover_rate: f64) -> Advice {
            self.windows += 1;
            let p99_ns = [p99_us.map(|us| us * 1000), None];
            self.step_where(1.0, p99_ns, mover_rate)
        }

        fn step_where(&mut self, waited: f64, p99_ns: [Option<u64>; 2], mover_rate: f64) -> Advice {
            let [began_ns, ended_ns] = [self.windows - 1, self.windows].map(|at| at * self.window_ns);
            let floor = self.floor;
            self.guard.step(&Observation { began_ns, ended_ns, p99_ns, mover_rate, floor, waited })
        }
    }

    #[test]
    fn movers_slow_down_when_they_are_felt_and_come_back() {
        let mut bed = Bed::new();
        assert_eq!(bed.step(Some(100), 0.0), Advice::Go(64.0 * MIB));
        assert_eq!(bed.step(Some(190), 64.0 * MIB), Advice::Go(64.0 * MIB));
        assert_eq!(bed.step(Some(210), 64.0 * MIB), Advice::Go(32.0 * MIB));
        assert_eq!(bed.step(Some(300), 20.0 * MIB), Advice::Go(10.0 * MIB));
        assert_eq!(bed.step(Some(120), 10.0 * MIB), Advice::Go(12.5 * MIB));
        for _ in 0..20 {
            bed.step(Some(120), 10.0 * MIB);
        }
        assert_eq!(bed.guard.rate, 64.0 * MIB);
    }

    #[test]
    fn the_factor_says_from_when_on_they_are_felt() {
        for (factor, rate) in [(1.5, 32.0), (5.0, 64.0)] {
            let mut bed = Bed { guard: LatencyController::new(64.0 * MIB, factor), ..Bed::new() };
            bed.step(Some(100), 0.0);
            assert_eq!(bed.step(Some(160), 64.0 * MIB), Advice::Go(rate * MIB), "{factor}");
        }
    }

    #[test]
    fn without_anybody_to_feel_them_they_go_as_fast_as_they_may() {
        let mut bed = Bed::new();
        for _ in 0..5 {
            assert_eq!(bed.step(None, 64.0 * MIB), Advice::Go(64.0 * MIB));
        }
    }

    #[test]
    fn a_tier_that_hardly_anybody_waits_for_holds_nothing_up() {
        let mut bed = Bed::new();
        bed.step(Some(100), 0.0);
        for (waited, rate) in [(0.05, 64.0), (0.5, 32.0)] {
            bed.windows += 1;
            let advice = bed.step_where(waited, [Some(500_000), None], 64.0 * MIB);
            assert_eq!(advice, Advice::Go(rate * MIB), "{waited}");
        }
    }

    #[test]
    fn what_is_not_known_is_measured_first() {
        let mut bed = Bed::new();
        assert_eq!(bed.step(Some(500), 64.0 * MIB), Advice::Wait);
        assert_eq!(bed.guard.limit(), 0.0);
        // Until a whole window is without movement.
        assert_eq!(bed.step(Some(500), 3.0 * MIB), Advice::Wait);
        assert_eq!(bed.step(Some(400), 0.0), Advice::Go(64.0 * MIB));
        assert_eq!(bed.step(Some(700), 64.0 * MIB), Advice::Go(64.0 * MIB));
    }

    #[test]
    fn a_first_moment_of_load_is_not_believed_once_more_was_seen() {
        let mut bed = Bed::new();
        bed.step(Some(100), 0.0);
        assert_eq!(bed.step(Some(9000), 60.0 * MIB), Advice::Go(30.0 * MIB));
        assert_eq!(bed.step(Some(9000), 0.0), Advice::Go(64.0 * MIB), "as slow without them");
        assert_eq!(bed.step(Some(19_000), 60.0 * MIB), Advice::Go(30.0 * MIB));
        assert_eq!(bed.step(Some(9000), 0.0), Advice::Go(30.0 * MIB), "it was for them");
    }

    #[test]
    fn what_movers_did_at_another_pace_is_not_held_against_them() {
        let mut bed = Bed::new();
        bed.step(Some(100), 0.0);
        let mut seen = |began_ms: u64| {
            let [began_ns, ended_ns] = [began_ms, began_ms + 1000].map(|ms| 101_000_000_000 + ms * 1_000_000);
            let p99_ns = [Some(900_000), None];
            bed.guard.step(&Observation {
                began_ns,
                ended_ns,
                p99_ns,
                mover_rate: 60.0 * MIB,
                floor: 0.0,
                waited: 1.0,
            })
        };
        assert_eq!(seen(0), Advice::Go(30.0 * MIB));
        assert_eq!([200, 400, 999].map(&mut seen), [Advice::Go(30.0 * MIB); 3]);
        assert_eq!(seen(1000), Advice::Go(15.0 * MIB));
    }

    #[test]
    fn what_was_seen_without_movement_is_believed_for_some_windows_however_long_they_are() {
        for window_ns in [1_000_000_000, 5_000_000_000] {
            let mut bed = Bed::with_window(window_ns);
            bed.step(Some(100), 0.0);
            let advice =
                [32.0, 16.0, 8.0].map(|rate| (bed.step(Some(900), 64.0 * MIB), Advice::Go(rate * MIB)));
            assert!(advice.iter().all(|(is, expected)| is == expected), "{window_ns}: {advice:?}");
            assert_eq!(bed.step(Some(900), 8.0 * MIB), Advice::Wait, "{window_ns}");
        }
    }

    #[test]
    fn load_that_changed_is_not_held_against_movers_for_ever() {
        let mut bed = Bed::new();
        bed.step(Some(100), 0.0);
        let mut waited = false;
        for _ in 0..30 {
            // Applications do much more now, and are slower with or without
            // movement.
            waited |= bed.step(Some(1000), if waited { 0.0 } else { 2.0 * MIB }) == Advice::Wait;
        }
        assert!(waited);
        assert_eq!(bed.step(Some(1100), 40.0 * MIB), Advice::Go(64.0 * MIB), "it was not for them");
    }

    #[test]
    fn a_job_keeps_its_floor_and_is_hardly_ever_held_up_on_a_tier_that_is_always_busy() {
        let mut bed = Bed { floor: 8.0 * MIB, ..Bed::new() };
        bed.step(Some(100), 0.0);
        let (mut waits, mut paused) = (0, false);
        for second in 0..1000 {
            // Ten times slower while the job moves, whatever its pace; but not
            // without it.
            let (p99_us, rate) = if paused { (100, 0.0) } else { (1000, 8.0 * MIB) };
            let advice = bed.step(Some(p99_us), rate);
            paused = advice == Advice::Wait;
            waits += u32::from(paused);
            let settled = second < 5 || paused || advice == Advice::Go(8.0 * MIB);
            assert!(settled, "{advice:?} in second {second}");
        }
        assert!((2..30).contains(&waits), "{waits}");
        // Once applications are not disturbed, the pace recovers.
        for _ in 0..30 {
            bed.step(Some(100), 8.0 * MIB);
        }
        assert_eq!(bed.guard.limit(), 64.0 * MIB);
    }

    #[test]
    fn what_never_becomes_quiet_is_not_waited_for() {
        let mut bed = Bed { floor: 8.0 * MIB, ..Bed::new() };
        let advice: Vec<Advice> = (0..60).map(|_| bed.step(Some(500), 20.0 * MIB)).collect();
        let waits = advice.iter().filter(|advice| **advice == Advice::Wait).count();
        assert_eq!((advice[0], waits), (Advice::Wait, 5), "{advice:?}");
    }

    #[test]
    fn a_job_that_goes_on_for_long_is_held_up_now_and_then_to_see_what_is_without_it() {
        let mut bed = Bed::new();
        bed.step(Some(1000), 0.0);
        // Applications do less now, which can't be seen while the job moves.
        let first = (1..200).find(|_| bed.step(Some(1000), 64.0 * MIB) == Advice::Wait);
        assert_eq!(first, Some(61));
        assert_eq!(bed.step(Some(100), 0.0), Advice::Go(64.0 * MIB));
        assert_eq!(bed.step(Some(1000), 64.0 * MIB), Advice::Go(32.0 * MIB));
    }

    #[test]
    fn without_a_cap_it_goes_as_fast_as_it_goes_until_it_is_felt() {
        let mut bed = Bed { guard: LatencyController::new(f64::INFINITY, 2.0), ..Bed::new() };
        bed.step(Some(100), 0.0);
        assert_eq!(bed.step(Some(100), 400.0 * MIB), Advice::Go(f64::INFINITY));
        assert_eq!(bed.step(Some(300), 400.0 * MIB), Advice::Go(200.0 * MIB));
        assert_eq!(bed.step(Some(100), 200.0 * MIB), Advice::Go(250.0 * MIB));
        assert_eq!(bed.step(Some(100), 70.0 * MIB), Advice::Go(f64::INFINITY), "something else limits it");
        bed.step(Some(300), 400.0 * MIB);
        let quiet = (0..100).find(|_| bed.step(Some(100), 0.0) == Advice::Go(f64::INFINITY));
        assert_eq!(quiet, Some(60), "what moves later begins anew");
    }
}
