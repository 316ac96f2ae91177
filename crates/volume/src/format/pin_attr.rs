//! The extended attribute of a file that movers leave where it is.

use super::FormatError;
use super::bytes::{crc_without, get_u32, put, seal};

/// Length without the tier's name.
const HEAD: usize = 8;
const VERSION: u8 = 1;

/// The attribute's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PinAttr {
    /// The tier that the file is pinned to; `None` if to wherever it is.
    pub(crate) tier: Option<String>,
}

impl PinAttr {
    /// Longest value: a tier's name has 48 bytes at most.
    pub(crate) const LEN_MAX: usize = HEAD + 48;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let name = self.tier.as_deref().unwrap_or("");
        let mut bytes = vec![0; HEAD + name.len()];
        bytes[0] = VERSION;
        put(&mut bytes, HEAD, name.as_bytes());
        seal(&mut bytes, 4);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let damaged = |what| Err(FormatError::Damaged(what));
        if bytes.len() < HEAD || bytes.len() > Self::LEN_MAX {
            return damaged("the pin attribute has the wrong length");
        }
        if bytes[0] > VERSION {
            return Err(FormatError::Newer(u16::from(bytes[0])));
        }
        if get_u32(bytes, 4) != crc_without(bytes, 4) {
            return damaged("the pin attribute's checksum does not match");
        }
        match std::str::from_utf8(&bytes[HEAD..]) {
            Ok("") => Ok(Self { tier: None }),
            Ok(name) => Ok(Self { tier: Some(name.to_owned()) }),
            Err(_) => damaged("the pin attribute names an impossible tier"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_notices_damage() {
        for tier in [None, Some("slow".to_owned()), Some("x".repeat(48))] {
            let attr = PinAttr { tier };
            let good = attr.encode();
            assert_eq!(PinAttr::decode(&good), Ok(attr));
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                assert!(PinAttr::decode(&bad).is_err(), "byte {at}");
                assert!(PinAttr::decode(&good[..at]).is_err(), "cut at {at}");
            }
        }
    }
}
