//! Whether a regular file is in use; if not, the facts remembered from its last
//! use.

use braid_contract::Timestamp;
use std::sync::{Arc, Weak};

/// The live state of a regular file, while it is in use.
#[derive(Debug)]
pub struct InUse<F> {
    file: Weak<F>,
    /// Of a spread file that is not.
    at_rest: Option<Box<AtRest>>,
}

/// The attributes of a spread file out of use that its home inode does not
/// have: they answer `stat` without its index and its tiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AtRest {
    pub(crate) size: u64,
    /// The access time by reads of other tiers than home, as the time in
    /// memory has it.
    pub(crate) atime_ns: i64,
    /// Blocks on tiers other than home.
    pub(crate) blocks: u64,
    /// The tiers that were asked for them, as bits.
    pub(crate) tiers: u64,
    /// Those that have nothing.
    pub(crate) missing: u64,
}

impl AtRest {
    pub(crate) fn atime(&self) -> Option<Timestamp> {
        Some(self.atime_ns).filter(|ns| *ns != 0).map(Timestamp::from_nanos)
    }
}

impl<F> Default for InUse<F> {
    fn default() -> Self {
        Self { file: Weak::new(), at_rest: None }
    }
}

impl<F> InUse<F> {
    /// The file, if it is in use.
    pub fn upgrade(&self) -> Option<Arc<F>> {
        self.file.upgrade()
    }

    /// The file is in use from now on.
    pub fn set(&mut self, file: &Arc<F>) {
        *self = Self { file: Arc::downgrade(file), at_rest: None };
    }

    /// Number of references to the file.
    #[must_use]
    pub fn uses(&self) -> usize {
        self.file.strong_count()
    }

    /// Whether no memory is held for a file.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.file.ptr_eq(&Weak::new())
    }

    /// Something of the file was changed without taking it into use.
    pub fn forget(&mut self) {
        self.at_rest = None;
    }

    pub(crate) fn at_rest(&self) -> Option<AtRest> {
        self.at_rest.as_deref().copied()
    }

    /// The last use of `file` ended. Does nothing if the inode was taken into use
    /// again since.
    pub(super) fn ended(&mut self, file: *const F, at_rest: Option<AtRest>) {
        if std::ptr::eq(self.file.as_ptr(), file) {
            *self = Self { file: Weak::new(), at_rest: at_rest.map(Box::new) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(size: u64) -> Option<AtRest> {
        Some(AtRest { size, atime_ns: 0, blocks: 0, tiers: 0, missing: 0 })
    }

    #[test]
    fn a_use_that_ends_late_does_not_tell_what_was_known_before_the_next() {
        let mut slot = InUse::default();
        let first = Arc::new(1);
        slot.set(&first);
        let second = Arc::new(2);
        let late = Arc::as_ptr(&first);
        slot.set(&second);
        slot.ended(late, rest(1));
        assert_eq!((slot.uses(), slot.at_rest()), (1, None));
        let last = Arc::as_ptr(&second);
        slot.ended(last, rest(2));
        slot.ended(late, rest(1));
        assert!(slot.is_free());
        assert_eq!(slot.at_rest(), rest(2));
    }
}
