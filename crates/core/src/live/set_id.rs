//! Whether a file may have set-id bits or capabilities, which a write takes
//! away.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicU64, Ordering};

/// Remembers that a file in use has neither, so that not every write has to
/// look.
#[derive(Debug)]
pub(crate) struct SetIdCheck {
    /// How often mode or capabilities may have been changed.
    changes: AtomicU64,
    /// How often capabilities may have been changed.
    capability_changes: AtomicU64,
    /// As of which change there was nothing.
    nothing_as_of: AtomicU64,
    /// As of which change there was no capability.
    no_capability_as_of: AtomicU64,
    rights: RwLock<()>,
}

/// The changes that were looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AsOf {
    changes: u64,
    capability_changes: u64,
}

impl SetIdCheck {
    pub(crate) fn new() -> Self {
        Self {
            changes: AtomicU64::new(1),
            capability_changes: AtomicU64::new(1),
            nothing_as_of: AtomicU64::new(0),
            no_capability_as_of: AtomicU64::new(0),
            rights: RwLock::new(()),
        }
    }

    /// The mode was changed.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Capabilities are changed.
    pub(crate) fn capability_changes(&self) {
        self.capability_changes.fetch_add(1, Ordering::AcqRel);
        self.changed();
    }

    /// `None` if there is nothing to take away; otherwise the argument for
    /// [`nothing`](Self::nothing) once that is so.
    pub(crate) fn due(&self) -> Option<AsOf> {
        let capability_changes = self.capability_changes.load(Ordering::Acquire);
        let changes = self.changes.load(Ordering::Acquire);
        let is_due = self.nothing_as_of.load(Ordering::Acquire) != changes;
        is_due.then_some(AsOf { changes, capability_changes })
    }

    /// The same for capabilities alone, and for [`no_capability`](Self::no_capability).
    pub(crate) fn capability_due(&self) -> Option<AsOf> {
        let as_of = self.due()?;
        let is_due = self.no_capability_as_of.load(Ordering::Acquire) != as_of.capability_changes;
        is_due.then_some(as_of)
    }

    /// The file was just made, without any.
    pub(crate) fn is_new(&self) {
        self.nothing_as_of.fetch_max(1, Ordering::AcqRel);
        self.no_capability_as_of.fetch_max(1, Ordering::AcqRel);
    }

    pub(crate) fn nothing(&self, as_of: AsOf) {
        self.nothing_as_of.store(as_of.changes, Ordering::Release);
        self.no_capability(as_of);
    }

    pub(crate) fn no_capability(&self, as_of: AsOf) {
        self.no_capability_as_of.store(as_of.capability_changes, Ordering::Release);
    }

    /// Held while capabilities are read, and while a file without any is changed. Held
    /// for a system call of the home file system.
    pub(crate) fn rights_stay(&self) -> RwLockReadGuard<'_, ()> {
        // A waiting writer does not wait for anything that its reader does.
        self.rights.read_recursive()
    }

    /// Held while capabilities are changed, or put back.
    pub(crate) fn rights_change(&self) -> RwLockWriteGuard<'_, ()> {
        self.rights.write()
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
        assert_eq!(check.capability_due(), None);
        check.capability_changes();
        assert!(check.capability_due().is_some());
        check.nothing(check.due().unwrap());
        assert_eq!(check.capability_due(), None);
        check.changed();
        assert_eq!(check.capability_due(), None);
    }
}
