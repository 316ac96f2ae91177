//! Counts of the errors that a tier answered, by kind, for metrics.

use braid_contract::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds of errors that point to a problem of the tier.
const KINDS: [&str; 4] = ["io", "no-space", "read-only", "missing"];

/// Counts since the mount.
#[derive(Debug, Default)]
pub struct Errors([AtomicU64; KINDS.len()]);

impl Errors {
    /// Counts an error, unless it is ordinary or the caller's mistake.
    pub fn count(&self, errno: Errno, home: bool) {
        let kind = match errno {
            errno if errno.is_full() => 1,
            Errno::EROFS => 2,
            errno if errno.is_failing() => 0,
            // An index says that the object exists.
            Errno::ENOENT if !home => 3,
            _ => return,
        };
        self.0[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// All kinds with their counts.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        KINDS.into_iter().zip(&self.0).map(|(kind, count)| (kind, count.load(Ordering::Relaxed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_fault_of_the_tier_is_not_counted() {
        let errors = Errors::default();
        for errno in [Errno::EIO, Errno::ENODEV, Errno::EDQUOT, Errno::EROFS, Errno::EINVAL, Errno::EFBIG] {
            errors.count(errno, false);
        }
        errors.count(Errno::ENOENT, true);
        errors.count(Errno::ENOENT, false);
        assert_eq!(errors.counts(), [("io", 2), ("no-space", 1), ("read-only", 1), ("missing", 1)]);
    }
}
