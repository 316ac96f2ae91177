//! A range moves beside its readers and writers, with memory in place of tiers.

use super::check;
use crate::layout::{FileWords, VolumeWords};
use crate::moving::{Moving, Registered};
use crate::party::{Party, Sole};
use crate::protocol::{CopyStats, CopySteps, PASSES_MAX, carry_out};
use crate::region::PrivateWords;
use crate::slots::{RangeSpan, WriterSlots};
use braid_contract::ObjectId;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// The contents of a tier that was punched, or never had the range.
const NOTHING: u64 = u64::MAX;
pub(super) const RANGE_SIZE: u64 = 64;

/// Two tiers with some words each of one range, and the range's entry.
pub(super) struct Tiers<const WORDS: usize> {
    tiers: [[AtomicU64; WORDS]; 2],
    /// Tier and version.
    entry: AtomicU64,
}

impl<const WORDS: usize> Tiers<WORDS> {
    pub(super) fn new() -> Self {
        let tier = |value| std::array::from_fn(|_| AtomicU64::new(value));
        Self { tiers: [tier(0), tier(NOTHING)], entry: AtomicU64::new(0) }
    }

    /// The tier that holds the range.
    pub(super) fn here(&self) -> &[AtomicU64; WORDS] {
        &self.tiers[(self.entry.load(Ordering::Acquire) % 2) as usize]
    }

    /// Moves the range, with the last copy, for which writers wait, after so
    /// many passes.
    pub(super) fn relocate<P: Party + Clone, const PASSES: u32>(
        &self,
        moving: &Moving<PrivateWords, P>,
        slots: &WriterSlots<PrivateWords, P>,
    ) -> CopyStats {
        let this = moving.begin(0).unwrap();
        let steps = Memory::<P, WORDS, PASSES> { tiers: self, this: &this };
        let stats = carry_out(&steps, slots, span(), &this).unwrap();
        let left = &self.tiers[(1 - self.entry.load(Ordering::Acquire) % 2) as usize];
        left.iter().for_each(|word| word.store(NOTHING, Ordering::Release));
        stats
    }
}

pub(super) fn span() -> RangeSpan {
    RangeSpan::new(ObjectId([1; 16]), &(0..1))
}

struct Memory<'w, P: Party, const WORDS: usize, const PASSES: u32> {
    tiers: &'w Tiers<WORDS>,
    this: &'w Registered<PrivateWords, P>,
}

impl<P: Party, const WORDS: usize, const PASSES: u32> CopySteps for Memory<'_, P, WORDS, PASSES> {
    const PASSES_MAX: u32 = PASSES;
    type Hold<'a>
        = ()
    where
        Self: 'a;
    type Error = &'static str;

    fn hold(&self) -> Result<(), Self::Error> {
        if self.this.is_cancelled() { Err("cancelled") } else { Ok(()) }
    }

    fn runs(&self, chunks: u64) -> Vec<u64> {
        vec![chunks]
    }

    fn copy(&self, (): &(), chunks: u64, _: bool) -> Result<(), Self::Error> {
        let from = (self.tiers.entry.load(Ordering::Acquire) % 2) as usize;
        let bits = 64 / WORDS;
        for word in (0..WORDS).filter(|word| chunks >> (word * bits) & 1 != 0) {
            let value = self.tiers.tiers[from][word].load(Ordering::Relaxed);
            self.tiers.tiers[1 - from][word].store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    fn sync(&self, (): &()) -> Result<(), Self::Error> {
        Ok(())
    }

    fn switch(&self, (): &()) -> Result<(), Self::Error> {
        self.tiers.entry.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

/// A file of one process.
struct World {
    slots: WriterSlots<PrivateWords, Sole>,
    moving: Moving<PrivateWords, Sole>,
    tiers: Tiers<1>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: WriterSlots::new(VolumeWords::private(1, 3), Sole),
            moving: Moving::new(FileWords::private(), Sole),
            tiers: Tiers::new(),
        })
    }

    fn write(&self, value: u64) {
        let writing = self.moving.write(&self.slots, span(), 0..1, RANGE_SIZE);
        self.tiers.here()[0].store(value, Ordering::Relaxed);
        drop(writing);
    }

    /// Reads like a volume: again, if the entry was switched meanwhile.
    fn read(&self) -> u64 {
        loop {
            let (switches, entry) = (self.moving.switches(), self.tiers.entry.load(Ordering::Acquire));
            let value = self.tiers.tiers[(entry % 2) as usize][0].load(Ordering::Acquire);
            fence(Ordering::Acquire);
            if self.moving.switches() == switches || self.tiers.entry.load(Ordering::Acquire) == entry {
                return value;
            }
            loom::thread::yield_now();
        }
    }

    fn relocate(&self) -> CopyStats {
        self.relocate_within::<PASSES_MAX>()
    }

    fn relocate_within<const PASSES: u32>(&self) -> CopyStats {
        self.tiers.relocate::<Sole, PASSES>(&self.moving, &self.slots)
    }
}

/// Runs a closure in a thread of its own.
fn beside<T: 'static>(
    world: &Arc<World>,
    does: impl FnOnce(&World) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let world = Arc::clone(world);
    loom::thread::spawn(move || does(&world))
}

#[test]
fn no_write_is_lost_beside_a_move() {
    check(4, || {
        let world = World::new();
        let writer = beside(&world, |world| {
            world.write(1);
            world.write(2);
        });
        world.relocate();
        writer.join().unwrap();
        assert_eq!(world.tiers.here()[0].load(Ordering::Relaxed), 2);
        assert_eq!(world.read(), 2);
    });
}

#[test]
fn two_writers_and_a_move_leave_one_of_their_values() {
    check(2, || {
        let world = World::new();
        let writers: Vec<_> =
            [1, 2].into_iter().map(|value| beside(&world, move |world| world.write(value))).collect();
        world.relocate();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(matches!(world.read(), 1 | 2));
    });
}

#[test]
fn a_reader_sees_old_or_new_and_nothing_else() {
    check(4, || {
        let world = World::new();
        let reader = beside(&world, |world| {
            assert_eq!(world.read(), 0);
            assert_eq!(world.read(), 0);
        });
        world.relocate();
        reader.join().unwrap();
    });
}

#[test]
fn readers_and_a_writer_beside_a_move() {
    check(3, || {
        let world = World::new();
        let reader = beside(&world, |world| assert!(matches!(world.read(), 0 | 1)));
        let writer = beside(&world, |world| world.write(1));
        world.relocate();
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(world.read(), 1);
    });
}

#[test]
fn moves_are_ended_and_held_off_beside_one_that_begins() {
    check(3, || {
        let world = World::new();
        let mover = beside(&world, |world| {
            let Ok(this) = world.moving.begin(0) else { return false };
            this.is_cancelled()
        });
        let held = world.moving.hold();
        assert!(!world.moving.is_active());
        assert!(world.moving.begin(1).is_err());
        drop(held);
        mover.join().unwrap();
        world.moving.end(0);
        assert!(!world.moving.begin(0).unwrap().is_cancelled());
    });
}

/// All moves that a file may have are under way, and one more is requested: the
/// end of any of them makes room.
#[test]
fn room_for_a_move_comes_with_the_end_of_any() {
    for first in [0, 1] {
        check(3, move || {
            let world = World::new();
            let moves = [0, 1].map(|range| world.moving.begin(range).unwrap());
            let waiting = beside(&world, |world| world.moving.end(2));
            let [one, other] = moves;
            match first {
                0 => drop(one),
                _ => drop(other),
            }
            waiting.join().unwrap();
        });
    }
}

/// Two writes beside a move for which writers wait after `PASSES` passes, and
/// as many readers. In some interleaving they waited.
fn writers_wait_for_the_last_copy<const PASSES: u32>(preemptions: usize, readers: usize) {
    // Over all interleavings: the model does not see it.
    let waited = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&waited);
    check(preemptions, move || {
        let world = World::new();
        let writer = beside(&world, |world| {
            world.write(1);
            world.write(2);
        });
        let readers: Vec<_> =
            (0..readers).map(|_| beside(&world, |world| assert!(world.read() <= 2))).collect();
        let stats = world.relocate_within::<PASSES>();
        assert!(stats.passes <= PASSES && (!stats.locked || stats.passes == PASSES));
        seen.fetch_or(stats.locked, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(world.tiers.here()[0].load(Ordering::Relaxed), 2);
        assert_eq!(world.read(), 2);
    });
    assert!(waited.load(std::sync::atomic::Ordering::Relaxed), "no interleaving came to the last copy");
}

#[test]
fn no_write_is_lost_if_writers_wait_at_once() {
    writers_wait_for_the_last_copy::<1>(4, 0);
}

#[test]
fn no_write_is_lost_if_writers_wait_after_a_conflict() {
    writers_wait_for_the_last_copy::<2>(4, 0);
}

#[test]
fn a_reader_beside_the_last_copy_sees_old_or_new() {
    writers_wait_for_the_last_copy::<1>(2, 1);
}
