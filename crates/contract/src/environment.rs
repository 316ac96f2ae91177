//! The machine below a volume, other than its tiers.

use std::fmt;

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

    /// Whether threads may be started. Without them, work on several tiers is
    /// done on one after another, and background work only on request.
    fn threads(&self) -> bool;
}
