//! The count of a tier's ranges.

use std::sync::atomic::{AtomicI64, Ordering};

/// How many ranges are on a tier. A range that came and went at once may be
/// taken out before it is counted in, so the sum is below zero for a moment.
#[derive(Debug, Default)]
pub struct RangeCount(AtomicI64);

impl RangeCount {
    /// The count now.
    pub fn get(&self) -> u64 {
        // Counts of a damaged volume may be too low.
        self.0.load(Ordering::Relaxed).try_into().unwrap_or(0)
    }

    /// Replaces the count.
    pub fn set(&self, ranges: u64) {
        self.0.store(ranges.try_into().unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// A range came.
    pub(crate) fn came(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// A range went.
    pub(crate) fn went(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_goes_before_it_came_leaves_nothing() {
        let count = RangeCount::default();
        count.went();
        assert_eq!(count.get(), 0);
        count.came();
        assert_eq!(count.get(), 0);
        count.set(7);
        count.went();
        assert_eq!(count.get(), 6);
    }
}
