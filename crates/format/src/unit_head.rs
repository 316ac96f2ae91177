//! The head of a block device without zones that keeps a zoned store: how it is cut
//! into units.

use crate::FormatError;
use crate::bytes::{check_sealed, get_u32, get_u64, put, seal};

const MAGIC: &[u8; 8] = b"BRAIDUNT";
const VERSION: u16 = 1;
const CRC_AT: usize = 12;

/// Shortest unit, in bytes: each takes memory.
const UNIT_MIN: u64 = 64 << 10;

/// Bytes of the head.
pub const UNIT_HEAD_LEN: usize = 4096;
/// Bytes of the device that are kept for it; the units follow.
pub const UNIT_HEAD_ROOM: u64 = 1 << 20;

/// How a device is cut into units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnitHead {
    /// Bytes of a unit for data.
    pub unit: u64,
    /// Bytes of each of the two units for the index, which come first.
    pub index: u64,
    /// Units for data.
    pub units: u32,
    /// What units are multiples of, in bytes.
    pub block: u32,
}

impl UnitHead {
    /// Bytes that a device has to have for it; `None` if none has so many.
    #[must_use]
    pub fn device_len(&self) -> Option<u64> {
        let data = self.unit.checked_mul(self.units.into())?;
        self.index.checked_mul(2)?.checked_add(UNIT_HEAD_ROOM)?.checked_add(data)
    }

    /// The bytes on disk.
    #[must_use]
    pub fn encode(&self) -> [u8; UNIT_HEAD_LEN] {
        let mut bytes = [0; UNIT_HEAD_LEN];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.unit.to_le_bytes());
        put(&mut bytes, 24, &self.index.to_le_bytes());
        put(&mut bytes, 32, &self.units.to_le_bytes());
        put(&mut bytes, 36, &self.block.to_le_bytes());
        seal(&mut bytes, CRC_AT);
        bytes
    }

    /// Whether bytes begin as a head does, though it may be damaged.
    #[must_use]
    pub fn is_begun(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Reads it.
    ///
    /// # Errors
    /// If it is none, or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        check_sealed(bytes, UNIT_HEAD_LEN, MAGIC, VERSION)?;
        let head = Self {
            unit: get_u64(bytes, 16),
            index: get_u64(bytes, 24),
            units: get_u32(bytes, 32),
            block: get_u32(bytes, 36),
        };
        let whole = |bytes: u64| bytes > 0 && bytes.is_multiple_of(head.block.into());
        let is_valid = head.block >= 4096
            && head.block.is_power_of_two()
            && u64::from(head.block) <= UNIT_HEAD_ROOM
            && whole(head.unit)
            && head.unit >= UNIT_MIN
            && whole(head.index)
            && head.unit / u64::from(head.block) <= u32::MAX.into()
            && head.device_len().is_some();
        if is_valid { Ok(head) } else { Err(FormatError::Damaged("no device is cut like this")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: UnitHead = UnitHead { unit: 96 << 20, index: 192 << 20, units: 1000, block: 4096 };

    #[test]
    fn a_head_is_read_as_it_was_written() {
        assert_eq!(UnitHead::decode(&HEAD.encode()), Ok(HEAD));
        assert_eq!(HEAD.device_len(), Some((1 << 20) + ((2 * 192 + 1000 * 96) << 20)));
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let mut newer = HEAD.encode();
        newer[8] = 2;
        seal(&mut newer, CRC_AT);
        assert_eq!(UnitHead::decode(&newer), Err(FormatError::Newer(2)));
        assert!(UnitHead::decode(&HEAD.encode()[..100]).is_err());
        for at in [0, 12, 17, 4095] {
            let mut bytes = HEAD.encode();
            bytes[at] ^= 1;
            assert!(UnitHead::decode(&bytes).is_err(), "{at}");
        }
        for wrong in [
            UnitHead { unit: 0, ..HEAD },
            UnitHead { unit: (96 << 20) + 1, ..HEAD },
            UnitHead { unit: 60 << 10, ..HEAD },
            UnitHead { index: !4095, ..HEAD },
            UnitHead { block: 512, ..HEAD },
            UnitHead { block: 0, ..HEAD },
        ] {
            assert!(UnitHead::decode(&wrong.encode()).is_err(), "{wrong:?}");
        }
    }
}
