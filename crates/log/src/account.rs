//! Which blocks are in use: that is not on the device, but follows from what refers to them.

use crate::device::BLOCK;
use crate::extents::Run;
use crate::scan::superblock_offsets;
use crate::space::Space;
use crate::table::Table;
use crate::writer::group;

/// Everything that refers to blocks, beside the superblocks.
#[derive(Clone, Copy)]
pub(crate) struct Users<'a> {
    /// Groups of the logs.
    pub(crate) logs: &'a [u64],
    /// Groups of images.
    pub(crate) images: &'a [u64],
    pub(crate) table: &'a Table,
}

/// Marks the superblocks of a device of this many blocks.
pub(crate) fn mark_superblocks(blocks: u64, space: &Space) {
    for offset in superblock_offsets(blocks * BLOCK) {
        let block = offset / BLOCK;
        // The last block need not be in a group.
        if block < space.blocks() {
            space.mark(Run { start: block, len: 1 });
        }
    }
}

/// Marks all blocks in use; returns those in use twice or beyond the end, with their
/// users.
pub(crate) fn mark_all(blocks: u64, users: Users<'_>, space: &Space) -> Vec<(Run, String)> {
    let mut wrong = Vec::new();
    let mut mark = |run: Run, user: &dyn Fn() -> String| {
        if space.mark(run) > 0 {
            wrong.push((run, user()));
        }
    };
    mark_superblocks(blocks, space);
    users.logs.iter().for_each(|taken| mark(group(*taken), &|| "a log".into()));
    users.images.iter().for_each(|taken| mark(group(*taken), &|| "the image".into()));
    for inode in users.table.iter() {
        let state = inode.state.read();
        for piece in state.extents().into_iter().flat_map(|extents| extents.iter()) {
            mark(piece.run, &|| format!("inode {}", inode.ino));
        }
    }
    wrong
}
