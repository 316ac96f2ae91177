//! Counts that modules keep of their work.

use braid_contract::Figure;
use std::sync::atomic::{AtomicU64, Ordering};

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

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The figure of operations that rules refused.
pub(crate) fn refused(count: &Count) -> Figure {
    Figure::counter("refused", "Operations that the module refused", count.get())
}

/// The figures of operations that a module held up.
pub(crate) fn held_up(waits: &Count, waited_ns: &Count) -> Vec<Figure> {
    vec![
        Figure::counter("waits", "Operations that the module held up", waits.get()),
        Figure::seconds("wait_seconds", "Time for which operations were held up", waited_ns.get()),
    ]
}
