//! The known inodes as bytes: there may be a million, and operations wait meanwhile.

use braid_contract::{Errno, Error, FileKind, InodeId, NativeHandle, Result};

/// One of them: number, number of lookups, kind, handle.
pub(super) type Known = (InodeId, u64, FileKind, NativeHandle);

/// Adds an inode to the bytes.
pub(super) fn pack(
    bytes: &mut Vec<u8>,
    (ino, lookups, kind, handle): (InodeId, u64, FileKind, &NativeHandle),
) {
    let (handle_kind, handle) = handle.parts();
    bytes.extend_from_slice(&ino.0.to_le_bytes());
    bytes.extend_from_slice(&lookups.to_le_bytes());
    bytes.extend_from_slice(&handle_kind.to_le_bytes());
    // The type bits of a mode are its four highest; a handle has at most `BYTES_MAX` bytes.
    bytes.extend_from_slice(&[(kind.mode() >> 12) as u8, handle.len() as u8]);
    bytes.extend_from_slice(handle);
}

/// The inodes in the bytes. `EINVAL` if they are cut short, or not understood.
pub(super) fn unpack(mut bytes: &[u8]) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    while !bytes.is_empty() {
        known.push(unpack_one(&mut bytes).ok_or_else(|| {
            Error::new(Errno::EINVAL, format!("inode {} of those handed over is not understood", known.len()))
        })?);
    }
    Ok(known)
}

fn unpack_one(bytes: &mut &[u8]) -> Option<Known> {
    let ino = u64::from_le_bytes(take(bytes)?);
    let lookups = u64::from_le_bytes(take(bytes)?);
    let handle_kind = i32::from_le_bytes(take(bytes)?);
    let [kind, len] = take(bytes)?;
    let kind = FileKind::from_mode(u32::from(kind) << 12)?;
    let (handle, rest) = bytes.split_at_checked(usize::from(len))?;
    *bytes = rest;
    Some((InodeId(ino), lookups, kind, NativeHandle::from_parts(handle_kind, handle)?))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let handle = |bytes: &[u8]| NativeHandle::from_parts(-7, bytes).expect("it is short");
        let kinds = (0..16).filter_map(|bits| FileKind::from_mode(bits << 12));
        let all: Vec<Known> = kinds
            .enumerate()
            .map(|(at, kind)| {
                (InodeId(u64::MAX - at as u64), at as u64, kind, handle(&vec![at as u8; at * 20]))
            })
            .collect();
        assert_eq!(all.len(), 7);
        let mut bytes = Vec::new();
        for (ino, lookups, kind, handle) in &all {
            pack(&mut bytes, (*ino, *lookups, *kind, handle));
        }
        assert_eq!(unpack(&bytes).ok(), Some(all));
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_refused() {
        let mut bytes = Vec::new();
        let handle = NativeHandle::from_parts(1, &[1, 2, 3]).expect("it is short");
        pack(&mut bytes, (InodeId(4), 5, FileKind::Fifo, &handle));
        for len in 1..bytes.len() {
            assert!(unpack(&bytes[..len]).is_err(), "{len}");
        }
        bytes[20] = 99;
        assert!(unpack(&bytes).is_err());
    }
}
