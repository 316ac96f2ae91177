//! Mappings of simulated files.

use super::content::BLOCK;
use super::disk::{Shared, Subject};
use braid_contract::{Errno, Fd, NativeWords, Result};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A mapped part of a file.
pub(super) struct SimWords {
    shared: Arc<Shared>,
    /// Keeps the inode from going.
    file: Fd,
    ino: u64,
    offset: u64,
    len: u64,
    writable: bool,
    /// A page could not be had; no access succeeds any more.
    broken: AtomicBool,
}

impl SimWords {
    pub(super) fn new(
        shared: Arc<Shared>,
        file: Fd,
        ino: u64,
        (offset, len): (u64, u64),
        writable: bool,
    ) -> Self {
        Self { shared, file, ino, offset, len, writable, broken: AtomicBool::new(false) }
    }

    /// Offset of a word in the file, if it is mapped.
    fn at(&self, word: usize) -> Result<u64> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(Errno::EIO.into());
        }
        let at = word as u64 * 8;
        if at >= self.len {
            self.shared.violation("access beyond the mapping of", self.ino, self.offset + at);
            return Err(Errno::EINVAL.into());
        }
        Ok(self.offset + at)
    }

    /// Notes an access where the file has ended.
    fn fail(&self, what: &str, at: u64) -> Result<()> {
        self.shared.violation(what, self.ino, at);
        self.broken.store(true, Ordering::Relaxed);
        Err(Errno::EIO.into())
    }
}

impl NativeWords for SimWords {
    fn load(&self, word: usize) -> Result<u64> {
        let at = self.at(word)?;
        let loaded = {
            let state = &self.shared.lock().state;
            let content = state.content(self.ino)?;
            (at < content.size.next_multiple_of(BLOCK)).then(|| content.word(at))
        };
        if loaded.is_none() {
            self.fail("load beyond the end of", at)?;
        }
        Ok(loaded.unwrap_or(0))
    }

    fn store(&self, word: usize, value: u64) -> Result<()> {
        if !self.writable {
            return Err(Errno::EROFS.into());
        }
        let at = self.at(word)?;
        let (ends, hole) = {
            let state = &self.shared.lock().state;
            let content = state.content(self.ino)?;
            (at >= content.size.next_multiple_of(BLOCK), !content.is_allocated(at / BLOCK))
        };
        if ends {
            return self.fail("store beyond the end of", at);
        }
        if hole {
            // It succeeds if the disk has space, which nothing guarantees.
            self.shared.violation("store to a hole of", self.ino, at);
        }
        let subject = Subject::part("store to", self.ino, at, 8);
        self.shared.effect(subject, |state, _| {
            state.store(self.ino, at, value);
            Ok(())
        })
    }
}

impl fmt::Debug for SimWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "words of {:?} from {} len {}", self.file, self.offset, self.len)
    }
}
