//! Writing a chain of segments: a worker's log, or an image. Records gather in memory as
//! a chunk, which is written when it is asked for, or when it is large.

use crate::device::{BLOCK, Device};
use crate::failpoint::{Failpoint, fails_at};
use crate::layout::{
    CHUNK_HEADER, ChunkHeader, GROUP_BLOCKS, RECORD_HEADER, RECORD_MAX, SegmentAt, SegmentHeader, seal_record,
};
use crate::space::Space;
use crate::tail::Tail;
use braid_contract::{Errno, Error, Result};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a chunk from which on it is written without being asked for.
const SPILL: usize = 64 << 10;

/// The medium that chains are written to.
#[derive(Debug)]
pub(crate) struct Medium {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) space: Arc<Space>,
    /// The number that ties segments to this file system.
    pub(crate) salt: u32,
    /// The number of the next segment that begins.
    pub(crate) next_segment: AtomicU64,
}

impl Medium {
    /// A group for a segment.
    pub(crate) fn segment(&self, worker: usize) -> Result<SegmentAt> {
        let group = self.space.take_group(worker);
        let group = group.ok_or_else(|| Error::new(Errno::ENOSPC, "there is no room for the log"))?;
        Ok(SegmentAt { group, number: self.next_segment.fetch_add(1, Ordering::Relaxed) })
    }
}

/// A chain that grows at its end.
#[derive(Debug)]
pub(crate) struct Chain {
    worker: usize,
    at: SegmentAt,
    /// The next block of the segment that is written.
    block: u64,
    next: SegmentAt,
    /// With room for its header.
    chunk: Vec<u8>,
    /// Its records, for another process after a crash.
    tail: Option<Tail>,
    /// Groups of the segments before this one.
    before: Vec<u64>,
}

impl Chain {
    /// A new chain.
    pub(crate) fn begin(worker: usize, medium: &Medium) -> Result<Self> {
        let at = medium.segment(worker)?;
        let next = medium.segment(worker).inspect_err(|_| medium.space.free(group(at.group)))?;
        let chain = Self::resumed(worker, at, next);
        chain.write_header(medium)?;
        Ok(chain)
    }

    /// A chain whose only segment has its header, and nothing else yet.
    pub(crate) fn resumed(worker: usize, at: SegmentAt, next: SegmentAt) -> Self {
        Self { worker, at, block: 1, next, chunk: vec![0; CHUNK_HEADER], tail: None, before: Vec::new() }
    }

    /// The segment that it is in.
    pub(crate) fn at(&self) -> SegmentAt {
        self.at
    }

    /// Groups that it has, and the one that is taken for the segment behind it.
    pub(crate) fn all_groups(&self) -> Vec<u64> {
        [&self.before[..], &[self.at.group, self.next.group]].concat()
    }

    /// The groups of earlier segments, from now on the caller's.
    pub(crate) fn take_before(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.before)
    }

    /// Whether it has records that are not written.
    pub(crate) fn has_records(&self) -> bool {
        self.chunk.len() > CHUNK_HEADER
    }

    fn write_header(&self, medium: &Medium) -> Result<()> {
        let header = SegmentHeader { number: self.at.number, next: self.next };
        medium.device.write_at(self.at.offset(), &[IoSlice::new(&header.encode(medium.salt))])
    }

    /// Bytes that the chunk may have in this segment.
    fn room(&self) -> usize {
        ((GROUP_BLOCKS - self.block) * BLOCK) as usize
    }

    /// Makes sure that a record of `len` bytes can be added; only this fails for want
    /// of room.
    pub(crate) fn prepare(&mut self, len: usize, durable: u64, medium: &Medium) -> Result<()> {
        if len > RECORD_MAX {
            return Err(Error::new(Errno::EFBIG, format!("{len} bytes are too many for a record")));
        }
        let needed = RECORD_HEADER + len;
        if self.chunk.len() + needed > self.room() {
            self.write_out(durable, medium)?;
            if self.chunk.len() + needed > self.room() {
                self.rotate(medium)?;
            }
        }
        Ok(())
    }

    /// Adds a record, for which room was made.
    pub(crate) fn add(&mut self, record: u64, bytes: &[u8], salt: u32) {
        let at = self.chunk.len();
        self.chunk.resize(at + RECORD_HEADER, 0);
        self.chunk.extend_from_slice(bytes);
        seal_record(&mut self.chunk, at, record, salt);
        self.tail.iter().for_each(|tail| tail.note(&self.chunk[CHUNK_HEADER..], at - CHUNK_HEADER));
    }

    /// Has its records outlive the process, from now on.
    pub(crate) fn outlive(&mut self, tail: Tail) {
        tail.note(&self.chunk[CHUNK_HEADER..], 0);
        self.tail = Some(tail);
    }

    /// Writes the chunk if it is large.
    pub(crate) fn spill(&mut self, durable: u64, medium: &Medium) -> Result<()> {
        if self.chunk.len() < SPILL { Ok(()) } else { self.write_out(durable, medium) }
    }

    /// Writes the records that were added, if there are any.
    pub(crate) fn write_out(&mut self, durable: u64, medium: &Medium) -> Result<()> {
        if self.has_records() { self.write_chunk(durable, medium) } else { Ok(()) }
    }

    /// Writes a chunk, also one without records, which says which records are
    /// durable.
    pub(crate) fn write_chunk(&mut self, durable: u64, medium: &Medium) -> Result<()> {
        if self.room() == 0 {
            self.rotate(medium)?;
        }
        let len = (self.chunk.len() - CHUNK_HEADER) as u32;
        let header = ChunkHeader { segment: self.at.number, block: self.block as u32, len, durable };
        header.encode(medium.salt, &mut self.chunk);
        self.chunk.resize(self.chunk.len().next_multiple_of(BLOCK as usize), 0);
        let offset = self.at.offset() + self.block * BLOCK;
        if fails_at(Failpoint::ForgetTail) {
            self.tail.iter().for_each(Tail::clear);
        }
        medium.device.write_at(offset, &[IoSlice::new(&self.chunk)])?;
        self.block += self.chunk.len() as u64 / BLOCK;
        self.chunk.truncate(CHUNK_HEADER);
        self.tail.iter().for_each(Tail::clear);
        Ok(())
    }

    /// Goes on in a new segment. Added records must be written before.
    pub(crate) fn rotate(&mut self, medium: &Medium) -> Result<()> {
        let after = medium.segment(self.worker)?;
        self.before.push(self.at.group);
        (self.at, self.next, self.block) = (self.next, after, 1);
        self.write_header(medium)
    }
}

/// The blocks of a group.
pub(crate) fn group(group: u64) -> crate::extents::Run {
    crate::extents::Run { start: group * GROUP_BLOCKS, len: GROUP_BLOCKS }
}
