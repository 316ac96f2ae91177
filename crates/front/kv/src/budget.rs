//! Memory that all connections share for long data: each has a little without asking.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that a connection may have without asking, for requests and for answers each.
pub(crate) const FREE: usize = 64 << 10;

/// Bytes that are left for all.
#[derive(Debug)]
pub(crate) struct Budget(AtomicUsize);

/// Bytes that one connection has of it.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(bytes)))
    }
}

impl Share {
    pub(crate) fn of(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0 }
    }

    /// Adjusts it to a buffer of `bytes` bytes; returns whether there is enough.
    pub(crate) fn fit(&mut self, bytes: usize) -> bool {
        let wanted = bytes.saturating_sub(FREE);
        let left = &self.budget.0;
        if wanted > self.bytes {
            let more = wanted - self.bytes;
            let take = |left: usize| left.checked_sub(more);
            if left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_err() {
                return false;
            }
        } else {
            left.fetch_add(self.bytes - wanted, Ordering::AcqRel);
        }
        self.bytes = wanted;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.fit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_has_the_other_has_not() {
        let budget = Budget::new(100);
        let (mut one, mut other) = (Share::of(&budget), Share::of(&budget));
        assert!(one.fit(FREE) && one.fit(FREE + 80) && !other.fit(FREE + 30));
        assert!(one.fit(FREE + 70) && other.fit(FREE + 30) && !other.fit(FREE + 31));
        drop(one);
        assert!(other.fit(FREE + 100));
    }
}
