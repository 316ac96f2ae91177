//! The bytes of files. Blocks are never overwritten: data goes into new blocks, and the
//! record that refers to them follows. Only blocks that were reserved, and read as zeros
//! until a record says otherwise, are written where they are.

use crate::core::{Core, Open, Write};
use crate::device::BLOCK;
use crate::extents::{Extents, Piece, Run, blocks_of, fill, holes};
use crate::inode::{Content, Inode, State};
use crate::ops::set_id::without_set_id;
use crate::record::Change;
use crate::room;
use braid_contract::{Caller, Errno, FileKind, Result, WriteFlags};
use std::io::IoSlice;
use std::sync::Arc;

/// Longest file that is kept in the log, in bytes.
pub(crate) const INLINE_MAX: usize = 512;
/// Longest file in bytes.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;
/// Most bytes of one record.
const PIECE_MAX: usize = 4 << 20;

/// A file whose lock is held.
pub(crate) type Locked<'a, 'b> = (&'a Inode, &'b mut State);

/// Reads; short at the end of the file only.
pub(crate) fn read(core: &Core, open: &Open, offset: u64, buf: &mut [u8]) -> Result<usize> {
    // A kernel that writes back may read a file opened for writing only. Held
    // until the end, so that the blocks stay this file's.
    let state = open.inode.state.read();
    let len = state.size.saturating_sub(offset).min(buf.len() as u64) as usize;
    read_state(core, &state, offset, &mut buf[..len])?;
    Ok(len)
}

/// Fills `buf`, which is within the file.
pub(crate) fn read_state(core: &Core, state: &State, offset: u64, buf: &mut [u8]) -> Result<()> {
    match &state.content {
        Content::Blocks(extents) => read_blocks(core, extents, offset, buf),
        Content::Inline(bytes) => {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let there = &bytes[from..bytes.len().min(from.saturating_add(buf.len()))];
            let (begin, rest) = buf.split_at_mut(there.len());
            begin.copy_from_slice(there);
            rest.fill(0);
            Ok(())
        }
        _ => Err(Errno::EINVAL.into()),
    }
}

fn read_blocks(core: &Core, extents: &Extents, offset: u64, buf: &mut [u8]) -> Result<()> {
    let end = offset + buf.len() as u64;
    let mut at = offset;
    for piece in extents.within(offset / BLOCK, end.div_ceil(BLOCK)) {
        let (from, to) = ((piece.at * BLOCK).max(at), (piece.end() * BLOCK).min(end));
        buf[(at - offset) as usize..(from - offset) as usize].fill(0);
        let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
        if piece.is_written {
            core.journal.device().read_at(piece.run.start * BLOCK + (from - piece.at * BLOCK), part)?;
        } else {
            part.fill(0);
        }
        at = to;
    }
    buf[(at - offset) as usize..].fill(0);
    Ok(())
}

/// Writes; returns how many bytes, which are fewer where there is no room for more.
pub(crate) fn write(
    core: &Core,
    caller: &Caller,
    open: &Open,
    offset: u64,
    data: &[u8],
    flags: WriteFlags,
) -> Result<usize> {
    if !open.flags.write {
        return Err(Errno::EBADF.into());
    }
    if offset.checked_add(data.len() as u64).is_none_or(|end| end > SIZE_MAX) {
        return Err(Errno::EFBIG.into());
    }
    room::checkpoint_if_urgent(core)?;
    let mut done = 0;
    while done < data.len() {
        // Up to where a block ends, so that the next piece begins with one.
        let at = offset + done as u64;
        let most = PIECE_MAX - (at % BLOCK) as usize;
        let piece = &data[done..data.len().min(done + most)];
        match room::retry_with_room(core, || write_piece(core, caller, open, at, piece, flags)) {
            Ok(()) => done += piece.len(),
            Err(error) if done == 0 || flags.write_back => return Err(error),
            Err(_) => break,
        }
    }
    if flags.sync || open.flags.sync {
        core.journal.commit(open.inode.state.read().version)?;
    }
    Ok(done)
}

fn write_piece(
    core: &Core,
    caller: &Caller,
    open: &Open,
    offset: u64,
    data: &[u8],
    flags: WriteFlags,
) -> Result<()> {
    let inode = &*open.inode;
    let mut guard = inode.state.write();
    let state = &mut *guard;
    if !state.is_live() {
        return Err(Errno::ESTALE.into());
    }
    let mut file: Locked<'_, '_> = (inode, state);
    let (mut changes, taken) = put(core, caller, &mut file, offset, data)?;
    let state = file.1;
    if !flags.write_back {
        let now = core.now();
        changes.extend([Change::Modified(now), Change::Changed(now)]);
    }
    if flags.kill_set_id {
        changes.extend(without_set_id(state, flags.write_back));
    }
    // The kernel does not say whose writes it writes back; the process that opened the
    // file is likely.
    let actor = if flags.write_back { Arc::clone(&open.actor) } else { core.actor(caller) };
    if state.written_by.as_ref() != Some(&actor) {
        changes.push(Change::Wrote(actor));
    }
    finish(core, caller, (inode, state), changes, taken)
}

/// Records changes; blocks that were taken for them are given back if that fails.
fn finish(
    core: &Core,
    caller: &Caller,
    (inode, state): Locked<'_, '_>,
    changes: Vec<Change>,
    taken: Vec<Run>,
) -> Result<()> {
    let writes = vec![Write { ino: inode.ino, state, changes }];
    core.record(core.worker(caller), writes).inspect_err(|_| give_back(core, taken))
}

/// Nothing refers to them: they are free at once. A journal that failed may have a record of them
/// all the same, for the process after a crash.
pub(crate) fn give_back(core: &Core, runs: Vec<Run>) {
    if core.journal.check().is_err() {
        return;
    }
    runs.into_iter().for_each(|run| core.journal.medium.space.free(run));
}

/// The changes by which a file has `data` at `offset`, and the blocks that were taken and
/// written for it.
fn put(
    core: &Core,
    caller: &Caller,
    file: &mut Locked<'_, '_>,
    offset: u64,
    data: &[u8],
) -> Result<(Vec<Change>, Vec<Run>)> {
    let end = offset + data.len() as u64;
    let size = file.1.size.max(end);
    if let Content::Inline(bytes) = &file.1.content
        && size <= INLINE_MAX as u64
    {
        let mut bytes = bytes.clone();
        bytes.resize(size as usize, 0);
        bytes[offset as usize..end as usize].copy_from_slice(data);
        return Ok((vec![Change::Inline(bytes)], Vec::new()));
    }
    leave_inline(core, caller, file)?;
    if offset > file.1.size {
        clear_tail(core, caller, file, Some(offset / BLOCK))?;
    }
    let blocks = (offset / BLOCK, end.div_ceil(BLOCK));
    let whole;
    let bytes = if offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK) {
        data
    } else {
        whole = surrounded(core, file.1, offset, data)?;
        &whole
    };
    let (pieces, taken) = place(core, caller, file.1, blocks)?;
    if let Err(error) = store(core, &pieces, bytes) {
        give_back(core, taken);
        return Err(error);
    }
    let mut changes = vec![Change::Map(pieces), Change::Sum(crc32c::crc32c(bytes))];
    if size != file.1.size {
        changes.push(Change::Size(size));
    }
    Ok((changes, taken))
}

/// Whole blocks: `data`, and around it the file's bytes.
fn surrounded(core: &Core, state: &State, offset: u64, data: &[u8]) -> Result<Vec<u8>> {
    let (from, end) = (offset / BLOCK * BLOCK, offset + data.len() as u64);
    let to = end.next_multiple_of(BLOCK);
    let mut bytes = vec![0; (to - from) as usize];
    // Bytes behind the end of the file are not the file's, and stay zero.
    let fill = |from_byte: u64, to_byte: u64, bytes: &mut [u8]| {
        let to_byte = to_byte.min(state.size);
        if from_byte < to_byte {
            let part = &mut bytes[(from_byte - from) as usize..(to_byte - from) as usize];
            return read_state(core, state, from_byte, part);
        }
        Ok(())
    };
    fill(from, offset, &mut bytes)?;
    fill(end, to, &mut bytes)?;
    bytes[(offset - from) as usize..(end - from) as usize].copy_from_slice(data);
    Ok(bytes)
}

/// Where these blocks of a file will be: in those that are reserved for them, else in new
/// ones, which are returned, too.
pub(crate) fn place(
    core: &Core,
    caller: &Caller,
    state: &State,
    (from, to): (u64, u64),
) -> Result<(Vec<Piece>, Vec<Run>)> {
    let found = state.extents().into_iter().flat_map(|extents| extents.within(from, to));
    let reserved: Vec<Piece> = found.filter(|piece| !piece.is_written).collect();
    let holes: Vec<(u64, u64)> = holes(reserved.iter().copied(), (from, to)).collect();
    let wanted = blocks_of(&holes);
    let taken = if wanted > 0 { room::allocate(core, core.worker(caller), wanted)? } else { Vec::new() };
    let mut pieces = fill(&holes, &taken, true);
    pieces.extend(reserved.into_iter().map(|piece| Piece { is_written: true, ..piece }));
    pieces.sort_unstable_by_key(|piece| piece.at);
    Ok((pieces, taken))
}

/// Writes whole blocks to where they are.
pub(crate) fn store(core: &Core, pieces: &[Piece], mut bytes: &[u8]) -> Result<()> {
    for piece in pieces {
        let (here, rest) = bytes.split_at((piece.run.len * BLOCK) as usize);
        core.journal.device().write_at(piece.run.start * BLOCK, &[IoSlice::new(here)])?;
        bytes = rest;
    }
    Ok(())
}

/// Moves the contents of a small file into a block. The file does not change otherwise.
pub(crate) fn leave_inline(core: &Core, caller: &Caller, file: &mut Locked<'_, '_>) -> Result<()> {
    let Content::Inline(bytes) = &file.1.content else {
        return if file.1.extents().is_some() { Ok(()) } else { Err(Errno::EINVAL.into()) };
    };
    if bytes.is_empty() {
        return Ok(());
    }
    let mut block = bytes.clone();
    block.resize(BLOCK as usize, 0);
    rewrite(core, caller, file, 0, &block)
}

/// Zeroes the last block behind the end of the file, before the file grows over it; not
/// if that block is written anyway.
fn clear_tail(core: &Core, caller: &Caller, file: &mut Locked<'_, '_>, unless: Option<u64>) -> Result<()> {
    let (size, last) = (file.1.size, file.1.size / BLOCK);
    let is_written =
        file.1.extents().and_then(|extents| extents.find(last)).is_some_and(|piece| piece.is_written);
    if size.is_multiple_of(BLOCK) || !is_written || unless == Some(last) {
        return Ok(());
    }
    let mut block = vec![0; BLOCK as usize];
    read_state(core, file.1, last * BLOCK, &mut block[..(size % BLOCK) as usize])?;
    rewrite(core, caller, file, last, &block)
}

/// Blocks that got other contents, to be recorded.
#[derive(Default)]
pub(crate) struct Rewritten {
    pieces: Vec<Piece>,
    sum: u32,
    /// The blocks taken for them.
    pub(crate) taken: Vec<Run>,
}

impl Rewritten {
    /// Writes the new contents of a block.
    pub(crate) fn add(
        &mut self,
        core: &Core,
        caller: &Caller,
        state: &State,
        at: u64,
        block: &[u8],
    ) -> Result<()> {
        let (pieces, taken) = place(core, caller, state, (at, at + 1))?;
        self.taken.extend(taken);
        store(core, &pieces, block)?;
        self.pieces.extend(pieces);
        self.sum = crc32c::crc32c_append(self.sum, block);
        Ok(())
    }

    /// The changes by which the file has them.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        if self.pieces.is_empty() {
            return Vec::new();
        }
        vec![Change::Map(std::mem::take(&mut self.pieces)), Change::Sum(self.sum)]
    }

    pub(crate) fn give_back(self, core: &Core) {
        give_back(core, self.taken);
    }
}

/// Puts other bytes in the place of a block, by a record of its own.
fn rewrite(core: &Core, caller: &Caller, file: &mut Locked<'_, '_>, at: u64, block: &[u8]) -> Result<()> {
    let mut rewritten = Rewritten::default();
    if let Err(error) = rewritten.add(core, caller, file.1, at, block) {
        rewritten.give_back(core);
        return Err(error);
    }
    finish(core, caller, (file.0, file.1), rewritten.changes(), rewritten.taken)
}

/// The changes by which a file has another size. To make it shorter takes no blocks.
pub(crate) fn resize(
    core: &Core,
    caller: &Caller,
    file: &mut Locked<'_, '_>,
    size: u64,
) -> Result<Vec<Change>> {
    match file.1.kind() {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::EINVAL.into()),
    }
    if size > SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    if size <= file.1.size {
        return Ok(if size < file.1.size { vec![Change::Size(size)] } else { Vec::new() });
    }
    if let Content::Inline(bytes) = &file.1.content
        && size <= INLINE_MAX as u64
    {
        let mut bytes = bytes.clone();
        bytes.resize(size as usize, 0);
        return Ok(vec![Change::Inline(bytes)]);
    }
    leave_inline(core, caller, file)?;
    clear_tail(core, caller, file, None)?;
    // An empty map: it is no small file any more.
    Ok(vec![Change::Map(Vec::new()), Change::Size(size)])
}

/// Writes zeros over part of a block, if the file has something there.
pub(crate) fn zero_within(
    core: &Core,
    caller: &Caller,
    state: &State,
    (from, to): (u64, u64),
    rewritten: &mut Rewritten,
) -> Result<()> {
    let to = to.min(state.size);
    let at = from / BLOCK;
    let is_written =
        state.extents().and_then(|extents| extents.find(at)).is_some_and(|piece| piece.is_written);
    if from >= to || !is_written {
        return Ok(());
    }
    let zeros = vec![0; (to - from) as usize];
    let block = surrounded(core, state, from, &zeros)?;
    rewritten.add(core, caller, state, at, &block)
}
