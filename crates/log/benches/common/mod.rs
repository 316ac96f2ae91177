//! The machine that measurements run on.

use braid_contract::{Environment, Result, SplitMix};
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine's clock, with threads.
#[derive(Debug)]
pub(crate) struct Machine;

impl Environment for Machine {
    fn wall_ns(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
    }

    fn monotonic_ns(&self) -> u64 {
        self.wall_ns() as u64
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<()> {
        SplitMix::new(self.wall_ns() as u64).fill(bytes);
        Ok(())
    }

    fn threads(&self) -> bool {
        true
    }
}
