//! Blocks of data that say what they are, so that a reader knows which write
//! it sees: every 512-byte sector of a block carries the file, the block and
//! the version, and a filling made from them.

use crate::random::Random;
use std::collections::BTreeSet;

/// Bytes in a block.
pub(crate) const BLOCK: usize = 16 << 10;

const SECTOR: usize = 512;

/// The block `index` of `file` in this version.
pub(crate) fn block(file: u64, index: u64, version: u64) -> Vec<u8> {
    let mut sector = vec![0; SECTOR];
    let mut random = Random::new(file ^ index.rotate_left(20) ^ version.rotate_left(40));
    random.fill(&mut sector);
    for (place, number) in sector.chunks_exact_mut(8).zip([file, index, version]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    sector.repeat(BLOCK / SECTOR)
}

/// The versions that a block's sectors are of; version 0 is zeros. `None` if a
/// sector holds anything that was never written there.
pub(crate) fn versions(data: &[u8], file: u64, index: u64) -> Option<BTreeSet<u64>> {
    data.chunks(SECTOR).map(|sector| sector_version(sector, file, index)).collect()
}

fn sector_version(sector: &[u8], file: u64, index: u64) -> Option<u64> {
    if sector.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let version = u64::from_le_bytes(sector.get(16..24)?.try_into().ok()?);
    (block(file, index, version).get(..sector.len())? == sector).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_tells_its_version() {
        assert_eq!(versions(&block(1, 2, 3), 1, 2), Some([3].into()));
        assert_eq!(versions(&[0; BLOCK], 1, 2), Some([0].into()));
    }

    #[test]
    fn another_place_or_a_changed_byte_is_noticed() {
        let mut data = block(1, 2, 3);
        assert_eq!(versions(&data, 1, 3), None);
        assert_eq!(versions(&data, 2, 2), None);
        data[BLOCK - 1] ^= 1;
        assert_eq!(versions(&data, 1, 2), None);
    }

    #[test]
    fn a_mixture_shows_both_versions() {
        let mut data = block(1, 2, 3);
        data[..SECTOR].copy_from_slice(&block(1, 2, 7)[..SECTOR]);
        assert_eq!(versions(&data, 1, 2), Some([3, 7].into()));
    }
}
