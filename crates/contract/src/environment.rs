//! The machine below a volume, other than its tiers.

use std::fmt;

/// The counters of a block device, since some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounters {
    /// Bytes read and written, by all users.
    pub bytes: [u64; 2],
    /// Milliseconds that reads and writes took, all together.
    pub waited_ms: [u64; 2],
    /// Operations in flight now.
    pub in_flight: u64,
    /// Milliseconds with at least one in flight.
    pub busy_ms: u64,
}

/// Time, chance and threads. A simulation provides its own, so that a run can
/// be repeated exactly.
pub trait Environment: Send + Sync + fmt::Debug {
    /// Wall-clock time in nanoseconds since the epoch, as coarse as the
    /// kernel's own timestamps: a time taken here is never later than one that
    /// a native file system takes afterwards.
    fn wall_ns(&self) -> i64;

    /// Time that never goes backward, in nanoseconds since some moment.
    fn monotonic_ns(&self) -> u64;

    /// Fills `bytes` with unpredictable data.
    fn fill_random(&self, bytes: &mut [u8]) -> crate::Result<()>;

    /// The kernel's counters of the block device of this number, as in `stat`;
    /// `None` if there is no such device on this machine.
    fn device_counters(&self, _number: u64) -> Option<DeviceCounters> {
        None
    }

    /// Whether threads may be started. Without them, work on several tiers is
    /// done on one after another, and background work only on request.
    fn threads(&self) -> bool;
}
