//! Identifiers of owners, and of processes.

/// Identifies an owner uniquely: a later process gets another tag, even on the
/// page of one that is gone.
///
/// The lower half is the number of the page + 1 (so that no tag is 0), with its
/// two uppermost bits free for the words that hold a tag; the upper half a
/// number that differs from one owner of a page to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnerTag(pub(crate) u64);

impl OwnerTag {
    /// The process that keeps the volume.
    pub const KEEPER: Self = Self(1);

    pub(crate) fn new(index: usize, ticket: u64) -> Self {
        Self((ticket << 32) | (index as u64 + 1))
    }

    /// The number of its page.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0 as u16) - 1
    }

    /// As a number, to be passed to its process.
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// From such a number.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        let index = word as u32;
        (index != 0 && index < 1 << 16).then_some(Self(word))
    }
}

/// A process, distinguished from an earlier one with its id by its start time
/// (`braid_sys::process_start`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its id, as the keeper sees it.
    pub pid: u32,
    /// When it began.
    pub start: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tags_are_told_as_numbers() {
        let tag = OwnerTag::new(4, 9);
        assert_eq!(OwnerTag::from_word(tag.to_word()), Some(tag));
        assert_eq!(OwnerTag::from_word(0), None);
        assert_eq!(OwnerTag::from_word(u64::MAX), None);
    }
}
