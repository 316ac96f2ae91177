//! An index file as 8-byte words, mapped piece by piece.
//!
//! The file is mapped in segments, each as large as all before it together, so
//! that any word is found without a lock, no mapping ever moves, and a small
//! file's index costs one small mapping.
//!
//! Holes are not touched: some file systems allocate a block even for a page
//! that is only read, and fail the access if there is none left.

use crate::ballast::Ballast;
use braid_contract::{Errno, FallocateMode, Fd, NativeWords, Result, SeekTarget};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const FIRST_LEN: u64 = 64 << 10;
/// Enough for the entries of the longest file at the smallest range size.
const SEGMENTS: usize = 22;
const PAGE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Segments {
    file: Fd,
    segments: [OnceLock<Segment>; SEGMENTS],
    /// End of the file's last page: words below it may be loaded.
    len: AtomicU64,
    /// Length of the file: words below it may be stored.
    file_len: AtomicU64,
    /// Held while the file grows or a segment is mapped.
    growing: Mutex<()>,
    /// Space to use when the home tier is full.
    ballast: Arc<Ballast>,
}

#[derive(Debug)]
struct Segment {
    map: Box<dyn NativeWords>,
    /// A bit for each page that is known to have a block.
    blocks: Box<[AtomicU64]>,
}

impl Segment {
    fn new(map: Box<dyn NativeWords>, len: u64) -> Self {
        let words = (len / PAGE).div_ceil(64);
        Self { map, blocks: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    fn bit(&self, word: usize) -> (&AtomicU64, u64) {
        let page = word * 8 / PAGE as usize;
        (&self.blocks[page / 64], 1 << (page % 64))
    }

    fn is_known(&self, word: usize) -> bool {
        let (bits, bit) = self.bit(word);
        bits.load(Ordering::Acquire) & bit != 0
    }

    fn note_block(&self, word: usize) {
        let (bits, bit) = self.bit(word);
        bits.fetch_or(bit, Ordering::AcqRel);
    }

    fn forget_block(&self, word: usize) {
        let (bits, bit) = self.bit(word);
        bits.fetch_and(!bit, Ordering::AcqRel);
    }
}

impl Segments {
    pub(crate) fn new(file: Fd, ballast: Arc<Ballast>) -> Result<Self> {
        let len = file.stat()?.attr.size;
        Ok(Self {
            file,
            segments: std::array::from_fn(|_| OnceLock::new()),
            len: AtomicU64::new(len.next_multiple_of(PAGE)),
            file_len: AtomicU64::new(len),
            growing: Mutex::new(()),
            ballast,
        })
    }

    /// The word at byte `at`; 0 beyond the end of the file.
    pub(super) fn load(&self, at: u64) -> Result<u64> {
        if at + 8 > self.len.load(Ordering::Acquire) {
            return Ok(0);
        }
        let (segment, word) = self.word(at)?;
        if !segment.is_known(word) && !self.look(segment, (at, word))? {
            return Ok(0);
        }
        segment.map.load(word)
    }

    /// Stores a word, after making sure that its block exists.
    pub(super) fn store(&self, at: u64, word: u64) -> Result<()> {
        let (segment, _) = locate(at)?;
        self.grow_to(segment_end(segment))?;
        let (segment, place) = self.word(at)?;
        if !segment.is_known(place) && !self.look(segment, (at, place))? {
            let keep = FallocateMode::Allocate { keep_size: true };
            self.ballast.or_spend(|| self.file.allocate(keep, at / PAGE * PAGE, PAGE))?;
            segment.note_block(place);
        }
        self.ballast.or_spend(|| segment.map.store(place, word))
    }

    /// Zeroes all words from byte `at` on.
    pub(crate) fn clear_from(&self, at: u64) -> Result<()> {
        let len = self.len.load(Ordering::Acquire);
        let page_end = at.next_multiple_of(PAGE).min(len);
        for at in (at..page_end).step_by(8) {
            // Storing to a hole would need a block first; holes are zero
            // already.
            if self.load(at)? != 0 {
                let (segment, word) = self.word(at)?;
                segment.map.store(word, 0)?;
            }
        }
        if page_end < len {
            self.file.allocate(FallocateMode::PunchHole, page_end, len - page_end)?;
            self.forget_blocks(page_end..len);
        }
        Ok(())
    }

    /// Whether the page of the word at byte `at`, not known so far, has a
    /// block.
    fn look(&self, segment: &Segment, (at, word): (u64, usize)) -> Result<bool> {
        let page = at / PAGE * PAGE;
        let found = match self.file.seek(page, SeekTarget::Data) {
            Err(error) if error.errno() == Errno::ENXIO => false,
            data => data? < page + PAGE,
        };
        if found {
            segment.note_block(word);
        }
        Ok(found)
    }

    /// Forgets the blocks of the pages of these bytes.
    fn forget_blocks(&self, bytes: Range<u64>) {
        for (at, segment) in self.segments.iter().enumerate() {
            let Some(segment) = segment.get() else { continue };
            let (start, end) = (segment_start(at).max(bytes.start), segment_end(at).min(bytes.end));
            for page in (start..end).step_by(PAGE as usize) {
                segment.forget_block(((page - segment_start(at)) / 8) as usize);
            }
        }
    }

    /// Calls `visit` with position and value of each word from byte `at` on
    /// that is not zero.
    pub(super) fn for_each_word(
        &self,
        mut at: u64,
        mut visit: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        let len = self.len.load(Ordering::Acquire);
        while at < len {
            at = match self.file.seek(at, SeekTarget::Data) {
                // Holes end at page boundaries.
                Ok(data) => at.max(data / PAGE * PAGE),
                Err(error) if error.errno() == Errno::ENXIO => break,
                Err(error) => return Err(error),
            };
            let page_end = ((at / PAGE + 1) * PAGE).min(len);
            while at < page_end {
                let (segment, place) = self.word(at)?;
                match segment.map.load(place)? {
                    0 => {}
                    word => visit(at, word)?,
                }
                at += 8;
            }
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<()> {
        // Pages dirtied through the mapping belong to the file like any other.
        self.file.sync(true)
    }

    /// The segment of the word at byte `at`, and its place there.
    fn word(&self, at: u64) -> Result<(&Segment, usize)> {
        let (segment, offset) = locate(at)?;
        let found = match self.segments[segment].get() {
            Some(found) => found,
            None => self.map(segment)?,
        };
        Ok((found, (offset / 8) as usize))
    }

    fn map(&self, segment: usize) -> Result<&Segment> {
        let _growing = self.growing.lock();
        if let Some(found) = self.segments[segment].get() {
            return Ok(found);
        }
        let (start, end) = (segment_start(segment), segment_end(segment));
        let map = self.file.map(start, (end - start) as usize)?;
        Ok(self.segments[segment].get_or_init(|| Segment::new(map, end - start)))
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

/// Segment of the word at byte `at`, and its offset there.
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
