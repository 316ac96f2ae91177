//! The ranges being written at this moment: one word for each writing thread,
//! published before it looks up the tiers of the ranges and removed when its
//! write is done. Writers share no counter; a mover that has to exclude writes
//! to its source waits for their words to go.

use crate::layout::{DEATHS, VolumeWords, WAITING};
use crate::party::Party;
use crate::region::{ALL, Region};
use crate::sync::{LOOK, Ordering, fence, place_of_this_thread, yield_now};
use braid_contract::ObjectId;
use std::ops::Range;

/// Ranges of one file, in one word that is never 0, and whose lower half is
/// not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeSpan(u64);

const COUNT_BITS: u32 = 9;
const FIRST_BITS: u32 = 31;

/// Most ranges that one span may have.
pub const SPAN_RANGES_MAX: u64 = (1 << COUNT_BITS) - 1;

impl RangeSpan {
    /// `ranges` of the file `id`: at least one, at most [`SPAN_RANGES_MAX`].
    /// Two files may collide here: they then only wait for each other.
    #[must_use]
    pub fn new(id: ObjectId, ranges: &Range<u64>) -> Self {
        let count = (ranges.end - ranges.start).min(SPAN_RANGES_MAX);
        let [a, b, c, ..] = id.0;
        let file = u64::from_be_bytes([0, 0, 0, 0, 0, a, b, c]);
        Self(file << (FIRST_BITS + COUNT_BITS) | ranges.start << COUNT_BITS | count)
    }

    fn overlaps(self, other: Self) -> bool {
        let file = |span: Self| span.0 >> (FIRST_BITS + COUNT_BITS);
        let first = |span: Self| span.0 >> COUNT_BITS & ((1 << FIRST_BITS) - 1);
        let end = |span: Self| first(span) + (span.0 & SPAN_RANGES_MAX);
        file(self) == file(other) && first(self) < end(other) && first(other) < end(self)
    }
}

/// The slots of all owners, as seen by one of them.
#[derive(Debug)]
pub struct WriterSlots<R, P> {
    words: VolumeWords<R>,
    party: P,
}

/// A published word; dropping it removes it.
#[derive(Debug)]
pub struct Claim<'a, R: Region> {
    region: &'a R,
    at: usize,
}

impl<R: Region, P: Party> WriterSlots<R, P> {
    /// The slots for `party`.
    pub fn new(words: VolumeWords<R>, party: P) -> Self {
        Self { words, party }
    }

    /// Publishes a write of the ranges. Later loads of the caller see all
    /// changes of movers that did not see the claim. Waits for a free slot if
    /// this owner has more writing threads than slots.
    pub fn claim(&self, span: RangeSpan) -> Claim<'_, R> {
        let (region, owner) = (&self.words.region, self.party.tag().index());
        let (first, slots) = (place_of_this_thread(), usize::from(self.words.shape.slots));
        loop {
            for step in 0..slots {
                let at = self.words.shape.slot(owner, (first + step) % slots);
                let word = region.word(at);
                let taken = word.load(Ordering::Relaxed) != 0
                    || word.compare_exchange(0, span.0, Ordering::AcqRel, Ordering::Relaxed).is_err();
                if !taken {
                    // Pairs with the one in `drain`: either the mover sees the
                    // word, or this thread sees the mover's earlier changes.
                    fence(Ordering::SeqCst);
                    return Claim { region, at };
                }
            }
            yield_now();
        }
    }

    /// Waits until no claim overlaps `span`; clears claims of dead owners. The
    /// caller keeps new ones from being held for long. Only the keeper does
    /// this.
    pub fn drain(&self, span: RangeSpan) {
        fence(Ordering::SeqCst);
        if self.claimed(span).is_none() {
            return;
        }
        let (region, waiting) = (&self.words.region, self.words.region.word(WAITING));
        waiting.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        while let Some((owner, at, claim)) = self.claimed(span) {
            if region.wait(at, claim, Some(LOOK)) {
                self.words.clear_if_dead(owner, &self.party);
            }
        }
        waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Number of owners that died with a claim and were cleared. If this has
    /// changed after a [`drain`](Self::drain), ranges may have been written in
    /// part without a mark. A claim only names ranges, and threads that drain
    /// others can't know which of them it concerned, so all copy again.
    pub fn deaths(&self) -> u64 {
        self.words.region.load(DEATHS)
    }

    /// A claim that overlaps `span`: its owner, its position, and the word.
    fn claimed(&self, span: RangeSpan) -> Option<(usize, usize, u64)> {
        let slots = 0..usize::from(self.words.shape.slots);
        self.words.in_use().find_map(|owner| {
            slots.clone().find_map(|slot| {
                let at = self.words.shape.slot(owner, slot);
                let word = self.words.region.load(at);
                (word != 0 && RangeSpan(word).overlaps(span)).then_some((owner, at, word))
            })
        })
    }
}

impl<R: Region> Drop for Claim<'_, R> {
    fn drop(&mut self) {
        self.region.word(self.at).store(0, Ordering::Release);
        // Pairs with the one in `drain`: either the mover sees the word gone,
        // or this thread sees a waiter.
        fence(Ordering::SeqCst);
        if self.region.load(WAITING) > 0 {
            self.region.wake(self.at, ALL);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::party::Sole;
    use crate::region::PrivateWords;

    fn span(file: u8, ranges: Range<u64>) -> RangeSpan {
        RangeSpan::new(ObjectId([file; 16]), &ranges)
    }

    fn slots(count: u16) -> WriterSlots<PrivateWords, Sole> {
        WriterSlots::new(VolumeWords::private(1, count), Sole)
    }

    #[test]
    fn spans_overlap_where_they_share_a_range_of_one_file() {
        let max = (1 << FIRST_BITS) - 1;
        assert!(span(1, 0..1).overlaps(span(1, 0..1)));
        assert!(span(1, 3..6).overlaps(span(1, 5..9)));
        assert!(span(0, max..max + 1).overlaps(span(0, max..max + 1)));
        assert!(!span(1, 3..6).overlaps(span(1, 6..9)));
        assert!(!span(1, 3..6).overlaps(span(2, 3..6)));
        assert!(!span(255, 0..1).overlaps(span(0, 0..1)));
        assert_ne!(span(0, 0..1).0 as u32, 0);
    }

    #[test]
    fn a_mover_waits_for_overlapping_claims_only() {
        let slots = slots(2);
        let other = slots.claim(span(1, 5..6));
        slots.drain(span(1, 0..5));
        let claim = slots.claim(span(1, 0..2));
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| slots.drain(span(1, 1..2)));
            drop(claim);
            mover.join().unwrap();
        });
        drop(other);
    }

    #[test]
    fn more_threads_than_slots_take_turns() {
        let slots = slots(2);
        std::thread::scope(|scope| {
            for file in 0..8 {
                let slots = &slots;
                scope.spawn(move || {
                    (0..1000).for_each(|range| drop(slots.claim(span(file, range..range + 1))))
                });
            }
        });
        (0..8).for_each(|file| slots.drain(span(file, 0..SPAN_RANGES_MAX)));
    }
}
