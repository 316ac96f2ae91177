//! The sum of an index's entries, and that of all indexes.

use super::raw_index::{RawEntry, RawIndex};
use crate::target::CheckTarget;
use braid_contract::{Result, TierId};
use braid_format::{Entry, RangeSize};
use std::collections::BTreeMap;
use std::ops::Range;

/// The number of ranges that an index places on each tier.
pub(crate) type RangesByTier = BTreeMap<TierId, u64>;

/// The sum of an index's entries.
pub(crate) struct Tally {
    /// Size of the file in bytes.
    pub(crate) size: u64,
    pub(crate) range_size: RangeSize,
    /// Tiers that hold ranges of it, as bits.
    pub(crate) tiers: u64,
    /// Valid entries below the size.
    pub(crate) valid: u64,
    /// Damaged entries below the size.
    pub(crate) damaged: Vec<RawEntry>,
    /// Entries at or after the size.
    pub(crate) beyond: u64,
    /// Ranges on a tier that the volume does not have (any more), with its
    /// number.
    pub(crate) nowhere: Vec<(u64, TierId)>,
    /// End of the last range that home holds, in bytes.
    pub(crate) home_end: u64,
    /// The tier of the last range.
    pub(crate) last: Option<TierId>,
    /// Ranges that the index places, below the size or not.
    pub(crate) placed: RangesByTier,
}

impl Tally {
    /// Goes through the entries of a file of `size` bytes.
    pub(crate) fn of(
        index: &RawIndex,
        target: &CheckTarget<'_>,
        size: u64,
        range_size: RangeSize,
    ) -> Result<Self> {
        let mut tally = Self {
            size,
            range_size,
            tiers: 0,
            valid: 0,
            damaged: Vec::new(),
            beyond: 0,
            nowhere: Vec::new(),
            home_end: 0,
            last: None,
            placed: RangesByTier::new(),
        };
        let reserved = index.reserved()?;
        index.for_each(|raw| {
            if let Ok(entry) = raw.entry {
                *tally.placed.entry(entry.tier).or_default() += 1;
            }
            let start = range_size.start_of(raw.range);
            match raw.entry {
                _ if start >= size => tally.beyond += u64::from(start >= reserved),
                Ok(entry) => tally.add(target, raw.range, entry),
                Err(_) => tally.damaged.push(raw),
            }
            Ok(())
        })?;
        Ok(tally)
    }

    fn add(&mut self, target: &CheckTarget<'_>, range: u64, entry: Entry) {
        self.valid += 1;
        self.last = Some(entry.tier);
        if !target.is_tier(entry.tier) {
            self.nowhere.push((range, entry.tier));
            return;
        }
        self.tiers |= braid_tiers::bit(entry.tier);
        if entry.tier == target.home_id {
            self.home_end = self.bytes_of(range..range + 1).end;
        }
    }

    /// The bytes of ranges, as far as the file goes.
    pub(crate) fn bytes_of(&self, ranges: Range<u64>) -> Range<u64> {
        self.range_size.bytes_of(ranges, self.size)
    }
}

/// Counts the ranges that an index places on each tier, whatever their size.
pub(crate) fn ranges_placed(index: &RawIndex, target: &CheckTarget<'_>) -> Result<RangesByTier> {
    Ok(Tally::of(index, target, u64::MAX, target.range_size)?.placed)
}

/// The sum of all indexes.
pub(crate) struct Totals {
    /// Files with an id, by name.
    pub(crate) spread_files: u64,
    /// Ranges that they have.
    pub(crate) ranges: u64,
    /// Ranges on each tier number, also by indexes that no file leads to.
    pub(crate) by_tier: [u64; TierId::LIMIT as usize],
    /// An index named a tier number that the volume does not have.
    pub(crate) names_unknown_tier: bool,
}

impl Totals {
    pub(crate) fn new() -> Self {
        let by_tier = [0; TierId::LIMIT as usize];
        Self { spread_files: 0, ranges: 0, by_tier, names_unknown_tier: false }
    }

    pub(crate) fn add(&mut self, placed: &RangesByTier) {
        for (tier, ranges) in placed {
            if let Some(count) = self.by_tier.get_mut(usize::from(tier.0)) {
                *count += ranges;
            }
        }
    }

    pub(crate) fn subtract(&mut self, placed: &RangesByTier) {
        for (tier, ranges) in placed {
            if let Some(count) = self.by_tier.get_mut(usize::from(tier.0)) {
                *count -= ranges;
            }
        }
    }
}
