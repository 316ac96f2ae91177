//! The protocol under the model checker: every interleaving of a few threads,
//! over memory in the place of tiers. Run by `cargo xtask test --suite loom`.

use super::moving::{Moving, Registered};
use super::protocol::{Ground, Outcome, PASSES_MAX, carry_out};
use super::slots::{Slots, Span};
use braid_contract::ObjectId;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// What a tier holds that was punched, or never had the range.
const NOTHING: u64 = u64::MAX;
const RANGE_SIZE: u64 = 64;

/// Two tiers with one chunk each of one range, and the range's entry.
struct World {
    slots: Slots,
    moving: std::sync::Arc<Moving>,
    tiers: [AtomicU64; 2],
    /// Tier and version.
    entry: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: Slots::new(3),
            moving: Moving::new(),
            tiers: [AtomicU64::new(0), AtomicU64::new(NOTHING)],
            entry: AtomicU64::new(0),
        })
    }

    fn span() -> Span {
        Span::new(ObjectId([1; 16]), &(0..1))
    }

    /// The tier that holds the range.
    fn here(&self) -> &AtomicU64 {
        &self.tiers[(self.entry.load(Ordering::Acquire) % 2) as usize]
    }

    fn write(&self, value: u64) {
        let writing = self.moving.write(&self.slots, Self::span(), 0..1, RANGE_SIZE);
        self.here().store(value, Ordering::Relaxed);
        drop(writing);
    }

    /// As a volume reads: again, if the entry was switched meanwhile.
    fn read(&self) -> u64 {
        loop {
            let (switches, entry) = (self.moving.switches(), self.entry.load(Ordering::Acquire));
            let value = self.tiers[(entry % 2) as usize].load(Ordering::Acquire);
            fence(Ordering::Acquire);
            if self.moving.switches() == switches || self.entry.load(Ordering::Acquire) == entry {
                return value;
            }
            loom::thread::yield_now();
        }
    }

    fn relocate(&self) -> Outcome {
        self.relocate_within::<PASSES_MAX>()
    }

    /// With the last copy, for which writers wait, after so many passes.
    fn relocate_within<const PASSES: u32>(&self) -> Outcome {
        let this = self.moving.begin(0).unwrap();
        let ground = Memory::<PASSES> { world: self, this: &this };
        let outcome = carry_out(&ground, &self.slots, Self::span(), &this).unwrap();
        let left = &self.tiers[(1 - self.entry.load(Ordering::Acquire) % 2) as usize];
        left.store(NOTHING, Ordering::Release);
        outcome
    }
}

struct Memory<'w, const PASSES: u32> {
    world: &'w World,
    this: &'w Registered,
}

impl<const PASSES: u32> Ground for Memory<'_, PASSES> {
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

    fn copy(&self, (): &(), _: u64, _: bool) -> Result<(), Self::Error> {
        let from = (self.world.entry.load(Ordering::Acquire) % 2) as usize;
        let value = self.world.tiers[from].load(Ordering::Relaxed);
        self.world.tiers[1 - from].store(value, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self, (): &()) -> Result<(), Self::Error> {
        Ok(())
    }

    fn switch(&self, (): &()) -> Result<(), Self::Error> {
        self.world.entry.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn no_write_is_lost_beside_a_move() {
    check(4, || {
        let world = World::new();
        let writer = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || {
                world.write(1);
                world.write(2);
            })
        };
        world.relocate();
        writer.join().unwrap();
        assert_eq!(world.here().load(Ordering::Relaxed), 2);
        assert_eq!(world.read(), 2);
    });
}

#[test]
fn two_writers_and_a_move_leave_one_of_their_values() {
    check(2, || {
        let world = World::new();
        let writers: Vec<_> = [1, 2]
            .into_iter()
            .map(|value| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.write(value))
            })
            .collect();
        world.relocate();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(matches!(world.read(), 1 | 2));
    });
}

#[test]
fn a_reader_sees_old_or_new_and_nothing_else() {
    check(4, || {
        let world = World::new();
        let reader = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || {
                assert_eq!(world.read(), 0);
                assert_eq!(world.read(), 0);
            })
        };
        world.relocate();
        reader.join().unwrap();
    });
}

#[test]
fn readers_and_a_writer_beside_a_move() {
    check(3, || {
        let world = World::new();
        let reader = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || assert!(matches!(world.read(), 0 | 1)))
        };
        let writer = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || world.write(1))
        };
        world.relocate();
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(world.read(), 1);
    });
}

/// Two writes beside a move for which writers wait after `PASSES` passes, and
/// as many readers. In some interleaving they did.
fn writers_wait_for_the_last_copy<const PASSES: u32>(preemptions: usize, readers: usize) {
    // Of all interleavings: the model knows nothing of it.
    let waited = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&waited);
    check(preemptions, move || {
        let world = World::new();
        let writer = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || {
                world.write(1);
                world.write(2);
            })
        };
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || assert!(world.read() <= 2))
            })
            .collect();
        let outcome = world.relocate_within::<PASSES>();
        assert!(outcome.passes <= PASSES && (!outcome.locked || outcome.passes == PASSES));
        seen.fetch_or(outcome.locked, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(world.here().load(Ordering::Relaxed), 2);
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
