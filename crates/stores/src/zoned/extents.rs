//! Where the blocks of an object are: runs of blocks in zones.

use std::collections::BTreeMap;
use std::ops::Range;

/// In place of the number of a zone: the device has lost the data.
pub(super) const LOST: u32 = u32::MAX;

/// Blocks that follow one another in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) zone: u32,
    /// The first block, from the beginning of the zone.
    pub(super) at: u32,
    pub(super) blocks: u32,
}

/// The places of an object's blocks, by its first block in each.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents(BTreeMap<u64, Place>);

impl Place {
    /// Keeps the part before a block of the zone, and answers how many blocks are
    /// behind it.
    pub(super) fn split_off(&mut self, from: u32) -> u32 {
        let kept = from.saturating_sub(self.at).min(self.blocks);
        let gone = self.blocks - kept;
        self.blocks = kept;
        gone
    }

    fn end_of(self, first: u64) -> u64 {
        first + u64::from(self.blocks)
    }

    /// The part from one of an object's blocks to another, of a place that begins
    /// with `first`.
    fn part(self, first: u64, part: Range<u64>) -> Self {
        let skipped = (part.start - first) as u32;
        Self { zone: self.zone, at: self.at + skipped, blocks: (part.end - part.start) as u32 }
    }
}

impl Extents {
    /// The blocks from `first` on are in this place now. Answers the places where
    /// they were before, as [`remove`](Self::remove) does.
    pub(super) fn put(&mut self, first: u64, place: Place) -> Vec<(u64, Place)> {
        let freed = self.remove(first..place.end_of(first));
        self.0.insert(first, place);
        freed
    }

    /// These blocks are nowhere any more. Answers the places where they were, each with
    /// its first block.
    pub(super) fn remove(&mut self, blocks: Range<u64>) -> Vec<(u64, Place)> {
        let mut freed = Vec::new();
        while let Some((first, place)) =
            self.0.range(..blocks.end).next_back().map(|(first, place)| (*first, *place))
            && place.end_of(first) > blocks.start
        {
            self.0.remove(&first);
            let end = place.end_of(first);
            let gone = first.max(blocks.start)..end.min(blocks.end);
            if end > gone.end {
                self.0.insert(gone.end, place.part(first, gone.end..end));
            }
            if first < gone.start {
                self.0.insert(first, place.part(first, first..gone.start));
            }
            freed.push((gone.start, place.part(first, gone)));
        }
        freed
    }

    /// The parts of the places that hold some of these blocks, each with its first
    /// block.
    pub(super) fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = (u64, Place)> + '_ {
        let before = self.0.range(..blocks.start).next_back();
        let from = before
            .filter(|(first, place)| place.end_of(**first) > blocks.start)
            .map_or(blocks.start, |(first, _)| *first);
        let span = from..blocks.end.max(from);
        self.0.range(span).map(move |(first, place)| {
            let part = (*first).max(blocks.start)..place.end_of(*first).min(blocks.end);
            (part.start, place.part(*first, part))
        })
    }

    /// All places.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Place)> + '_ {
        self.0.iter().map(|(first, place)| (*first, *place))
    }

    /// Number of blocks that are in zones.
    pub(super) fn blocks(&self) -> u64 {
        self.0.values().filter(|place| place.zone != LOST).map(|place| u64::from(place.blocks)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::SplitMix;

    #[test]
    fn it_is_what_a_table_of_blocks_is() {
        let (mut random, mut extents, mut table) = (SplitMix::new(5), Extents::default(), [None; 48]);
        for round in 0..3000u32 {
            let first = random.below(48);
            let blocks = 1 + random.below(48 - first);
            let range = first as usize..(first + blocks) as usize;
            let before: u64 = table[range.clone()].iter().flatten().count() as u64;
            let freed = if random.below(3) > 0 {
                let place = Place { zone: round, at: random.below(100) as u32, blocks: blocks as u32 };
                (range.clone()).zip(place.at..).for_each(|(block, at)| table[block] = Some((round, at)));
                extents.put(first, place)
            } else {
                table[range].fill(None);
                extents.remove(first..first + blocks)
            };
            assert_eq!(freed.iter().map(|(_, place)| u64::from(place.blocks)).sum::<u64>(), before);
            let probe = random.below(48);
            let probe = probe..probe + random.below(48 - probe + 1);
            let mut found = [None; 48];
            for (first, place) in extents.within(probe.clone()) {
                for skipped in 0..place.blocks {
                    found[(first + u64::from(skipped)) as usize] = Some((place.zone, place.at + skipped));
                }
            }
            let mut wanted = table;
            (0..48).filter(|block| !probe.contains(block)).for_each(|block| wanted[block as usize] = None);
            assert_eq!(found, wanted, "{probe:?}");
            assert_eq!(extents.blocks(), table.iter().flatten().count() as u64);
        }
    }
}
