//! The bytes of heads and headers (`docs/format.md`).

use super::geometry::{Geometry, HEADER, SLOTS, Side, TRIO};

/// The first bytes of the child's file.
pub(crate) const MAGIC: [u8; 8] = *b"BRAIDFRM";
/// Bytes of a head.
pub(crate) const HEAD: usize = 40;
const VERSION: u8 = 1;
const SEALED: u8 = 1;

/// The common part of all frames of a file. It is an extended attribute of the file, and the
/// beginning of the child's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) geometry: Geometry,
    /// Whether the frames are encrypted.
    pub(crate) is_sealed: bool,
    /// By chance; bound in the frames, and the salt of the file's key.
    pub(crate) id: [u8; 16],
}

impl Head {
    pub(crate) fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        bytes[9] = self.geometry.shift();
        bytes[10] = if self.is_sealed { SEALED } else { 0 };
        bytes[16..32].copy_from_slice(&self.id);
        let crc = crc32c::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` for other bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes: [u8; HEAD] = bytes.get(..HEAD)?.try_into().ok()?;
        let crc = std::mem::take(bytes.get_mut(12..16)?.first_chunk_mut::<4>()?);
        let is_ours =
            bytes[..8] == MAGIC && bytes[8] == VERSION && crc32c::crc32c(&bytes).to_le_bytes() == crc;
        let head = Self {
            geometry: Geometry::new(bytes[9])?,
            is_sealed: bytes[10] & SEALED != 0,
            id: bytes[16..32].try_into().ok()?,
        };
        is_ours.then_some(head)
    }

    /// Whether a file with this head may begin with these bytes: the head, zeros after a crash, or
    /// a damaged head, since the attribute counts. Otherwise, the file was written by something else.
    pub(crate) fn may_be(&self, first: &[u8; HEAD]) -> bool {
        match Self::decode(first) {
            Some(head) => head == *self,
            None => *first == [0; HEAD] || first.starts_with(&MAGIC) || first[16..32] == self.id,
        }
    }
}

/// The form of a frame's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coding {
    Raw,
    Lz4,
    Zstd,
    /// There are none: all of them are zero.
    Hole,
}

impl Coding {
    const ALL: [Self; 4] = [Self::Raw, Self::Lz4, Self::Zstd, Self::Hole];
}

/// The header of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Of several slots, the one with the highest number counts. It grows by each
    /// write under one record.
    pub(crate) sequence: u64,
    /// Bytes of the frame; those behind are zero.
    pub(crate) len: u32,
    /// Bytes in the slot.
    pub(crate) stored: u32,
    pub(crate) coding: Coding,
    /// Whether the bytes are encrypted.
    pub(crate) is_sealed: bool,
    /// Of the record that the number is by.
    pub(crate) instance: u32,
    /// Used once; zeros if nothing is encrypted.
    pub(crate) nonce: [u8; 24],
    /// A checksum, or the authentication tag of the encryption.
    pub(crate) check: [u8; 16],
}

/// A number that no header has: far enough from the end for all that follow.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;

impl Header {
    /// All but the nonce and the check.
    pub(crate) fn fields(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stored.to_le_bytes());
        bytes[16] = self.coding as u8;
        bytes[17] = if self.is_sealed { SEALED } else { 0 };
        bytes[18..22].copy_from_slice(&self.instance.to_le_bytes());
        bytes
    }

    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..24].copy_from_slice(&self.fields());
        bytes[24..48].copy_from_slice(&self.nonce);
        bytes[48..].copy_from_slice(&self.check);
        let crc = crc32c::crc32c(&bytes) as u16;
        bytes[22..24].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER], geometry: Geometry) -> Option<Self> {
        let mut summed = *bytes;
        summed[22..24].fill(0);
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let header = Self {
            sequence: u64::from_le_bytes(*bytes.first_chunk()?),
            len: word(8)?,
            stored: word(12)?,
            coding: *Coding::ALL.get(usize::from(bytes[16]))?,
            is_sealed: bytes[17] & SEALED != 0,
            instance: word(18)?,
            nonce: *bytes.get(24..)?.first_chunk()?,
            check: *bytes.get(48..)?.first_chunk()?,
        };
        let fits = |len: u32| u64::from(len) <= geometry.frame();
        let is_well = (crc32c::crc32c(&summed) as u16).to_le_bytes() == bytes[22..24]
            && fits(header.len)
            && fits(header.stored)
            && (1..SEQUENCE_MAX).contains(&header.sequence);
        is_well.then_some(header)
    }
}

/// The contents of a slot by its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Slot {
    /// There is nothing in the slot.
    #[default]
    Absent,
    /// The header is damaged.
    Damaged,
    Held(Header),
}

impl Slot {
    fn decode(bytes: &[u8; HEADER], geometry: Geometry) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            return Self::Absent;
        }
        Header::decode(bytes, geometry).map_or(Self::Damaged, Self::Held)
    }

    pub(crate) fn header(&self) -> Option<&Header> {
        match self {
            Self::Held(header) => Some(header),
            Self::Absent | Self::Damaged => None,
        }
    }
}

/// The slots of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Trio(pub(crate) [Slot; SLOTS]);

impl Trio {
    pub(crate) fn decode(bytes: &[u8; TRIO], geometry: Geometry) -> Self {
        let (headers, _) = bytes.as_chunks::<HEADER>();
        Self(std::array::from_fn(|side| Slot::decode(&headers[side], geometry)))
    }

    /// A damaged header is encoded as an absent one.
    pub(crate) fn encode(&self) -> [u8; TRIO] {
        let mut bytes = [0; TRIO];
        let (headers, _) = bytes.as_chunks_mut::<HEADER>();
        for (bytes, slot) in headers.iter_mut().zip(&self.0) {
            if let Slot::Held(header) = slot {
                *bytes = header.encode();
            }
        }
        bytes
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.0 == [Slot::Absent; SLOTS]
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.0.contains(&Slot::Damaged)
    }

    pub(crate) fn at(&self, side: Side) -> &Slot {
        &self.0[side as usize]
    }

    pub(crate) fn at_mut(&mut self, side: Side) -> &mut Slot {
        &mut self.0[side as usize]
    }

    /// With slots of higher numbers as damaged ones.
    pub(crate) fn without_newer(&self, sequence: u64) -> Self {
        Self(self.0.map(|slot| match slot {
            Slot::Held(header) if header.sequence > sequence => Slot::Damaged,
            slot => slot,
        }))
    }

    /// The slots with a header, the newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = (Side, Header)> + use<> {
        let mut held = Side::ALL.map(|side| self.at(side).header().map(|header| (side, *header)));
        held.sort_by_key(|held| std::cmp::Reverse(held.map(|(_, header)| header.sequence)));
        held.into_iter().flatten()
    }

    /// The newest header, even if its slot is torn.
    pub(crate) fn newest(&self) -> Option<(Side, Header)> {
        self.newest_first().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(sequence: u64) -> Header {
        Header {
            sequence,
            len: 4000,
            stored: 100,
            coding: Coding::Zstd,
            is_sealed: true,
            instance: 7,
            nonce: [8; 24],
            check: [9; 16],
        }
    }

    #[test]
    fn heads_and_headers_are_what_was_encoded_and_damage_is_told() {
        let geometry = Geometry::new(12).unwrap();
        let head = Head { geometry, is_sealed: true, id: [3; 16] };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Some(head));
        assert_eq!(Head::decode(&bytes[..HEAD - 1]), None);
        assert!(head.may_be(&bytes) && head.may_be(&[0; HEAD]) && !head.may_be(&[b'x'; HEAD]));
        assert!(!head.may_be(&Head { id: [4; 16], ..head }.encode()));
        let trio = Trio([Slot::Held(header(5)), Slot::Held(header(6)), Slot::Absent]);
        let encoded = trio.encode();
        assert_eq!(Trio::decode(&encoded, geometry), trio);
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&bytes), None, "bit {bit}");
            assert!(head.may_be(&bytes), "bit {bit}");
        }
        for bit in 0..HEADER * 8 {
            let mut encoded = encoded;
            encoded[bit / 8] ^= 1 << (bit % 8);
            let found = Trio::decode(&encoded, geometry);
            assert_eq!(found.0, [Slot::Damaged, trio.0[1], Slot::Absent], "bit {bit}");
        }
        assert!(Trio::decode(&[0; TRIO], geometry).is_absent());
    }

    #[test]
    fn the_newer_slot_comes_first() {
        let order = |trio: Trio| trio.newest_first().map(|(side, _)| side).collect::<Vec<_>>();
        let [old, new, newest] = [5, 6, 9].map(|sequence| Slot::Held(header(sequence)));
        assert_eq!(order(Trio([old, newest, new])), [Side::B, Side::C, Side::A]);
        assert_eq!(order(Trio([new, old, Slot::Absent])), [Side::A, Side::B]);
        assert_eq!(order(Trio([Slot::Damaged, old, Slot::Absent])), [Side::B]);
        assert_eq!(order(Trio::default()), []);
    }
}
