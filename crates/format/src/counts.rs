//! The counts of ranges that a clean unmount saves.

use crate::FormatError;
use crate::bytes::{TABLE_HEAD, get, open_table, seal_table};
use braid_contract::TierId;

const MAGIC: &[u8; 8] = b"BRAIDCNT";

/// Number of ranges on each tier, by the tier's number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedCounts(pub [u64; TierId::LIMIT as usize]);

impl SavedCounts {
    /// Their length in bytes.
    pub const LEN: usize = TABLE_HEAD + Self::BODY;
    const BODY: usize = TierId::LIMIT as usize * 8;

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![0; Self::BODY];
        for (place, count) in body.chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&count.to_le_bytes());
        }
        seal_table(MAGIC, &body)
    }

    /// Decodes the counts.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let body = open_table(MAGIC, bytes, Self::BODY)?;
        let mut saved = Self::default();
        for (count, place) in saved.0.iter_mut().zip(body.chunks_exact(8)) {
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
        bytes[TABLE_HEAD] ^= 1;
        assert!(SavedCounts::decode(&bytes).is_err());
        assert!(SavedCounts::decode(&bytes[1..]).is_err());
    }
}
