//! Reading and writing little-endian fields at fixed offsets.

use crate::FormatError;

pub(super) fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

pub(super) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(bytes, at))
}

pub(super) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

pub(super) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

pub(super) fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// Bytes before the body of a small file with a figure for each tier: its magic
/// number, the CRC of the body, and four reserved ones.
pub(super) const TABLE_HEAD: usize = 16;

/// Such a file with this body.
pub(super) fn seal_table(magic: &[u8; 8], body: &[u8]) -> Vec<u8> {
    let crc = crc32c::crc32c(body).to_le_bytes();
    [&magic[..], &crc, &[0; 4], body].concat()
}

/// The body of such a file, of `len` bytes.
pub(super) fn open_table<'a>(magic: &[u8; 8], bytes: &'a [u8], len: usize) -> Result<&'a [u8], FormatError> {
    if bytes.len() != TABLE_HEAD + len {
        return Err(FormatError::Damaged("its length is wrong"));
    }
    if get::<8>(bytes, 0) != *magic {
        return Err(FormatError::Damaged("its magic number is wrong"));
    }
    let body = &bytes[TABLE_HEAD..];
    if get_u32(bytes, 8) != crc32c::crc32c(body) {
        return Err(FormatError::Damaged("its checksum is wrong"));
    }
    Ok(body)
}

/// CRC-32C of `bytes` with the four bytes at `at` taken as zero.
pub(super) fn crc_without(bytes: &[u8], at: usize) -> u32 {
    let crc = crc32c::crc32c(&bytes[..at]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &bytes[at + 4..])
}

/// Stores the CRC of `bytes` at `at`.
pub(super) fn seal(bytes: &mut [u8], at: usize) {
    let crc = crc_without(bytes, at);
    put(bytes, at, &crc.to_le_bytes());
}

/// Checks the common part of labels, tables and headers: length, an 8-byte
/// magic, a version of at most `newest` at 8 and a CRC at 12.
pub(super) fn check_sealed(
    bytes: &[u8],
    len: usize,
    magic: &[u8; 8],
    newest: u16,
) -> Result<(), FormatError> {
    if bytes.len() < len {
        return Err(FormatError::Damaged("it is too short"));
    }
    if bytes[..8] != *magic {
        return Err(FormatError::Damaged("it does not begin with Braid's magic"));
    }
    let version = get_u16(bytes, 8);
    if version > newest {
        return Err(FormatError::Newer(version));
    }
    if get_u32(bytes, 12) != crc_without(&bytes[..len], 12) {
        return Err(FormatError::Damaged("its checksum does not match"));
    }
    if version == 0 {
        return Err(FormatError::Damaged("its format version is 0"));
    }
    Ok(())
}
