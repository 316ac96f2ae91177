//! Inode numbers as applications see them. They are the native ones of the home
//! file system, except for inodes that were in use when home was replaced:
//! these keep the number that the kernel knows.

use braid_contract::InodeId;
use std::collections::{HashMap, HashSet};

/// The numbers of one home directory.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// Native number of the root, whose public one is fixed by the protocol.
    root: u64,
    /// Public numbers of inodes that had them before, by native number.
    kept: HashMap<u64, InodeId>,
    /// The reverse of `kept`; 0 for an inode that is gone and whose number the
    /// kernel may still hold.
    taken: HashMap<InodeId, u64>,
}

/// Native numbers are below `1 << SPARE_FROM`.
const SPARE_FROM: u32 = 56;

/// The highest bits of a number, which no native one has: one of them marks an
/// inode whose plain number is taken.
const SPARE_BITS: [u32; 8] = [63, 62, 61, 60, 59, 58, 57, 56];

impl Numbers {
    /// Every inode has its native number.
    pub fn new(root: u64) -> Self {
        Self { root, kept: HashMap::new(), taken: HashMap::new() }
    }

    /// The inodes in `kept`, native number and public one, keep their public
    /// number; those in `gone` belong to no inode.
    pub fn keeping(
        root: u64,
        kept: impl IntoIterator<Item = (u64, InodeId)>,
        gone: HashSet<InodeId>,
    ) -> Self {
        let mut this = Self::new(root);
        for (native, public) in kept {
            this.kept.insert(native, public);
            this.taken.insert(public, native);
        }
        for public in gone {
            this.taken.entry(public).or_insert(0);
        }
        this
    }

    /// The inodes whose public number is not their native one: native number and
    /// public one.
    pub fn kept(&self) -> impl Iterator<Item = (u64, InodeId)> {
        self.kept.iter().map(|(native, public)| (*native, *public))
    }

    /// The public numbers that belong to no inode.
    pub fn gone(&self) -> impl Iterator<Item = InodeId> {
        self.taken.iter().filter(|(_, native)| **native == 0).map(|(public, _)| *public)
    }

    /// The native number of a public one.
    pub fn native(&self, public: InodeId) -> u64 {
        if public == InodeId::ROOT {
            return self.root;
        }
        let plain = public.0 & !(u64::MAX << SPARE_FROM);
        self.taken.get(&public).copied().unwrap_or(plain)
    }

    /// The public number of a native one.
    pub(crate) fn public(&self, native: u64) -> InodeId {
        if native == self.root {
            return InodeId::ROOT;
        }
        if let Some(public) = self.kept.get(&native) {
            return *public;
        }
        let plain = InodeId(native);
        if !self.taken.contains_key(&plain) {
            return plain;
        }
        let spare = SPARE_BITS.iter().map(|bit| InodeId(native | 1 << bit));
        spare.into_iter().find(|other| !self.taken.contains_key(other)).unwrap_or(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_native_until_home_is_replaced() {
        let numbers = Numbers::new(2);
        assert_eq!(numbers.public(2), InodeId::ROOT);
        assert_eq!(numbers.public(77), InodeId(77));
    }

    #[test]
    fn no_two_inodes_get_one_number() {
        let spare = InodeId(12 | 1 << 63);
        let kept = [(100, InodeId(12)), (12, InodeId(40)), (7, spare)];
        let numbers = Numbers::keeping(2, kept, HashSet::from([InodeId(50)]));
        assert_eq!(numbers.public(100), InodeId(12));
        assert_eq!(numbers.public(12), InodeId(40));
        // Their plain numbers belong to other inodes.
        assert_eq!(numbers.public(40), InodeId(40 | 1 << 63));
        assert_eq!(numbers.public(50), InodeId(50 | 1 << 63));
        let all: HashSet<InodeId> = (2..200).map(|native| numbers.public(native)).collect();
        assert_eq!(all.len(), 198);
        assert!(all.contains(&spare));
        assert!((2..200).all(|native| numbers.native(numbers.public(native)) == native));
    }
}
