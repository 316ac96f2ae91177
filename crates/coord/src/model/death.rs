//! A client dies at each step of a write and of an operation, while the keeper
//! moves the range and freezes the barrier.

use super::moves::{RANGE_SIZE, Tiers, span};
use super::{As, Dead, check, parties};
use crate::barrier::Barrier;
use crate::layout::{FileWords, VolumeWords};
use crate::moving::Moving;
use crate::protocol::PASSES_MAX;
use crate::region::{PrivateWords, Region};
use crate::slots::WriterSlots;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use std::mem::forget;

/// The last step of the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Last {
    /// Its ranges are claimed, and it has checked nothing.
    Claim,
    /// It knows the moves.
    Look,
    /// Half of the data is written.
    Half,
    /// All of the data is written, but not marked.
    Data,
    /// Its writes are marked; the claim stands.
    Marks,
    /// The claim is gone, but waiters were not woken.
    Claimless,
    /// It has ended its write.
    End,
}

const EACH: [Last; 7] =
    [Last::Claim, Last::Look, Last::Half, Last::Data, Last::Marks, Last::Claimless, Last::End];

/// A process's view of a file.
struct Side {
    slots: WriterSlots<PrivateWords, As>,
    moving: Moving<PrivateWords, As>,
}

struct World {
    words: VolumeWords<PrivateWords>,
    keeper: Side,
    client: Side,
    other: Side,
    dead: Dead,
    tiers: Tiers<2>,
}

impl World {
    fn new() -> Arc<Self> {
        let (words, dead, members) = parties(1);
        let file = FileWords::private();
        let [keeper, client, other] = members.map(|member| Side {
            slots: WriterSlots::new(words.clone(), member.clone()),
            moving: Moving::new(file.clone(), member),
        });
        Arc::new(Self { words, keeper, client, other, dead, tiers: Tiers::new() })
    }

    /// The client writes 1 to both words of the range, up to some step, and dies.
    fn write_and_die(&self, last: Last) {
        if last == Last::Claim {
            forget(self.client.slots.claim(span()));
            return self.dead.die(0);
        }
        let writing = self.client.moving.write(&self.client.slots, span(), 0..RANGE_SIZE, RANGE_SIZE);
        let words = match last {
            Last::Claim | Last::Look => 0,
            Last::Half => 1,
            Last::Data | Last::Marks | Last::Claimless | Last::End => 2,
        };
        self.tiers.here()[..words].iter().for_each(|word| word.store(1, Ordering::Relaxed));
        match last {
            Last::End => drop(writing),
            Last::Claimless => {
                writing.mark();
                let slot = self.words.shape.slot(1, 0);
                self.words.region.word(slot).store(0, crate::sync::Ordering::Release);
                forget(writing);
            }
            Last::Marks => {
                writing.mark();
                forget(writing);
            }
            _ => forget(writing),
        }
        self.dead.die(0);
    }

    /// The other client writes to the first word, and lives.
    fn write(&self, value: u64) {
        let bytes = 0..RANGE_SIZE / 2;
        let writing = self.other.moving.write(&self.other.slots, span(), bytes, RANGE_SIZE);
        self.tiers.here()[0].store(value, Ordering::Relaxed);
        drop(writing);
    }

    fn relocate<const PASSES: u32>(&self) {
        self.tiers.relocate::<As, PASSES>(&self.keeper.moving, &self.keeper.slots);
    }

    fn words(&self) -> [u64; 2] {
        self.tiers.here().each_ref().map(|word| word.load(Ordering::Relaxed))
    }
}

/// The data that a client leaves in the range after this step.
fn left(last: Last) -> [u64; 2] {
    [u64::from(last >= Last::Half), u64::from(last >= Last::Data)]
}

fn a_move_ends_beside_a_writer_that_dies<const PASSES: u32>(preemptions: usize) {
    for last in EACH {
        check(preemptions, move || {
            let world = World::new();
            let client = {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.write_and_die(last))
            };
            world.relocate::<PASSES>();
            client.join().unwrap();
            assert_eq!(world.words(), left(last), "what was written before the death is lost");
            // A second move finds nothing of the dead owner any more.
            world.relocate::<PASSES>();
            assert_eq!(world.words(), left(last));
            assert!(!world.keeper.moving.is_active());
        });
    }
}

#[test]
fn a_writer_dies_at_each_step_beside_a_move() {
    a_move_ends_beside_a_writer_that_dies::<PASSES_MAX>(3);
}

#[test]
fn a_writer_dies_at_each_step_beside_the_last_copy() {
    a_move_ends_beside_a_writer_that_dies::<1>(3);
}

#[test]
fn others_write_on_beside_one_that_dies_and_a_move() {
    for last in EACH {
        check(2, move || {
            let world = World::new();
            let client = {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.write_and_die(last))
            };
            let other = {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || world.write(2))
            };
            world.relocate::<PASSES_MAX>();
            client.join().unwrap();
            other.join().unwrap();
            let ([first, second], left) = (world.words(), left(last));
            assert!(first == 2 || first == left[0] && left[0] == 1, "a write that has ended is lost");
            assert_eq!(second, left[1]);
        });
    }
}

/// The step of the barrier at which a client dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inside {
    /// It is counted, and may have checked whether the barrier is frozen.
    Counted,
    /// It is no longer counted, but a waiting freeze was not woken.
    Uncounted,
    /// It has left.
    Out,
}

#[test]
fn a_freeze_ends_if_a_client_dies_inside() {
    for inside in [Inside::Counted, Inside::Uncounted, Inside::Out] {
        check(3, move || {
            let (words, dead, [keeper, client, other]) = parties(1);
            let barriers = [client, other].map(|member| Barrier::new(words.clone(), member));
            let [dying, living] = barriers;
            let keeper = Barrier::new(words.clone(), keeper);
            let dies = loom::thread::spawn(move || {
                let entered = dying.enter_at(0);
                match inside {
                    Inside::Counted => forget(entered),
                    Inside::Uncounted => {
                        let at = words.shape.count(1, 0);
                        words.region.word(at).fetch_sub(1, crate::sync::Ordering::AcqRel);
                        forget(entered);
                    }
                    Inside::Out => drop(entered),
                }
                dead.die(0);
            });
            let busy = Arc::new(AtomicU64::new(0));
            let lives = {
                let busy = Arc::clone(&busy);
                loom::thread::spawn(move || {
                    let _entered = living.enter_at(0);
                    busy.store(1, Ordering::Relaxed);
                    busy.store(0, Ordering::Relaxed);
                })
            };
            let frozen = keeper.freeze(|| false).unwrap();
            assert_eq!(busy.load(Ordering::Relaxed), 0, "one that lives is inside");
            drop(frozen);
            dies.join().unwrap();
            lives.join().unwrap();
            assert!(keeper.freeze(|| false).is_some());
        });
    }
}
