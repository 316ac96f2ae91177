//! The extended attribute that makes a home file a spread file.

use super::FormatError;
use super::bytes::{crc_without, get, get_u32, get_u64, put, seal};
use braid_contract::ObjectId;

const LEN: usize = 40;
const VERSION: u8 = 1;

/// What the attribute says of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdKind {
    /// The file's data is where its index says.
    Spread,
    /// The file is being truncated to nothing.
    Emptied,
}

/// The attribute's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IdAttr {
    pub(crate) kind: IdKind,
    pub(crate) id: ObjectId,
    /// The inode that the attribute was written for.
    pub(crate) ino: u64,
    /// That inode's birth time, nanoseconds since the epoch; 0 if unknown.
    pub(crate) btime_ns: i64,
}

impl IdAttr {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0] = VERSION;
        bytes[1] = match self.kind {
            IdKind::Spread => 1,
            IdKind::Emptied => 2,
        };
        put(&mut bytes, 8, &self.id.0);
        put(&mut bytes, 24, &self.ino.to_le_bytes());
        put(&mut bytes, 32, &self.btime_ns.to_le_bytes());
        seal(&mut bytes, 4);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() != LEN {
            return Err(FormatError::Damaged("the id attribute has the wrong length"));
        }
        if bytes[0] > VERSION {
            return Err(FormatError::Newer(u16::from(bytes[0])));
        }
        if get_u32(bytes, 4) != crc_without(bytes, 4) {
            return Err(FormatError::Damaged("the id attribute's checksum does not match"));
        }
        let kind = match bytes[1] {
            1 => IdKind::Spread,
            2 => IdKind::Emptied,
            _ => return Err(FormatError::Damaged("the id attribute has an unknown kind")),
        };
        Ok(Self {
            kind,
            id: ObjectId(get(bytes, 8)),
            ino: get_u64(bytes, 24),
            btime_ns: i64::from_le_bytes(get(bytes, 32)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_notices_damage() {
        let attr = IdAttr { kind: IdKind::Spread, id: ObjectId([5; 16]), ino: 77, btime_ns: -3 };
        let good = attr.encode();
        assert_eq!(IdAttr::decode(&good), Ok(attr));
        for at in 0..good.len() {
            let mut bad = good;
            bad[at] ^= 1;
            assert!(IdAttr::decode(&bad).is_err(), "byte {at}");
        }
    }
}
