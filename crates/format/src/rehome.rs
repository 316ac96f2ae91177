//! The record of a replacement of the home tier, on the old and on the new home
//! directory.

use crate::FormatError;
use crate::bytes::{check_sealed, get, put, seal};
use braid_contract::VolumeId;

const MAGIC: &[u8; 8] = b"BRAIDHOM";
const VERSION: u16 = 1;
const STAGE_AT: usize = 48;
const PLACE_LEN_AT: usize = 50;
const PLACE_AT: usize = 64;

/// The stage of a replacement, as one of the directories records it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RehomeStage {
    /// On the old home: the new one is being created, and is not complete.
    Copying,
    /// On the old home: the new one may be complete; its label says so.
    Committing,
    /// On the old home: the new one is home.
    Moved,
    /// On the new home.
    Incoming,
}

/// The record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RehomeRecord {
    /// The volume.
    pub volume: VolumeId,
    /// Distinguishes copies.
    pub copy: [u8; 16],
    /// The stage.
    pub stage: RehomeStage,
    /// The location of the other directory.
    pub place: String,
}

impl RehomeRecord {
    /// Length in bytes.
    pub const LEN: usize = 4096;

    /// The record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::LEN];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.volume.0);
        put(&mut bytes, 32, &self.copy);
        bytes[STAGE_AT] = match self.stage {
            RehomeStage::Copying => 1,
            RehomeStage::Committing => 2,
            RehomeStage::Moved => 3,
            RehomeStage::Incoming => 4,
        };
        let place = &self.place.as_bytes()[..self.place.len().min(Self::LEN - PLACE_AT)];
        put(&mut bytes, PLACE_LEN_AT, &(place.len() as u16).to_le_bytes());
        put(&mut bytes, PLACE_AT, place);
        seal(&mut bytes, 12);
        bytes
    }

    /// Decodes the record.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check_sealed(bytes, Self::LEN, MAGIC, VERSION)?;
        let stage = match bytes[STAGE_AT] {
            1 => RehomeStage::Copying,
            2 => RehomeStage::Committing,
            3 => RehomeStage::Moved,
            4 => RehomeStage::Incoming,
            _ => return Err(FormatError::Damaged("it has an unknown stage")),
        };
        let len = usize::from(u16::from_le_bytes(get(bytes, PLACE_LEN_AT)));
        let place = bytes.get(PLACE_AT..PLACE_AT + len).and_then(|place| std::str::from_utf8(place).ok());
        Ok(Self {
            volume: VolumeId(get(bytes, 16)),
            copy: get(bytes, 32),
            stage,
            place: place.ok_or(FormatError::Damaged("it names no directory"))?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_notice_damage() {
        let stages =
            [RehomeStage::Copying, RehomeStage::Committing, RehomeStage::Moved, RehomeStage::Incoming];
        for stage in stages {
            let record =
                RehomeRecord { volume: VolumeId([1; 16]), copy: [2; 16], stage, place: "/mnt/new".into() };
            let good = record.encode();
            assert_eq!(RehomeRecord::decode(&good), Ok(record));
            for at in (0..good.len()).step_by(7) {
                let mut bad = good.clone();
                bad[at] ^= 0x20;
                assert!(RehomeRecord::decode(&bad).is_err(), "byte {at}");
            }
        }
    }
}
