//! How fast tiers were when the volume was last mounted.

use crate::FormatError;
use crate::bytes::{TABLE_HEAD, get, get_u32, open_table, put, seal_table};
use braid_contract::TierId;

const MAGIC: &[u8; 8] = b"BRAIDSPD";
const SPEED_LEN: usize = 48;

/// The bandwidth of a tier in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedBandwidth {
    /// Bytes a second, above 0.
    pub bandwidth: u64,
    /// The fewest parallel operations that reached it.
    pub threads: u32,
}

/// What is known of a tier, and of which device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedSpeed {
    /// Number of the device, as in `stat`.
    pub device: u64,
    /// Size of its file system in bytes.
    pub total: u64,
    /// When the bandwidths were last observed, in seconds since 1970.
    pub seen: u64,
    /// Of reads and of writes, where known.
    pub bandwidth: [Option<SavedBandwidth>; 2],
}

/// What is known of each tier, by its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedSpeeds(pub [Option<SavedSpeed>; TierId::LIMIT as usize]);

impl SavedSpeeds {
    /// Their length in bytes.
    pub const LEN: usize = TABLE_HEAD + Self::BODY;
    const BODY: usize = TierId::LIMIT as usize * SPEED_LEN;

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![0; Self::BODY];
        for (place, speed) in body.chunks_exact_mut(SPEED_LEN).zip(&self.0) {
            let Some(speed) = speed else { continue };
            let words = [speed.device, speed.total, speed.seen];
            words.iter().enumerate().for_each(|(at, word)| put(place, 8 * at, &word.to_le_bytes()));
            for (at, known) in speed.bandwidth.iter().enumerate() {
                if let Some(known) = known {
                    put(place, 24 + 8 * at, &known.bandwidth.to_le_bytes());
                    put(place, 40 + 4 * at, &known.threads.to_le_bytes());
                }
            }
        }
        seal_table(MAGIC, &body)
    }

    /// Decodes the speeds.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let body = open_table(MAGIC, bytes, Self::BODY)?;
        let mut saved = Self::default();
        for (speed, place) in saved.0.iter_mut().zip(body.chunks_exact(SPEED_LEN)) {
            let word = |at: usize| u64::from_le_bytes(get(place, at));
            let bandwidth = [0, 1].map(|at| match word(24 + 8 * at) {
                0 => None,
                bandwidth => Some(SavedBandwidth { bandwidth, threads: get_u32(place, 40 + 4 * at) }),
            });
            if bandwidth != [None; 2] {
                *speed = Some(SavedSpeed { device: word(0), total: word(8), seen: word(16), bandwidth });
            }
        }
        Ok(saved)
    }
}

impl Default for SavedSpeeds {
    fn default() -> Self {
        Self([None; TierId::LIMIT as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_come_back_and_damage_is_seen() {
        let mut saved = SavedSpeeds::default();
        let known = SavedBandwidth { bandwidth: 200_000_000, threads: 4 };
        saved.0[0] = Some(SavedSpeed { device: 7, total: u64::MAX, seen: 9, bandwidth: [Some(known), None] });
        saved.0[62] = Some(SavedSpeed { device: 1, total: 2, seen: 3, bandwidth: [None, Some(known)] });
        let mut bytes = saved.encode();
        assert_eq!(SavedSpeeds::decode(&bytes), Ok(saved));
        bytes[TABLE_HEAD] ^= 1;
        assert!(SavedSpeeds::decode(&bytes).is_err());
        assert!(SavedSpeeds::decode(&bytes[1..]).is_err());
    }
}
