//! The stream that a file's data belongs to, once it was looked up.

use braid_contract::StreamId;
use braid_hint::FoundStream;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// In a word: there is a stream, whose number is the lower half.
const SOME: u64 = 1 << 32;
/// In a word: the writer was not known.
const UNSURE: u64 = 1 << 33;
/// In a word: something was found.
const FOUND: u64 = 1 << 34;
/// Where the generation of the rules begins, of which a word has the lower bits.
const GENERATION: u32 = 35;

/// A found stream, with the generation of the rules and the thread.
#[derive(Debug, Default)]
pub(crate) struct StreamCell {
    found: AtomicU64,
    /// The thread that was not known; it is looked up once.
    missed: AtomicU32,
}

impl StreamCell {
    /// The stream found by the rules of this generation; looks it up, by `ask`, until
    /// it was found for a writer.
    pub(crate) fn get_or(
        &self,
        generation: u32,
        thread: u32,
        ask: impl FnOnce() -> FoundStream,
    ) -> FoundStream {
        let word = self.found.load(Ordering::Relaxed);
        let is_sure = word & UNSURE == 0;
        let is_for = is_sure || thread == 0 || self.missed.load(Ordering::Relaxed) == thread;
        if is_of(word, generation) && is_for {
            let stream = (word & SOME != 0).then_some(StreamId(word as u32));
            return FoundStream { stream, is_sure };
        }
        let found = ask();
        self.set(generation, thread, found);
        found
    }

    /// The next reader looks it up.
    pub(crate) fn forget(&self) {
        self.found.store(0, Ordering::Relaxed);
    }

    /// Notes the stream found now for a thread. Without a writer, which is 0, less
    /// is known, and nothing is noted. A certain stream stays.
    pub(crate) fn set(&self, generation: u32, thread: u32, found: FoundStream) {
        let before = self.found.load(Ordering::Relaxed);
        if thread == 0 || !found.is_sure && is_of(before, generation) && before & UNSURE == 0 {
            return;
        }
        let unsure = if found.is_sure { 0 } else { UNSURE };
        let stream = found.stream.map_or(0, |stream| SOME | u64::from(stream.0));
        self.missed.store(thread, Ordering::Relaxed);
        let word = u64::from(generation) << GENERATION | FOUND | unsure | stream;
        self.found.store(word, Ordering::Relaxed);
    }
}

/// Whether the word is of rules of this generation.
fn is_of(word: u64, generation: u32) -> bool {
    word & FOUND != 0 && word >> GENERATION == (u64::from(generation) << GENERATION) >> GENERATION
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(stream: u32, is_sure: bool) -> FoundStream {
        FoundStream { stream: Some(StreamId(stream)), is_sure }
    }

    #[test]
    fn what_was_found_holds_for_its_rules() {
        let cell = StreamCell::default();
        assert_eq!(cell.get_or(0, 0, || found(1, true)), found(1, true), "without a writer");
        let none = FoundStream { stream: None, is_sure: true };
        assert_eq!(cell.get_or(0, 7, || none), none);
        assert_eq!(cell.get_or(0, 8, || found(2, true)), none);
        for generation in [1, u32::MAX] {
            assert_eq!(cell.get_or(generation, 8, || found(u32::MAX, true)), found(u32::MAX, true));
            assert_eq!(cell.get_or(generation, 9, || found(3, true)), found(u32::MAX, true));
        }
    }

    #[test]
    fn a_writer_that_is_not_known_is_asked_once_and_others_are_asked_still() {
        let cell = StreamCell::default();
        assert_eq!(cell.get_or(5, 7, || found(1, false)), found(1, false));
        assert_eq!(cell.get_or(5, 7, || found(2, true)), found(1, false));
        assert_eq!(cell.get_or(5, 8, || found(2, true)), found(2, true));
        cell.set(5, 9, found(3, false));
        assert_eq!(cell.get_or(5, 9, || found(4, true)), found(2, true));
    }
}
