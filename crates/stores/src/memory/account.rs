//! The used part of a memory store's size.

use braid_contract::{Errno, Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts bytes against a limit. Space is reserved before a write, so that
/// parallel writers never exceed the limit.
#[derive(Debug)]
pub(super) struct Account {
    size: u64,
    used: AtomicU64,
}

impl Account {
    pub(super) fn new(size: u64) -> Self {
        Self { size, used: AtomicU64::new(0) }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn available(&self) -> u64 {
        self.size.saturating_sub(self.used.load(Ordering::Acquire))
    }

    /// Takes `bytes`, or nothing and `ENOSPC`.
    pub(super) fn reserve(&self, bytes: u64) -> Result<()> {
        let take = |used: u64| used.checked_add(bytes).filter(|used| bytes == 0 || *used <= self.size);
        match self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(Errno::ENOSPC, "the memory store has no room")),
        }
    }

    /// The amount counted as `before` comes to `after`.
    pub(super) fn settle(&self, before: u64, after: u64) {
        if after >= before {
            self.used.fetch_add(after - before, Ordering::AcqRel);
        } else {
            self.used.fetch_sub(before - after, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let account = Account::new(100);
        account.reserve(60).unwrap();
        assert_eq!(account.reserve(41).unwrap_err().errno(), Errno::ENOSPC);
        assert_eq!(account.reserve(u64::MAX).unwrap_err().errno(), Errno::ENOSPC);
        account.reserve(40).unwrap();
        assert_eq!(account.available(), 0);
        account.settle(60, 130);
        assert_eq!(account.available(), 0);
        account.reserve(0).unwrap();
        account.settle(130, 0);
        assert_eq!(account.available(), 60);
    }
}
