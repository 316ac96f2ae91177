//! Blocks of data that identify themselves, so that a reader knows which write
//! it sees: every 512-byte sector of a block carries the file, the block and
//! the version, and filling made from them.

use braid_testkit::SplitMix;
use std::collections::BTreeSet;

/// Bytes in a block.
pub(crate) const BLOCK: usize = 16 << 10;

const SECTOR: usize = 512;

/// The block `index` of `file` in this version.
pub(crate) fn block(file: u64, index: u64, version: u64) -> Vec<u8> {
    sector(file, index, version).repeat(BLOCK / SECTOR)
}

fn sector(file: u64, index: u64, version: u64) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    let mut random = SplitMix::new(file ^ index.rotate_left(20) ^ version.rotate_left(40));
    random.fill(&mut sector);
    for (place, number) in sector.chunks_exact_mut(8).zip([file, index, version]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    sector
}

/// The versions that a block's sectors are of; version 0 is zeros. `None` if a
/// sector holds anything that was never written there.
pub(crate) fn versions(data: &[u8], file: u64, index: u64) -> Option<BTreeSet<u64>> {
    let mut versions = BTreeSet::new();
    let mut last: Option<&[u8]> = None;
    for sector in data.chunks(SECTOR) {
        // Most sectors of a block are the same.
        if last != Some(sector) {
            versions.insert(sector_version(sector, file, index)?);
            last = Some(sector);
        }
    }
    Some(versions)
}

fn sector_version(found: &[u8], file: u64, index: u64) -> Option<u64> {
    if found.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let version = u64::from_le_bytes(found.get(16..24)?.try_into().ok()?);
    (sector(file, index, version).get(..found.len())? == found).then_some(version)
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
