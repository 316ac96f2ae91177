//! Runs of words, of one process or shared.

use crate::sync::{self, Ordering, Word};
use std::sync::Arc;
use std::time::Duration;

/// Words that may be loaded, and waited on.
pub trait ReadRegion {
    /// Number of words.
    fn count(&self) -> usize;

    /// Loads a word, and sees all stores before that of the word.
    fn load(&self, at: usize) -> u64;

    /// Sleeps while the lower half of a word equals that of `expected`, until
    /// it is woken or the timeout expires; answers whether it expired. It may
    /// wake spuriously.
    fn wait(&self, at: usize, expected: u64, timeout: Option<Duration>) -> bool;
}

/// Words that may be changed.
pub trait Region: ReadRegion {
    /// One of the words.
    fn word(&self, at: usize) -> &Word;

    /// Wakes up to `count` sleepers on a word, which has changed.
    fn wake(&self, at: usize, count: u32);
}

/// Wakes all.
pub(crate) const ALL: u32 = u32::MAX;

/// Words of two cache lines, since processors prefetch the neighbour: the
/// distance between words of different threads. The model checker's words are
/// expensive, and have no lines.
pub(crate) const LINE: usize = if cfg!(loom) { 1 } else { 16 };

/// Words of one process. A clone shares them.
#[derive(Clone, Debug)]
pub struct PrivateWords {
    words: Arc<[Word]>,
    /// Start of the first line.
    start: usize,
}

impl PrivateWords {
    /// So many words, all of them 0.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let words: Arc<[Word]> = (0..count + LINE - 1).map(|_| Word::new(0)).collect();
        let past = words.as_ptr().addr() / size_of::<u64>() % LINE;
        Self { words, start: (LINE - past) % LINE }
    }
}

impl ReadRegion for PrivateWords {
    fn count(&self) -> usize {
        self.words.len() + 1 - LINE
    }

    fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn wait(&self, at: usize, expected: u64, timeout: Option<Duration>) -> bool {
        sync::wait(self.word(at), expected, timeout, false)
    }
}

impl Region for PrivateWords {
    fn word(&self, at: usize) -> &Word {
        &self.words[self.start + at]
    }

    fn wake(&self, at: usize, count: u32) {
        sync::wake(self.word(at), count, false);
    }
}

#[cfg(not(loom))]
impl ReadRegion for braid_sys::SharedWords {
    fn count(&self) -> usize {
        self.words().len()
    }

    fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn wait(&self, at: usize, expected: u64, timeout: Option<Duration>) -> bool {
        sync::wait(self.word(at), expected, timeout, true)
    }
}

#[cfg(not(loom))]
impl Region for braid_sys::SharedWords {
    fn word(&self, at: usize) -> &Word {
        &self.words()[at]
    }

    fn wake(&self, at: usize, count: u32) {
        sync::wake(self.word(at), count, true);
    }
}

#[cfg(not(loom))]
impl ReadRegion for braid_sys::SharedWordsView {
    fn count(&self) -> usize {
        self.count()
    }

    fn load(&self, at: usize) -> u64 {
        self.load(at)
    }

    fn wait(&self, at: usize, expected: u64, timeout: Option<Duration>) -> bool {
        self.wait(at, expected, timeout)
    }
}

/// References to words work like the words.
macro_rules! through_reference {
    ($reference:ty) => {
        impl<R: ReadRegion + ?Sized> ReadRegion for $reference {
            fn count(&self) -> usize {
                (**self).count()
            }

            fn load(&self, at: usize) -> u64 {
                (**self).load(at)
            }

            fn wait(&self, at: usize, expected: u64, timeout: Option<Duration>) -> bool {
                (**self).wait(at, expected, timeout)
            }
        }

        impl<R: Region + ?Sized> Region for $reference {
            fn word(&self, at: usize) -> &Word {
                (**self).word(at)
            }

            fn wake(&self, at: usize, count: u32) {
                (**self).wake(at, count);
            }
        }
    };
}

through_reference!(&R);
through_reference!(Arc<R>);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn private_words_begin_at_a_line() {
        for count in [1, 16, 100] {
            let words = PrivateWords::new(count);
            assert_eq!(std::ptr::from_ref(words.word(0)).addr() % 128, 0);
            assert_eq!(words.count(), count);
            words.word(count - 1).store(3, Ordering::Relaxed);
            assert_eq!(words.clone().load(count - 1), 3);
        }
    }
}
