//! Whether a file may have set-id bits or capabilities, which a write takes
//! away.

use std::sync::atomic::{AtomicU64, Ordering};

/// Remembers that a file in use has neither, so that not every write has to
/// look.
#[derive(Debug)]
pub(crate) struct SetIdCheck {
    /// How often mode or capabilities may have been changed.
    changes: AtomicU64,
    /// As of which change there was nothing.
    nothing_as_of: AtomicU64,
}

impl SetIdCheck {
    pub(crate) fn new() -> Self {
        Self { changes: AtomicU64::new(1), nothing_as_of: AtomicU64::new(0) }
    }

    /// Mode or capabilities were changed.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// `None` if there is nothing to take away; otherwise the argument for
    /// [`nothing`](Self::nothing) once that is so.
    pub(crate) fn due(&self) -> Option<u64> {
        let changes = self.changes.load(Ordering::Acquire);
        (self.nothing_as_of.load(Ordering::Acquire) != changes).then_some(changes)
    }

    /// The file was just made, without any.
    pub(crate) fn is_new(&self) {
        self.nothing_as_of.fetch_max(1, Ordering::AcqRel);
    }

    pub(crate) fn nothing(&self, as_of: u64) {
        self.nothing_as_of.store(as_of, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_while_somebody_looks_is_looked_at_again() {
        let check = SetIdCheck::new();
        let as_of = check.due().unwrap();
        check.changed();
        check.nothing(as_of);
        let as_of = check.due().unwrap();
        check.nothing(as_of);
        assert_eq!(check.due(), None);
    }
}
