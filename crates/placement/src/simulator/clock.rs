//! The time of a simulation.

use braid_contract::Environment;
use std::sync::atomic::{AtomicU64, Ordering};

/// It stands still until it is set.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    pub(super) fn set(&self, now_ns: u64) {
        self.0.store(now_ns, Ordering::Relaxed);
    }
}

impl Environment for Clock {
    fn wall_ns(&self) -> i64 {
        self.monotonic_ns().cast_signed()
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn fill_random(&self, bytes: &mut [u8]) -> braid_contract::Result<()> {
        bytes.fill(0);
        Ok(())
    }

    fn threads(&self) -> bool {
        false
    }
}
