//! Gives each block to one user: the image and the logs, then files, those that are known best
//! before others.

use super::gather::Gathered;
use super::report::{Salvaged, Trouble};
use crate::device::BLOCK;
use crate::extents::{Piece, Run};
use crate::inode::Content;
use crate::layout::GROUP_BLOCKS;
use crate::scan::superblock_offsets;
use crate::writer::group;
use std::cmp::Reverse;

/// How many times the blocks of the device may be asked for in all: no sound file system
/// reaches it, and it bounds the work.
const ASKED_MAX: u64 = 4;

/// The blocks that have a user.
struct Claims {
    blocks: u64,
    words: Vec<u64>,
    /// Blocks that may be asked for yet.
    left: u64,
}

impl Claims {
    fn new(blocks: u64) -> Self {
        let words = vec![0; (blocks.div_ceil(GROUP_BLOCKS)) as usize];
        Self { blocks, words, left: blocks.saturating_mul(ASKED_MAX) }
    }

    /// Takes those of these blocks that are free; returns whether that is all of them.
    fn take(&mut self, run: Run, mut taken: impl FnMut(Run)) -> bool {
        let end = run.end().min(self.blocks);
        let wanted = end.saturating_sub(run.start);
        if wanted > self.left {
            self.left = 0;
            return false;
        }
        self.left -= wanted;
        let mut got = 0;
        for block in run.start..end {
            let (word, bit) = ((block / GROUP_BLOCKS) as usize, 1 << (block % GROUP_BLOCKS));
            if self.words[word] & bit == 0 {
                self.words[word] |= bit;
                got += 1;
                taken(Run { start: block, len: 1 });
            }
        }
        got == run.len
    }
}

/// Drops blocks of files that something else has, or that do not exist.
pub(super) fn mend(found: &mut Gathered, blocks: u64, salvaged: &mut Salvaged) {
    let mut claims = Claims::new(blocks);
    for offset in superblock_offsets(blocks * BLOCK) {
        claims.take(Run { start: offset / BLOCK, len: 1 }, |_| {});
    }
    for taken in &found.groups {
        claims.take(group(*taken), |_| {});
    }
    let mut order: Vec<_> = found
        .inodes
        .iter()
        .filter(|(_, state)| state.extents().is_some())
        .map(|(ino, state)| (found.older.contains(ino), Reverse(state.version), *ino))
        .collect();
    order.sort_unstable();
    for (_, _, ino) in order {
        let Some(Content::Blocks(extents)) = found.inodes.get_mut(&ino).map(|state| &mut state.content)
        else {
            continue;
        };
        for piece in extents.iter().collect::<Vec<Piece>>() {
            let mut kept = Vec::new();
            if claims.take(piece.run, |run| push(&mut kept, run)) {
                continue;
            }
            extents.unmap(piece.at, piece.end(), &mut Vec::new());
            for run in kept {
                let at = piece.at + (run.start - piece.run.start);
                extents.map(Piece { at, run, ..piece }, &mut Vec::new());
            }
            found.lacking.insert(ino);
            salvaged.note(Trouble::Blocks, || {
                format!("blocks {} to {} of inode {ino}", piece.run.start, piece.run.end() - 1)
            });
        }
    }
}

/// Adds a block to the last run, if it goes on there.
fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.end() == run.start => last.len += run.len,
        _ => runs.push(run),
    }
}
