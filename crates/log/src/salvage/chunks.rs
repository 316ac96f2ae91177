//! Finds the records in a group, whatever is damaged in it. A chunk says of which segment it
//! is, so none of it depends on what lies before; a record is known by its checksum.

use crate::codec::Take;
use crate::device::{BLOCK, Device};
use crate::layout::{
    CHUNK_HEADER, ChunkHeader, GROUP, GROUP_BLOCKS, RECORD_HEADER, SegmentHeader, open_record,
};

/// Bytes of which checksums are made in the search for one sound record: more than a few
/// groups have, so that only bytes made for it get there.
const SEARCH_MAX: usize = 16 * GROUP as usize;

/// No record has this number, or a higher one.
const NUMBER_MAX: u64 = 1 << 62;

/// A part of a group with records: a chunk, or what is left where a chunk's header is damaged.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The segment that it is of.
    pub(super) segment: u64,
    /// Whether that is only likely: what another segment left may be in the same place.
    pub(super) is_loose: bool,
    /// Records up to this one were durable; 0 in an image; `None` if its header is damaged.
    pub(super) durable: Option<u64>,
    /// Its records, in order.
    pub(super) records: Vec<Found>,
    /// Something is damaged behind its last record.
    pub(super) ends_damaged: bool,
    /// Its first block.
    pub(super) block: u64,
}

/// A record.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    /// Something is damaged before it.
    pub(super) after_damage: bool,
}

/// Reads as much as can be read; the rest is zeros.
pub(super) fn read_lenient(device: &dyn Device, offset: u64, buf: &mut [u8]) {
    if device.read_at(offset, buf).is_ok() {
        return;
    }
    let mut at = offset;
    for block in buf.chunks_mut(BLOCK as usize) {
        if device.read_at(at, block).is_err() {
            block.fill(0);
        }
        at += block.len() as u64;
    }
}

/// A group as it is on the device.
pub(super) struct Group {
    bytes: Vec<u8>,
    salt: u32,
}

impl Group {
    pub(super) fn read(device: &dyn Device, group: u64, salt: u32) -> Self {
        let mut bytes = vec![0; GROUP as usize];
        read_lenient(device, group * GROUP, &mut bytes);
        Self { bytes, salt }
    }

    pub(super) fn header(&self) -> Option<SegmentHeader> {
        SegmentHeader::any(&self.bytes).filter(|(salt, _)| *salt == self.salt).map(|(_, header)| header)
    }

    fn block(&self, block: u64) -> &[u8] {
        &self.bytes[(block * BLOCK) as usize..]
    }

    /// The sound headers of chunks, but for those within another chunk.
    pub(super) fn headers(&self) -> Vec<ChunkHeader> {
        let (mut block, mut found) = (1, Vec::new());
        while block < GROUP_BLOCKS {
            let header = ChunkHeader::any(self.block(block), self.salt, block as u32);
            block += header.map_or(1, blocks_of);
            found.extend(header);
        }
        found
    }

    /// All chunks, in order, with what is left between them.
    pub(super) fn chunks(&self) -> Vec<Chunk> {
        let headers = self.headers();
        let first = headers.first().map(|header| header.segment);
        let mut before = self.header().map(|header| header.number).or(first);
        let (mut block, mut chunks) = (1, Vec::new());
        for header in &headers {
            let begins = u64::from(header.block);
            if begins > block
                && let Some(segment) = before
            {
                chunks.extend(self.between(segment, (block, begins), segment != header.segment));
            }
            chunks.push(self.chunk(*header));
            block = begins + blocks_of(*header);
            before = Some(header.segment);
        }
        if let Some(segment) = before {
            chunks.extend(self.between(segment, (block, GROUP_BLOCKS), true));
        }
        chunks
    }

    fn chunk(&self, header: ChunkHeader) -> Chunk {
        let block = u64::from(header.block);
        let bytes = &self.block(block)[CHUNK_HEADER..CHUNK_HEADER + header.len as usize];
        let (records, ends_damaged) = records_of(bytes, self.salt);
        let (segment, durable) = (header.segment, Some(header.durable));
        Chunk { segment, is_loose: false, durable, records, ends_damaged, block }
    }

    /// The records in blocks that no sound header is of; `None` if there are none, and nothing
    /// says that there were any.
    fn between(&self, segment: u64, (from, to): (u64, u64), is_loose: bool) -> Option<Chunk> {
        let bytes = &self.bytes[(from * BLOCK) as usize..(to * BLOCK) as usize];
        let (mut records, _) = records_of(bytes, self.salt);
        if let Some(first) = records.first_mut() {
            first.after_damage = true;
        }
        let is_there = !is_loose || !records.is_empty();
        is_there.then_some(Chunk {
            segment,
            is_loose,
            durable: None,
            records,
            ends_damaged: !is_loose,
            block: from,
        })
    }
}

fn blocks_of(header: ChunkHeader) -> u64 {
    (CHUNK_HEADER as u64 + u64::from(header.len)).div_ceil(BLOCK)
}

/// The sound records among these bytes, and whether something behind the last is damaged.
fn records_of(bytes: &[u8], salt: u32) -> (Vec<Found>, bool) {
    let (mut at, mut after_damage, mut found) = (0, false, Vec::new());
    while at < bytes.len() {
        if let Some((number, record)) = open_at(bytes, at, salt) {
            at += RECORD_HEADER + record.len();
            found.push(Found { number, bytes: record.to_vec(), after_damage });
            after_damage = false;
            continue;
        }
        after_damage = true;
        match next_sound(bytes, at, salt) {
            Some(next) => at = next,
            None => break,
        }
    }
    (found, after_damage)
}

fn open_at(bytes: &[u8], at: usize, salt: u32) -> Option<(u64, &[u8])> {
    let found = open_record(&mut Take::new(bytes.get(at..)?), salt);
    found.filter(|(number, record)| (1..NUMBER_MAX).contains(number) && !record.is_empty())
}

/// The length of a record that may begin here.
fn len_at(bytes: &[u8], at: usize) -> Option<usize> {
    let len = Take::new(bytes.get(at..)?).u32()? as usize;
    (len > 0 && len <= bytes.len() - at - RECORD_HEADER.min(bytes.len() - at)).then_some(len)
}

/// Where a sound record begins behind a damaged one at `at`. The length of that is tried first:
/// bytes within it might look like a record.
fn next_sound(bytes: &[u8], at: usize, salt: u32) -> Option<usize> {
    if let Some(len) = len_at(bytes, at) {
        let next = at + RECORD_HEADER + len;
        if next == bytes.len() || open_at(bytes, next, salt).is_some() {
            return Some(next);
        }
    }
    let mut summed = 0;
    for next in at + 1..bytes.len().saturating_sub(RECORD_HEADER) {
        let Some(len) = len_at(bytes, next) else { continue };
        summed += len;
        if open_at(bytes, next, salt).is_some() {
            return Some(next);
        }
        if summed > SEARCH_MAX {
            return None;
        }
    }
    None
}
