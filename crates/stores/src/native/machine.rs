//! The machine's clocks, random numbers, threads and devices.

use crate::native::device::device_counters;
use braid_contract::{DeviceCounters, Environment, Result};
use rustix::time::ClockId;

/// The machine: its clocks, its random numbers, its threads.
#[derive(Clone, Copy, Debug)]
pub struct Machine;

impl Environment for Machine {
    fn wall_ns(&self) -> i64 {
        let now = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
    }

    fn monotonic_ns(&self) -> u64 {
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(())
    }

    fn device_counters(&self, number: u64) -> Option<DeviceCounters> {
        device_counters(number)
    }

    fn threads(&self) -> bool {
        true
    }
}
