//! The range size of a file, and the bytes of each range.

use crate::FormatError;
use std::ops::Range;

/// Smallest range size in bytes.
pub const RANGE_SIZE_MIN: u32 = 64 << 10;
/// Largest range size in bytes.
pub const RANGE_SIZE_MAX: u32 = 64 << 20;
/// Range size of a new volume, unless its stack file says otherwise, in bytes.
pub const RANGE_SIZE_DEFAULT: u32 = 2 << 20;

/// The size of a range: a power of two from [`RANGE_SIZE_MIN`] to
/// [`RANGE_SIZE_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RangeSize(u32);

impl Default for RangeSize {
    fn default() -> Self {
        Self(RANGE_SIZE_DEFAULT)
    }
}

impl RangeSize {
    /// A range of so many bytes; `None` if that is not a valid size.
    #[must_use]
    pub fn new(bytes: u32) -> Option<Self> {
        let good = bytes.is_power_of_two() && (RANGE_SIZE_MIN..=RANGE_SIZE_MAX).contains(&bytes);
        good.then_some(Self(bytes))
    }

    /// In bytes, as it is stored.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    /// Decodes a stored size.
    pub fn decode(bytes: u32) -> Result<Self, FormatError> {
        Self::new(bytes).ok_or(FormatError::Damaged("its range size is impossible"))
    }

    /// Its position among all sizes, smallest first.
    fn place(self) -> u32 {
        self.0.ilog2() - RANGE_SIZE_MIN.ilog2()
    }

    /// All sizes, largest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (RANGE_SIZE_MIN.ilog2()..=RANGE_SIZE_MAX.ilog2()).rev().map(|bits| Self(1 << bits))
    }

    /// The size in bytes.
    pub fn bytes(self) -> u64 {
        self.0.into()
    }

    /// Number of the range that `offset` is in.
    pub fn range_of(self, offset: u64) -> u64 {
        offset / self.bytes()
    }

    /// Offset at which a range begins. The number of a range that no file can
    /// have, as in a damaged index, leads beyond all files.
    pub fn start_of(self, range: u64) -> u64 {
        range.saturating_mul(self.bytes())
    }

    /// Bytes from `offset` to the end of its range.
    pub fn rest_of(self, offset: u64) -> u64 {
        self.bytes() - offset % self.bytes()
    }

    /// The start of the range at `offset`, or of the next one.
    pub fn round_up(self, offset: u64) -> u64 {
        self.start_of(self.count(offset))
    }

    /// The range whose part tells the size of a file, where the index has `size`
    /// and says that the file may have grown up to `end` since
    /// ([`GROWS_TO_AT`](crate::GROWS_TO_AT)); `None` if the size is that of the
    /// index.
    pub fn grown_range(self, size: u64, end: u64) -> Option<u64> {
        let may_have = end != 0 && (end.saturating_sub(self.bytes())..=end).contains(&size);
        may_have.then(|| self.range_of(end - 1))
    }

    /// Number of ranges of a file with so many bytes.
    pub fn count(self, size: u64) -> u64 {
        size.div_ceil(self.bytes())
    }

    /// The ranges of the bytes `offset .. end`; none if these are empty.
    pub fn ranges_of(self, offset: u64, end: u64) -> Range<u64> {
        if offset >= end { 0..0 } else { self.range_of(offset)..self.count(end) }
    }

    /// The bytes of ranges, up to the end of a file of `size` bytes.
    pub fn bytes_of(self, ranges: Range<u64>, size: u64) -> Range<u64> {
        self.start_of(ranges.start).min(size)..self.start_of(ranges.end).min(size)
    }
}

/// Sizes of ranges: a set of them, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RangeSizes(u16);

impl RangeSizes {
    /// Decodes stored sizes; bits without a size are ignored.
    pub fn decode(bits: u16) -> Self {
        let all = RangeSize::all().fold(0, |all, size| all | 1 << size.place());
        Self(bits & all)
    }

    /// As it is stored.
    pub fn get(self) -> u16 {
        self.0
    }

    /// Adds a size.
    pub fn insert(&mut self, size: RangeSize) {
        self.0 |= 1 << size.place();
    }

    /// Whether the size is one of them.
    pub fn contains(self, size: RangeSize) -> bool {
        self.0 & 1 << size.place() != 0
    }
}

impl std::ops::BitOr for RangeSizes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_that_tells_the_size_is_the_one_that_the_size_of_the_index_reaches() {
        let size = RangeSize::new(64 << 10).unwrap();
        let end = 3 * size.bytes();
        // The index has the size of before the range, within it, and at its end.
        for known in [2 * size.bytes(), 2 * size.bytes() + 1, end] {
            assert_eq!(size.grown_range(known, end), Some(2));
        }
        // The words of an older, a shorter and a longer file; none.
        for (known, end) in [(2 * size.bytes() - 1, end), (end + 1, end), (0, end), (100, 0)] {
            assert_eq!(size.grown_range(known, end), None, "{known} {end}");
        }
    }

    #[test]
    fn each_size_has_a_bit_of_its_own() {
        let mut set = RangeSizes::default();
        for (count, size) in (1..).zip(RangeSize::all()) {
            assert!(!set.contains(size));
            set.insert(size);
            assert!(set.contains(size));
            assert_eq!((set.get().count_ones(), RangeSizes::decode(set.get())), (count, set));
        }
        assert_eq!((set.get(), RangeSizes::decode(u16::MAX)), (0x7ff, set));
    }

    #[test]
    fn powers_of_two_within_the_limits_only() {
        let good = |bytes| RangeSize::new(bytes).is_some();
        assert!([1 << 16, 1 << 21, 1 << 26].into_iter().all(good));
        assert!(![0, 1, 1 << 15, 3 << 16, (1 << 16) + 1, 1 << 27, 1 << 31, u32::MAX].into_iter().any(good));
        let all: Vec<u32> = RangeSize::all().map(RangeSize::get).collect();
        assert_eq!((all.len(), all[0], all[10]), (11, 1 << 26, 1 << 16));
    }

    #[test]
    fn offsets_and_ranges_agree_up_to_where_numbers_end() {
        for ranges in RangeSize::all() {
            let bytes = ranges.bytes();
            assert_eq!(
                (ranges.range_of(bytes - 1), ranges.range_of(bytes), ranges.start_of(1)),
                (0, 1, bytes)
            );
            assert_eq!((ranges.rest_of(0), ranges.rest_of(bytes - 1)), (bytes, 1));
            assert_eq!((ranges.count(0), ranges.count(1), ranges.count(bytes + 1)), (0, 1, 2));
            assert_eq!((ranges.round_up(0), ranges.round_up(1), ranges.round_up(bytes)), (0, bytes, bytes));
            assert_eq!((ranges.ranges_of(5, 5), ranges.ranges_of(bytes - 1, bytes + 1)), (0..0, 0..2));
            assert_eq!(ranges.bytes_of(1..3, bytes + 7), bytes..bytes + 7);
            // Possible values in a damaged index.
            assert_eq!(ranges.start_of(u64::MAX), u64::MAX);
            assert_eq!(ranges.bytes_of(u64::MAX - 1..u64::MAX, 9), 9..9);
            assert_eq!(ranges.round_up(u64::MAX), u64::MAX);
        }
    }
}
