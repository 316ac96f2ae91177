//! The label of a tier and the volume table of the home tier.

use crate::bytes::{check_sealed, get, get_u16, get_u32, put, seal};
use crate::seal::{KEY_LEN, Secret};
use crate::{FORMAT_VERSION, FormatError, RangeSize, RangeSizes};
use braid_contract::{TierId, VolumeId};

/// Length of a label in bytes.
const LABEL_LEN: usize = 512;
/// Length of the volume table in bytes.
pub const TABLE_LEN: usize = 4096;

const LABEL_MAGIC: &[u8; 8] = b"BRAIDTIR";
const TABLE_MAGIC: &[u8; 8] = b"BRAIDVOL";
/// In place of the byte for home.
const INCOMING: u8 = 2;
const NAME_MAX: usize = 48;
const RANGE_SIZES_AT: usize = 38;
const LABEL_SECRET_AT: usize = 88;
const TABLE_SECRET_AT: usize = 40;
const SLOTS_AT: usize = 64;
const SLOT_LEN: usize = 64;

/// Identifies a directory as a tier of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The volume.
    pub volume: VolumeId,
    /// The number of the tier.
    pub tier: TierId,
    /// Whether the tier is home.
    pub home: bool,
    /// Whether Braid's extended attributes are in the `user.` namespace.
    pub user_xattr: bool,
    /// The size of the ranges of new files.
    pub range_size: RangeSize,
    /// The tier's name.
    pub name: String,
    /// `None` in a label of version 1.
    pub secret: Option<Secret>,
}

impl Label {
    /// The label as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; LABEL_LEN];
        put(&mut bytes, 0, LABEL_MAGIC);
        put_secret(&mut bytes, LABEL_SECRET_AT, self.secret);
        put(&mut bytes, 16, &self.volume.0);
        bytes[32] = self.tier.0;
        bytes[33] = u8::from(self.home);
        bytes[34] = u8::from(self.user_xattr);
        bytes[35] = self.name.len() as u8;
        put(&mut bytes, 36, &self.range_size.get().to_le_bytes());
        put(&mut bytes, 40, self.name.as_bytes());
        seal(&mut bytes, 12);
        bytes
    }

    /// The label of a directory that is to become home, and is not complete:
    /// neither of home nor of another tier.
    pub fn encode_incoming(&self) -> Vec<u8> {
        let mut bytes = self.encode();
        bytes[33] = INCOMING;
        seal(&mut bytes, 12);
        bytes
    }

    /// Whether a label says that.
    pub fn is_incoming(bytes: &[u8]) -> bool {
        check_sealed(bytes, LABEL_LEN, LABEL_MAGIC, FORMAT_VERSION).is_ok() && bytes[33] == INCOMING
    }

    /// Decodes a label.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check_sealed(bytes, LABEL_LEN, LABEL_MAGIC, FORMAT_VERSION)?;
        let tier = TierId(bytes[32]);
        if tier.0 >= TierId::LIMIT {
            return Err(FormatError::Damaged("its tier number is out of range"));
        }
        Ok(Self {
            volume: VolumeId(get(bytes, 16)),
            tier,
            home: bytes[33] == 1,
            user_xattr: bytes[34] == 1,
            range_size: RangeSize::decode(get_u32(bytes, 36))?,
            name: decode_name(bytes[35], &bytes[40..])?,
            secret: get_secret(bytes, LABEL_SECRET_AT),
        })
    }
}

/// The tiers of a volume, by number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeTable {
    /// The volume.
    pub volume: VolumeId,
    /// The size of the ranges of new files.
    pub range_size: RangeSize,
    /// Other range sizes that rules may have given to files.
    pub range_sizes: RangeSizes,
    /// Which tier is home.
    pub home: TierId,
    /// Number and name of each tier, in order of number.
    pub tiers: Vec<(TierId, String)>,
    /// Number and name of lost tiers: entries may still name them.
    pub lost: Vec<(TierId, String)>,
    /// Removed tiers.
    pub removed: Vec<Removed>,
    /// `None` in a table of version 1.
    pub secret: Option<Secret>,
}

/// A tier that was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removed {
    /// Its number.
    pub tier: TierId,
    /// Its name.
    pub name: String,
    /// Indexes may still record objects on it: until that is corrected, the
    /// number must not be reused.
    pub leaving: bool,
}

/// The first byte of a slot.
const SLOT_TIER: u8 = 1;
const SLOT_LOST: u8 = 2;
const SLOT_LEAVING: u8 = 3;
const SLOT_REMOVED: u8 = 4;

impl VolumeTable {
    /// The table as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; TABLE_LEN];
        put(&mut bytes, 0, TABLE_MAGIC);
        put_secret(&mut bytes, TABLE_SECRET_AT, self.secret);
        put(&mut bytes, 16, &self.volume.0);
        put(&mut bytes, 32, &self.range_size.get().to_le_bytes());
        bytes[36] = self.home.0;
        put(&mut bytes, RANGE_SIZES_AT, &self.range_sizes.get().to_le_bytes());
        let tiers = self.tiers.iter().map(|tier| (SLOT_TIER, tier));
        let lost = self.lost.iter().map(|tier| (SLOT_LOST, tier));
        for (kind, (tier, name)) in tiers.chain(lost) {
            put_slot(&mut bytes, kind, *tier, name);
        }
        for Removed { tier, name, leaving } in &self.removed {
            put_slot(&mut bytes, if *leaving { SLOT_LEAVING } else { SLOT_REMOVED }, *tier, name);
        }
        seal(&mut bytes, 12);
        bytes
    }

    /// Decodes the table.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check_sealed(bytes, TABLE_LEN, TABLE_MAGIC, FORMAT_VERSION)?;
        let (mut tiers, mut lost, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for tier in (0..TierId::LIMIT).map(TierId) {
            let slot = &bytes[slot_at(tier)..][..SLOT_LEN];
            let name = || decode_name(slot[1], &slot[2..]);
            match slot[0] {
                SLOT_TIER => tiers.push((tier, name()?)),
                SLOT_LOST => lost.push((tier, name()?)),
                kind @ (SLOT_LEAVING | SLOT_REMOVED) => {
                    removed.push(Removed { tier, name: name()?, leaving: kind == SLOT_LEAVING });
                }
                _ => {}
            }
        }
        let home = TierId(bytes[36]);
        if !tiers.iter().any(|(tier, _)| *tier == home) {
            return Err(FormatError::Damaged("its home tier is not among its tiers"));
        }
        let range_size = RangeSize::decode(get_u32(bytes, 32))?;
        let range_sizes = RangeSizes::decode(u16::from_le_bytes(get(bytes, RANGE_SIZES_AT)));
        Ok(Self {
            volume: VolumeId(get(bytes, 16)),
            range_size,
            range_sizes,
            home,
            tiers,
            lost,
            removed,
            secret: get_secret(bytes, TABLE_SECRET_AT),
        })
    }
}

/// Writes the version and the fields that came with it. A value without a key
/// is of version 1.
fn put_secret(bytes: &mut [u8], at: usize, secret: Option<Secret>) {
    let version = if secret.is_some() { FORMAT_VERSION } else { 1 };
    put(bytes, 8, &version.to_le_bytes());
    if let Some(secret) = secret {
        put(bytes, at, &secret.key);
        bytes[at + KEY_LEN] = secret.was_version_1.into();
    }
}

fn get_secret(bytes: &[u8], at: usize) -> Option<Secret> {
    let secret = || Secret { key: get(bytes, at), was_version_1: bytes[at + KEY_LEN] == 1 };
    (get_u16(bytes, 8) > 1).then(secret)
}

fn slot_at(tier: TierId) -> usize {
    SLOTS_AT + usize::from(tier.0) * SLOT_LEN
}

fn put_slot(bytes: &mut [u8], kind: u8, tier: TierId, name: &str) {
    let at = slot_at(tier);
    bytes[at] = kind;
    bytes[at + 1] = name.len() as u8;
    put(bytes, at + 2, name.as_bytes());
}

fn decode_name(len: u8, bytes: &[u8]) -> Result<String, FormatError> {
    let len = usize::from(len);
    if len == 0 || len > NAME_MAX {
        return Err(FormatError::Damaged("a tier name in it has an impossible length"));
    }
    match std::str::from_utf8(&bytes[..len]) {
        Ok(name) => Ok(name.to_owned()),
        Err(_) => Err(FormatError::Damaged("a tier name in it is not text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = Secret { key: [0xab; 16], was_version_1: true };

    fn label() -> Label {
        Label {
            volume: VolumeId([3; 16]),
            tier: TierId(62),
            home: false,
            user_xattr: true,
            range_size: RangeSize::new(1 << 16).unwrap(),
            name: "slow-1".into(),
            secret: Some(SECRET),
        }
    }

    #[test]
    fn labels_round_trip() {
        assert_eq!(Label::decode(&label().encode()), Ok(label()));
        let old = Label { secret: None, ..label() };
        let bytes = old.encode();
        assert_eq!((bytes[8], Label::decode(&bytes)), (1, Ok(old)));
    }

    #[test]
    fn a_home_that_is_not_complete_is_none() {
        let home = Label { home: true, ..label() };
        let bytes = home.encode_incoming();
        assert!(Label::is_incoming(&bytes) && !Label::is_incoming(&home.encode()));
        assert_eq!(Label::decode(&bytes), Ok(label()));
    }

    #[test]
    fn every_damaged_byte_of_a_label_is_noticed() {
        let good = label().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert!(Label::decode(&bad).is_err(), "byte {at}");
        }
        assert!(Label::decode(&good[..511]).is_err());
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = label().encode();
        bytes[8] = 9;
        assert_eq!(Label::decode(&bytes), Err(FormatError::Newer(9)));
    }

    #[test]
    fn tables_round_trip() {
        let table = VolumeTable {
            volume: VolumeId([9; 16]),
            range_size: RangeSize::new(1 << 26).unwrap(),
            range_sizes: RangeSizes::decode(0b101),
            home: TierId(0),
            tiers: vec![(TierId(0), "fast".into()), (TierId(62), "x".repeat(48))],
            lost: vec![(TierId(7), "old".into())],
            removed: vec![
                Removed { tier: TierId(8), name: "going".into(), leaving: true },
                Removed { tier: TierId(9), name: "gone".into(), leaving: false },
            ],
            secret: Some(SECRET),
        };
        assert_eq!(VolumeTable::decode(&table.encode()), Ok(table.clone()));
        let old = VolumeTable { secret: None, ..table.clone() };
        assert_eq!((old.encode()[8], VolumeTable::decode(&old.encode())), (1, Ok(old.clone())));
        let homeless = VolumeTable { home: TierId(1), ..table };
        assert!(VolumeTable::decode(&homeless.encode()).is_err());
    }
}
