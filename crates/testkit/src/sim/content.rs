//! The contents of a simulated file: blocks that are shared between all states
//! of a disk until they are written.

use braid_contract::{Errno, Result, SeekTarget};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Unit of allocation in bytes.
pub(super) const BLOCK: u64 = 4096;

/// The bytes of one block.
pub(super) type Bytes = [u8; BLOCK as usize];

/// A block that has space.
#[derive(Clone, Debug)]
enum Block {
    /// Reserved and never written: reads as zeros, and seeks as a hole.
    Unwritten,
    Data(Arc<Bytes>),
}

/// Size and blocks of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) size: u64,
    blocks: BTreeMap<u64, Block>,
}

impl Content {
    /// Blocks that have space.
    pub(super) fn allocated(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(super) fn is_allocated(&self, block: u64) -> bool {
        self.blocks.contains_key(&block)
    }

    /// How many blocks of `blocks` have no space yet.
    pub(super) fn missing(&self, blocks: Range<u64>) -> u64 {
        blocks.end - blocks.start - self.blocks.range(blocks).count() as u64
    }

    /// The bytes of a block that was written.
    pub(super) fn data(&self, block: u64) -> Option<&Arc<Bytes>> {
        match self.blocks.get(&block) {
            Some(Block::Data(bytes)) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn put(&mut self, block: u64, bytes: Arc<Bytes>) {
        self.blocks.insert(block, Block::Data(bytes));
    }

    /// Gives space to the blocks that have none.
    pub(super) fn reserve(&mut self, blocks: Range<u64>) {
        for block in blocks {
            self.blocks.entry(block).or_insert(Block::Unwritten);
        }
    }

    /// Makes whole blocks holes.
    pub(super) fn punch(&mut self, blocks: Range<u64>) {
        if blocks.start < blocks.end {
            let gone: Vec<u64> = self.blocks.range(blocks).map(|(block, _)| *block).collect();
            for block in gone {
                self.blocks.remove(&block);
            }
        }
    }

    /// Makes whole blocks unwritten.
    pub(super) fn unwrite(&mut self, blocks: Range<u64>) {
        for block in blocks {
            self.blocks.insert(block, Block::Unwritten);
        }
    }

    /// Sets the size. Data beyond a size that is not larger than before loses
    /// its space, and the rest of the last block becomes zero.
    pub(super) fn truncate(&mut self, size: u64) {
        if size <= self.size {
            self.blocks.split_off(&size.div_ceil(BLOCK));
            self.mask(size);
        }
        self.size = size;
    }

    /// Zeroes the block that `size` is in from there on.
    pub(super) fn mask(&mut self, size: u64) {
        let (block, at) = split(size);
        if at != 0
            && let Some(Block::Data(bytes)) = self.blocks.get_mut(&block)
        {
            mask(bytes, at);
        }
    }

    /// Reads into `buf`, up to the end of the file.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let (block, at) = split(offset + done as u64);
            let part = (len - done).min(BLOCK as usize - at);
            let to = &mut buf[done..done + part];
            match self.data(block) {
                Some(bytes) => to.copy_from_slice(&bytes[at..at + part]),
                None => to.fill(0),
            }
            done += part;
        }
        len
    }

    /// The word of 8 bytes at `offset`, zero where there is no block.
    pub(super) fn word(&self, offset: u64) -> u64 {
        let (block, at) = split(offset);
        let Some(bytes) = self.data(block) else { return 0 };
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    }

    /// `lseek` for data or a hole.
    pub(super) fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        if offset >= self.size {
            return Err(Errno::ENXIO.into());
        }
        let first = offset / BLOCK;
        let mut written = self.blocks.range(first..).filter(|(_, block)| matches!(block, Block::Data(_)));
        match target {
            SeekTarget::Data => match written.next() {
                Some((block, _)) if block * BLOCK < self.size => Ok(offset.max(block * BLOCK)),
                _ => Err(Errno::ENXIO.into()),
            },
            SeekTarget::Hole => {
                let run = (first..).zip(written).take_while(|(wanted, (block, _))| wanted == *block);
                let hole = first + run.count() as u64;
                Ok(offset.max(hole * BLOCK).min(self.size))
            }
        }
    }
}

/// Block of an offset, and place in it.
pub(super) fn split(offset: u64) -> (u64, usize) {
    (offset / BLOCK, (offset % BLOCK) as usize)
}

/// Zeroes a block from `at` on; leaves it shared if it is zero there.
pub(super) fn mask(bytes: &mut Arc<Bytes>, at: usize) {
    if bytes[at..].iter().any(|byte| *byte != 0) {
        Arc::make_mut(bytes)[at..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(written: &[u64], size: u64) -> Content {
        let mut content = Content { size, ..Content::default() };
        for block in written {
            content.put(*block, Arc::new([1; BLOCK as usize]));
        }
        content
    }

    #[test]
    fn seek_tells_written_blocks_from_holes_and_reserved_ones() {
        let mut content = content(&[1, 2, 4], 5 * BLOCK - 10);
        content.reserve(0..7);
        let seek = |offset, target| content.seek(offset, target).map_err(|error| error.errno());
        assert_eq!(seek(0, SeekTarget::Data), Ok(BLOCK));
        assert_eq!(seek(BLOCK + 5, SeekTarget::Data), Ok(BLOCK + 5));
        assert_eq!(seek(BLOCK + 5, SeekTarget::Hole), Ok(3 * BLOCK));
        assert_eq!(seek(0, SeekTarget::Hole), Ok(0));
        assert_eq!(seek(4 * BLOCK, SeekTarget::Hole), Ok(5 * BLOCK - 10));
        assert_eq!(seek(5 * BLOCK - 10, SeekTarget::Hole), Err(Errno::ENXIO));
        assert_eq!(content.allocated(), 7);
    }

    #[test]
    fn a_shorter_size_takes_the_bytes_beyond_with_it() {
        let mut content = content(&[0, 1], 2 * BLOCK);
        content.truncate(10);
        content.truncate(100);
        let mut bytes = [9; 200];
        assert_eq!(content.read(0, &mut bytes), 100);
        assert_eq!(bytes[..10], [1; 10]);
        assert_eq!(bytes[10..100], [0; 90]);
        assert_eq!(content.allocated(), 1);
    }
}
