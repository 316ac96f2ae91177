//! The set of present pages of a memory file.

use std::collections::BTreeMap;
use std::ops::Range;

/// Memory is taken in pages.
pub(super) const PAGE: u64 = 4096;

/// Pages in one word of the set.
const WORD: u64 = 64;

/// A set of pages, by number.
#[derive(Debug, Default)]
pub(super) struct Pages(BTreeMap<u64, u64>);

/// The pages that the bytes from `offset` to `end` touch.
pub(super) fn touched(offset: u64, end: u64) -> Range<u64> {
    offset / PAGE..end.div_ceil(PAGE)
}

/// The pages that are wholly within the bytes from `offset` to `end`.
pub(super) fn covered(offset: u64, end: u64) -> Range<u64> {
    offset.div_ceil(PAGE)..end / PAGE
}

/// The words that hold these pages.
fn words(pages: &Range<u64>) -> Range<u64> {
    if pages.is_empty() { 0..0 } else { pages.start / WORD..pages.end.div_ceil(WORD) }
}

/// The bits of a word that stand for these pages.
fn bits(word: u64, pages: &Range<u64>) -> u64 {
    let first = pages.start.saturating_sub(word * WORD);
    let end = (pages.end - word * WORD).min(WORD);
    (u64::MAX << first) & (u64::MAX >> (WORD - end))
}

impl Pages {
    /// How many of these pages are not in the set.
    pub(super) fn missing(&self, pages: Range<u64>) -> u64 {
        let has = |word| self.0.get(&word).copied().unwrap_or(0);
        words(&pages).map(|word| u64::from((bits(word, &pages) & !has(word)).count_ones())).sum()
    }

    pub(super) fn insert(&mut self, pages: Range<u64>) {
        for word in words(&pages) {
            *self.0.entry(word).or_default() |= bits(word, &pages);
        }
    }

    pub(super) fn remove(&mut self, pages: Range<u64>) {
        let gone = self.0.extract_if(words(&pages), |word, has| {
            *has &= !bits(*word, &pages);
            *has == 0
        });
        gone.for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_across_words() {
        let mut pages = Pages::default();
        assert_eq!(pages.missing(3..200), 197);
        pages.insert(60..70);
        pages.insert(64..128);
        assert_eq!(pages.missing(0..200), 60 + 72);
        assert_eq!((pages.missing(60..128), pages.missing(59..129)), (0, 2));
        pages.remove(65..66);
        assert_eq!(pages.missing(60..128), 1);
        pages.remove(62..u64::MAX);
        assert_eq!(pages.missing(0..200), 198);
        pages.remove(5..5);
        assert_eq!(pages.missing(60..62), 0);
        assert_eq!(pages.missing(9..9), 0);
    }

    #[test]
    fn a_part_of_a_page_is_touched_and_not_covered() {
        assert_eq!((touched(4095, 4097), covered(1, 8191).is_empty()), (0..2, true));
        assert_eq!((touched(0, 4096), covered(0, 4096)), (0..1, 0..1));
        assert!(touched(8192, 8192).is_empty() && covered(9000, 4096).is_empty());
    }
}
