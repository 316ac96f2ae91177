//! The barrier that every operation passes: freezing it waits for those under
//! way and blocks new ones, so that shared state below them can be exchanged.
//!
//! Passing it costs two changes of a counter that few threads share.

use crate::layout::{FROZEN, VolumeWords};
use crate::party::Party;
use crate::region::{ALL, Region};
use crate::sync::{LOOK, Ordering, place_of_this_thread};

/// The barrier, as seen by one owner.
#[derive(Debug)]
pub struct Barrier<R, P> {
    words: VolumeWords<R>,
    party: P,
}

/// An operation under way. One that has entered must not enter again: a freeze
/// that begins in between would deadlock with it.
#[derive(Debug)]
pub struct Entered<'a, R: Region> {
    region: &'a R,
    at: usize,
}

/// No operation is under way while this lives.
#[derive(Debug)]
pub struct Frozen<'a, R: Region>(&'a R);

impl<R: Region, P: Party> Barrier<R, P> {
    /// The barrier for `party`.
    pub fn new(words: VolumeWords<R>, party: P) -> Self {
        Self { words, party }
    }

    /// Enters; waits while the barrier is frozen.
    pub fn enter(&self) -> Entered<'_, R> {
        self.enter_at(place_of_this_thread() % usize::from(self.words.shape.counts))
    }

    pub(crate) fn enter_at(&self, count: usize) -> Entered<'_, R> {
        let region = &self.words.region;
        let at = self.words.shape.count(self.party.tag().index(), count);
        loop {
            // A freeze exchanges the count too (`is_entered`), and the later of
            // the two sees the earlier's changes: either this thread sees that
            // the barrier is frozen, or the freeze sees the count.
            region.word(at).fetch_add(1, Ordering::AcqRel);
            let entered = Entered { region, at };
            if region.load(FROZEN) == 0 {
                return entered;
            }
            drop(entered);
            while region.load(FROZEN) != 0 {
                region.wait(FROZEN, 1, None);
            }
        }
    }

    /// Freezes the barrier when all have left; gives up when `give_up`, which
    /// is called now and then, says so. Clears owners that died inside. Only
    /// the keeper does this, one call at a time.
    pub fn freeze(&self, mut give_up: impl FnMut() -> bool) -> Option<Frozen<'_, R>> {
        let region = &self.words.region;
        region.word(FROZEN).store(1, Ordering::Release);
        let frozen = Frozen(region);
        while let Some((owner, at, count)) = self.entered() {
            if give_up() {
                return None;
            }
            if region.wait(at, count, Some(LOOK)) {
                self.words.clear_if_dead(owner, &self.party);
            }
        }
        Some(frozen)
    }

    /// Whether an operation is under way.
    pub fn is_entered(&self) -> bool {
        self.entered().is_some()
    }

    /// A count that is not 0: its owner, its position, and the count.
    /// Exchanging the counts, rather than loading them, orders this with all
    /// enters and exits.
    fn entered(&self) -> Option<(usize, usize, u64)> {
        let counts = 0..usize::from(self.words.shape.counts);
        self.words.in_use().find_map(|owner| {
            counts.clone().find_map(|at| {
                let at = self.words.shape.count(owner, at);
                let count = self.words.region.word(at).fetch_add(0, Ordering::AcqRel);
                (count > 0).then_some((owner, at, count))
            })
        })
    }
}

impl<R: Region> Drop for Entered<'_, R> {
    fn drop(&mut self) {
        self.region.word(self.at).fetch_sub(1, Ordering::AcqRel);
        if self.region.load(FROZEN) != 0 {
            self.region.wake(self.at, ALL);
        }
    }
}

impl<R: Region> Drop for Frozen<'_, R> {
    fn drop(&mut self) {
        self.0.word(FROZEN).store(0, Ordering::Release);
        self.0.wake(FROZEN, ALL);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::party::Sole;
    use crate::region::PrivateWords;
    use std::sync::atomic::{AtomicBool, AtomicU32};

    fn barrier() -> Barrier<PrivateWords, Sole> {
        Barrier::new(VolumeWords::private(4, 1), Sole)
    }

    #[test]
    fn a_freeze_waits_for_those_inside_and_holds_others_up() {
        let barrier = barrier();
        let inside = barrier.enter();
        let mut asked = 0;
        let given_up = barrier.freeze(|| {
            asked += 1;
            asked > 2
        });
        assert!(given_up.is_none());
        drop(barrier.enter());
        drop(inside);
        assert!(barrier.freeze(|| true).is_some());
        drop(barrier.enter());
    }

    #[test]
    fn nothing_is_inside_while_the_barrier_is_frozen() {
        let (barrier, inside, end) = (barrier(), AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !end.load(Ordering::Relaxed) {
                        let _entered = barrier.enter();
                        inside.fetch_add(1, Ordering::Relaxed);
                        std::hint::spin_loop();
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..300 {
                let frozen = barrier.freeze(|| false).unwrap();
                for _ in 0..10 {
                    assert_eq!(inside.load(Ordering::Relaxed), 0);
                }
                drop(frozen);
            }
            end.store(true, Ordering::Relaxed);
        });
    }
}
