//! A file in a simulation: the tiers of its ranges, and how much of each is
//! filled.

use super::outcome::PlacedBy;
use crate::credits::Credits;
use braid_contract::TierId;
use braid_format::RangeSize;
use std::collections::BTreeMap;
use std::ops::Range;

/// A file.
pub(super) struct File {
    pub(super) credits: Credits,
    /// How ranges are dealt that are set aside before there is data.
    pub(super) set_aside: Credits,
    pub(super) size: u64,
    /// Bytes before this one existed before the trace; their tiers are decided
    /// when they are touched.
    pub(super) found: u64,
    pub(super) spread: bool,
    ranges: BTreeMap<u64, Filled>,
    number: u64,
    range_size: RangeSize,
    /// Whether the range size is fixed.
    settled: bool,
}

/// A range with a tier.
#[derive(Clone, Copy)]
struct Filled {
    tier: TierId,
    /// Its bytes that take space.
    bytes: u64,
    /// Its space is set aside, by whom; its first write decides anew.
    set_aside: Option<PlacedBy>,
}

/// A run of bytes on one tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) tier: TierId,
    pub(super) bytes: u64,
}

impl File {
    /// A file with `size` bytes, and ranges of this size unless it is
    /// [settled](Self::settle) otherwise.
    pub(super) fn new(number: u64, size: u64, range_size: RangeSize) -> Self {
        Self {
            credits: Credits::new(number, range_size.get()),
            set_aside: Credits::new(number, range_size.get()),
            size,
            found: size,
            // Its layout under the policy is unknown; the policy goes on as if
            // it had been spread.
            spread: size > range_size.bytes(),
            ranges: BTreeMap::new(),
            number,
            range_size,
            settled: false,
        }
    }

    /// Fixes the size of its ranges.
    pub(super) fn settle(&mut self, range_size: RangeSize) {
        if range_size != self.range_size {
            // The growth since then is holes.
            *self = Self { size: self.size, ..Self::new(self.number, self.found, range_size) };
        }
        self.settled = true;
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    /// The credits of a file without ranges.
    pub(super) fn fresh_deal(&self) -> Credits {
        Credits::new(self.number, self.range_size.get())
    }

    /// Bytes of a range.
    pub(super) fn range_size(&self) -> u64 {
        self.range_size.bytes()
    }

    /// The ranges of bytes `offset .. end`.
    pub(super) fn ranges_of(&self, offset: u64, end: u64) -> Range<u64> {
        let range_size = self.range_size();
        if offset < end { offset / range_size..end.div_ceil(range_size) } else { 0..0 }
    }

    pub(super) fn is_placed(&self, range: u64) -> bool {
        self.ranges.contains_key(&range)
    }

    /// Whether the range has no tier that a write keeps.
    pub(super) fn is_undealt(&self, range: u64) -> bool {
        self.ranges.get(&range).is_none_or(|filled| filled.set_aside.is_some())
    }

    /// Whether the range existed before the trace.
    pub(super) fn is_found(&self, range: u64) -> bool {
        range * self.range_size() < self.found
    }

    /// Bytes of a range from before the trace.
    pub(super) fn found_bytes(&self, range: u64) -> u64 {
        (self.found - range * self.range_size()).min(self.range_size())
    }

    /// Number of ranges with a tier.
    pub(super) fn placed_count(&self) -> u64 {
        self.ranges.len() as u64
    }

    pub(super) fn put(&mut self, range: u64, tier: TierId) {
        self.ranges.insert(range, Filled { tier, bytes: 0, set_aside: None });
    }

    /// Notes that the space of a range was set aside.
    pub(super) fn sets_aside(&mut self, range: u64, by: PlacedBy) {
        if let Some(filled) = self.ranges.get_mut(&range) {
            filled.set_aside = Some(by);
        }
    }

    /// Takes back space that is set aside for a range; answers it, and by whom.
    pub(super) fn take_back(&mut self, range: u64) -> Option<(Piece, PlacedBy)> {
        let by = self.ranges.get(&range)?.set_aside?;
        let filled = self.ranges.remove(&range)?;
        Some((Piece { tier: filled.tier, bytes: filled.bytes }, by))
    }

    /// The tier on which space for the range is set aside.
    pub(super) fn set_aside_on(&self, range: u64) -> Option<TierId> {
        self.ranges.get(&range).filter(|filled| filled.set_aside.is_some()).map(|filled| filled.tier)
    }

    /// Makes bytes `offset .. end` take space, on the tiers of their ranges.
    /// Answers how much more than before on each.
    pub(super) fn fill(&mut self, offset: u64, end: u64) -> Vec<Piece> {
        let range_size = self.range_size();
        let mut more = Vec::new();
        for range in self.ranges_of(offset, end) {
            let Some(filled) = self.ranges.get_mut(&range) else { continue };
            let bytes = (end - range * range_size).min(range_size);
            if bytes > filled.bytes {
                more.push(Piece { tier: filled.tier, bytes: bytes - filled.bytes });
                filled.bytes = bytes;
            }
        }
        more
    }

    /// The tiers of bytes `offset .. end`, without holes.
    pub(super) fn pieces(&self, offset: u64, end: u64) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::with_capacity(1);
        let mut joins = false;
        for range in self.ranges_of(offset, end) {
            let start = range * self.range_size();
            let bytes = (start + self.range_size()).min(end) - start.max(offset);
            match (self.ranges.get(&range), pieces.last_mut()) {
                (None, _) => joins = false,
                (Some(filled), Some(last)) if joins && last.tier == filled.tier => last.bytes += bytes,
                (Some(filled), _) => {
                    pieces.push(Piece { tier: filled.tier, bytes });
                    joins = true;
                }
            }
        }
        pieces
    }

    /// Sets the file's size. Answers the space that this frees.
    pub(super) fn cut(&mut self, size: u64) -> Vec<Piece> {
        let range_size = self.range_size();
        let gone = self.ranges.split_off(&size.div_ceil(range_size));
        let mut freed: Vec<Piece> =
            gone.into_values().map(|filled| Piece { tier: filled.tier, bytes: filled.bytes }).collect();
        if let Some(filled) = self.ranges.get_mut(&(size / range_size)) {
            let kept = filled.bytes.min(size % range_size);
            freed.push(Piece { tier: filled.tier, bytes: filled.bytes - kept });
            filled.bytes = kept;
        }
        (self.size, self.found) = (size, self.found.min(size));
        if size == 0 {
            (self.spread, self.settled) = (false, false);
            (self.credits, self.set_aside) = (self.fresh_deal(), self.fresh_deal());
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 16;

    fn piece(tier: u8, bytes: u64) -> Piece {
        Piece { tier: TierId(tier), bytes }
    }

    #[test]
    fn pieces_run_as_far_as_the_tier_does_and_holes_are_left_out() {
        let mut file = File::new(1, 0, RangeSize::new(K as u32).unwrap());
        for (range, tier) in [(0, 0), (1, 0), (2, 1), (4, 1), (5, 1)] {
            file.put(range, TierId(tier));
        }
        assert_eq!(file.pieces(K / 2, 6 * K - 40), [piece(0, 3 * K / 2), piece(1, K), piece(1, 2 * K - 40)]);
        assert_eq!(file.pieces(3 * K + 10, 3 * K + 20), []);
        assert_eq!(file.pieces(10, 10), []);
    }

    #[test]
    fn space_is_taken_once_and_given_back() {
        let mut file = File::new(1, 0, RangeSize::new(K as u32).unwrap());
        (0..3).for_each(|range| file.put(range, TierId(range as u8)));
        assert_eq!(file.fill(0, K + 50), [piece(0, K), piece(1, 50)]);
        assert_eq!(file.fill(K + 20, 2 * K + 10), [piece(1, K - 50), piece(2, 10)]);
        assert_eq!(file.fill(0, 2 * K + 10), []);
        assert_eq!(file.cut(K + 30), [piece(2, 10), piece(1, K - 30)]);
        assert_eq!((file.size, file.placed_count()), (K + 30, 2));
        assert_eq!(file.cut(0).iter().map(|piece| piece.bytes).sum::<u64>(), K + 30);
    }
}
