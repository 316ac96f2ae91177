//! From the bytes of a frame to those of a slot, and back: compressed, if that
//! saves a block, then encrypted or summed.

use super::geometry::HEADERS;
use super::header::{Coding, Header};
use braid_contract::{Errno, Error, Result};
use chacha20poly1305::{AeadInOut, XChaCha20Poly1305};
use rustix::rand::{GetRandomFlags, getrandom};
use std::cell::RefCell;
use twox_hash::XxHash3_128;
use zstd::bulk::{Compressor, Decompressor};

/// How frames are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    Lz4,
    /// With this level.
    Zstd(i32),
}

/// The blocks in which native file systems give out space.
pub(crate) const BLOCK: u64 = HEADERS;

/// So many bytes in whole blocks.
pub(crate) fn in_blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK)
}

thread_local! {
    /// With the level that it is for.
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Seals and opens the frames of one file.
pub(crate) struct Seal {
    pub(crate) id: [u8; 16],
    pub(crate) cipher: Option<XChaCha20Poly1305>,
}

/// The frame that is sealed, and the number of the write.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) frame: u64,
    pub(crate) sequence: u64,
    pub(crate) instance: u32,
}

impl Seal {
    /// The bytes of the slot for those of the frame, and their header. Without any, the
    /// frame is a hole.
    pub(crate) fn seal(&self, stamp: Stamp, plain: &[u8], codec: Option<Codec>) -> Result<(Header, Vec<u8>)> {
        let (coding, mut bytes) = match plain {
            [] => (Coding::Hole, Vec::new()),
            plain => compressed(plain, codec).unwrap_or_else(|| (Coding::Raw, plain.to_vec())),
        };
        let mut header = Header {
            sequence: stamp.sequence,
            len: plain.len() as u32,
            stored: bytes.len() as u32,
            coding,
            is_sealed: self.cipher.is_some(),
            instance: stamp.instance,
            nonce: [0; 24],
            check: [0; 16],
        };
        header.check = match &self.cipher {
            Some(cipher) => {
                fill_random(&mut header.nonce)?;
                let bound = self.bound(stamp.frame, &header);
                let tag =
                    cipher.encrypt_inout_detached(&header.nonce.into(), &bound, (&mut bytes[..]).into());
                tag.map_err(|_| Error::new(Errno::EIO, "a frame can't be encrypted"))?.into()
            }
            None => self.sum(stamp.frame, &header, &bytes),
        };
        Ok((header, bytes))
    }

    /// The bytes of the frame, up to the length in the header, for those of the slot;
    /// `None` if they are damaged.
    pub(crate) fn open(&self, frame: u64, header: &Header, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        match &self.cipher {
            Some(cipher) if header.is_sealed => {
                let bound = self.bound(frame, header);
                let (nonce, tag) = (header.nonce.into(), header.check.into());
                cipher.decrypt_inout_detached(&nonce, &bound, (&mut bytes[..]).into(), &tag).ok()?;
            }
            None if !header.is_sealed => {
                if self.sum(frame, header, &bytes) != header.check {
                    return None;
                }
            }
            _ => return None,
        }
        let plain = expanded(header, bytes)?;
        (plain.len() == header.len as usize).then_some(plain)
    }

    /// The data that a frame is bound to.
    fn bound(&self, frame: u64, header: &Header) -> [u8; 48] {
        let mut bound = [0; 48];
        bound[..16].copy_from_slice(&self.id);
        bound[16..24].copy_from_slice(&frame.to_le_bytes());
        bound[24..].copy_from_slice(&header.fields());
        bound
    }

    fn sum(&self, frame: u64, header: &Header, bytes: &[u8]) -> [u8; 16] {
        let mut summed = [0; 64];
        summed[..48].copy_from_slice(&self.bound(frame, header));
        summed[48..].copy_from_slice(&XxHash3_128::oneshot(bytes).to_le_bytes());
        XxHash3_128::oneshot(&summed).to_le_bytes()
    }
}

/// Unpredictable bytes.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<()> {
    // So few come all at once.
    let count = getrandom(&mut *bytes, GetRandomFlags::empty())?;
    if count == bytes.len() {
        Ok(())
    } else {
        Err(Error::new(Errno::EIO, "the kernel gives no random bytes"))
    }
}

/// The compressed form, if it takes fewer blocks.
fn compressed(plain: &[u8], codec: Option<Codec>) -> Option<(Coding, Vec<u8>)> {
    let most = in_blocks(plain.len() as u64).checked_sub(BLOCK).filter(|most| *most > 0)? as usize;
    match codec? {
        Codec::Lz4 => {
            let mut bytes = vec![0; lz4_flex::block::get_maximum_output_size(plain.len())];
            let len = lz4_flex::block::compress_into(plain, &mut bytes).ok()?;
            bytes.truncate(len);
            (len <= most).then_some((Coding::Lz4, bytes))
        }
        Codec::Zstd(level) => COMPRESSOR.with_borrow_mut(|kept| {
            if kept.as_ref().is_none_or(|(of, _)| *of != level) {
                *kept = Some((level, Compressor::new(level).ok()?));
            }
            let (_, compressor) = kept.as_mut()?;
            let mut bytes = vec![0; most];
            // It fails where there is too little room.
            let len = compressor.compress_to_buffer(plain, &mut bytes).ok()?;
            bytes.truncate(len);
            Some((Coding::Zstd, bytes))
        }),
    }
}

fn expanded(header: &Header, bytes: Vec<u8>) -> Option<Vec<u8>> {
    let len = header.len as usize;
    match header.coding {
        Coding::Hole => Some(Vec::new()),
        Coding::Raw => Some(bytes),
        Coding::Lz4 => lz4_flex::block::decompress(&bytes, len).ok(),
        Coding::Zstd => DECOMPRESSOR.with_borrow_mut(|kept| {
            if kept.is_none() {
                *kept = Some(Decompressor::new().ok()?);
            }
            kept.as_mut()?.decompress(&bytes, len).ok()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chacha20poly1305::KeyInit;

    const STAMP: Stamp = Stamp { frame: 9, sequence: 5, instance: 3 };

    fn seals() -> [Seal; 2] {
        let cipher = XChaCha20Poly1305::new(&[4; 32].into());
        [None, Some(cipher)].map(|cipher| Seal { id: [1; 16], cipher })
    }

    /// Bytes of which about so many in a hundred are by chance.
    fn bytes(len: usize, chance: u64) -> Vec<u8> {
        let mut random = braid_contract::SplitMix::new(7);
        (0..len).map(|_| if random.below(100) < chance { random.next_u64() as u8 } else { 5 }).collect()
    }

    #[test]
    fn a_frame_comes_back_from_its_slot() {
        let codecs = [None, Some(Codec::Lz4), Some(Codec::Zstd(3)), Some(Codec::Zstd(-1))];
        for (seal, codec) in seals().iter().flat_map(|seal| codecs.map(|codec| (seal, codec))) {
            for (len, chance) in [(1, 0), (100, 50), (4096, 0), (65536, 0), (65536, 30), (65536, 100), (0, 0)]
            {
                let plain = bytes(len, chance);
                let (header, stored) = seal.seal(STAMP, &plain, codec).unwrap();
                assert_eq!(header.stored as usize, stored.len());
                assert!(stored.len() <= len);
                let is_smaller = header.coding != Coding::Raw && len > 0;
                assert_eq!(
                    is_smaller,
                    codec.is_some() && len > 4096 && chance < 100,
                    "{codec:?} {len} {chance}"
                );
                assert_eq!(seal.open(STAMP.frame, &header, stored), Some(plain));
            }
        }
    }

    #[test]
    fn damage_and_what_belongs_elsewhere_is_told() {
        let plain = bytes(5000, 100);
        for seal in seals() {
            let (header, stored) = seal.seal(STAMP, &plain, None).unwrap();
            let open = |header: &Header, stored: &[u8]| seal.open(STAMP.frame, header, stored.to_vec());
            assert_eq!(open(&header, &stored).as_ref(), Some(&plain));
            assert_eq!(seal.open(8, &header, stored.clone()), None, "another frame");
            let of_another = Seal { id: [2; 16], cipher: seal.cipher.clone() };
            assert_eq!(of_another.open(STAMP.frame, &header, stored.clone()), None, "another file");
            for at in [0, 4095, 4999] {
                let mut stored = stored.clone();
                stored[at] ^= 1;
                assert_eq!(open(&header, &stored), None);
            }
            for changed in [
                Header { sequence: 6, ..header },
                Header { len: 4999, ..header },
                Header { instance: 4, ..header },
                Header { is_sealed: !header.is_sealed, ..header },
                Header { coding: Coding::Zstd, ..header },
                Header { coding: Coding::Hole, len: 0, ..header },
            ] {
                assert_eq!(open(&changed, &stored), None, "{changed:?}");
            }
        }
    }

    #[test]
    fn no_nonce_is_used_again() {
        let [_, seal] = seals();
        let nonces = [(); 3].map(|()| seal.seal(STAMP, b"same", None).unwrap().0.nonce);
        assert!(nonces[0] != nonces[1] && nonces[1] != nonces[2] && nonces[0] != nonces[2]);
    }
}
