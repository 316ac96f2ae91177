//! Counts that modules keep of what they do.

use braid_contract::Figure;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A count that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    /// Adds a time, in nanoseconds.
    pub(crate) fn time(&self, took: Duration) {
        self.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The figure of what rules refused.
pub(crate) fn refused(count: &Count) -> Figure {
    Figure::counter("refused", "Operations that the module refused", count.get())
}
