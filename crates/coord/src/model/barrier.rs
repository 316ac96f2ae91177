//! One thread freezes the barrier and two pass it.

use super::check;
use crate::barrier::Barrier;
use crate::layout::VolumeWords;
use crate::party::Sole;
use crate::region::PrivateWords;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

/// Barrier counts.
const COUNTS: usize = 2;

/// The state behind the barrier. All accesses are relaxed: only the barrier
/// makes later operations see earlier changes.
struct World {
    barrier: Barrier<PrivateWords, Sole>,
    /// Two words that are exchanged while the barrier is frozen.
    generation: [AtomicU64; 2],
    begun: [AtomicU64; COUNTS],
    ended: [AtomicU64; COUNTS],
}

impl World {
    fn new() -> Arc<Self> {
        let zero = |_| AtomicU64::new(0);
        Arc::new(Self {
            barrier: Barrier::new(VolumeWords::private(COUNTS as u16, 1), Sole),
            generation: std::array::from_fn(zero),
            begun: std::array::from_fn(zero),
            ended: std::array::from_fn(zero),
        })
    }

    /// An operation, which must see one generation from start to end.
    fn operate(&self, at: usize) -> u64 {
        let _entered = self.barrier.enter_at(at);
        count(&self.begun[at]);
        let found = self.generation[0].load(Ordering::Relaxed);
        let again = self.generation[1].load(Ordering::Relaxed);
        assert_eq!(again, found, "the generation was exchanged meanwhile");
        count(&self.ended[at]);
        found
    }

    /// Exchanges the generation, while no operation is under way.
    fn exchange(&self, give_up: impl FnMut() -> bool) -> bool {
        let Some(_frozen) = self.barrier.freeze(give_up) else { return false };
        for (begun, ended) in self.begun.iter().zip(&self.ended) {
            assert_eq!(begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed), "one is inside");
        }
        self.generation.iter().for_each(count);
        true
    }
}

/// Adds one, where no other thread does; not atomically, so that overlaps show.
fn count(word: &AtomicU64) {
    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn operating(world: &Arc<World>, at: usize, times: usize) -> loom::thread::JoinHandle<()> {
    let world = Arc::clone(world);
    loom::thread::spawn(move || {
        let mut last = 0;
        for _ in 0..times {
            let found = world.operate(at);
            assert!(found >= last, "an earlier generation is back");
            last = found;
        }
    })
}

#[test]
fn nothing_is_under_way_while_the_barrier_is_frozen() {
    check(3, || {
        let world = World::new();
        let threads = [operating(&world, 0, 1), operating(&world, 1, 1)];
        assert!(world.exchange(|| false));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.operate(0), 1);
    });
}

#[test]
fn threads_that_share_a_counter_do_not_hide_each_other() {
    check(3, || {
        let world = World::new();
        // One counter: `begun` and `ended` could not distinguish the two, so
        // only one of them counts.
        let passing = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || drop(world.barrier.enter_at(0)))
        };
        let thread = operating(&world, 0, 1);
        assert!(world.exchange(|| false));
        passing.join().unwrap();
        thread.join().unwrap();
    });
}

#[test]
fn an_operation_after_the_other_goes_on_when_the_barrier_thaws() {
    check(4, || {
        let world = World::new();
        let thread = operating(&world, 0, 2);
        assert!(world.exchange(|| false));
        assert!(world.exchange(|| false));
        thread.join().unwrap();
        assert_eq!(world.operate(1), 2);
    });
}

#[test]
fn a_freeze_that_gives_up_leaves_the_barrier_open() {
    check(4, || {
        let world = World::new();
        let thread = operating(&world, 1, 2);
        let exchanged = world.exchange(|| true);
        thread.join().unwrap();
        assert_eq!(world.operate(0), u64::from(exchanged));
    });
}
