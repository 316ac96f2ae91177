//! Compares the blocks marked as in use with those that are.

use crate::core::Core;
use crate::device::BLOCK;
use crate::extents::Run;
use crate::scan::superblock_offsets;
use crate::space::Space;
use crate::writer::group;
use braid_contract::{Errno, Error, Result};

/// Compares the free blocks of a file system that is not in use at the moment with those
/// that nothing refers to.
///
/// # Errors
/// `EUCLEAN` with the first difference.
pub(crate) fn audit(core: &Core) -> Result<()> {
    let anchor = core.anchor.lock();
    let space = &core.journal.medium.space;
    let fresh = Space::new(anchor.superblock.blocks, core.journal.workers());
    let mut doubled = None;
    let mut mark = |run: Run, whose: &dyn Fn() -> String| {
        if fresh.mark(run) > 0 {
            doubled.get_or_insert_with(|| format!("blocks {run:?} of {} are in use twice", whose()));
        }
    };
    for offset in superblock_offsets(anchor.superblock.blocks * BLOCK) {
        if offset / BLOCK < space.blocks() {
            mark(Run { start: offset / BLOCK, len: 1 }, &|| "the superblock".into());
        }
    }
    let groups = core.journal.all_groups();
    groups.iter().for_each(|taken| mark(group(*taken), &|| "a log".into()));
    anchor.image.iter().chain(&anchor.stale).for_each(|taken| mark(group(*taken), &|| "the image".into()));
    let mut weight = 0;
    for inode in core.table.iter() {
        let state = inode.state.read();
        weight += state.weight();
        for piece in state.extents().into_iter().flat_map(|extents| extents.iter()) {
            mark(piece.run, &|| format!("inode {}", inode.ino));
        }
    }
    let (is, should) = (space.free_blocks(), fresh.free_blocks());
    let counted = core.image_bytes.load(std::sync::atomic::Ordering::Relaxed);
    let wrong = doubled
        .or_else(|| (is != should).then(|| format!("{is} blocks are free, and {should} are not referred to")))
        .or_else(|| {
            let (is, should) = (space.free_groups(), fresh.free_groups());
            (is != should).then(|| format!("{is} groups are free, and {should} are not referred to"))
        })
        .or_else(|| {
            (weight != counted).then(|| format!("{counted} bytes of image are counted, not {weight}"))
        });
    match wrong {
        Some(text) => Err(Error::new(Errno::EUCLEAN, text)),
        None => Ok(()),
    }
}
