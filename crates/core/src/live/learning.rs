//! Streams that are learned from the past of files: the learner of a volume, shared by
//! all operations, which are in `file/learned.rs`.

use braid_contract::{InodeId, WriteLife};
use braid_hint::{LEARNED_MAX, LearnedStream, Learner, Opening, RememberedKind, Written, life_of};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

/// The same run learns the same.
const SEED: u64 = 1;

/// The streams that a volume learned.
pub struct Learning {
    learner: Mutex<Learner>,
    /// How long the data of each stream is expected to live, as a position in
    /// [`WriteLife::ALL`]: each write asks.
    lives: [AtomicU8; LEARNED_MAX as usize],
}

impl Learning {
    /// Nothing is learned yet. There are at most so many streams, 1 to [`LEARNED_MAX`].
    #[must_use]
    pub fn new(most: u16) -> Self {
        let lives = std::array::from_fn(|_| AtomicU8::new(0));
        Self { learner: Mutex::new(Learner::new(most, SEED)), lives }
    }

    /// The number of the stream of a file; `None` if no similar files are known.
    pub(crate) fn stream_of(&self, opening: &Opening<'_>, now_ns: u64) -> Option<u16> {
        self.learner.lock().stream_of(opening, now_ns)
    }

    /// A file is followed from now on.
    pub(crate) fn begins(&self, file: InodeId, opening: &Opening<'_>, now_ns: u64) {
        self.learner.lock().begins(file.0, opening, now_ns);
    }

    /// The last use of a file that was written ended.
    pub(crate) fn closes(&self, file: InodeId, written: &Written, now_ns: u64) {
        let mut learner = self.learner.lock();
        learner.closes(file.0, written, now_ns);
        self.note_lives(&learner);
    }

    /// The data of a file is gone.
    pub(crate) fn ends(&self, file: InodeId, now_ns: u64) {
        let mut learner = self.learner.lock();
        learner.ends(file.0, now_ns);
        self.note_lives(&learner);
    }

    /// How long the data of a stream is expected to live.
    pub(crate) fn life(&self, number: u16) -> Option<WriteLife> {
        let level = self.lives.get(usize::from(number))?.load(Ordering::Relaxed);
        WriteLife::ALL.get(usize::from(level)).copied()
    }

    /// The streams learned so far, by their numbers.
    pub fn streams(&self) -> Vec<LearnedStream> {
        self.learner.lock().streams()
    }

    /// The kinds that the next mount is to know, the newest first.
    pub fn remembered(&self, now_ns: u64) -> Vec<RememberedKind> {
        self.learner.lock().remembered(now_ns)
    }

    /// Goes on with the kinds that an earlier mount remembered; before anything
    /// is learned.
    pub fn go_on_with(&self, kinds: &[RememberedKind], now_ns: u64) {
        let mut learner = self.learner.lock();
        *learner = learner.clone().with(kinds, now_ns);
        self.note_lives(&learner);
    }

    fn note_lives(&self, learner: &Learner) {
        for (noted, life_ns) in self.lives.iter().zip(learner.lives_ns()) {
            noted.store(life_of(life_ns) as u8, Ordering::Relaxed);
        }
    }
}
