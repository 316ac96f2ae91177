//! The counts of ranges that a clean unmount saves.

use crate::FormatError;
use crate::bytes::{get, get_u32, put};
use braid_contract::TierId;

const MAGIC: &[u8; 8] = b"BRAIDCNT";
const COUNTS_AT: usize = 16;

/// Number of ranges on each tier, by the tier's number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedCounts(pub [u64; TierId::LIMIT as usize]);

impl SavedCounts {
    /// Their length in bytes.
    pub const LEN: usize = COUNTS_AT + TierId::LIMIT as usize * 8;

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::LEN];
        put(&mut bytes, 0, MAGIC);
        for (place, count) in bytes[COUNTS_AT..].chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&count.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[COUNTS_AT..]);
        put(&mut bytes, 8, &crc.to_le_bytes());
        bytes
    }

    /// Decodes the counts.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() != Self::LEN {
            return Err(FormatError::Damaged("its length is wrong"));
        }
        if get::<8>(bytes, 0) != *MAGIC {
            return Err(FormatError::Damaged("its magic number is wrong"));
        }
        if get_u32(bytes, 8) != crc32c::crc32c(&bytes[COUNTS_AT..]) {
            return Err(FormatError::Damaged("its checksum is wrong"));
        }
        let mut saved = Self::default();
        for (count, place) in saved.0.iter_mut().zip(bytes[COUNTS_AT..].chunks_exact(8)) {
            *count = u64::from_le_bytes(get(place, 0));
        }
        Ok(saved)
    }
}

impl Default for SavedCounts {
    fn default() -> Self {
        Self([0; TierId::LIMIT as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_back_and_damage_is_seen() {
        let mut saved = SavedCounts::default();
        saved.0[0] = 7;
        saved.0[62] = u64::MAX;
        let mut bytes = saved.encode();
        assert_eq!(SavedCounts::decode(&bytes), Ok(saved));
        bytes[COUNTS_AT] ^= 1;
        assert!(SavedCounts::decode(&bytes).is_err());
        assert!(SavedCounts::decode(&bytes[1..]).is_err());
    }
}
