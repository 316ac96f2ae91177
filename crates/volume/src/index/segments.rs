//! An index file as 8-byte words, mapped piece by piece.
//!
//! The file is mapped in segments, each as large as all before it together, so
//! that any word is found without a lock, no mapping ever moves, and a small
//! file's index costs one small mapping.

use super::ballast::Ballast;
use crate::sync::Mutex;
use braid_contract::{Errno, FallocateMode, Fd, NativeWords, Result, SeekTarget};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const FIRST_LEN: u64 = 64 << 10;
/// Enough for the entries of the longest file at the smallest range size.
const SEGMENTS: usize = 22;
const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Segments {
    file: Fd,
    maps: [OnceLock<Box<dyn NativeWords>>; SEGMENTS],
    /// End of the file's last page: words below it may be loaded.
    len: AtomicU64,
    /// Length of the file: words below it may be stored.
    file_len: AtomicU64,
    /// Held while the file grows or a segment is mapped.
    growing: Mutex<()>,
    /// What there is when the home tier is full.
    ballast: Arc<Ballast>,
}

impl Segments {
    pub(super) fn new(file: Fd, ballast: Arc<Ballast>) -> Result<Self> {
        let len = file.stat()?.attr.size;
        Ok(Self {
            file,
            maps: std::array::from_fn(|_| OnceLock::new()),
            len: AtomicU64::new(len.next_multiple_of(PAGE)),
            file_len: AtomicU64::new(len),
            growing: Mutex::new(()),
            ballast,
        })
    }

    /// The word at byte `at`; 0 where the file ends before.
    pub(super) fn load(&self, at: u64) -> Result<u64> {
        if at + 8 > self.len.load(Ordering::Acquire) {
            return Ok(0);
        }
        let (map, word) = self.word(at)?;
        map.load(word)
    }

    /// Stores a word, after making sure that its block exists.
    pub(super) fn store(&self, at: u64, word: u64) -> Result<()> {
        let (segment, _) = locate(at)?;
        self.grow_to(segment_end(segment))?;
        let (map, place) = self.word(at)?;
        // A word that is not zero has a block already.
        if map.load(place)? == 0 {
            let keep = FallocateMode::Allocate { keep_size: true };
            self.ballast.or_spend(|| self.file.allocate(keep, at / PAGE * PAGE, PAGE))?;
        }
        map.store(place, word)
    }

    /// Zeroes all words from byte `at` on.
    pub(super) fn clear_from(&self, at: u64) -> Result<()> {
        let len = self.len.load(Ordering::Acquire);
        let page_end = at.next_multiple_of(PAGE).min(len);
        for at in (at..page_end).step_by(8) {
            let (map, word) = self.word(at)?;
            // Storing to a hole would need a block first; a hole is zero.
            if map.load(word)? != 0 {
                map.store(word, 0)?;
            }
        }
        if page_end < len {
            self.file.allocate(FallocateMode::PunchHole, page_end, len - page_end)?;
        }
        Ok(())
    }

    /// Calls `visit` with place and value of each word from byte `at` on that
    /// is not zero.
    pub(super) fn for_each_word(
        &self,
        mut at: u64,
        mut visit: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let len = self.len.load(Ordering::Acquire);
        while at < len {
            at = match self.file.seek(at, SeekTarget::Data) {
                // A page is the unit in which a hole can end.
                Ok(data) => at.max(data / PAGE * PAGE),
                Err(error) if error.errno() == Errno::ENXIO => break,
                Err(error) => return Err(error),
            };
            let page_end = ((at / PAGE + 1) * PAGE).min(len);
            while at < page_end {
                let (map, place) = self.word(at)?;
                match map.load(place)? {
                    0 => {}
                    word => visit(at, word)?,
                }
                at += 8;
            }
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        // Pages dirtied through the mapping belong to the file like any other.
        self.file.sync(true)
    }

    /// The mapping that the word at byte `at` is in, and its place there.
    fn word(&self, at: u64) -> Result<(&dyn NativeWords, usize)> {
        let (segment, offset) = locate(at)?;
        let map = match self.maps[segment].get() {
            Some(map) => &**map,
            None => self.map(segment)?,
        };
        Ok((map, (offset / 8) as usize))
    }

    fn map(&self, segment: usize) -> Result<&dyn NativeWords> {
        let _growing = self.growing.lock();
        if let Some(map) = self.maps[segment].get() {
            return Ok(&**map);
        }
        let (start, end) = (segment_start(segment), segment_end(segment));
        let map = self.file.map(start, (end - start) as usize)?;
        Ok(&**self.maps[segment].get_or_init(|| map))
    }

    fn grow_to(&self, end: u64) -> Result<()> {
        if self.file_len.load(Ordering::Acquire) >= end {
            return Ok(());
        }
        let _growing = self.growing.lock();
        if self.file_len.load(Ordering::Acquire) < end {
            self.file.truncate(end)?;
            self.len.fetch_max(end, Ordering::AcqRel);
            self.file_len.store(end, Ordering::Release);
        }
        Ok(())
    }
}

fn segment_start(segment: usize) -> u64 {
    if segment == 0 { 0 } else { FIRST_LEN << (segment - 1) }
}

fn segment_end(segment: usize) -> u64 {
    FIRST_LEN << segment
}

/// Segment and offset in it of the word at byte `at`.
fn locate(at: u64) -> Result<(usize, u64)> {
    let segment = match at / FIRST_LEN {
        0 => 0,
        multiple => multiple.ilog2() as usize + 1,
    };
    if segment >= SEGMENTS {
        return Err(Errno::EFBIG.into());
    }
    Ok((segment, at - segment_start(segment)))
}
