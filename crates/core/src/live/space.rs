//! How much space a spread file takes on tiers other than home, as far as that
//! is known: `stat` asks the tiers only after it may have changed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Not known.
const UNKNOWN: u64 = u64::MAX;

/// Set while the tiers are being asked, over the number of the question.
const ASKING: u64 = 1 << 63;

/// The space of a file, in blocks of 512 bytes. It is unknown after each change
/// of one of its objects, and until all tiers have answered.
#[derive(Debug)]
pub(crate) struct Space {
    blocks: AtomicU64,
    questions: AtomicU32,
    /// The tiers that were asked, as bits.
    tiers: AtomicU64,
}

/// A question to the tiers, which counts if nothing changed meanwhile.
pub(crate) struct Question(u64);

impl Space {
    pub(crate) fn unknown() -> Self {
        Self { blocks: AtomicU64::new(UNKNOWN), questions: AtomicU32::new(0), tiers: AtomicU64::new(0) }
    }

    /// The blocks on these tiers, if they are known.
    pub(crate) fn on(&self, tiers: u64) -> Option<u64> {
        let blocks = self.blocks.load(Ordering::SeqCst);
        (blocks < ASKING && self.tiers.load(Ordering::Acquire) == tiers).then_some(blocks)
    }

    /// The blocks, and on which tiers, if they are known.
    pub(crate) fn known(&self) -> Option<(u64, u64)> {
        let tiers = self.tiers.load(Ordering::Acquire);
        self.on(tiers).map(|blocks| (blocks, tiers))
    }

    /// An object of the file was changed. Called after that; it stores nothing
    /// while the space is unknown anyway.
    pub(crate) fn changed(&self) {
        if self.blocks.load(Ordering::SeqCst) != UNKNOWN {
            self.blocks.store(UNKNOWN, Ordering::SeqCst);
        }
    }

    /// Before the tiers are asked.
    pub(crate) fn ask(&self) -> Question {
        let question = ASKING | u64::from(self.questions.fetch_add(1, Ordering::Relaxed));
        self.blocks.store(question, Ordering::SeqCst);
        Question(question)
    }

    /// These tiers have answered.
    pub(crate) fn answered(&self, Question(question): &Question, tiers: u64, blocks: u64) {
        self.tiers.store(tiers, Ordering::Release);
        let blocks = blocks.min(ASKING - 1);
        let _ = self.blocks.compare_exchange(*question, blocks, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// As it was found at an earlier time, and has not changed since.
    pub(crate) fn remember(&self, tiers: u64, blocks: u64) {
        self.answered(&self.ask(), tiers, blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_space_is_known_until_something_changes() {
        let space = Space::unknown();
        assert_eq!(space.known(), None);
        space.remember(0b110, 8);
        assert_eq!((space.on(0b110), space.on(0b111), space.known()), (Some(8), None, Some((8, 0b110))));
        space.changed();
        assert_eq!(space.on(0b110), None);
    }

    #[test]
    fn an_answer_from_before_a_change_does_not_count() {
        let space = Space::unknown();
        let question = space.ask();
        space.changed();
        space.answered(&question, 0b10, 8);
        assert_eq!(space.known(), None);
        let (first, second) = (space.ask(), space.ask());
        space.answered(&first, 0b10, 8);
        assert_eq!(space.known(), None);
        space.answered(&second, 0b10, 9);
        assert_eq!(space.known(), Some((9, 0b10)));
    }
}
