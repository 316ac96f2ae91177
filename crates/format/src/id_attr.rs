//! The extended attribute that makes a home file a spread file.

use crate::bytes::{crc_without, get, get_u32, get_u64, put, seal};
use crate::seal::{Proof, Seal};
use crate::words::Reason;
use crate::{FormatError, RangeSize};
use braid_contract::{ObjectId, TierId};

const VERSION: u8 = 2;
const LEN: usize = 64;
const LEN_1: usize = 40;
const VOLUME_AT: usize = 40;
const MAC_AT: usize = 48;
const FLAG_DURABLE: u8 = 1;
const DAMAGED: &str = "the id attribute's checksum does not match";

/// The kind of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdKind {
    /// The file's data is where its index says.
    Spread,
    /// The file is being truncated to nothing.
    Emptied,
    /// All data is in one object on one tier, and there is no index.
    Whole(WholeAttr),
}

/// The part of the attribute for whole files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WholeAttr {
    /// The tier that holds the object.
    pub tier: TierId,
    /// The size of the ranges that an index would have.
    pub range_size: RangeSize,
    /// The reason for the file's tier.
    pub reason: Reason,
    /// The object was durable at some `fsync`.
    pub durable: bool,
}

impl IdKind {
    /// The part of a whole file; `None` for any other kind.
    #[must_use]
    pub fn whole(self) -> Option<WholeAttr> {
        match self {
            Self::Whole(whole) => Some(whole),
            Self::Spread | Self::Emptied => None,
        }
    }
}

/// The attribute's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdAttr {
    /// Which kind of file it is.
    pub kind: IdKind,
    /// The id of the file and of its objects.
    pub id: ObjectId,
    /// The inode that the attribute was written for.
    pub ino: u64,
    /// That inode's birth time, nanoseconds since the epoch; 0 if unknown.
    pub btime_ns: i64,
}

impl IdAttr {
    /// Longest value.
    pub const LEN_MAX: usize = LEN;

    /// The value on a volume with this seal: of version 1 where it has no key.
    pub fn encode(&self, seal_of: &Seal) -> Vec<u8> {
        let sealed = seal_of.secret.is_some();
        let mut bytes = vec![0; if sealed { LEN } else { LEN_1 }];
        bytes[0] = if sealed { VERSION } else { 1 };
        put(&mut bytes, 8, &self.id.0);
        put(&mut bytes, 24, &self.ino.to_le_bytes());
        put(&mut bytes, 32, &self.btime_ns.to_le_bytes());
        bytes[1] = match self.kind {
            IdKind::Spread => 1,
            IdKind::Emptied => 2,
            IdKind::Whole(_) => 3,
        };
        if !sealed {
            seal(&mut bytes, 4);
            return bytes;
        }
        if let IdKind::Whole(WholeAttr { tier, range_size, reason, durable }) = self.kind {
            bytes[2] = if durable { FLAG_DURABLE } else { 0 };
            bytes[56] = tier.0;
            bytes[57] = range_size.get().ilog2() as u8;
            bytes[58] = reason.code();
        }
        seal_of.put(&mut bytes, VOLUME_AT, MAC_AT);
        bytes
    }

    /// Decodes a value, with the proof of its origin.
    pub fn decode(bytes: &[u8], seal_of: &Seal) -> Result<(Self, Proof), FormatError> {
        let version = bytes.first().copied().unwrap_or(0);
        if version > VERSION {
            return Err(FormatError::Newer(u16::from(version)));
        }
        let proof = match (version, bytes.len()) {
            (1, LEN_1) if get_u32(bytes, 4) == crc_without(bytes, 4) => seal_of.proof_of_old(),
            (1, LEN_1) => return Err(FormatError::Damaged(DAMAGED)),
            (VERSION, LEN) => seal_of.proof(bytes, VOLUME_AT, MAC_AT, DAMAGED)?,
            _ => return Err(FormatError::Damaged("the id attribute has the wrong length")),
        };
        let kind = match bytes[1] {
            1 => IdKind::Spread,
            2 => IdKind::Emptied,
            3 if version == VERSION => decode_whole(bytes)?,
            _ => return Err(FormatError::Damaged("the id attribute has an unknown kind")),
        };
        let attr = Self {
            kind,
            id: ObjectId(get(bytes, 8)),
            ino: get_u64(bytes, 24),
            btime_ns: i64::from_le_bytes(get(bytes, 32)),
        };
        Ok((attr, proof))
    }
}

fn decode_whole(bytes: &[u8]) -> Result<IdKind, FormatError> {
    let tier = TierId(bytes[56]);
    let range_size = 1_u32.checked_shl(bytes[57].into()).and_then(RangeSize::new);
    match (range_size, Reason::from_code(bytes[58])) {
        (Some(range_size), Some(reason)) if tier.0 < TierId::LIMIT => {
            Ok(IdKind::Whole(WholeAttr { tier, range_size, reason, durable: bytes[2] & FLAG_DURABLE != 0 }))
        }
        _ => Err(FormatError::Damaged("the id attribute names an impossible tier, range size or reason")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::TEST_SEAL as SEAL;
    use braid_contract::VolumeId;

    const SPREAD: IdAttr = IdAttr { kind: IdKind::Spread, id: ObjectId([5; 16]), ino: 77, btime_ns: -3 };

    fn kinds() -> Vec<IdKind> {
        let whole = |tier, bits: u32, durable| {
            let range_size = RangeSize::new(1 << bits).unwrap();
            IdKind::Whole(WholeAttr { tier: TierId(tier), range_size, reason: Reason::Spill, durable })
        };
        vec![IdKind::Spread, IdKind::Emptied, whole(1, 16, false), whole(62, 26, true)]
    }

    #[test]
    fn round_trips_and_notices_damage() {
        for kind in kinds() {
            let attr = IdAttr { kind, ..SPREAD };
            let good = attr.encode(&SEAL);
            assert_eq!((good.len(), IdAttr::decode(&good, &SEAL)), (64, Ok((attr, Proof::Sealed))));
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 1;
                assert!(IdAttr::decode(&bad, &SEAL).is_err(), "byte {at}");
                assert!(IdAttr::decode(&good[..at], &SEAL).is_err(), "cut at {at}");
            }
        }
    }

    #[test]
    fn what_braid_did_not_write_is_known() {
        for kind in kinds() {
            let good = IdAttr { kind, ..SPREAD }.encode(&SEAL);
            for at in (0..good.len()).filter(|at| *at != 0 && *at != 1 && !(4..8).contains(at)) {
                let mut lie = good.clone();
                lie[at] ^= 1;
                seal(&mut lie, 4);
                match IdAttr::decode(&lie, &SEAL) {
                    Ok((_, proof)) => assert!(proof.check().is_err(), "byte {at} of {kind:?}: {proof:?}"),
                    // Tier, range size and reason may have impossible values.
                    Err(_) => assert!((56..59).contains(&at), "byte {at} of {kind:?}"),
                }
            }
            let other = Seal { volume: VolumeId([1; 16]), ..SEAL };
            let proof = IdAttr::decode(&good, &other).unwrap().1;
            assert_eq!(proof, Proof::OtherVolume([9; 8]));
            let keyless = Seal { secret: None, ..SEAL };
            assert_eq!(IdAttr::decode(&good, &keyless).unwrap().1, Proof::Forged);
        }
    }

    #[test]
    fn version_1_is_read_where_there_was_such() {
        let keyless = Seal { secret: None, ..SEAL };
        let mut upgraded = SEAL;
        upgraded.secret.as_mut().unwrap().was_version_1 = true;
        for kind in [IdKind::Spread, IdKind::Emptied] {
            let attr = IdAttr { kind, ..SPREAD };
            let bytes = attr.encode(&keyless);
            assert_eq!((bytes.len(), bytes[0]), (40, 1));
            let read = |seal| IdAttr::decode(&bytes, seal);
            assert_eq!(read(&keyless), Ok((attr, Proof::Old)));
            assert_eq!(read(&upgraded), Ok((attr, Proof::Old)));
            assert_eq!(read(&SEAL), Ok((attr, Proof::TooOld)));
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 1;
                assert!(IdAttr::decode(&bad, &upgraded).is_err(), "byte {at}");
            }
        }
        let whole = IdAttr { kind: kinds()[2], ..SPREAD };
        assert!(IdAttr::decode(&whole.encode(&keyless), &keyless).is_err(), "version 1 has no such kind");
        assert_eq!(IdAttr::decode(&[3; 80], &SEAL), Err(FormatError::Newer(3)));
    }
}
