//! The ranges that applications use now, for `balance` and its trials.

use super::shared::Movers;
use crate::heat::HotRange;
use braid_contract::{SplitMix, TierId};

/// Ranges that were used within so many seconds count as in use.
const IN_USE: u32 = 20;

/// The turn of a range: the first of each file's ranges lie evenly over the
/// file, so that a thread which passes through it changes tiers often, and at
/// other places in each file, so that not all threads change at once.
fn turn(ino: u64, range: u32) -> u64 {
    /// Multiples of the golden ratio leave gaps of at most three lengths.
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    u64::from(range).wrapping_mul(GOLDEN).wrapping_add(SplitMix::of(ino, 0).next_u64())
}

/// Those of the ranges that are on a tier, in the order of their turns.
pub(super) fn on_tier(mut spots: Vec<HotRange>, tier: TierId) -> Vec<HotRange> {
    spots.retain(|spot| spot.record.tier == tier);
    spots.sort_by_key(|spot| turn(spot.file.ino, spot.range));
    spots
}

impl Movers {
    /// The ranges in use.
    pub(super) fn in_use(&self) -> Vec<HotRange> {
        self.heat.refresh();
        let now = self.heat.now();
        self.heat.table().used_since(now.saturating_sub(IN_USE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_turns_lie_evenly_over_each_file() {
        let first = |ino: u64, part: usize| -> Vec<u32> {
            let mut ranges: Vec<u32> = (0..64).collect();
            ranges.sort_by_key(|range| turn(ino, *range));
            ranges.truncate(part);
            ranges.sort_unstable();
            ranges
        };
        for ino in 1..50 {
            for part in [4, 13, 16, 40] {
                let found = first(ino, part);
                let widest = found.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
                assert!(f64::from(widest) <= 3.0 * 64.0 / part as f64, "{ino}: {found:?}");
            }
        }
        let places: std::collections::BTreeSet<Vec<u32>> = (1..50).map(|ino| first(ino, 13)).collect();
        assert!(places.len() > 20, "{}", places.len());
    }
}
