//! The extended attribute of a file that movers leave in place.

use crate::FormatError;
use crate::bytes::{crc_without, get, get_u32, get_u64, put, seal};
use crate::seal::{Proof, Seal};

const VERSION: u8 = 2;
/// Length without the tier's name.
const HEAD: usize = 40;
const HEAD_1: usize = 8;
const VOLUME_AT: usize = 24;
const MAC_AT: usize = 32;
const NAME_MAX: usize = 48;
const DAMAGED: &str = "the pin attribute's checksum does not match";

/// The contents of the attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PinAttr {
    /// The tier that the file is pinned to; `None` for its present place.
    pub tier: Option<String>,
}

/// The attribute's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredPin {
    /// The contents of the attribute.
    pub pin: PinAttr,
    /// Number and birth time of the inode that it was written for; `None` in
    /// version 1.
    pub of: Option<(u64, i64)>,
    /// Whether Braid wrote it.
    pub proof: Proof,
}

impl PinAttr {
    /// Longest value: a tier's name has 48 bytes at most.
    pub const LEN_MAX: usize = HEAD + NAME_MAX;

    /// The value for the inode with this number and birth time, on a volume
    /// with this seal: of version 1 where it has no key.
    pub fn encode(&self, (ino, btime_ns): (u64, i64), seal_of: &Seal) -> Vec<u8> {
        let name = self.tier.as_deref().unwrap_or("");
        if seal_of.secret.is_none() {
            let mut bytes = vec![0; HEAD_1 + name.len()];
            bytes[0] = 1;
            put(&mut bytes, HEAD_1, name.as_bytes());
            seal(&mut bytes, 4);
            return bytes;
        }
        let mut bytes = vec![0; HEAD + name.len()];
        bytes[0] = VERSION;
        put(&mut bytes, 8, &ino.to_le_bytes());
        put(&mut bytes, 16, &btime_ns.to_le_bytes());
        put(&mut bytes, HEAD, name.as_bytes());
        seal_of.put(&mut bytes, VOLUME_AT, MAC_AT);
        bytes
    }

    /// Decodes a value.
    pub fn decode(bytes: &[u8], seal_of: &Seal) -> Result<StoredPin, FormatError> {
        let version = bytes.first().copied().unwrap_or(0);
        if version > VERSION {
            return Err(FormatError::Newer(u16::from(version)));
        }
        let head = if version == VERSION { HEAD } else { HEAD_1 };
        if bytes.len() < head || bytes.len() > head + NAME_MAX || version == 0 {
            return Err(FormatError::Damaged("the pin attribute has the wrong length"));
        }
        let tier = match std::str::from_utf8(&bytes[head..]) {
            Ok("") => None,
            Ok(name) => Some(name.to_owned()),
            Err(_) => return Err(FormatError::Damaged("the pin attribute names an impossible tier")),
        };
        let pin = Self { tier };
        if version == VERSION {
            let proof = seal_of.proof(bytes, VOLUME_AT, MAC_AT, DAMAGED)?;
            let of = Some((get_u64(bytes, 8), i64::from_le_bytes(get(bytes, 16))));
            return Ok(StoredPin { pin, of, proof });
        }
        if get_u32(bytes, 4) != crc_without(bytes, 4) {
            return Err(FormatError::Damaged(DAMAGED));
        }
        Ok(StoredPin { pin, of: None, proof: seal_of.proof_of_old() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::TEST_SEAL as SEAL;

    fn pins() -> [PinAttr; 3] {
        [None, Some("slow".to_owned()), Some("x".repeat(48))].map(|tier| PinAttr { tier })
    }

    #[test]
    fn round_trips_and_notices_damage() {
        let keyless = Seal { secret: None, ..SEAL };
        for (seal, of, proof) in [(SEAL, Some((7, -1)), Proof::Sealed), (keyless, None, Proof::Old)] {
            for pin in pins() {
                let good = pin.encode((7, -1), &seal);
                assert_eq!(PinAttr::decode(&good, &seal), Ok(StoredPin { pin, of, proof }));
                for at in 0..good.len() {
                    let mut bad = good.clone();
                    bad[at] ^= 0x10;
                    assert!(PinAttr::decode(&bad, &seal).is_err(), "byte {at}");
                    assert!(PinAttr::decode(&good[..at], &seal).is_err(), "cut at {at}");
                }
            }
        }
    }

    #[test]
    fn what_braid_did_not_write_is_known() {
        let keyless = Seal { secret: None, ..SEAL };
        for pin in pins() {
            let good = pin.encode((7, -1), &SEAL);
            for at in (8..good.len()).filter(|at| !(VOLUME_AT..VOLUME_AT + 8).contains(at)) {
                let mut lie = good.clone();
                lie[at] ^= 1;
                seal(&mut lie, 4);
                assert_eq!(PinAttr::decode(&lie, &SEAL).unwrap().proof, Proof::Forged, "byte {at}");
            }
            let old = pin.encode((7, -1), &keyless);
            assert_eq!(PinAttr::decode(&old, &SEAL).unwrap().proof, Proof::TooOld);
        }
    }
}
