//! The proof that an attribute is Braid's own: a key that only the daemon can
//! read, and a MAC computed with it.

use crate::FormatError;
use crate::bytes::{crc_without, get, get_u32, put};
use braid_contract::VolumeId;
use siphasher::sip::SipHasher24;
use std::fmt;

/// Length of a volume's key in bytes.
pub(super) const KEY_LEN: usize = 16;
const CRC_AT: usize = 4;

/// The secret of a volume of version 2, in its table and in its labels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    /// Random, created with the volume.
    pub key: [u8; KEY_LEN],
    /// Whether the volume was created as one of version 1: there may be
    /// attributes without a MAC.
    pub was_version_1: bool,
}

impl fmt::Debug for Secret {
    /// The key stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("was_version_1", &self.was_version_1).finish_non_exhaustive()
    }
}

/// Seals attributes, and checks their seals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// The volume.
    pub volume: VolumeId,
    /// `None` for a volume of version 1, whose attributes are of version 1.
    pub secret: Option<Secret>,
}

/// The origin of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Its MAC is right.
    Sealed,
    /// It is of version 1, and the volume has such attributes.
    Old,
    /// It is of version 1, and the volume never was.
    TooOld,
    /// It claims another volume, whose id begins with these bytes.
    OtherVolume([u8; 8]),
    /// It claims this volume, and its MAC is wrong.
    Forged,
}

impl Proof {
    /// Checks whether the attribute can be trusted.
    ///
    /// # Errors
    /// Why not.
    pub fn check(self) -> Result<(), String> {
        match self {
            Self::Sealed | Self::Old => Ok(()),
            Self::TooOld => Err("it is of version 1, which this volume never had".into()),
            Self::OtherVolume(volume) => {
                let volume: String = volume.iter().map(|byte| format!("{byte:02x}")).collect();
                Err(format!("it is of another volume, whose id begins with {volume}"))
            }
            Self::Forged => Err("its MAC is wrong: Braid did not write it on this volume".into()),
        }
    }
}

impl Seal {
    /// Writes volume, MAC and CRC into an otherwise complete attribute: the CRC
    /// at 4, the others at the given offsets.
    pub(super) fn put(&self, bytes: &mut [u8], volume_at: usize, mac_at: usize) {
        put(bytes, volume_at, &self.volume.0[..8]);
        if let Some(secret) = &self.secret {
            let mac = mac(secret, bytes, mac_at);
            put(bytes, mac_at, &mac.to_le_bytes());
        }
        crate::bytes::seal(bytes, CRC_AT);
    }

    /// Checks the bytes written by [`put`](Self::put).
    pub(super) fn proof(
        &self,
        bytes: &[u8],
        volume_at: usize,
        mac_at: usize,
        damaged: &'static str,
    ) -> Result<Proof, FormatError> {
        if get_u32(bytes, CRC_AT) != crc_without(bytes, CRC_AT) {
            return Err(FormatError::Damaged(damaged));
        }
        let volume = get::<8>(bytes, volume_at);
        Ok(match &self.secret {
            _ if volume != self.volume.0[..8] => Proof::OtherVolume(volume),
            Some(secret) if get(bytes, mac_at) == mac(secret, bytes, mac_at).to_le_bytes() => Proof::Sealed,
            _ => Proof::Forged,
        })
    }

    /// The proof of an attribute of version 1.
    pub(super) fn proof_of_old(&self) -> Proof {
        if self.secret.is_none_or(|secret| secret.was_version_1) { Proof::Old } else { Proof::TooOld }
    }
}

/// The MAC of an attribute, computed with zeros in place of itself and of the
/// CRC.
fn mac(secret: &Secret, bytes: &[u8], mac_at: usize) -> u64 {
    let mut bare = bytes.to_vec();
    bare[CRC_AT..CRC_AT + 4].fill(0);
    bare[mac_at..mac_at + 8].fill(0);
    SipHasher24::new_with_key(&secret.key).hash(&bare)
}

#[cfg(test)]
pub(crate) const TEST_SEAL: Seal =
    Seal { volume: VolumeId([9; 16]), secret: Some(Secret { key: [7; 16], was_version_1: false }) };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_siphash_2_4() {
        // The example of the paper by Aumasson and Bernstein: key 00 … 0f,
        // message 00 … 0e.
        let key = std::array::from_fn(|at| at as u8);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(SipHasher24::new_with_key(&key).hash(&message), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn the_key_is_not_printed() {
        let text = format!("{:?}", Secret { key: [0xab; 16], was_version_1: true });
        assert_eq!(text, "Secret { was_version_1: true, .. }");
    }
}
