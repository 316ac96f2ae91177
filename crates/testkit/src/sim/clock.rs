//! Simulated time and chance, for disks and the volume above them. Nothing here
//! depends on when or where it runs.

use braid_contract::{Environment, Result, SplitMix, Timestamp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// 2030-01-01 00:00:00 UTC.
const EPOCH_NS: u64 = 1_893_456_000_000_000_000;

/// How far each reading moves the clock, so that no two times are the same.
const READING_NS: u64 = 1_000;

/// A clock that moves by itself only when it is read.
#[derive(Debug, Default)]
pub struct SimClock {
    /// Nanoseconds since it began.
    elapsed: AtomicU64,
}

impl SimClock {
    /// A clock that begins in 2030.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, ns: u64) {
        self.elapsed.fetch_add(ns, Ordering::Relaxed);
    }

    /// Wall-clock time in nanoseconds since the epoch. Moves the clock by 1 µs.
    pub fn wall_ns(&self) -> i64 {
        (EPOCH_NS + self.monotonic_ns()).cast_signed()
    }

    /// Nanoseconds since the clock began. Moves the clock by 1 µs.
    pub fn monotonic_ns(&self) -> u64 {
        self.elapsed.fetch_add(READING_NS, Ordering::Relaxed) + READING_NS
    }

    /// A separate clock that begins at this one's time.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { elapsed: AtomicU64::new(self.elapsed.load(Ordering::Relaxed)) }
    }

    /// The time that an inode changed now gets.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.wall_ns())
    }
}

/// A volume's environment in a simulation: a simulated clock, chance from a
/// seed, and no threads.
#[derive(Debug)]
pub struct SimEnvironment {
    clock: Arc<SimClock>,
    random: Mutex<SplitMix>,
}

impl SimEnvironment {
    /// An environment with the time of `clock`.
    #[must_use]
    pub fn new(clock: Arc<SimClock>, seed: u64) -> Self {
        Self { clock, random: Mutex::new(SplitMix::new(seed)) }
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<SimClock> {
        &self.clock
    }
}

impl Environment for SimEnvironment {
    fn wall_ns(&self) -> i64 {
        self.clock.wall_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<()> {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.fill(bytes);
        Ok(())
    }

    fn threads(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_readings_are_the_same_and_forks_are_apart() {
        let clock = SimClock::new();
        let first = clock.wall_ns();
        let fork = clock.fork();
        assert!(clock.wall_ns() > first);
        clock.advance(1_000_000);
        assert!(fork.wall_ns() < clock.wall_ns());
    }

    #[test]
    fn chance_is_that_of_the_seed() {
        let draw = |seed| {
            let mut bytes = [0; 13];
            SimEnvironment::new(Arc::new(SimClock::new()), seed).fill_random(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
