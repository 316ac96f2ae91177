//! Room for the log and for growing files. Some groups are in reserve for the log and
//! for the next image, so that operations that free space always succeed.

use crate::checkpoint::{checkpoint, checkpoint_since};
use crate::core::{Core, least_groups};
use crate::extents::Run;
use crate::layout::GROUP;
use braid_contract::{Errno, Result};
use std::sync::atomic::Ordering;

/// How often room is made where others take it.
const TRIES: usize = 16;

/// Segments of logs that began since the last checkpoint.
fn segments(core: &Core) -> u64 {
    let next = core.journal.medium.next_segment.load(Ordering::Relaxed);
    next.saturating_sub(core.anchored_segment.load(Ordering::Relaxed))
}

/// How long the logs are, in units of the length at which a checkpoint is due.
fn dues(core: &Core) -> u64 {
    let image = core.image_bytes.load(Ordering::Relaxed).max(0).cast_unsigned();
    segments(core) * GROUP / core.settings.log_bytes.max(image).max(GROUP)
}

/// Whether a checkpoint is due.
pub(crate) fn is_due(core: &Core) -> bool {
    dues(core) > 0
}

/// Before each change: makes a checkpoint where one can't wait any more. Where there is a
/// thread for checkpoints, it has had its chance.
///
/// # Errors
/// Those of the checkpoint, but for want of room: then the change may still fit.
pub(crate) fn checkpoint_if_urgent(core: &Core) -> Result<()> {
    let space = &core.journal.medium.space;
    let needed = least_groups(core.image_groups(), core.journal.workers());
    let patience = if core.environment.threads() { 4 } else { 1 };
    let is_urgent = dues(core) >= patience || space.free_groups() < needed && segments(core) > 0;
    if !is_urgent {
        return Ok(());
    }
    match checkpoint(core, false) {
        Err(error) if error.errno() == Errno::ENOSPC => Ok(()),
        made => made,
    }
}

/// Before a change that makes an image longer: makes sure that there is room for a longer one.
///
/// # Errors
/// `ENOSPC` if there is none, those of the checkpoint.
pub(crate) fn ensure_room(core: &Core) -> Result<()> {
    checkpoint_if_urgent(core)?;
    let has_room = || {
        let space = &core.journal.medium.space;
        space.free_groups() > space.reserve()
    };
    if has_room() || (make_room(core)? && has_room()) { Ok(()) } else { Err(Errno::ENOSPC.into()) }
}

/// Blocks for a file.
///
/// # Errors
/// `ENOSPC` if they are not there.
pub(crate) fn allocate(core: &Core, worker: usize, blocks: u64) -> Result<Vec<Run>> {
    let space = &core.journal.medium.space;
    // Impossible runs are not looked for.
    let runs = if blocks > space.blocks() { None } else { space.allocate(worker, blocks) };
    runs.ok_or_else(|| Errno::ENOSPC.into())
}

/// Tries an operation that needs room; if there is none, again when some was made: a checkpoint
/// that is under way takes room, too, until it ends. One needs every inode's lock: `attempt`
/// begins and ends without any.
///
/// # Errors
/// Those of the attempt.
pub(crate) fn retry_with_room<T>(core: &Core, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        let flushes = core.journal.flushes();
        match attempt() {
            // Others may have made some meanwhile.
            Err(error)
                if error.errno() == Errno::ENOSPC
                    && (make_room(core)? || core.journal.flushes() != flushes) => {}
            result => return result,
        }
    }
    attempt()
}

/// Frees blocks that wait to be free; returns whether there may be more room than
/// before.
fn make_room(core: &Core) -> Result<bool> {
    let seen = core.anchored_segment.load(Ordering::Relaxed);
    let waits = core.journal.pending_blocks() > 0;
    if waits {
        core.journal.settle()?;
    }
    // More than each worker's segment and the one behind it.
    if segments(core) == 0 {
        return Ok(waits);
    }
    match checkpoint_since(core, seen) {
        Err(error) if error.errno() == Errno::ENOSPC => Ok(waits),
        made => made.map(|()| true),
    }
}
