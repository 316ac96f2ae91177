//! An index file as 8-byte words, mapped piece by piece.
//!
//! The file is mapped in segments, each as large as all before it together, so
//! that any word is found without a lock, no mapping ever moves, and a small
//! file's index costs one small mapping.

use super::ballast::Ballast;
use crate::sync::Mutex;
use braid_contract::{Errno, Result};
use braid_sys::WordMap;
use rustix::fs::{FallocateFlags, SeekFrom};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const FIRST_LEN: u64 = 64 << 10;
/// Enough for the entries of the longest file at the smallest range size.
const SEGMENTS: usize = 22;
const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Segments {
    file: OwnedFd,
    maps: [OnceLock<WordMap>; SEGMENTS],
    /// Length of the file in bytes: words below it may be loaded.
    len: AtomicU64,
    /// Held while the file grows or a segment is mapped.
    growing: Mutex<()>,
    /// What there is when the home tier is full.
    ballast: Arc<Ballast>,
}

impl Segments {
    pub(super) fn new(file: OwnedFd, ballast: Arc<Ballast>) -> Result<Self> {
        let len = rustix::fs::fstat(&file)?.st_size.cast_unsigned() / PAGE * PAGE;
        Ok(Self {
            file,
            maps: std::array::from_fn(|_| OnceLock::new()),
            len: AtomicU64::new(len),
            growing: Mutex::new(()),
            ballast,
        })
    }

    /// The word at byte `at`; 0 where the file ends before.
    pub(super) fn load(&self, at: u64) -> Result<u64> {
        if at + 8 > self.len.load(Ordering::Acquire) {
            return Ok(0);
        }
        Ok(u64::from_le(self.word(at)?.load(Ordering::Acquire)))
    }

    /// Stores a word, after making sure that its block exists.
    pub(super) fn store(&self, at: u64, word: u64) -> Result<()> {
        let (segment, _) = locate(at)?;
        self.grow_to(segment_end(segment))?;
        let place = self.word(at)?;
        // A word that is not zero has a block already.
        if place.load(Ordering::Acquire) == 0 {
            let allocate =
                || rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, at / PAGE * PAGE, PAGE);
            self.ballast.or_spend(|| rustix::io::retry_on_intr(allocate))?;
        }
        place.store(word.to_le(), Ordering::Release);
        Ok(())
    }

    /// Zeroes all words from byte `at` on.
    pub(super) fn clear_from(&self, at: u64) -> Result<()> {
        let len = self.len.load(Ordering::Acquire);
        let page_end = at.next_multiple_of(PAGE).min(len);
        for at in (at..page_end).step_by(8) {
            let word = self.word(at)?;
            // Storing to a hole would need a block first; a hole is zero.
            if word.load(Ordering::Acquire) != 0 {
                word.store(0, Ordering::Release);
            }
        }
        if page_end < len {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, flags, page_end, len - page_end))?;
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
            at = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                // A page is the unit in which a hole can end.
                Ok(data) => at.max(data / PAGE * PAGE),
                Err(rustix::io::Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            let page_end = ((at / PAGE + 1) * PAGE).min(len);
            while at < page_end {
                match u64::from_le(self.word(at)?.load(Ordering::Acquire)) {
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
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn word(&self, at: u64) -> Result<&AtomicU64> {
        let (segment, offset) = locate(at)?;
        let map = match self.maps[segment].get() {
            Some(map) => map,
            None => self.map(segment)?,
        };
        Ok(&map.words()[(offset / 8) as usize])
    }

    fn map(&self, segment: usize) -> Result<&WordMap> {
        let _growing = self.growing.lock();
        if let Some(map) = self.maps[segment].get() {
            return Ok(map);
        }
        let (start, end) = (segment_start(segment), segment_end(segment));
        let map = WordMap::new(&self.file, start, (end - start) as usize)?;
        Ok(self.maps[segment].get_or_init(|| map))
    }

    fn grow_to(&self, end: u64) -> Result<()> {
        if self.len.load(Ordering::Acquire) >= end {
            return Ok(());
        }
        let _growing = self.growing.lock();
        if self.len.load(Ordering::Acquire) < end {
            rustix::fs::ftruncate(&self.file, end)?;
            self.len.store(end, Ordering::Release);
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
