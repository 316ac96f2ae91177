//! Who writes which ranges at this moment: one word for each thread that does,
//! published before it looks where the ranges are and taken back when its
//! write is done. Writers share no counter; a mover that must know that nobody
//! is still writing somewhere waits for the words that say so to go.

use crate::sync::checked::{AtomicU32, AtomicU64, Condvar, Mutex, Ordering, fence, yield_now};
use braid_contract::ObjectId;
use std::ops::Range;

/// Ranges of one file, in one word that is never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span(u64);

const COUNT_BITS: u32 = 9;
const FIRST_BITS: u32 = 31;

/// Most ranges that one span may have.
pub(crate) const SPAN_RANGES_MAX: u64 = (1 << COUNT_BITS) - 1;

impl Span {
    /// `ranges` of the file `id`: at least one, at most [`SPAN_RANGES_MAX`].
    /// Two files may look alike here: they then wait for each other, no more.
    pub(crate) fn new(id: ObjectId, ranges: &Range<u64>) -> Self {
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

/// One thread's word, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Slot(AtomicU64);

/// The words of all threads.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    /// Movers that wait for words to go.
    waiting: AtomicU32,
    lock: Mutex<()>,
    released: Condvar,
}

/// A published word; dropping it takes it back.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    slots: &'a Slots,
    at: usize,
}

impl Slots {
    /// Room for `count` threads at a time; more wait for one of them.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            slots: (0..count).map(|_| Slot(AtomicU64::new(0))).collect(),
            waiting: AtomicU32::new(0),
            lock: Mutex::new(()),
            released: Condvar::new(),
        }
    }

    /// Publishes that the ranges are written. What the caller looks at next is
    /// no older than what a mover did that has not seen this.
    pub(crate) fn claim(&self, span: Span) -> Claim<'_> {
        let first = place_of_this_thread();
        loop {
            for step in 0..self.slots.len() {
                let at = (first + step) % self.slots.len();
                let word = &self.slots[at].0;
                let taken = word.load(Ordering::Relaxed) != 0
                    || word.compare_exchange(0, span.0, Ordering::AcqRel, Ordering::Relaxed).is_err();
                if !taken {
                    // Pairs with the one in `drain`: either the mover sees the
                    // word, or this thread sees what the mover did before.
                    fence(Ordering::SeqCst);
                    return Claim { slots: self, at };
                }
            }
            yield_now();
        }
    }

    /// Waits until no claim is left that overlaps `span`. The caller keeps new
    /// ones from being held for long.
    pub(crate) fn drain(&self, span: Span) {
        fence(Ordering::SeqCst);
        if !self.is_claimed(span) {
            return;
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let mut guard = self.lock.lock();
        while self.is_claimed(span) {
            guard = self.released.wait(guard);
        }
        drop(guard);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    fn is_claimed(&self, span: Span) -> bool {
        self.slots.iter().any(|slot| {
            let word = slot.0.load(Ordering::Acquire);
            word != 0 && Span(word).overlaps(span)
        })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.slots.slots[self.at].0.store(0, Ordering::Release);
        // Pairs with the one in `drain`: the mover sees the word gone, or this
        // thread sees that somebody waits.
        fence(Ordering::SeqCst);
        if self.slots.waiting.load(Ordering::Relaxed) > 0 {
            drop(self.slots.lock.lock());
            self.slots.released.notify_all();
        }
    }
}

/// Where a thread looks for a free word first: differs from thread to thread,
/// and stays the same for one.
pub(crate) fn place_of_this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn span(file: u8, ranges: Range<u64>) -> Span {
        Span::new(ObjectId([file; 16]), &ranges)
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
        assert_ne!(span(0, 0..1).0, 0);
    }

    #[test]
    fn a_mover_waits_for_overlapping_claims_only() {
        let slots = Slots::new(2);
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
        let slots = Slots::new(2);
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
