//! Time that processes agree on.

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine began: the same for all processes.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec.cast_unsigned() * 1_000_000_000).saturating_add(now.tv_nsec.cast_unsigned())
}
