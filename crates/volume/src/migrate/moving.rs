//! Which ranges of one file are being moved, and what was written to them
//! meanwhile.

use super::slots::{Claim, Slots, Span};
use crate::sync::checked::{AtomicBool, AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use std::ops::Range;
use std::sync::Arc;

/// Parts of a range that are copied anew by themselves if they are written
/// while the range moves: as many as a word has bits.
pub(crate) const CHUNKS: u64 = 64;

/// The moves of one file.
#[derive(Debug)]
pub(crate) struct Moving {
    /// How many there are: writers look no further while there is none.
    active: AtomicU32,
    table: Mutex<Table>,
    changed: Condvar,
    /// How many entries were switched so far.
    switches: AtomicU64,
}

#[derive(Debug)]
struct Table {
    moves: Vec<Arc<Move>>,
    /// How many want that nothing moves.
    held: u32,
}

/// One range on its way.
#[derive(Debug)]
pub(crate) struct Move {
    range: u64,
    /// Writers wait. Changed with the table locked.
    blocked: AtomicBool,
    cancelled: AtomicBool,
    /// Chunks written since they were last copied, as bits.
    dirty: AtomicU64,
}

/// A move that is registered; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Registered {
    moving: Arc<Moving>,
    this: Arc<Move>,
}

/// The range is being moved already, or nothing of the file may move now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Busy;

/// Nothing of the file moves while this lives.
#[derive(Debug)]
pub(crate) struct Held(Arc<Moving>);

/// A write under way: the ranges stay on their tiers until it is dropped, and
/// whoever moves one of them learns then what was written.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    _claim: Claim<'a>,
    moves: Vec<Arc<Move>>,
    bytes: Range<u64>,
    range_size: u64,
}

impl Moving {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            active: AtomicU32::new(0),
            table: Mutex::new(Table { moves: Vec::new(), held: 0 }),
            changed: Condvar::new(),
            switches: AtomicU64::new(0),
        })
    }

    /// Begins a write of `bytes`, which `span` has the ranges of. Waits while
    /// one of them must not be written.
    pub(crate) fn write<'a>(
        &self,
        slots: &'a Slots,
        span: Span,
        bytes: Range<u64>,
        range_size: u64,
    ) -> Writing<'a> {
        let ranges = bytes.start / range_size..bytes.end.div_ceil(range_size);
        loop {
            let claim = slots.claim(span);
            let moves = if self.active.load(Ordering::Acquire) == 0 {
                Some(Vec::new())
            } else {
                self.moves_in(&ranges)
            };
            if let Some(moves) = moves {
                return Writing { _claim: claim, moves, bytes, range_size };
            }
            drop(claim);
            self.wait_unblocked(&ranges);
        }
    }

    /// Registers a move of `range`. Writers that come from now on know of it.
    pub(crate) fn begin(self: &Arc<Self>, range: u64) -> Result<Registered, Busy> {
        let mut table = self.table.lock();
        if table.held > 0 || table.moves.iter().any(|other| other.range == range) {
            return Err(Busy);
        }
        let this = Arc::new(Move {
            range,
            blocked: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            dirty: AtomicU64::new(0),
        });
        table.moves.push(Arc::clone(&this));
        self.active.fetch_add(1, Ordering::AcqRel);
        Ok(Registered { moving: Arc::clone(self), this })
    }

    /// Makes all moves under way fail; none of them commits after this. The
    /// caller holds the file's layout alone.
    pub(crate) fn cancel_all(&self) {
        if self.active.load(Ordering::Acquire) > 0 {
            cancel(&self.table.lock(), |_| true);
        }
    }

    /// Makes the move of `range` fail, if there is one, and waits for its end.
    /// The caller holds nothing that a mover needs.
    pub(crate) fn end(&self, range: u64) {
        let mut table = self.table.lock();
        cancel(&table, |this| this.range == range);
        while table.moves.iter().any(|this| this.range == range) {
            table = self.changed.wait(table);
        }
    }

    /// Ends all moves and keeps others from being begun. The caller holds
    /// nothing that a mover needs.
    pub(crate) fn hold(self: &Arc<Self>) -> Held {
        let mut table = self.table.lock();
        table.held += 1;
        cancel(&table, |_| true);
        while !table.moves.is_empty() {
            table = self.changed.wait(table);
        }
        drop(table);
        Held(Arc::clone(self))
    }

    /// Whether something of the file moves.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire) > 0
    }

    /// A number that differs if an entry was switched in between.
    pub(crate) fn switches(&self) -> u64 {
        self.switches.load(Ordering::Acquire)
    }

    /// The moves of any of `ranges`; `None` if one of them is blocked.
    fn moves_in(&self, ranges: &Range<u64>) -> Option<Vec<Arc<Move>>> {
        let table = self.table.lock();
        if is_blocked(&table, ranges) {
            return None;
        }
        Some(table.moves.iter().filter(|this| ranges.contains(&this.range)).cloned().collect())
    }

    fn wait_unblocked(&self, ranges: &Range<u64>) {
        let mut table = self.table.lock();
        while is_blocked(&table, ranges) {
            table = self.changed.wait(table);
        }
    }
}

fn is_blocked(table: &MutexGuard<'_, Table>, ranges: &Range<u64>) -> bool {
    table.moves.iter().any(|this| ranges.contains(&this.range) && this.blocked.load(Ordering::Relaxed))
}

fn cancel(table: &MutexGuard<'_, Table>, which: impl Fn(&Move) -> bool) {
    for this in table.moves.iter().filter(|this| which(this)) {
        this.cancelled.store(true, Ordering::Release);
    }
}

impl Registered {
    /// Holds writers up that come from now on.
    pub(crate) fn block(&self) {
        let _table = self.moving.table.lock();
        self.this.blocked.store(true, Ordering::Relaxed);
    }

    /// Lets writers go on.
    pub(crate) fn unblock(&self) {
        let table = self.moving.table.lock();
        self.this.blocked.store(false, Ordering::Relaxed);
        drop(table);
        self.moving.changed.notify_all();
    }

    /// The chunks that were written since the last time, as bits.
    pub(crate) fn take_dirty(&self) -> u64 {
        self.this.dirty.swap(0, Ordering::AcqRel)
    }

    /// Tells readers that an entry was switched.
    pub(crate) fn note_switch(&self) {
        self.moving.switches.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether it must not go on.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.this.cancelled.load(Ordering::Acquire)
    }

    /// Whether it is a move of the file that `moving` belongs to.
    pub(crate) fn is_of(&self, moving: &Arc<Moving>) -> bool {
        Arc::ptr_eq(&self.moving, moving)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut table = self.moving.table.lock();
        table.moves.retain(|other| !Arc::ptr_eq(other, &self.this));
        self.moving.active.fetch_sub(1, Ordering::AcqRel);
        drop(table);
        self.moving.changed.notify_all();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.table.lock().held -= 1;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // After the write and before the claim goes: a mover that waited for
        // the claim sees the marks, and one that took a mark earlier than the
        // data was there gets another.
        for this in &self.moves {
            let start = this.range * self.range_size;
            let bytes =
                self.bytes.start.max(start) - start..self.bytes.end.min(start + self.range_size) - start;
            this.dirty.fetch_or(chunks_of(bytes, self.range_size), Ordering::AcqRel);
        }
    }
}

/// The chunks that `bytes` of a range are in, as bits.
fn chunks_of(bytes: Range<u64>, range_size: u64) -> u64 {
    let chunk = range_size / CHUNKS;
    let (first, end) = (bytes.start / chunk, bytes.end.div_ceil(chunk));
    let below = |bit: u64| if bit >= CHUNKS { u64::MAX } else { (1 << bit) - 1 };
    below(end) & !below(first)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use braid_contract::ObjectId;

    const SIZE: u64 = 64 << 10;

    fn write<'a>(moving: &Moving, slots: &'a Slots, bytes: Range<u64>) -> Writing<'a> {
        let span = Span::new(ObjectId([1; 16]), &(bytes.start / SIZE..bytes.end.div_ceil(SIZE)));
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
        let (moving, slots) = (Moving::new(), Slots::new(4));
        let this = moving.begin(1).unwrap();
        drop(write(&moving, &slots, 0..SIZE));
        assert_eq!(this.take_dirty(), 0);
        drop(write(&moving, &slots, SIZE - 10..SIZE + 1500));
        assert_eq!(this.take_dirty(), 0b11);
        assert_eq!(this.take_dirty(), 0);
    }

    #[test]
    fn one_move_of_a_range_at_a_time_and_none_while_held() {
        let moving = Moving::new();
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
    fn writers_of_a_blocked_range_wait() {
        let (moving, slots) = (Moving::new(), Slots::new(4));
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
