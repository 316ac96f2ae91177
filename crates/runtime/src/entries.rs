//! The entries of a directory as bytes, in the data of an answer.

use crate::layout::NAME_MAX;
use braid_sdk::abi::{Attributes, Entries, Listed};
use bytemuck::{Pod, Zeroable};

/// The header of a name; attributes, if there are any, follow the name.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    ino: u64,
    next_offset: i64,
    kind: u32,
    /// Bytes of the name.
    name: u16,
    /// Whether there are attributes.
    attributes: u8,
    damaged: u8,
}

/// Gathers entries until `room` bytes are full.
pub(crate) struct Gathered {
    bytes: Vec<u8>,
    room: usize,
}

impl Gathered {
    pub(crate) fn new(room: usize) -> Self {
        Self { bytes: Vec::new(), room }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Entries for Gathered {
    fn add(&mut self, entry: &Listed<'_>) -> bool {
        let Ok(name) = u16::try_from(entry.name.len()) else { return true };
        let attributes = entry.attributes.as_ref().map_or(&[][..], bytemuck::bytes_of);
        if self.bytes.len() + size_of::<Head>() + entry.name.len() + attributes.len() > self.room {
            return false;
        }
        let head = Head {
            ino: entry.ino,
            next_offset: entry.next_offset,
            kind: entry.kind,
            name,
            attributes: u8::from(entry.attributes.is_some()),
            damaged: u8::from(entry.damaged),
        };
        self.bytes.extend_from_slice(bytemuck::bytes_of(&head));
        self.bytes.extend_from_slice(entry.name);
        self.bytes.extend_from_slice(attributes);
        true
    }
}

/// Hands the entries on until `sink` is full; returns those that are left. `None` if the bytes are
/// not entries.
pub(crate) fn hand_on<'a>(mut bytes: &'a [u8], sink: &mut dyn Entries) -> Option<&'a [u8]> {
    while !bytes.is_empty() {
        let left = bytes;
        let head: Head = take(&mut bytes)?;
        let len = usize::from(head.name);
        if len > NAME_MAX {
            return None;
        }
        let (name, rest) = bytes.split_at_checked(len)?;
        bytes = rest;
        let attributes: Option<Attributes> =
            if head.attributes != 0 { Some(take(&mut bytes)?) } else { None };
        let entry = Listed {
            ino: head.ino,
            next_offset: head.next_offset,
            name,
            kind: head.kind,
            attributes,
            damaged: head.damaged != 0,
        };
        if !sink.add(&entry) {
            return Some(left);
        }
    }
    Some(bytes)
}

/// The inodes among entries that were looked up with them.
pub(crate) fn looked_up(entries: &[u8]) -> impl Iterator<Item = u64> {
    let mut found = LookedUp::default();
    // Entries that do not fit were refused before.
    let _ = hand_on(entries, &mut found);
    found.0.into_iter()
}

#[derive(Default)]
struct LookedUp(Vec<u64>);

impl Entries for LookedUp {
    fn add(&mut self, entry: &Listed<'_>) -> bool {
        // Attributes without a number are of a name that was not looked up.
        self.0.extend(entry.attributes.map(|attributes| attributes.ino).filter(|ino| *ino != 0));
        true
    }
}

fn take<T: Pod>(bytes: &mut &[u8]) -> Option<T> {
    let (value, rest) = bytes.split_at_checked(size_of::<T>())?;
    *bytes = rest;
    Some(bytemuck::pod_read_unaligned(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Seen = (u64, i64, Vec<u8>, bool, bool);

    struct Heard(Vec<Seen>);

    impl Entries for Heard {
        fn add(&mut self, entry: &Listed<'_>) -> bool {
            let seen = (
                entry.ino,
                entry.next_offset,
                entry.name.to_vec(),
                entry.attributes.is_some(),
                entry.damaged,
            );
            self.0.push(seen);
            true
        }
    }

    proptest! {
        #[test]
        fn entries_come_through(
            entries in prop::collection::vec(
                (any::<u64>(), any::<i64>(), prop::collection::vec(any::<u8>(), 1..256), any::<bool>(), any::<bool>()),
                0..20,
            ),
            room in 0usize..4096,
        ) {
            let mut gathered = Gathered::new(room);
            let mut fit = 0;
            for (ino, next_offset, name, attributes, damaged) in &entries {
                let attributes = attributes.then(|| Attributes { ino: *ino, ..Attributes::default() });
                let entry = Listed { ino: *ino, next_offset: *next_offset, name, kind: 0, attributes, damaged: *damaged };
                if !gathered.add(&entry) {
                    break;
                }
                fit += 1;
            }
            let bytes = gathered.into_bytes();
            prop_assert!(bytes.len() <= room);
            let mut heard = Heard(Vec::new());
            prop_assert!(hand_on(&bytes, &mut heard).is_some());
            prop_assert_eq!(&heard.0[..], &entries[..fit]);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = hand_on(&bytes, &mut Heard(Vec::new()));
        }
    }
}
