//! For the fuzz targets in `fuzz/` alone: every decoder of bytes from disk,
//! with the bytes as they are and with a corrected CRC, so that the code after
//! the check of the CRC is reached too.
//!
//! Each function panics if a decoder does, and if a decoded value changes when
//! it is encoded and decoded again.

use crate::{Header, IdAttr, Label, MUTABLE_FROM, SavedCounts, Seal, Secret, TABLE_LEN, VolumeTable, Words};
use braid_contract::{ObjectId, TierId, VolumeId};
use std::fmt::Debug;

/// Decodes bytes as they are, and again with a corrected CRC of the first `len`
/// at `at`.
fn decode_twice<T: PartialEq + Debug, E: Debug>(
    bytes: &[u8],
    (at, len): (usize, usize),
    decode: impl Fn(&[u8]) -> Result<T, E>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= len {
        sealed[at..at + 4].fill(0);
        let crc = crc32c::crc32c(&sealed[..len]);
        sealed[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    for bytes in [bytes, &sealed] {
        if let Ok(decoded) = decode(bytes) {
            assert_eq!(decode(&encode(&decoded)).ok().as_ref(), Some(&decoded));
        }
    }
}

/// Prepends the magic and the format version, which random bytes rarely match.
fn with_magic(magic: &[u8; 8], bytes: &[u8]) -> Vec<u8> {
    [&magic[..], &[1, 0, 0, 0, 0, 0, 0, 0], bytes].concat()
}

/// The header of an index.
pub fn header(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), with_magic(b"BRAIDIDX", bytes)] {
        decode_twice(&bytes, (12, MUTABLE_FROM), Header::decode, Header::encode);
    }
}

/// A tier's label.
pub fn label(bytes: &[u8]) {
    for mut bytes in [bytes.to_vec(), with_magic(b"BRAIDTIR", bytes)] {
        decode_twice(&bytes, (12, 512), Label::decode, Label::encode);
        bytes.resize(512, 0);
        decode_twice(&bytes, (12, 512), Label::decode, Label::encode);
    }
}

/// The volume table.
pub fn table(bytes: &[u8]) {
    for mut bytes in [bytes.to_vec(), with_magic(b"BRAIDVOL", bytes)] {
        decode_twice(&bytes, (12, TABLE_LEN), VolumeTable::decode, VolumeTable::encode);
        bytes.resize(TABLE_LEN, 0);
        decode_twice(&bytes, (12, TABLE_LEN), VolumeTable::decode, VolumeTable::encode);
    }
}

/// The saved counts of ranges.
pub fn counts(bytes: &[u8]) {
    let mut bytes = with_magic(b"BRAIDCNT", bytes);
    bytes.resize(SavedCounts::LEN, 0);
    let crc = crc32c::crc32c(&bytes[16..]);
    let mut sealed = bytes.clone();
    sealed[8..12].copy_from_slice(&crc.to_le_bytes());
    for bytes in [&bytes, &sealed] {
        if let Ok(saved) = SavedCounts::decode(bytes) {
            assert_eq!(SavedCounts::decode(&saved.encode()), Ok(saved));
        }
    }
}

/// The id attribute of a spread file.
pub fn id_attr(bytes: &[u8]) {
    let volume = VolumeId([1; 16]);
    let seal = Seal { volume, secret: Some(Secret { key: [2; 16], was_version_1: true }) };
    for len in [IdAttr::LEN_MAX, 40] {
        let says = |bytes: &[u8]| IdAttr::decode(bytes, &seal).map(|(attr, _)| attr);
        decode_twice(bytes, (4, len), says, |attr| attr.encode(&seal));
    }
}

/// The words of an index: an object id, a position and a word. What decodes
/// encodes to the same word; zero, which stands for the home tier as owner, is
/// the exception.
pub fn words(bytes: &[u8]) {
    let Some((id, rest)) = bytes.split_first_chunk::<16>() else { return };
    let Some((at, rest)) = rest.split_first_chunk::<8>() else { return };
    let Some((word, _)) = rest.split_first_chunk::<8>() else { return };
    let (words, at, word) = (Words::of(ObjectId(*id)), u64::from_le_bytes(*at), u64::from_le_bytes(*word));
    let low = &word.to_le_bytes()[..4];
    let crc = [&at.to_le_bytes()[..], low]
        .iter()
        .fold(crc32c::crc32c(id), |crc, part| crc32c::crc32c_append(crc, part));
    let sealed = word & 0xffff_ffff | u64::from(crc) << 32;
    for word in [word, sealed] {
        if let Ok(Some(entry)) = words.decode_entry(at, word) {
            assert_eq!(words.encode_entry(at, entry), word);
        }
        if let Ok(owners) = words.decode_owners(at, word, TierId(0))
            && word != 0
            && word & 0xff00_0000 == 0
        {
            assert_eq!(words.encode_owners(at, owners), word);
        }
        if let Ok(flag) = words.decode_flag(at, word) {
            assert_eq!(if flag { words.encode_flag(at) } else { 0 }, word);
        }
    }
    for word in [word, words.encode_size(at, word & ((1 << 48) - 1))] {
        if let Ok(size) = words.decode_size(at, word) {
            assert_eq!(words.encode_size(at, size), word);
        }
    }
}
