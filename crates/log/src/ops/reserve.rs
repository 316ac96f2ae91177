//! Space of files: reserved, given back, and distinguished from holes.

use crate::core::{Core, Open, Write};
use crate::device::BLOCK;
use crate::extents::{Run, blocks_of, fill, holes};
use crate::inode::{Content, State};
use crate::ops::data::{Locked, Rewritten, SIZE_MAX, leave_inline, resize, zero_within};
use crate::record::Change;
use crate::room;
use braid_contract::{Caller, Errno, FallocateMode, Result, SeekTarget};

pub(crate) fn fallocate(
    core: &Core,
    caller: &Caller,
    open: &Open,
    (offset, len): (u64, u64),
    mode: FallocateMode,
) -> Result<()> {
    if !open.flags.write {
        return Err(Errno::EBADF.into());
    }
    if len == 0 {
        return Err(Errno::EINVAL.into());
    }
    let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
    room::checkpoint_if_urgent(core)?;
    room::retry_with_room(core, || change(core, caller, open, (offset, end), mode))
}

fn change(
    core: &Core,
    caller: &Caller,
    open: &Open,
    (from, end): (u64, u64),
    mode: FallocateMode,
) -> Result<()> {
    let inode = &*open.inode;
    let mut guard = inode.state.write();
    if !guard.is_live() {
        return Err(Errno::ESTALE.into());
    }
    let mut file: Locked<'_, '_> = (inode, &mut guard);
    let keeps_size = match mode {
        FallocateMode::Allocate { keep_size } | FallocateMode::ZeroRange { keep_size } => keep_size,
        FallocateMode::PunchHole => true,
    };
    let mut changes = Vec::new();
    if !keeps_size && end > file.1.size {
        changes = resize(core, caller, &mut file, end)?;
        // Then it is not a small file any more, if it has to have blocks.
    }
    leave_inline(core, caller, &mut file)?;
    let mut rewritten = Rewritten::default();
    let made = prepare(core, caller, file.1, (from, end), mode, &mut rewritten);
    let recorded = made.and_then(|made| {
        let now = core.now();
        changes.extend(made);
        changes.extend([Change::Modified(now), Change::Changed(now)]);
        core.record(core.worker(caller), vec![Write { ino: inode.ino, state: file.1, changes }])
    });
    if recorded.is_err() {
        rewritten.give_back(core);
    }
    recorded
}

/// The changes in the blocks of a file that is not a small one.
fn prepare(
    core: &Core,
    caller: &Caller,
    state: &State,
    (from, end): (u64, u64),
    mode: FallocateMode,
    rewritten: &mut Rewritten,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    match mode {
        FallocateMode::Allocate { .. } => {
            let blocks = (from / BLOCK, end.div_ceil(BLOCK));
            changes.extend(reserve(core, caller, state, blocks, &mut rewritten.taken)?);
        }
        FallocateMode::PunchHole => changes = clear(core, caller, state, (from, end), rewritten)?,
        FallocateMode::ZeroRange { .. } => {
            changes = clear(core, caller, state, (from, end), rewritten)?;
            let blocks = (from.div_ceil(BLOCK), end / BLOCK);
            if blocks.0 < blocks.1 {
                let empty = State::default();
                changes.extend(reserve(core, caller, &empty, blocks, &mut rewritten.taken)?);
            }
        }
    }
    Ok(changes)
}

/// Zeros in part of the first and of the last block, and the change by which those
/// between are a hole.
fn clear(
    core: &Core,
    caller: &Caller,
    state: &State,
    (from, end): (u64, u64),
    rewritten: &mut Rewritten,
) -> Result<Vec<Change>> {
    let (first, last) = (from.div_ceil(BLOCK), end / BLOCK);
    if first > last {
        zero_within(core, caller, state, (from, end), rewritten)?;
        return Ok(rewritten.changes());
    }
    zero_within(core, caller, state, (from, first * BLOCK), rewritten)?;
    zero_within(core, caller, state, (last * BLOCK, end), rewritten)?;
    let mut changes = rewritten.changes();
    if first < last {
        changes.push(Change::Unmap(first, last));
    }
    Ok(changes)
}

/// Reserves those of these blocks that the file does not have.
fn reserve(
    core: &Core,
    caller: &Caller,
    state: &State,
    (from, to): (u64, u64),
    taken: &mut Vec<Run>,
) -> Result<Option<Change>> {
    let pieces = state.extents().into_iter().flat_map(|extents| extents.within(from, to));
    let holes: Vec<(u64, u64)> = holes(pieces, (from, to)).collect();
    let wanted = blocks_of(&holes);
    if wanted == 0 {
        return Ok(None);
    }
    let new = room::allocate(core, core.worker(caller), wanted)?;
    taken.extend(&new);
    Ok(Some(Change::Map(fill(&holes, &new, false))))
}

/// The next data or hole.
pub(crate) fn seek(open: &Open, offset: u64, target: SeekTarget) -> Result<u64> {
    let state = open.inode.state.read();
    if offset >= state.size {
        return Err(Errno::ENXIO.into());
    }
    let Content::Blocks(extents) = &state.content else {
        return Ok(if target == SeekTarget::Data { offset } else { state.size });
    };
    let (mut at, end) = (offset, state.size.div_ceil(BLOCK));
    // Reserved space reads as zeros, and is a hole like others.
    for piece in extents.within(offset / BLOCK, end).filter(|piece| piece.is_written) {
        let from = (piece.at * BLOCK).max(offset);
        match target {
            SeekTarget::Data => return Ok(from),
            SeekTarget::Hole if from > at => return Ok(at),
            SeekTarget::Hole => at = (piece.end() * BLOCK).min(state.size),
        }
    }
    match target {
        SeekTarget::Data => Err(Errno::ENXIO.into()),
        SeekTarget::Hole => Ok(at.min(state.size)),
    }
}
