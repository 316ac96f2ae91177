//! A lock in a word, which passes to the next waiter if its holder dies.
//!
//! The word is the holder's tag (0: free), and two bits of the lower half: one
//! if a thread may sleep on it, one if a holder died and the guarded state is
//! not repaired yet.

use crate::party::Party;
use crate::region::Region;
use crate::sync::{LOOK, Ordering};
use crate::tag::OwnerTag;

const CONTENDED: u64 = 1 << 31;
const ABANDONED: u64 = 1 << 30;

/// An owner died while it held a lock: the guarded state may be half-changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abandoned;

/// A held lock; dropping it releases it.
#[derive(Debug)]
pub(crate) struct Locked<'a, R: Region> {
    region: &'a R,
    at: usize,
    /// The word after the release, unless the state was repaired.
    owed: u64,
}

/// Takes the lock in a word of `region`.
pub(crate) fn lock<'a, R: Region>(region: &'a R, at: usize, party: &impl Party) -> Locked<'a, R> {
    let word = region.word(at);
    // After a sleep, others may sleep on.
    let (mut sleepers, mut late) = (0, false);
    loop {
        let seen = word.load(Ordering::Relaxed);
        let holder = seen & !(CONTENDED | ABANDONED);
        let dead = std::mem::take(&mut late) && holder != 0 && !party.is_alive(OwnerTag(holder));
        if holder == 0 || dead {
            let owed = if holder == 0 { seen & ABANDONED } else { ABANDONED };
            let mine = party.tag().0 | owed | seen & CONTENDED | sleepers;
            if word.compare_exchange(seen, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Locked { region, at, owed };
            }
            continue;
        }
        let contended = seen | CONTENDED;
        if seen == contended
            || word.compare_exchange(seen, contended, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            late = region.wait(at, contended, Some(LOOK));
            sleepers = CONTENDED;
        }
    }
}

impl<R: Region> Locked<'_, R> {
    /// Whether the guarded state has to be repaired.
    pub(crate) fn abandoned(&self) -> Option<Abandoned> {
        (self.owed != 0).then_some(Abandoned)
    }

    /// Notes that it was repaired.
    pub(crate) fn mended(&mut self) {
        self.owed = 0;
    }
}

impl<R: Region> Drop for Locked<'_, R> {
    fn drop(&mut self) {
        let before = self.region.word(self.at).swap(self.owed, Ordering::Release);
        if before & CONTENDED != 0 {
            self.region.wake(self.at, 1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::party::Sole;
    use crate::region::{PrivateWords, ReadRegion};
    use crate::sync::Word;

    /// Another owner, for whom all others are dead.
    struct Survivor;

    impl Party for Survivor {
        fn tag(&self) -> OwnerTag {
            OwnerTag(7 << 32 | 2)
        }

        fn is_alive(&self, owner: OwnerTag) -> bool {
            owner == self.tag()
        }
    }

    #[test]
    fn one_holds_it_at_a_time() {
        let (words, count) = (PrivateWords::new(1), Word::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _locked = lock(&words, 0, &Sole);
                        let seen = count.load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        count.store(seen + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 8000);
        assert_eq!(words.load(0), 0);
    }

    #[test]
    fn what_a_dead_holder_left_is_told_until_it_is_mended() {
        let words = PrivateWords::new(1);
        let held = lock(&words, 0, &Sole);
        assert_eq!(held.abandoned(), None);
        std::mem::forget(held);
        let first = lock(&words, 0, &Survivor);
        assert_eq!(first.abandoned(), Some(Abandoned));
        drop(first);
        let mut second = lock(&words, 0, &Survivor);
        assert_eq!(second.abandoned(), Some(Abandoned));
        second.mended();
        drop(second);
        assert_eq!(lock(&words, 0, &Sole).abandoned(), None);
    }
}
