//! The part of an index header that never changes.

use crate::bytes::{check_sealed, get, get_u32, get_u64, put, seal};
use crate::{FormatError, RangeSize};
use braid_contract::{NativeHandle, ObjectId, TierId, VolumeId};

/// Length of the header in bytes; entries follow it.
pub const HEADER_LEN: usize = 4096;
/// Offset of the words that change in place.
pub const MUTABLE_FROM: usize = 256;

/// The size word.
pub const SIZE_AT: u64 = 256;
/// The word of the size at the last `fsync`.
pub const SYNCED_SIZE_AT: u64 = 264;
/// The word that names the owners of size and times.
pub const OWNERS_AT: u64 = 272;
/// The flag word for a change of size since the last `fsync` that may have left
/// a hole after the synced size.
pub const GAPS_AT: u64 = 280;
/// The size word for the end of space reserved beyond the size.
pub const RESERVED_AT: u64 = 288;
/// The size word for the end of the range in which the file may go on past its
/// size: as far as the part on that range's tier reaches.
pub const GROWS_TO_AT: u64 = 296;
/// The first of the flag words that say which tiers' objects are durable.
const DURABLE_AT: u64 = 512;

const MAGIC: &[u8; 8] = b"BRAIDIDX";
const VERSION: u16 = 1;
const HANDLE_MAX: u8 = 128;

/// Ties an index to its volume, its objects and its home inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The volume.
    pub volume: VolumeId,
    /// The id of the file and of its objects.
    pub id: ObjectId,
    /// Range size of this file: others may have another one.
    pub range_size: RangeSize,
    /// Number of the home inode.
    pub ino: u64,
    /// Birth time of the home inode, nanoseconds since the epoch; 0 if unknown.
    pub btime_ns: i64,
    /// Size of the file when it was spread; all of it was in the home file.
    pub plain_size: u64,
    /// Handle of the home inode; `None` where its file system has no handles.
    pub handle: Option<NativeHandle>,
}

impl Header {
    /// The header's first [`MUTABLE_FROM`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; MUTABLE_FROM];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.volume.0);
        put(&mut bytes, 32, &self.id.0);
        put(&mut bytes, 48, &self.range_size.get().to_le_bytes());
        put(&mut bytes, 56, &self.ino.to_le_bytes());
        put(&mut bytes, 64, &self.btime_ns.to_le_bytes());
        put(&mut bytes, 72, &self.plain_size.to_le_bytes());
        if let Some(handle) = &self.handle {
            let (kind, handle) = handle.parts();
            put(&mut bytes, 52, &kind.to_le_bytes());
            bytes[80] = handle.len() as u8;
            put(&mut bytes, 88, handle);
        }
        seal(&mut bytes, 12);
        bytes
    }

    /// Decodes the header at the start of the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check_sealed(bytes, MUTABLE_FROM, MAGIC, VERSION)?;
        let handle_len = bytes[80];
        if handle_len > HANDLE_MAX {
            return Err(FormatError::Damaged("its file handle is too long"));
        }
        let kind = i32::from_le_bytes(get(bytes, 52));
        let handle = NativeHandle::from_parts(kind, &bytes[88..88 + usize::from(handle_len)]);
        Ok(Self {
            volume: VolumeId(get(bytes, 16)),
            id: ObjectId(get(bytes, 32)),
            range_size: RangeSize::decode(get_u32(bytes, 48))?,
            ino: get_u64(bytes, 56),
            btime_ns: i64::from_le_bytes(get(bytes, 64)),
            plain_size: get_u64(bytes, 72),
            handle: handle.filter(|_| handle_len > 0),
        })
    }
}

/// Offset of the flag word that says whether the object on `tier` is durable.
#[must_use]
pub fn durable_at(tier: TierId) -> u64 {
    DURABLE_AT + u64::from(tier.0) * 8
}

/// Offset of the entry of a range.
#[must_use]
pub fn entry_at(range: u64) -> u64 {
    HEADER_LEN as u64 + range * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_notice_damage() {
        let header = Header {
            volume: VolumeId([1; 16]),
            id: ObjectId([2; 16]),
            range_size: RangeSize::new(1 << 21).unwrap(),
            ino: 3,
            btime_ns: 4,
            plain_size: 5,
            handle: NativeHandle::from_parts(-1, &[7; 128]),
        };
        let good = header.encode();
        assert_eq!(Header::decode(&good), Ok(header.clone()));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(Header::decode(&bad).is_err(), "byte {at}");
        }
        let without = Header { handle: None, ..header };
        assert_eq!(Header::decode(&without.encode()), Ok(without));
    }
}
