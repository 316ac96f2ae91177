//! The owners: a table of processes, with a page for each.

use crate::layout::{DEATHS, PID, START, TAG, TICKETS, VolumeWords};
use crate::party::{Liveness, Party};
use crate::region::{ALL, ReadRegion, Region};
use crate::sync::Ordering;
use crate::tag::{OwnerTag, Process};

/// The owner is arriving or leaving: no process uses the page.
const BUSY: u64 = 1 << 31;

impl<R: ReadRegion> VolumeWords<R> {
    /// Numbers of the pages that have an owner, or were not cleared after one.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = usize> {
        let owners = 0..usize::from(self.shape.owners);
        owners.filter(|index| self.region.load(self.shape.owner(*index) + TAG) != 0)
    }

    /// The owner of a page.
    pub(crate) fn owner(&self, index: usize) -> Option<OwnerTag> {
        let tag = self.region.load(self.shape.owner(index) + TAG);
        (tag != 0 && tag & BUSY == 0).then_some(OwnerTag(tag))
    }

    /// The process of a tag, unless it was cleared.
    pub(crate) fn process(&self, tag: OwnerTag) -> Option<Process> {
        let at = self.shape.owner(tag.index());
        if tag.index() >= self.shape.owners.into() || self.region.load(at + TAG) != tag.0 {
            return None;
        }
        let (pid, start) = (self.region.load(at + PID) as u32, self.region.load(at + START));
        (self.region.load(at + TAG) == tag.0).then_some(Process { pid, start })
    }
}

impl<R: Region> VolumeWords<R> {
    /// Gives a process a page of its own, if needed that of a dead one; `None`
    /// if all are taken. Only the keeper does this, before the process learns
    /// of the words.
    pub fn register(&self, process: Process, keeper: &impl Party) -> Option<OwnerTag> {
        self.take_page(process).or_else(|| {
            (1..usize::from(self.shape.owners)).for_each(|index| self.clear_if_dead(index, keeper));
            self.take_page(process)
        })
    }

    fn take_page(&self, process: Process) -> Option<OwnerTag> {
        let ticket = self.region.word(TICKETS).fetch_add(1, Ordering::Relaxed) + 1;
        (1..usize::from(self.shape.owners)).find_map(|index| {
            let (at, tag) = (self.shape.owner(index), OwnerTag::new(index, ticket));
            let word = self.region.word(at + TAG);
            word.compare_exchange(0, tag.0 | BUSY, Ordering::AcqRel, Ordering::Relaxed).ok()?;
            self.region.word(at + PID).store(process.pid.into(), Ordering::Relaxed);
            self.region.word(at + START).store(process.start, Ordering::Relaxed);
            word.store(tag.0, Ordering::Release);
            Some(tag)
        })
    }

    /// Clears a page if its owner is dead.
    pub(crate) fn clear_if_dead(&self, index: usize, party: &impl Party) {
        if let Some(owner) = self.owner(index).filter(|owner| !party.is_alive(*owner)) {
            self.clear(owner);
        }
    }

    /// Clears the page of an owner that is gone, or has nothing under way and
    /// will begin nothing, and frees it. Only the keeper does this.
    pub fn clear(&self, tag: OwnerTag) {
        let word = self.region.word(self.shape.owner(tag.index()) + TAG);
        // One of the threads that find it dead clears it; the others keep
        // waiting.
        if word.compare_exchange(tag.0, tag.0 | BUSY, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        let index = tag.index();
        let slots = (0..self.shape.slots.into()).map(|at| self.shape.slot(index, at));
        let counts = (0..self.shape.counts.into()).map(|at| self.shape.count(index, at));
        // Before the claims are removed: a mover that finds none sees the
        // death, and copies all again.
        if slots.clone().any(|at| self.region.load(at) != 0) {
            self.region.word(DEATHS).fetch_add(1, Ordering::AcqRel);
        }
        for at in slots.chain(counts) {
            if self.region.word(at).swap(0, Ordering::AcqRel) != 0 {
                self.region.wake(at, ALL);
            }
        }
        word.store(0, Ordering::Release);
    }
}

/// An owner in the table of a volume's words. One that is no longer in the
/// table is not alive.
#[derive(Clone, Debug)]
pub struct Member<R, L> {
    words: VolumeWords<R>,
    tag: OwnerTag,
    liveness: L,
}

impl<R: ReadRegion, L: Liveness> Member<R, L> {
    /// The owner that was registered as `tag`.
    pub fn new(words: VolumeWords<R>, tag: OwnerTag, liveness: L) -> Self {
        Self { words, tag, liveness }
    }
}

impl<R: ReadRegion, L: Liveness> Party for Member<R, L> {
    fn tag(&self) -> OwnerTag {
        self.tag
    }

    fn is_alive(&self, owner: OwnerTag) -> bool {
        // The words are unusable without the keeper.
        owner == self.tag
            || owner == OwnerTag::KEEPER
            || self.words.process(owner).is_some_and(|process| self.liveness.is_alive(process))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::VolumeShape;
    use crate::party::Sole;
    use crate::region::PrivateWords;

    const SHAPE: VolumeShape = VolumeShape { owners: 3, counts: 1, slots: 1 };

    #[test]
    fn each_owner_has_a_page_and_a_tag_for_good() {
        let words = VolumeWords::format(PrivateWords::new(SHAPE.words()), SHAPE).unwrap();
        let process = |pid| Process { pid, start: 7 };
        let register = |pid| words.register(process(pid), &Sole);
        let (first, second) = (register(1).unwrap(), register(2).unwrap());
        assert_eq!(register(3), None);
        assert_eq!(words.process(second), Some(process(2)));
        words.clear(first);
        assert_eq!((words.process(first), words.owner(first.index())), (None, None));
        let third = register(3).unwrap();
        assert_eq!(third.index(), first.index());
        assert_ne!(third, first);
        words.clear(first);
        assert_eq!(words.process(third), Some(process(3)), "the tag is another one's");
    }

    /// All but one are dead.
    struct Last(u32);

    impl Liveness for Last {
        fn is_alive(&self, process: Process) -> bool {
            process.pid == self.0
        }
    }

    #[test]
    fn one_that_comes_gets_the_page_of_a_dead_one() {
        let words = VolumeWords::format(PrivateWords::new(SHAPE.words()), SHAPE).unwrap();
        let keeper = Member::new(words.clone(), OwnerTag::KEEPER, Last(2));
        let [first, second] = [1, 2].map(|pid| words.register(Process { pid, start: 0 }, &keeper).unwrap());
        let third = words.register(Process { pid: 3, start: 0 }, &keeper).unwrap();
        assert_eq!(third.index(), first.index());
        assert!(words.process(first).is_none() && words.process(second).is_some());
    }
}
