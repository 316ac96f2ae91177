//! The ranges of one file that are being moved, and the writes to them
//! meanwhile.
//!
//! Moves are registered under a lock. Writers take none: they first claim their
//! ranges, and then check the states of the moves. A mover first changes a
//! state and then drains the claims, so one of the two sees the other. It does
//! no harm if a move is gone and its words belong to another by the time a
//! writer marks its chunks: a mark costs a copy, and a later move of the same
//! range waits for the writer before it copies anything.

use crate::layout::{
    ACTIVE, ENDED, FileWords, HELD, MOVES_LOCK, MOVES_MAX, SWITCHES, move_dirty, move_state,
};
use crate::lock::{Locked, lock};
use crate::party::Party;
use crate::region::{ALL, ReadRegion, Region};
use crate::slots::{Claim, RangeSpan, WriterSlots};
use crate::sync::Ordering;
use std::ops::Range;
use std::ptr;

/// Parts of a range that are copied again on their own if they are written
/// while the range moves: as many as a word has bits.
pub const CHUNKS: u64 = 64;

/// In a move's state: writers wait.
const BLOCKED: u64 = 1;
/// In a move's state: it must not go on.
const CANCELLED: u64 = 2;
/// In every move's state, so that the half that is waited on is never 0 while
/// there is a move.
const TAKEN: u64 = 4;
/// In a move's state: a writer waits for it.
const URGENT: u64 = 8;
const RANGE_SHIFT: u32 = 4;

fn state_of(range: u64) -> u64 {
    range << RANGE_SHIFT | TAKEN
}

fn range_of(state: u64) -> Option<u64> {
    (state & TAKEN != 0).then_some(state >> RANGE_SHIFT)
}

/// The moves of one file. A clone shares them.
#[derive(Clone, Debug)]
pub struct Moving<R, P> {
    words: FileWords<R>,
    party: P,
}

/// A registered move; dropping it ends it.
#[derive(Debug)]
pub struct Registered<R: Region, P: Party> {
    moving: Moving<R, P>,
    at: usize,
}

/// The range is already being moved, the limit of moves is reached, or the file
/// must not move now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy;

/// Nothing of the file moves while this lives.
#[derive(Debug)]
pub struct Held<R: Region, P: Party>(Moving<R, P>);

/// A write under way: the ranges stay on their tiers until it is dropped, which
/// marks its chunks for their movers.
#[derive(Debug)]
pub struct Writing<'a, S: Region, R: Region> {
    /// Released last.
    _claim: Claim<'a, S>,
    /// The file, if any of it was moving when the write began.
    watched: Option<&'a R>,
    bytes: Range<u64>,
    range_size: u64,
}

impl<R: ReadRegion, P> Moving<R, P> {
    /// The moves for `party`.
    pub fn new(words: FileWords<R>, party: P) -> Self {
        Self { words, party }
    }

    /// Whether any of the file is moving.
    pub fn is_active(&self) -> bool {
        self.words.region.load(ACTIVE) > 0
    }

    /// A number that changes when an entry is switched.
    pub fn switches(&self) -> u64 {
        self.words.region.load(SWITCHES)
    }
}

impl<R: Region, P: Party> Moving<R, P> {
    /// Begins a write of `bytes`, whose ranges are `span`. Waits while one of
    /// them must not be written.
    pub fn write<'a, S: Region, Q: Party>(
        &'a self,
        slots: &'a WriterSlots<S, Q>,
        span: RangeSpan,
        bytes: Range<u64>,
        range_size: u64,
    ) -> Writing<'a, S, R> {
        let ranges = bytes.start / range_size..bytes.end.div_ceil(range_size);
        loop {
            let claim = slots.claim(span);
            let watched = self.is_active().then_some(&self.words.region);
            let blocked = watched.and_then(|_| self.blocked_in(&ranges));
            let Some((at, state)) = blocked else {
                return Writing { _claim: claim, watched, bytes, range_size };
            };
            drop(claim);
            self.words.region.wait(at, state, None);
        }
    }

    /// Registers a move of `range`. Writers that arrive after earlier claims
    /// are drained see it.
    ///
    /// # Errors
    /// [`Busy`]; [`end`](Self::end) makes room.
    pub fn begin(&self, range: u64) -> Result<Registered<R, P>, Busy>
    where
        R: Clone,
        P: Clone,
    {
        self.register(range, 0)
    }

    /// The same, for a writer that waits for the move. [`end`](Self::end) waits
    /// for it too, and does not make it fail.
    ///
    /// # Errors
    /// [`Busy`]; [`end`](Self::end) makes room.
    pub fn begin_urgent(&self, range: u64) -> Result<Registered<R, P>, Busy>
    where
        R: Clone,
        P: Clone,
    {
        self.register(range, URGENT)
    }

    fn register(&self, range: u64, urgent: u64) -> Result<Registered<R, P>, Busy>
    where
        R: Clone,
        P: Clone,
    {
        let region = &self.words.region;
        let _registering = self.lock();
        if region.load(HELD) > 0 || self.find(range).is_some() {
            return Err(Busy);
        }
        let at = self.free().ok_or(Busy)?;
        region.word(move_dirty(at)).store(0, Ordering::Relaxed);
        region.word(ACTIVE).fetch_add(1, Ordering::AcqRel);
        region.word(move_state(at)).store(state_of(range) | urgent, Ordering::Release);
        Ok(Registered { moving: self.clone(), at })
    }

    /// Makes all moves under way fail; none of them commits after this. The
    /// caller holds the file's layout exclusively.
    pub fn cancel_all(&self) {
        if self.is_active() {
            (0..MOVES_MAX).for_each(|at| self.cancel(at, |_| true));
        }
    }

    /// Makes room for a move of `range`: makes an existing one fail, unless it is
    /// urgent, waits for its end, and then until there is room for another. The
    /// caller holds nothing that a mover needs.
    pub fn end(&self, range: u64) {
        self.cancel_unhurried(range);
        while let Some(at) = self.find(range) {
            self.wait_while(at, |state| range_of(state) == Some(range));
        }
        loop {
            // Before the check: a move that ends in between changes it.
            let ended = self.words.region.load(ENDED);
            if self.free().is_some() {
                return;
            }
            self.words.region.wait(ENDED, ended, None);
        }
    }

    /// Makes a move of `range` fail that is not urgent.
    fn cancel_unhurried(&self, range: u64) {
        if let Some(at) = self.find(range) {
            // By now, the words may be those of another range's move.
            self.cancel(at, |state| range_of(state) == Some(range) && state & URGENT == 0);
        }
    }

    /// Ends all moves and prevents new ones. The caller holds nothing that a
    /// mover needs.
    #[must_use]
    pub fn hold(&self) -> Held<R, P>
    where
        R: Clone,
        P: Clone,
    {
        let registering = self.lock();
        self.words.region.word(HELD).fetch_add(1, Ordering::AcqRel);
        drop(registering);
        (0..MOVES_MAX).for_each(|at| self.cancel(at, |_| true));
        (0..MOVES_MAX).for_each(|at| self.wait_while(at, |state| state != 0));
        Held(self.clone())
    }

    /// Whether these are the moves of the same file.
    fn is(&self, other: &Self) -> bool {
        ptr::eq(self.words.region.word(0), other.words.region.word(0))
    }

    fn lock(&self) -> Locked<'_, R> {
        lock(&self.words.region, MOVES_LOCK, &self.party)
    }

    fn states(&self) -> impl Iterator<Item = (usize, u64)> {
        (0..MOVES_MAX).map(|at| (at, self.words.region.load(move_state(at))))
    }

    fn find(&self, range: u64) -> Option<usize> {
        self.states().find(|(_, state)| range_of(*state) == Some(range)).map(|(at, _)| at)
    }

    fn free(&self) -> Option<usize> {
        self.states().find(|(_, state)| *state == 0).map(|(at, _)| at)
    }

    /// A move of any of `ranges` that writers have to wait for: its word, and
    /// the value there.
    fn blocked_in(&self, ranges: &Range<u64>) -> Option<(usize, u64)> {
        let blocked =
            |state: u64| state & BLOCKED != 0 && range_of(state).is_some_and(|range| ranges.contains(&range));
        self.states().find(|(_, state)| blocked(*state)).map(|(at, state)| (move_state(at), state))
    }

    /// Cancels the move there, if `meant` accepts its state.
    fn cancel(&self, at: usize, meant: impl Fn(u64) -> bool) {
        let cancelled = |state: u64| (state & TAKEN != 0 && meant(state)).then_some(state | CANCELLED);
        let word = self.words.region.word(move_state(at));
        // Where there is no move, there is none to cancel.
        if word.fetch_update(Ordering::AcqRel, Ordering::Acquire, cancelled).is_ok() {
            self.words.region.wake(move_state(at), ALL);
        }
    }

    fn wait_while(&self, at: usize, held_up: impl Fn(u64) -> bool) {
        loop {
            let state = self.words.region.load(move_state(at));
            if !held_up(state) {
                return;
            }
            self.words.region.wait(move_state(at), state, None);
        }
    }
}

impl<R: Region, P: Party> Registered<R, P> {
    /// Makes arriving writers wait.
    pub(crate) fn block(&self) {
        self.state_word().fetch_or(BLOCKED, Ordering::AcqRel);
    }

    /// Lets writers continue.
    pub(crate) fn unblock(&self) {
        self.state_word().fetch_and(!BLOCKED, Ordering::AcqRel);
        self.moving.words.region.wake(move_state(self.at), ALL);
    }

    /// Takes the chunks written since the last call, as bits.
    pub(crate) fn take_dirty(&self) -> u64 {
        self.moving.words.region.word(move_dirty(self.at)).swap(0, Ordering::AcqRel)
    }

    /// Notifies readers of a switched entry.
    pub(crate) fn note_switch(&self) {
        self.moving.words.region.word(SWITCHES).fetch_add(1, Ordering::AcqRel);
    }

    /// Whether it must not go on.
    pub fn is_cancelled(&self) -> bool {
        self.moving.words.region.load(move_state(self.at)) & CANCELLED != 0
    }

    /// Whether it is a move of the file that `moving` belongs to.
    pub fn is_of(&self, moving: &Moving<R, P>) -> bool {
        self.moving.is(moving)
    }

    fn state_word(&self) -> &crate::sync::Word {
        self.moving.words.region.word(move_state(self.at))
    }
}

impl<R: Region, P: Party> Drop for Registered<R, P> {
    fn drop(&mut self) {
        let region = &self.moving.words.region;
        // Writers need not check it any more; one that finds no state finds no
        // move counted either.
        region.word(ACTIVE).fetch_sub(1, Ordering::AcqRel);
        // Ordered with threads that cancel it at this moment.
        region.word(move_state(self.at)).swap(0, Ordering::AcqRel);
        region.wake(move_state(self.at), ALL);
        // After the state: there is room once this says so.
        region.word(ENDED).fetch_add(1, Ordering::AcqRel);
        region.wake(ENDED, ALL);
    }
}

impl<R: Region, P: Party> Drop for Held<R, P> {
    fn drop(&mut self) {
        self.0.words.region.word(HELD).fetch_sub(1, Ordering::AcqRel);
    }
}

impl<S: Region, R: Region> Writing<'_, S, R> {
    /// Nothing was written: the movers need not copy anything again.
    pub fn wrote_nothing(&mut self) {
        self.watched = None;
    }

    /// Marks the written chunks for the movers of the ranges.
    pub(crate) fn mark(&self) {
        let Some(region) = self.watched else { return };
        for at in 0..MOVES_MAX {
            let Some(range) = range_of(region.load(move_state(at))) else { continue };
            let start = range * self.range_size;
            let (first, end) = (self.bytes.start.max(start), self.bytes.end.min(start + self.range_size));
            if first < end {
                let chunks = chunks_of(first - start..end - start, self.range_size);
                region.word(move_dirty(at)).fetch_or(chunks, Ordering::AcqRel);
            }
        }
    }
}

impl<S: Region, R: Region> Drop for Writing<'_, S, R> {
    fn drop(&mut self) {
        // After the write and before the claim is released: a mover that waited
        // for the claim sees the marks, and one that took a mark before the
        // data was there gets another.
        self.mark();
    }
}

/// The chunks of `bytes` of a range, as bits.
fn chunks_of(bytes: Range<u64>, range_size: u64) -> u64 {
    let chunk = range_size / CHUNKS;
    let (first, end) = (bytes.start / chunk, bytes.end.div_ceil(chunk));
    let below = |bit: u64| if bit >= CHUNKS { u64::MAX } else { (1 << bit) - 1 };
    below(end) & !below(first)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::VolumeWords;
    use crate::party::Sole;
    use crate::region::PrivateWords;
    use braid_contract::ObjectId;

    const SIZE: u64 = 64 << 10;

    type Moves = Moving<PrivateWords, Sole>;
    type Slots = WriterSlots<PrivateWords, Sole>;

    fn parts() -> (Moves, Slots) {
        (Moving::new(FileWords::private(), Sole), WriterSlots::new(VolumeWords::private(1, 4), Sole))
    }

    fn write<'a>(
        moving: &'a Moves,
        slots: &'a Slots,
        bytes: Range<u64>,
    ) -> Writing<'a, PrivateWords, PrivateWords> {
        let span = RangeSpan::new(ObjectId([1; 16]), &(bytes.start / SIZE..bytes.end.div_ceil(SIZE)));
        moving.write(slots, span, bytes, SIZE)
    }

    #[test]
    fn chunks_are_those_that_bytes_touch() {
        assert_eq!(chunks_of(0..1, SIZE), 1);
        assert_eq!(chunks_of(0..SIZE, SIZE), u64::MAX);
        assert_eq!(chunks_of(1023..1025, SIZE), 0b11);
        assert_eq!(chunks_of(SIZE - 1..SIZE, SIZE), 1 << 63);
    }

    #[test]
    fn a_mover_learns_what_was_written_to_its_range() {
        let (moving, slots) = parts();
        let this = moving.begin(1).unwrap();
        drop(write(&moving, &slots, 0..SIZE));
        assert_eq!(this.take_dirty(), 0);
        drop(write(&moving, &slots, SIZE - 10..SIZE + 1500));
        assert_eq!(this.take_dirty(), 0b11);
        assert_eq!(this.take_dirty(), 0);
    }

    #[test]
    fn a_write_that_is_refused_has_nothing_copied_again() {
        let (moving, slots) = parts();
        let this = moving.begin(1).unwrap();
        write(&moving, &slots, SIZE..2 * SIZE).wrote_nothing();
        assert_eq!(this.take_dirty(), 0);
    }

    #[test]
    fn a_move_that_a_writer_waits_for_is_not_ended_by_another_writer() {
        let (moving, _) = parts();
        let (urgent, other) = (moving.begin_urgent(0).unwrap(), moving.begin(1).unwrap());
        (0..2).for_each(|range| moving.cancel_unhurried(range));
        assert!(!urgent.is_cancelled() && other.is_cancelled());
        moving.cancel_all();
        assert!(urgent.is_cancelled());
    }

    #[test]
    fn one_move_of_a_range_at_a_time_and_none_while_held() {
        let (moving, _) = parts();
        let first = moving.begin(1).unwrap();
        assert_eq!(moving.begin(1).unwrap_err(), Busy);
        let second = moving.begin(2).unwrap();
        moving.cancel_all();
        assert!(first.is_cancelled() && second.is_cancelled());
        std::thread::scope(|scope| {
            let held = scope.spawn(|| moving.hold());
            drop((first, second));
            let held = held.join().unwrap();
            assert_eq!(moving.begin(3).unwrap_err(), Busy);
            drop(held);
        });
        assert!(!moving.begin(3).unwrap().is_cancelled());
    }

    #[test]
    fn a_file_has_so_many_moves_and_who_ends_one_gets_room() {
        let (moving, _) = parts();
        let mut moves: Vec<_> = (0..MOVES_MAX as u64).map(|range| moving.begin(range).unwrap()).collect();
        let more = MOVES_MAX as u64 + 3;
        assert_eq!(moving.begin(more).unwrap_err(), Busy);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| moving.end(more));
            assert!(moves.iter().all(|this| !this.is_cancelled()), "room comes by itself");
            // Whichever move it is.
            drop(moves.remove(5));
            waiting.join().unwrap();
        });
        assert!(moving.begin(more).is_ok());
        let last = moving.begin((1 << 30) - 1).unwrap();
        assert!(last.state_word().load(Ordering::Relaxed) as u32 != 0, "what is waited on is not 0");
        drop(last);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| moving.end(0));
            while !moves[0].is_cancelled() {
                std::thread::yield_now();
            }
            drop(moves.remove(0));
            waiting.join().unwrap();
        });
        assert!(moving.begin(0).is_ok());
    }

    #[test]
    fn writers_of_a_blocked_range_wait() {
        let (moving, slots) = parts();
        let this = moving.begin(0).unwrap();
        this.block();
        drop(write(&moving, &slots, SIZE..SIZE + 1));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| drop(write(&moving, &slots, 0..1)));
            this.unblock();
            writer.join().unwrap();
        });
        assert_eq!(this.take_dirty(), 1);
    }
}
