//! Compares the blocks marked as in use with those that are.

use crate::account::{Users, mark_all};
use crate::core::Core;
use crate::space::Space;
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
    let (logs, images) = (core.journal.all_groups(), [&anchor.image[..], &anchor.stale].concat());
    let users = Users { logs: &logs, images: &images, table: &core.table };
    let doubled = mark_all(anchor.superblock.blocks, users, &fresh);
    let doubled = doubled.first().map(|(run, user)| format!("blocks {run:?} of {user} are in use twice"));
    let weight: i64 = core.table.iter().map(|inode| inode.state.read().weight()).sum();
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
