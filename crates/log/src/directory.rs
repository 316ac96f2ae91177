//! The names in a directory.

use crate::record::Name;
use std::collections::{BTreeMap, HashMap};

/// Offsets below this one are those of `.` and `..`.
const FIRST: u64 = 3;
/// Bytes that a name takes in an image beside its own.
const NAME_WEIGHT: usize = 14;

/// What a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) name: Name,
    pub(crate) ino: u64,
    /// Its type: the type bits of its mode, shifted right by 12.
    pub(crate) kind: u8,
}

/// The names in a directory: by name, and in the order in which they came, which is
/// that of listings. An offset stays with its name as long as that is there.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    offsets: HashMap<Name, u64>,
    entries: BTreeMap<u64, Named>,
    next: u64,
    name_bytes: usize,
}

impl Default for Directory {
    fn default() -> Self {
        Self { offsets: HashMap::new(), entries: BTreeMap::new(), next: FIRST, name_bytes: 0 }
    }
}

impl Directory {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that its names take in an image, at most.
    pub(crate) fn weight(&self) -> usize {
        self.name_bytes + self.entries.len() * NAME_WEIGHT
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<&Named> {
        self.entries.get(self.offsets.get(name)?)
    }

    /// Gives `name` to an inode, whatever had it before.
    pub(crate) fn enter(&mut self, name: Name, ino: u64, kind: u8) {
        self.leave(&name);
        self.name_bytes += name.len();
        self.offsets.insert(Name::clone(&name), self.next);
        self.entries.insert(self.next, Named { name, ino, kind });
        self.next += 1;
    }

    pub(crate) fn leave(&mut self, name: &[u8]) {
        if let Some(offset) = self.offsets.remove(name) {
            self.name_bytes -= name.len();
            self.entries.remove(&offset);
        }
    }

    /// The entries after an offset, with theirs.
    pub(crate) fn after(&self, offset: u64) -> impl Iterator<Item = (u64, &Named)> {
        self.entries.range(offset.saturating_add(1)..).map(|(offset, named)| (*offset, named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_once_and_keeps_its_offset() {
        let mut dir = Directory::default();
        for (name, ino) in [("a", 10), ("b", 11), ("c", 12)] {
            dir.enter(name.as_bytes().into(), ino, 8);
        }
        let offsets: Vec<u64> = dir.after(0).map(|(offset, _)| offset).collect();
        dir.leave(b"b");
        dir.leave(b"x");
        assert_eq!(dir.after(offsets[0]).map(|(offset, _)| offset).collect::<Vec<_>>(), [offsets[2]]);
        dir.enter((*b"a").into(), 13, 4);
        assert_eq!(dir.find(b"a").map(|named| (named.ino, named.kind)), Some((13, 4)));
        assert_eq!((dir.after(0).count(), dir.find(b"b")), (2, None));
        assert_eq!(dir.weight(), 2 + 2 * NAME_WEIGHT);
    }
}
