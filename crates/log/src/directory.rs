//! The names in a directory.

use crate::record::Name;
use braid_contract::key_value::key_of_name;
use braid_contract::{FileKind, ScanRange};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// Offsets below this one are those of `.` and `..`.
const FIRST: u64 = 3;
/// Bytes that a name takes in an image beside its own and its offset, at most.
pub(crate) const NAME_WEIGHT: usize = 14;
/// Bytes that an offset takes in an image, at most.
pub(crate) const OFFSET_WEIGHT: usize = 10;

/// The type of an inode of this mode, as entries have it.
pub(crate) fn kind_bits(mode: u32) -> u8 {
    (mode >> 12) as u8
}

/// The type that these bits of an entry stand for.
pub(crate) fn kind_of(bits: u8) -> Option<FileKind> {
    FileKind::from_mode(u32::from(bits) << 12)
}

/// The inode that a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) name: Name,
    pub(crate) ino: u64,
    /// Its type: the type bits of its mode, shifted right by 12.
    pub(crate) kind: u8,
}

impl Named {
    pub(crate) fn kind(&self) -> Option<FileKind> {
        kind_of(self.kind)
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }
}

/// The names in a directory: by name, and in the order in which they came, which is
/// that of listings. An offset stays with its name as long as that is there.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    offsets: HashMap<Name, u64>,
    entries: BTreeMap<u64, Named>,
    next: u64,
    name_bytes: usize,
    /// Names by the keys that they are of, in order; `None` until the first listing.
    keys: Option<BTreeMap<Vec<u8>, Name>>,
}

impl Default for Directory {
    fn default() -> Self {
        Self { offsets: HashMap::new(), entries: BTreeMap::new(), next: FIRST, name_bytes: 0, keys: None }
    }
}

impl Directory {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that its names take in an image, at most.
    pub(crate) fn weight(&self) -> usize {
        self.name_bytes + self.entries.len() * (NAME_WEIGHT + OFFSET_WEIGHT) + OFFSET_WEIGHT
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<&Named> {
        self.entries.get(self.offsets.get(name)?)
    }

    /// Gives `name` to an inode, whatever had it before.
    pub(crate) fn enter(&mut self, name: Name, ino: u64, kind: u8) {
        self.leave(&name);
        self.name_bytes += name.len();
        if let Some(keys) = &mut self.keys
            && let Some(key) = key_of_name(&name)
        {
            keys.insert(key, Name::clone(&name));
        }
        self.offsets.insert(Name::clone(&name), self.next);
        self.entries.insert(self.next, Named { name, ino, kind });
        self.next += 1;
    }

    pub(crate) fn leave(&mut self, name: &[u8]) {
        if let Some(offset) = self.offsets.remove(name) {
            self.name_bytes -= name.len();
            self.entries.remove(&offset);
            if let Some(keys) = &mut self.keys
                && let Some(key) = key_of_name(name)
            {
                keys.remove(&key);
            }
        }
    }

    /// Whether names are in the order of keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// Puts names in the order of keys, from now on.
    pub(crate) fn order_keys(&mut self) {
        let names = self.offsets.keys();
        self.keys = Some(names.filter_map(|name| Some((key_of_name(name)?, Name::clone(name)))).collect());
    }

    /// The entries of regular files whose names are keys of a range, with these.
    pub(crate) fn keys(&self, range: &ScanRange) -> impl Iterator<Item = (&Vec<u8>, &Named)> {
        let from = match &range.after {
            Some(after) if *after >= range.from && *after >= range.prefix => Bound::Excluded(after.clone()),
            _ => Bound::Included(range.from.clone().max(range.prefix.clone())),
        };
        let keys = self.keys.iter().flat_map(move |keys| keys.range((from.clone(), Bound::Unbounded)));
        let range = range.clone();
        let over = range.clone();
        keys.take_while(move |(key, _)| !over.is_over_at(key))
            .filter(move |(key, _)| range.has(key))
            .filter_map(|(key, name)| Some((key, self.find(name)?)))
            .filter(|(_, named)| named.kind() == Some(FileKind::Regular))
    }

    /// Gives the next name that comes this offset, unless others have later ones.
    pub(crate) fn skip_to(&mut self, offset: u64) {
        self.next = self.next.max(offset);
    }

    /// Its names in the order of their offsets, each with its offset if that is not the one after
    /// the name before; at the end the offset of the next name, likewise.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (Option<u64>, Option<&Named>)> {
        let mut expected = FIRST;
        let mut step = move |offset: u64| {
            let is_expected = std::mem::replace(&mut expected, offset + 1) == offset;
            (!is_expected).then_some(offset)
        };
        let ends = std::iter::once((self.next, None));
        let names = self.entries.iter().map(|(offset, named)| (*offset, Some(named)));
        names.chain(ends).map(move |(offset, named)| (step(offset), named))
    }

    /// The entries after an offset, with theirs.
    pub(crate) fn after(&self, offset: u64) -> impl Iterator<Item = (u64, &Named)> {
        self.entries.range(offset.saturating_add(1)..).map(|(offset, named)| (*offset, named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The types of a regular file and of a directory.
    const REGULAR: u8 = 8;
    const DIRECTORY: u8 = 4;

    #[test]
    fn a_name_is_there_once_and_keeps_its_offset() {
        let mut dir = Directory::default();
        for (name, ino) in [("a", 10), ("b", 11), ("c", 12)] {
            dir.enter(name.as_bytes().into(), ino, REGULAR);
        }
        let offsets: Vec<u64> = dir.after(0).map(|(offset, _)| offset).collect();
        dir.leave(b"b");
        dir.leave(b"x");
        assert_eq!(dir.after(offsets[0]).map(|(offset, _)| offset).collect::<Vec<_>>(), [offsets[2]]);
        dir.enter((*b"a").into(), 13, DIRECTORY);
        assert_eq!(dir.find(b"a").map(|named| (named.ino, named.kind)), Some((13, DIRECTORY)));
        assert_eq!((dir.after(0).count(), dir.find(b"b")), (2, None));
        assert_eq!(dir.weight(), 2 + 2 * NAME_WEIGHT + 3 * OFFSET_WEIGHT);
    }

    #[test]
    fn names_that_come_again_by_their_steps_have_the_same_offsets() {
        let mut dir = Directory::default();
        for name in 0..9_u8 {
            dir.enter([b'a' + name].as_slice().into(), u64::from(name) + 10, REGULAR);
        }
        for left in [b"a", b"d", b"e", b"i"] {
            dir.leave(left);
        }
        let mut again = Directory::default();
        let mut skipped = 0;
        for (offset, named) in dir.steps() {
            offset.into_iter().for_each(|offset| again.skip_to(offset));
            skipped += u32::from(offset.is_some());
            named.into_iter().for_each(|named| again.enter(Name::clone(&named.name), named.ino, named.kind));
        }
        let entries =
            |dir: &Directory| dir.after(0).map(|(offset, named)| (offset, named.clone())).collect::<Vec<_>>();
        assert_eq!((entries(&again), again.next, skipped), (entries(&dir), dir.next, 3));
        // One that was damaged changes no order.
        again.skip_to(1);
        assert_eq!(again.next, dir.next);
    }

    #[test]
    fn keys_are_in_the_order_of_their_bytes_and_stay_so() {
        let mut dir = Directory::default();
        for name in ["b", "%2F", "a", "%zz", "sub"] {
            dir.enter(name.as_bytes().into(), 10, if name == "sub" { DIRECTORY } else { REGULAR });
        }
        let keys = |dir: &Directory, range: &ScanRange| {
            dir.keys(range).map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>()
        };
        let mut range = ScanRange::default();
        assert!(keys(&dir, &range).is_empty() && !dir.has_keys());
        dir.order_keys();
        assert_eq!(keys(&dir, &range), ["/", "a", "b"]);
        dir.leave(b"a");
        dir.enter((*b"+").into(), 11, REGULAR);
        assert_eq!(keys(&dir, &range), ["+", "/", "b"]);
        range.after = Some(b"/".to_vec());
        assert_eq!(keys(&dir, &range), ["b"]);
        range.from = b"c".to_vec();
        assert!(keys(&dir, &range).is_empty());
    }
}
