//! The heat of ranges, in the form saved across mounts.

use crate::FormatError;
use crate::bytes::{check_sealed, get, get_u32, get_u64, put, seal};
use braid_contract::{NativeHandle, TierId};
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"BRAIDHOT";
const VERSION: u16 = 1;
const FILES_AT: usize = 16;
const HEADER_LEN: usize = 32;
/// Length of a file's record before its handle.
const FILE_LEN: usize = 32;
const RANGE_LEN: usize = 16;

/// The highest degree, of two bits.
pub const DEGREE_MAX: u8 = 3;

/// Identifies an inode of the home tier, across remounts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileKey {
    /// Inode number.
    pub ino: u64,
    /// Distinguishes inodes that had the same number one after another.
    pub generation: u64,
}

/// The use of one range. Times are in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeHeat {
    /// When it came to its tier; 0 if unknown.
    pub since: u32,
    /// When a use last counted.
    pub last: u32,
    /// Its tier when last seen.
    pub tier: TierId,
    /// The degree that it had at `last`, 0 to [`DEGREE_MAX`].
    pub degree: u8,
}

/// The use of one file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileHeat {
    /// The handle for opening it.
    pub handle: Option<NativeHandle>,
    /// By range number; a plain file has one record, number 0.
    pub ranges: BTreeMap<u32, RangeHeat>,
}

/// The table of heat as bytes.
#[must_use]
pub fn encode_heat<'a>(files: impl ExactSizeIterator<Item = (&'a FileKey, &'a FileHeat)>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    put(&mut bytes, 0, MAGIC);
    put(&mut bytes, 8, &VERSION.to_le_bytes());
    put(&mut bytes, FILES_AT, &(files.len() as u64).to_le_bytes());
    for (key, file) in files {
        let (kind, handle) = file.handle.as_ref().map_or((0, &[][..]), NativeHandle::parts);
        let mut fixed = [0; FILE_LEN];
        put(&mut fixed, 0, &key.ino.to_le_bytes());
        put(&mut fixed, 8, &key.generation.to_le_bytes());
        put(&mut fixed, 16, &kind.to_le_bytes());
        // A handle has at most 128 bytes.
        put(&mut fixed, 20, &(handle.len() as u32).to_le_bytes());
        put(&mut fixed, 24, &(file.ranges.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&fixed);
        bytes.extend_from_slice(handle);
        for (range, record) in &file.ranges {
            let mut fixed = [0; RANGE_LEN];
            put(&mut fixed, 0, &range.to_le_bytes());
            put(&mut fixed, 4, &record.since.to_le_bytes());
            put(&mut fixed, 8, &record.last.to_le_bytes());
            fixed[12] = record.tier.0;
            fixed[13] = record.degree;
            bytes.extend_from_slice(&fixed);
        }
    }
    seal(&mut bytes, 12);
    bytes
}

/// Decodes the table.
pub fn decode_heat(bytes: &[u8]) -> Result<BTreeMap<FileKey, FileHeat>, FormatError> {
    check_sealed(bytes, bytes.len().max(HEADER_LEN), MAGIC, VERSION)?;
    let mut rest = &bytes[HEADER_LEN..];
    let mut files = BTreeMap::new();
    for _ in 0..get_u64(bytes, FILES_AT) {
        let fixed = take(&mut rest, FILE_LEN as u64)?;
        let key = FileKey { ino: get_u64(fixed, 0), generation: get_u64(fixed, 8) };
        let (kind, handle_len, ranges) =
            (i32::from_le_bytes(get(fixed, 16)), get_u32(fixed, 20), get_u64(fixed, 24));
        let handle = match take(&mut rest, handle_len.into())? {
            [] => None,
            handle => Some(
                NativeHandle::from_parts(kind, handle)
                    .ok_or(FormatError::Damaged("a file handle in it is too long"))?,
            ),
        };
        let records =
            take(&mut rest, ranges.checked_mul(RANGE_LEN as u64).ok_or(TOO_SHORT)?)?.chunks_exact(RANGE_LEN);
        let ranges = records.map(decode_record).collect::<Result<_, _>>()?;
        files.insert(key, FileHeat { handle, ranges });
    }
    if rest.is_empty() { Ok(files) } else { Err(FormatError::Damaged("there is more in it than it says")) }
}

fn decode_record(bytes: &[u8]) -> Result<(u32, RangeHeat), FormatError> {
    let (tier, degree) = (TierId(bytes[12]), bytes[13]);
    if tier.0 >= TierId::LIMIT || degree > DEGREE_MAX {
        return Err(FormatError::Damaged("a value in it can't be"));
    }
    Ok((get_u32(bytes, 0), RangeHeat { since: get_u32(bytes, 4), last: get_u32(bytes, 8), tier, degree }))
}

const TOO_SHORT: FormatError = FormatError::Damaged("it is too short");

fn take<'b>(rest: &mut &'b [u8], len: u64) -> Result<&'b [u8], FormatError> {
    let len = usize::try_from(len).ok().filter(|len| *len <= rest.len()).ok_or(TOO_SHORT)?;
    let (taken, left) = rest.split_at(len);
    *rest = left;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> BTreeMap<FileKey, FileHeat> {
        let record = |tier, degree| RangeHeat { since: 7, last: 1_700_000_000, tier: TierId(tier), degree };
        let handle = NativeHandle::from_parts(129, &[1, 2, 3, 4, 5, 6, 7]);
        BTreeMap::from([
            (
                FileKey { ino: 12, generation: 99 },
                FileHeat { handle, ranges: [(0, record(0, 3)), (u32::MAX >> 1, record(62, 0))].into() },
            ),
            (
                FileKey { ino: 13, generation: 1 },
                FileHeat { handle: None, ranges: [(5, record(1, 1))].into() },
            ),
        ])
    }

    #[test]
    fn heat_comes_back() {
        assert_eq!(decode_heat(&encode_heat(table().iter())), Ok(table()));
        assert_eq!(decode_heat(&encode_heat(BTreeMap::new().iter())), Ok(BTreeMap::new()));
    }

    #[test]
    fn damage_and_lies_are_seen() {
        let bytes = encode_heat(table().iter());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode_heat(&damaged).is_err(), "byte {at}");
            assert!(decode_heat(&bytes[..at]).is_err(), "cut at {at}");
        }
        // A correct CRC does not make impossible values valid.
        for (at, value) in [
            (FILES_AT, 3),
            (FILES_AT, 1),
            (HEADER_LEN + 20, 200),
            (HEADER_LEN + 31, 255),
            (HEADER_LEN + 32 + 7 + 12, 63),
        ] {
            let mut lie = bytes.clone();
            lie[at] = value;
            seal(&mut lie, 12);
            assert!(decode_heat(&lie).is_err(), "byte {at} as {value}");
        }
    }
}
