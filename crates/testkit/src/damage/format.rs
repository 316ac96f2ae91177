//! The on-disk format by `docs/format.md`, implemented a second time: code that
//! creates and damages volumes by hand must not share the volume's own
//! mistakes.

use braid_contract::{ObjectId, VolumeId};
use siphasher::sip::SipHasher24;
use std::fmt;

/// Length of an index header; entries follow it.
pub(super) const HEADER_LEN: usize = 4096;
/// Length of a label.
pub(super) const LABEL_LEN: usize = 512;
/// Length of the volume table.
pub(super) const TABLE_LEN: usize = 4096;
/// Offset of the range size in an index header.
pub(super) const RANGE_SIZE: usize = 48;
/// Offsets of some words of an index header that change in place.
pub(super) const SIZE: u64 = 256;
pub(super) const SYNCED_SIZE: u64 = 264;
pub(super) const OWNERS: u64 = 272;
pub(super) const GAPS: u64 = 280;
pub(super) const GROWTH: u64 = 296;
/// The bits of a size word besides its check.
const SIZE_MASK: u64 = (1 << 48) - 1;

/// CRC-32C of all parts, one after the other.
pub(super) fn crc(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// Stores the CRC of the first `len` bytes, in which it counts as zero, at `at`.
pub(super) fn seal(bytes: &mut [u8], at: usize, len: usize) {
    bytes[at..at + 4].fill(0);
    let crc = crc(&[&bytes[..len]]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

fn is_sealed(bytes: &[u8], at: usize, len: usize) -> bool {
    let mut copy = bytes[..len].to_vec();
    seal(&mut copy, at, len);
    copy[at..at + 4] == bytes[at..at + 4]
}

/// The little-endian number in up to eight bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn sixteen(bytes: &[u8]) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[..16]);
    id
}

/// Why a structure on disk is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A tier's label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Label {
    pub(super) volume: VolumeId,
    pub(super) tier: u8,
    pub(super) home: bool,
    pub(super) user_xattr: bool,
    pub(super) range_size: u32,
    pub(super) name: String,
    /// `None` in a label of version 1.
    pub(super) key: Option<[u8; 16]>,
}

impl Label {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = b"BRAIDTIR\x01\0\0\0\0\0\0\0".to_vec();
        bytes[8] = if self.key.is_some() { 2 } else { 1 };
        bytes.extend(self.volume.0);
        bytes.extend([self.tier, self.home.into(), self.user_xattr.into(), self.name.len() as u8]);
        bytes.extend(self.range_size.to_le_bytes());
        bytes.extend(self.name.as_bytes());
        bytes.resize(LABEL_LEN, 0);
        bytes[88..104].copy_from_slice(&self.key.unwrap_or_default());
        seal(&mut bytes, 12, LABEL_LEN);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() != LABEL_LEN || bytes[..8] != *b"BRAIDTIR" || !is_sealed(bytes, 12, LABEL_LEN) {
            return Err(Malformed("not a sound label"));
        }
        let name = &bytes[40..40 + usize::from(bytes[35].min(48))];
        Ok(Self {
            volume: VolumeId(sixteen(&bytes[16..])),
            tier: bytes[32],
            home: bytes[33] == 1,
            user_xattr: bytes[34] == 1,
            range_size: number(&bytes[36..40]) as u32,
            name: String::from_utf8_lossy(name).into_owned(),
            key: (bytes[8] > 1).then(|| sixteen(&bytes[88..])),
        })
    }
}

/// The volume table of tiers by number and name.
pub(super) fn volume_table(volume: VolumeId, range_size: u32, home: u8, tiers: &[(u8, &str)]) -> Vec<u8> {
    let mut bytes = b"BRAIDVOL\x01\0\0\0\0\0\0\0".to_vec();
    bytes.extend(volume.0);
    bytes.extend(range_size.to_le_bytes());
    bytes.push(home);
    bytes.resize(TABLE_LEN, 0);
    for (tier, name) in tiers {
        let slot = &mut bytes[64 + 64 * usize::from(*tier)..][..64];
        slot[0] = 1;
        slot[1] = name.len() as u8;
        slot[2..2 + name.len()].copy_from_slice(name.as_bytes());
    }
    seal(&mut bytes, 12, TABLE_LEN);
    bytes
}

/// The id attribute of a home inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IdAttr {
    /// 1 spread, 2 emptied.
    pub(super) kind: u8,
    pub(super) id: ObjectId,
    pub(super) ino: u64,
    pub(super) btime_ns: i64,
}

impl IdAttr {
    /// As the volume with this label has it.
    pub(super) fn encode(&self, label: &Label) -> Vec<u8> {
        let mut bytes = vec![1, self.kind, 0, 0, 0, 0, 0, 0];
        bytes.extend(self.id.0);
        bytes.extend(self.ino.to_le_bytes());
        bytes.extend(self.btime_ns.to_le_bytes());
        if let Some(key) = &label.key {
            bytes[0] = 2;
            bytes.extend(&label.volume.0[..8]);
            bytes.resize(64, 0);
            let mac = SipHasher24::new_with_key(key).hash(&bytes);
            bytes[48..56].copy_from_slice(&mac.to_le_bytes());
        }
        let len = bytes.len();
        seal(&mut bytes, 4, len);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if !matches!((bytes.len(), bytes.first()), (40, Some(1)) | (64, Some(2)))
            || !is_sealed(bytes, 4, bytes.len())
        {
            return Err(Malformed("not a sound id attribute"));
        }
        let id = ObjectId(sixteen(&bytes[8..]));
        Ok(Self { kind: bytes[1], id, ino: number(&bytes[24..32]), btime_ns: number(&bytes[32..40]) as i64 })
    }
}

/// The part of an index header that never changes, without a file handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) volume: VolumeId,
    pub(super) id: ObjectId,
    pub(super) range_size: u32,
    pub(super) ino: u64,
    pub(super) btime_ns: i64,
}

impl Header {
    /// The whole header, its words zero.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = b"BRAIDIDX\x01\0\0\0\0\0\0\0".to_vec();
        bytes.extend(self.volume.0);
        bytes.extend(self.id.0);
        bytes.extend(self.range_size.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.ino.to_le_bytes());
        bytes.extend(self.btime_ns.to_le_bytes());
        bytes.resize(HEADER_LEN, 0);
        seal_header(&mut bytes);
        bytes
    }
}

/// Renews the CRC of a header.
pub(super) fn seal_header(bytes: &mut [u8]) {
    seal(bytes, 12, 256);
}

/// Where an index says that a range is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) tier: u8,
    pub(super) reason: u8,
    pub(super) version: u16,
}

impl Entry {
    pub(super) fn encode(self, id: ObjectId, range: u64) -> u64 {
        let low = u32::from(self.tier) | u32::from(self.reason) << 8 | u32::from(self.version) << 16;
        u64::from(low) | u64::from(crc(&[&id.0, &range.to_le_bytes(), &low.to_le_bytes()])) << 32
    }

    /// `None` is a range that was never written.
    pub(super) fn decode(id: ObjectId, range: u64, word: u64) -> Result<Option<Self>, Malformed> {
        let entry = Self { tier: word as u8, reason: (word >> 8) as u8, version: (word >> 16) as u16 };
        match word {
            0 => Ok(None),
            _ if entry.encode(id, range) == word => Ok(Some(entry)),
            _ => Err(Malformed("not a sound entry")),
        }
    }
}

/// Where entry `range` is in an index.
pub(super) fn entry_at(range: u64) -> u64 {
    HEADER_LEN as u64 + 8 * range
}

/// The size word at offset `at`.
pub(super) fn size_word(id: ObjectId, at: u64, size: u64) -> u64 {
    match size {
        0 => 0,
        _ => size | u64::from(crc(&[&id.0, &at.to_le_bytes(), &size.to_le_bytes()])) << 48,
    }
}

pub(super) fn decode_size(id: ObjectId, at: u64, word: u64) -> Result<u64, Malformed> {
    let size = word & SIZE_MASK;
    if size_word(id, at, size) == word { Ok(size) } else { Err(Malformed("not a sound size word")) }
}

/// The owners word: the tiers of size, modification time and access time.
pub(super) fn owners_word(id: ObjectId, owners: [u8; 3]) -> u64 {
    let low = [owners[0], owners[1], owners[2], 0];
    u64::from(u32::from_le_bytes(low)) | u64::from(crc(&[&id.0, &OWNERS.to_le_bytes(), &low])) << 32
}

/// Where the flag is that a tier's object was made durable.
pub(super) fn durable_at(tier: u8) -> u64 {
    512 + 8 * u64::from(tier)
}

/// The flag word at offset `at` that says yes.
pub(super) fn flag_word(id: ObjectId, at: u64) -> u64 {
    1 | u64::from(crc(&[&id.0, &at.to_le_bytes(), &1_u32.to_le_bytes()])) << 32
}

/// The saved counts of ranges by tier number.
pub(super) fn counts(ranges: &[u64; 63]) -> Vec<u8> {
    let mut bytes = b"BRAIDCNT\0\0\0\0\0\0\0\0".to_vec();
    bytes.extend(ranges.iter().flat_map(|count| count.to_le_bytes()));
    let crc = crc(&[&bytes[16..]]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}
