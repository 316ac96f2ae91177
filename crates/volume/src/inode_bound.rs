//! How many inodes the front end may know. Used by `threads`; `forget` enforces
//! it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The part of the bound that is forgotten beyond the excess, so that it is not
/// exceeded again at once.
const SPARE: u64 = 8;

/// The bound, and whether it is being enforced.
pub(crate) struct InodeBound {
    max: AtomicU64,
    pub(crate) running: AtomicBool,
    /// When the next attempt may begin.
    pub(crate) after_ns: AtomicU64,
}

impl Default for InodeBound {
    fn default() -> Self {
        Self { max: AtomicU64::new(u64::MAX), running: AtomicBool::new(false), after_ns: AtomicU64::new(0) }
    }
}

impl InodeBound {
    pub(crate) fn set(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// How many inodes are to be forgotten out of `known`.
    pub(crate) fn excess(&self, known: u64) -> u64 {
        let max = self.max.load(Ordering::Relaxed);
        if known > max { known - max + max / SPARE } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_more_than_the_excess_is_forgotten() {
        let bound = InodeBound::default();
        assert_eq!(bound.excess(u64::MAX), 0);
        bound.set(800);
        assert_eq!([800, 801, 1000].map(|known| bound.excess(known)), [0, 101, 300]);
    }
}
