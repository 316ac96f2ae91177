//! Reading chains of segments.

use crate::codec::Take;
use crate::device::{BLOCK, Device};
use crate::layout::{
    CHUNK_HEADER, ChunkHeader, GROUP_BLOCKS, SegmentAt, SegmentHeader, Superblock, open_record,
};
use braid_contract::{Errno, Error, Result};

/// A record, and its number.
pub(crate) type Numbered = (u64, Vec<u8>);

/// A chain, as far as it can be read.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    /// Its segments.
    pub(crate) segments: Vec<SegmentAt>,
    /// Where it would go on; the group is taken.
    pub(crate) next: SegmentAt,
    pub(crate) records: Vec<Numbered>,
    /// Records up to this one were durable, as chunks say.
    pub(crate) durable: u64,
    /// It goes on in a segment that has no header, and nothing leads to those behind it: they
    /// were not durable, or that one is damaged.
    pub(crate) is_cut: bool,
}

/// Reads a chain. It ends where no valid chunk or segment follows, or with `most` records.
///
/// # Errors
/// `EUCLEAN` if its first segment is not there, those of the device.
pub(crate) fn scan(device: &dyn Device, of: &Superblock, start: SegmentAt, most: u64) -> Result<Scanned> {
    let (salt, mut at, mut found) = (of.salt(), start, Scanned::default());
    let mut block = vec![0; BLOCK as usize];
    // A segment is at one place once: a chain that came back would never end.
    while at.group < of.blocks / GROUP_BLOCKS && found.segments.iter().all(|seen| seen.group != at.group) {
        device.read_at(at.offset(), &mut block)?;
        let Some(header) = SegmentHeader::decode(&block, salt, at.number) else {
            found.is_cut = !found.segments.is_empty() && durable_behind(device, salt, at, 1)?.is_some();
            break;
        };
        found.segments.push(at);
        scan_segment(device, salt, at, most, &mut found)?;
        at = header.next;
        if found.records.len() as u64 >= most {
            break;
        }
    }
    if found.segments.is_empty() {
        let (number, offset) = (start.number, start.offset());
        let text = format!("segment {number} is not where it should be, at byte {offset} of the device");
        return Err(Error::new(Errno::EUCLEAN, text));
    }
    found.next = at;
    Ok(found)
}

fn scan_segment(device: &dyn Device, salt: u32, at: SegmentAt, most: u64, found: &mut Scanned) -> Result<()> {
    let mut block = 1;
    let mut chunk = Vec::new();
    while block < GROUP_BLOCKS && (found.records.len() as u64) < most {
        let offset = at.offset() + block * BLOCK;
        chunk.resize(BLOCK as usize, 0);
        device.read_at(offset, &mut chunk)?;
        let Some(header) = ChunkHeader::decode(&chunk, salt, at.number, block as u32) else { break };
        found.durable = found.durable.max(header.durable);
        let len = CHUNK_HEADER + header.len as usize;
        let blocks = len.next_multiple_of(BLOCK as usize);
        chunk.resize(blocks, 0);
        if blocks > BLOCK as usize {
            device.read_at(offset + BLOCK, &mut chunk[BLOCK as usize..])?;
        }
        let mut take = Take::new(&chunk[CHUNK_HEADER..len]);
        while let Some((record, bytes)) = open_record(&mut take, salt) {
            found.records.push((record, bytes.to_vec()));
        }
        if !take.is_empty() {
            break;
        }
        block += blocks as u64 / BLOCK;
    }
    if (found.records.len() as u64) < most {
        let behind = durable_behind(device, salt, at, block)?;
        found.durable = found.durable.max(behind.unwrap_or_default());
    }
    Ok(())
}

/// Records up to this one were durable, as chunks from `block` of a segment on say; `None` if
/// there are none. Power loss may leave a chunk behind one that it took, but none that says
/// that this one was durable.
fn durable_behind(device: &dyn Device, salt: u32, at: SegmentAt, block: u64) -> Result<Option<u64>> {
    let mut rest = vec![0; (GROUP_BLOCKS.saturating_sub(block) * BLOCK) as usize];
    if !rest.is_empty() {
        device.read_at(at.offset() + block * BLOCK, &mut rest)?;
    }
    let chunks = rest.chunks(BLOCK as usize).zip(block..).filter_map(|(bytes, block)| {
        ChunkHeader::decode(bytes, salt, at.number, block as u32).map(|header| header.durable)
    });
    Ok(chunks.max())
}

/// Records up to this one were durable, as chunks of all segments say, those that nothing leads
/// to included. It reads two blocks of each group of the device.
pub(crate) fn durable_anywhere(device: &dyn Device, of: &Superblock) -> Result<u64> {
    let (salt, mut durable) = (of.salt(), 0);
    let mut blocks = vec![0; 2 * BLOCK as usize];
    for group in 0..of.blocks / GROUP_BLOCKS {
        device.read_at(group * GROUP_BLOCKS * BLOCK, &mut blocks)?;
        let header =
            SegmentHeader::any(&blocks).filter(|(own, _)| *own == salt).map(|(_, header)| header.number);
        let chunk = || ChunkHeader::any(&blocks[BLOCK as usize..], salt, 1).map(|chunk| chunk.segment);
        let Some(number) = header.or_else(chunk) else { continue };
        let behind = durable_behind(device, salt, SegmentAt { group, number }, 1)?;
        durable = durable.max(behind.unwrap_or_default());
    }
    Ok(durable)
}

/// Where the copies of the superblock are, on a device of `size` bytes.
pub(crate) fn superblock_offsets(size: u64) -> [u64; 2] {
    [0, (size / BLOCK).saturating_sub(1) * BLOCK]
}

/// Refuses what is too small for anything.
///
/// # Errors
/// `EINVAL`.
pub(crate) fn has_blocks(device: &dyn Device) -> Result<()> {
    if device.size() >= BLOCK {
        return Ok(());
    }
    let text = format!("there is no log file system: it has {} bytes", device.size());
    Err(Error::new(Errno::EINVAL, text))
}

/// The valid superblock.
///
/// # Errors
/// The error of the first copy, if the other one can't be used either.
pub(crate) fn find_superblock(device: &dyn Device) -> Result<Superblock> {
    has_blocks(device)?;
    let mut block = vec![0; BLOCK as usize];
    let mut copies = Vec::new();
    for offset in superblock_offsets(device.size()) {
        let read = device.read_at(offset, &mut block);
        copies.push(read.and_then(|()| Superblock::decode(&block)));
    }
    let best = copies.iter().flatten().max_by_key(|copy| copy.generation).cloned();
    let Some(found) = best else {
        // The error of a damaged copy says more than that of a missing one.
        let errors: Vec<Error> = copies.into_iter().filter_map(Result::err).collect();
        let damaged = errors.iter().find(|error| error.errno() != Errno::EINVAL);
        return Err(damaged.or(errors.first()).cloned().unwrap_or_else(|| Errno::EUCLEAN.into()));
    };
    if found.blocks > device.size() / BLOCK {
        let (has, needs) = (device.size() / BLOCK, found.blocks);
        let text = format!("the device has {has} blocks, and the file system on it {needs}");
        return Err(Error::new(Errno::EUCLEAN, text));
    }
    Ok(found)
}
