//! Whether a file may have set-id bits or capabilities, which a write takes
//! away.

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};

/// Remembers that a file in use has neither, so that not every write has to
/// look.
#[derive(Debug)]
pub(crate) struct SetIdCheck {
    /// How often mode or capabilities may have been changed.
    changes: AtomicU64,
    /// As of which change there was nothing.
    nothing_as_of: AtomicU64,
    /// As of which change there was no capability.
    no_capability_as_of: AtomicU64,
    alone: ReentrantMutex<()>,
}

impl SetIdCheck {
    pub(crate) fn new() -> Self {
        Self {
            changes: AtomicU64::new(1),
            nothing_as_of: AtomicU64::new(0),
            no_capability_as_of: AtomicU64::new(0),
            alone: ReentrantMutex::new(()),
        }
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

    /// `None` if there is no capability; otherwise the argument for
    /// [`no_capability`](Self::no_capability) once that is so.
    pub(crate) fn capability_due(&self) -> Option<u64> {
        self.due().filter(|changes| self.no_capability_as_of.load(Ordering::Acquire) != *changes)
    }

    pub(crate) fn no_capability(&self, as_of: u64) {
        self.no_capability_as_of.store(as_of, Ordering::Release);
    }

    /// Lets no other thread change capabilities: one that the daemon puts back must
    /// not be one that a user took away meanwhile.
    pub(crate) fn alone(&self) -> ReentrantMutexGuard<'_, ()> {
        self.alone.lock()
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

    #[test]
    fn without_a_capability_there_may_be_set_id_bits() {
        let check = SetIdCheck::new();
        check.no_capability(check.capability_due().unwrap());
        assert_eq!(check.capability_due(), None);
        assert!(check.due().is_some());
        check.changed();
        assert!(check.capability_due().is_some());
        check.nothing(check.due().unwrap());
        assert_eq!(check.capability_due(), None);
    }
}
