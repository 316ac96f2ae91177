//! What was learned of kinds of files, in the form saved across mounts.

use crate::FormatError;
use crate::bytes::{check_sealed, get, get_u16, get_u32, get_u64, put, seal};

const MAGIC: &[u8; 8] = b"BRAIDSTR";
const VERSION: u16 = 1;
const HEADER_LEN: usize = 32;
const KINDS_AT: usize = 16;
/// Length of a kind's record before its name.
const KIND_LEN: usize = 48;
const STREAM_NONE: u16 = u16::MAX;

/// A kind of files, and what is expected of them.
#[derive(Clone, PartialEq, Debug)]
pub struct SavedKind {
    /// The shape of their paths, and of their writer's name.
    pub name: String,
    /// The number of their stream, if they have one.
    pub stream: Option<u16>,
    /// Each write is to be synced.
    pub sync: bool,
    /// They bypass the page cache.
    pub direct: bool,
    /// Files that told something.
    pub told: u32,
    /// Nanoseconds that they lived, all together.
    pub lived_ns: u64,
    /// How many of them ended, 0 or more; older ones count less.
    pub ended: f64,
    /// Figures of how they are written, each from 0 to 1.
    pub writing: [f32; 4],
}

/// Longest file of saved kinds in bytes.
pub const SAVED_KINDS_MAX: usize = 1 << 20;

/// The kinds as bytes; the first ones, if they would be more than may be saved.
#[must_use]
pub fn encode_kinds(kinds: &[SavedKind]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    put(&mut bytes, 0, MAGIC);
    put(&mut bytes, 8, &VERSION.to_le_bytes());
    let mut count = 0_u64;
    for kind in kinds {
        let Ok(name_len) = u16::try_from(kind.name.len()) else { continue };
        if bytes.len() + KIND_LEN + kind.name.len() > SAVED_KINDS_MAX {
            break;
        }
        let mut fixed = [0; KIND_LEN];
        put(&mut fixed, 0, &name_len.to_le_bytes());
        put(&mut fixed, 2, &kind.stream.unwrap_or(STREAM_NONE).to_le_bytes());
        fixed[4] = u8::from(kind.sync);
        fixed[5] = u8::from(kind.direct);
        put(&mut fixed, 8, &kind.told.to_le_bytes());
        put(&mut fixed, 16, &kind.lived_ns.to_le_bytes());
        put(&mut fixed, 24, &kind.ended.to_le_bytes());
        for (at, figure) in kind.writing.iter().enumerate() {
            put(&mut fixed, 32 + 4 * at, &figure.to_le_bytes());
        }
        bytes.extend_from_slice(&fixed);
        bytes.extend_from_slice(kind.name.as_bytes());
        count += 1;
    }
    put(&mut bytes, KINDS_AT, &count.to_le_bytes());
    seal(&mut bytes, 12);
    bytes
}

/// Decodes the kinds.
pub fn decode_kinds(bytes: &[u8]) -> Result<Vec<SavedKind>, FormatError> {
    check_sealed(bytes, bytes.len().max(HEADER_LEN), MAGIC, VERSION)?;
    let mut rest = &bytes[HEADER_LEN..];
    let mut kinds = Vec::new();
    for _ in 0..get_u64(bytes, KINDS_AT) {
        let too_short = FormatError::Damaged("it is too short");
        let (fixed, after) = rest.split_at_checked(KIND_LEN).ok_or(too_short)?;
        let too_short = FormatError::Damaged("it is too short");
        let (name, after) = after.split_at_checked(get_u16(fixed, 0).into()).ok_or(too_short)?;
        kinds.push(decode_kind(fixed, name)?);
        rest = after;
    }
    if rest.is_empty() { Ok(kinds) } else { Err(FormatError::Damaged("there is more in it than it says")) }
}

fn decode_kind(fixed: &[u8], name: &[u8]) -> Result<SavedKind, FormatError> {
    let impossible = || FormatError::Damaged("a value in it can't be");
    let ended = f64::from_le_bytes(get(fixed, 24));
    let writing = [0, 1, 2, 3].map(|at| f32::from_le_bytes(get(fixed, 32 + 4 * at)));
    let is_possible = fixed[4..6].iter().all(|flag| *flag <= 1)
        && ended.is_finite()
        && ended >= 0.0
        && writing.iter().all(|figure| (0.0..=1.0).contains(figure));
    if !is_possible {
        return Err(impossible());
    }
    Ok(SavedKind {
        name: String::from_utf8(name.to_vec()).map_err(|_| impossible())?,
        stream: Some(get_u16(fixed, 2)).filter(|number| *number != STREAM_NONE),
        sync: fixed[4] == 1,
        direct: fixed[5] == 1,
        told: get_u32(fixed, 8),
        lived_ns: get_u64(fixed, 16),
        ended,
        writing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Vec<SavedKind> {
        let kind = |name: &str, stream| SavedKind {
            name: name.to_owned(),
            stream,
            sync: true,
            direct: false,
            told: 7,
            lived_ns: 1 << 40,
            ended: 2.5,
            writing: [0.0, 0.5, 1.0, 0.25],
        };
        vec![kind("db/\u{1}.sst\0db/flush", Some(3)), kind("", None)]
    }

    #[test]
    fn kinds_come_back() {
        assert_eq!(decode_kinds(&encode_kinds(&kinds())), Ok(kinds()));
        assert_eq!(decode_kinds(&encode_kinds(&[])), Ok(Vec::new()));
    }

    #[test]
    fn the_file_is_bounded() {
        let long = SavedKind { name: "x".repeat(4096), ..kinds().remove(0) };
        let many = encode_kinds(&vec![long; 4096]);
        assert!(many.len() <= SAVED_KINDS_MAX && many.len() > SAVED_KINDS_MAX / 2);
        assert!(decode_kinds(&many).is_ok_and(|kinds| kinds.len() > 100));
    }

    #[test]
    fn damage_and_lies_are_seen() {
        let bytes = encode_kinds(&kinds());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode_kinds(&damaged).is_err(), "byte {at}");
            assert!(decode_kinds(&bytes[..at]).is_err(), "cut at {at}");
        }
        // A correct CRC does not make impossible values valid.
        for (at, value) in [
            (KINDS_AT, 3),
            (KINDS_AT, 1),
            (HEADER_LEN, 255),
            (HEADER_LEN + 4, 2),
            (HEADER_LEN + 31, 0xff),
            (HEADER_LEN + 35, 0xc0),
            (HEADER_LEN + KIND_LEN, 0xff),
        ] {
            let mut lie = bytes.clone();
            lie[at] = value;
            seal(&mut lie, 12);
            assert!(decode_kinds(&lie).is_err(), "byte {at} as {value}");
        }
    }
}
