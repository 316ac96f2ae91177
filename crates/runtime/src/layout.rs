//! The layout of a session's memory, for both sides.
//!
//! All of it is 8-byte words. A head, then the queues one after another: for each the two
//! ends and the numbers of slots in the order of their requests, then the slots. A slot holds one
//! request and then its answer, with room for data of either.

use braid_sdk::abi::{Answers, Numbers};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Words between the stores of one side and those of the other: two cache lines, since processors
/// fetch them in pairs.
const APART: usize = 16;

/// Words of the head of a session.
const HEAD: usize = 512;

/// Words of a slot before its data.
const SLOT_HEAD: usize = 128;

/// Longest name, in bytes.
pub(crate) const NAME_MAX: usize = 255;

pub(crate) const NAME_WORDS: usize = 32;
pub(crate) const NUMBERS_WORDS: usize = size_of::<Numbers>() / 8;
const ANSWERS_WORDS: usize = size_of::<Answers>() / 8;

/// Queues of a session, at most.
pub const QUEUES_MAX: usize = 16;
/// Slots of a queue, at most: the most requests under way in it.
pub const DEPTH_MAX: usize = 64;
/// Bytes of data of a slot, at least and at most. Longer reads and writes are several requests.
pub const DATA_MIN: usize = 4 << 10;
/// See [`DATA_MIN`].
pub const DATA_MAX: usize = 1 << 20;
/// Bytes of the memory of a session, at most.
pub(crate) const SESSION_BYTES_MAX: usize = 64 << 20;

/// The division of a session's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Queues, each with its own order of requests.
    pub queues: usize,
    /// Slots of each queue.
    pub depth: usize,
    /// Bytes of data of a slot; a multiple of 4096.
    pub data: usize,
}

impl Default for Geometry {
    fn default() -> Self {
        Self { queues: 4, depth: 8, data: 128 << 10 }
    }
}

impl Geometry {
    /// Whether there may be such a session.
    pub(crate) fn is_allowed(self) -> bool {
        (1..=QUEUES_MAX).contains(&self.queues)
            && (1..=DEPTH_MAX).contains(&self.depth)
            && (DATA_MIN..=DATA_MAX).contains(&self.data)
            && self.data.is_multiple_of(4096)
            && self.bytes() <= SESSION_BYTES_MAX
    }

    /// Bytes of the memory.
    pub(crate) fn bytes(self) -> usize {
        self.words() * size_of::<u64>()
    }

    /// Words of the memory.
    pub(crate) fn words(self) -> usize {
        HEAD + self.queues * self.queue_words()
    }

    fn queue_words(self) -> usize {
        3 * APART + self.depth.next_multiple_of(APART) + self.depth * self.slot_words()
    }

    fn slot_words(self) -> usize {
        SLOT_HEAD + self.data / 8
    }

    fn queue(self, queue: usize) -> usize {
        HEAD + queue * self.queue_words()
    }

    /// How many requests the application has put into the queue.
    pub(crate) fn tail(self, queue: usize) -> usize {
        self.queue(queue)
    }

    /// How many of the queue's workers sleep.
    pub(crate) fn asleep(self, queue: usize) -> usize {
        self.queue(queue) + APART
    }

    /// The slot of the request of this number.
    pub(crate) fn entry(self, queue: usize, number: u64) -> usize {
        self.queue(queue) + 3 * APART + (number % self.depth as u64) as usize
    }

    /// A slot.
    pub(crate) fn slot(self, queue: usize, slot: usize) -> Slot {
        let slots = self.queue(queue) + 3 * APART + self.depth.next_multiple_of(APART);
        Slot { at: slots + slot * self.slot_words(), data: self.data / 8 }
    }
}

/// The word that the application raises to wake sleeping workers.
pub(crate) const DOORBELL: usize = APART;

/// The place of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    at: usize,
    data: usize,
}

impl Slot {
    /// [`State`] of the slot.
    pub(crate) fn state(self) -> usize {
        self.at
    }

    /// Lengths in bytes: of the name (16 bits), the new name (16), and the data (32).
    pub(crate) fn lengths(self) -> usize {
        self.at + 1
    }

    /// Of the request, the room for data read (32 bits), the caller's groups (17), and [`ENTRIES`];
    /// of the answer, the error number, or 0.
    pub(crate) fn room(self) -> usize {
        self.at + 2
    }

    /// Of the answer: the bytes of data (32 bits), and of the error's text (32), which is in the
    /// place of the name.
    pub(crate) fn answered(self) -> usize {
        self.at + 3
    }

    pub(crate) fn numbers(self) -> Range<usize> {
        self.at + 4..self.at + 4 + NUMBERS_WORDS
    }

    pub(crate) fn answers(self) -> Range<usize> {
        let at = self.numbers().end;
        at..at + ANSWERS_WORDS
    }

    pub(crate) fn name(self) -> Range<usize> {
        let at = self.answers().end;
        at..at + NAME_WORDS
    }

    pub(crate) fn new_name(self) -> Range<usize> {
        let at = self.name().end;
        at..at + NAME_WORDS
    }

    /// The number of the request in its queue, or [`UNSUBMITTED`]: for the application alone, whose
    /// next process learns by it which requests will be answered.
    pub(crate) fn submitted(self) -> usize {
        self.at + SLOT_HEAD - 1
    }

    pub(crate) fn data(self) -> Range<usize> {
        self.at + SLOT_HEAD..self.at + SLOT_HEAD + self.data
    }

    /// `count` groups of the caller, of 4 bytes, at the end of the room for data.
    pub(crate) fn groups(self, count: usize) -> Range<usize> {
        let end = self.data().end;
        end - count.div_ceil(2).min(self.data)..end
    }
}

const _: () =
    assert!(4 + NUMBERS_WORDS + ANSWERS_WORDS + 2 * NAME_WORDS < SLOT_HEAD, "a slot's head is too small");
const _: () = assert!(NAME_MAX < NAME_WORDS * 8, "a name does not fit");

/// The number of a request that is not in a queue yet.
pub(crate) const UNSUBMITTED: u64 = u64::MAX;

/// Groups that a caller can have (`NGROUPS_MAX`).
pub(crate) const GROUPS_MAX: usize = 1 << 16;

/// The room is for entries of a directory.
pub(crate) const ENTRIES: u64 = 1 << 63;

/// The state of a slot: the lower half of its first word, on which the application sleeps. The
/// upper half is its generation, a count by which the application tells one use from another.
pub(crate) mod state {
    /// The state of a slot, by its first word.
    pub(crate) fn of(word: u64) -> u64 {
        word & 0xffff_ffff
    }

    /// The generation of a slot: the number of its use, in the upper half.
    pub(crate) fn generation(word: u64) -> u64 {
        word & !0xffff_ffff
    }

    /// The generation of the next use.
    pub(crate) fn next(word: u64) -> u64 {
        generation(word).wrapping_add(1 << 32)
    }

    /// It holds a request.
    pub(crate) const ASKED: u64 = 1;
    /// It holds a request, and the application sleeps until it is answered.
    pub(crate) const AWAITED: u64 = 2;
    /// It holds an answer.
    pub(crate) const ANSWERED: u64 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn nothing_overlaps() {
        let geometry = Geometry { queues: 3, depth: 5, data: 4096 };
        let mut used = HashSet::from([DOORBELL]);
        let mut take = |words: Range<usize>| words.for_each(|word| assert!(used.insert(word), "word {word}"));
        for queue in 0..geometry.queues {
            take(geometry.tail(queue)..geometry.tail(queue) + 1);
            take(geometry.asleep(queue)..geometry.asleep(queue) + 1);
            for slot in 0..geometry.depth {
                let entry = geometry.entry(queue, slot as u64);
                take(entry..entry + 1);
                let slot = geometry.slot(queue, slot);
                take(slot.state()..slot.answered() + 1);
                take(slot.submitted()..slot.submitted() + 1);
                [slot.numbers(), slot.answers(), slot.name(), slot.new_name(), slot.data()]
                    .into_iter()
                    .for_each(&mut take);
            }
        }
        assert!(used.iter().all(|word| *word < geometry.words()));
    }

    #[test]
    fn sizes_have_bounds() {
        let fine = Geometry::default();
        assert!(fine.is_allowed());
        for bad in [
            Geometry { queues: 0, ..fine },
            Geometry { queues: QUEUES_MAX + 1, ..fine },
            Geometry { depth: 0, ..fine },
            Geometry { depth: DEPTH_MAX + 1, ..fine },
            Geometry { data: 0, ..fine },
            Geometry { data: 5000, ..fine },
            Geometry { data: usize::MAX & !4095, ..fine },
            Geometry { queues: QUEUES_MAX, depth: DEPTH_MAX, data: DATA_MAX },
        ] {
            assert!(!bad.is_allowed(), "{bad:?}");
        }
    }
}
