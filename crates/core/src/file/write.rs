//! Writing.

use crate::coord::Writing;
use crate::core::Core;
use crate::file::choose::hint_of;
use crate::file::demand::{Demand, Obstacle};
use crate::file::full_range::{MoveLimit, move_off};
use crate::file::indexing::NotSpread;
use crate::file::leave_home::{Departure, leave_home, leave_when_full, leaves_home};
use crate::file::mark::mark;
use crate::file::pieces::{write_home, write_piece};
use crate::file::place::place;
use crate::file::read::run_at;
use crate::file::set_id::{clear_capability, clear_set_id};
use crate::file::trim::{prepare_growth, trim_before};
use crate::file::write_through::pass_on;
use crate::live::{File, Layout, OpenFile, Spread};
use crate::need::Need;
use crate::reap::reap_now;
use braid_contract::{Caller, Errno, Error, Result, WriteFlags};
use braid_coord::{RangeSpan, SPAN_RANGES_MAX};
use braid_format::SIZE_MAX;
use braid_placement::Origin;
use braid_tiers::Tier;

/// How far a write came, and the obstacle to the rest.
pub(crate) enum WriteProgress {
    /// So many bytes are done, and nothing is in the way of the rest.
    Done(usize),
    /// Nothing is done: the first range has to leave its tier.
    RangeMustMove(Obstacle),
}

/// Writes at `offset`; returns the number of bytes written.
pub fn write_file(
    core: &Core,
    open: &OpenFile,
    offset: u64,
    data: &[u8],
    flags: WriteFlags,
    caller: &Caller,
) -> Result<usize> {
    let file = &*open.file;
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
    let io = match flags.write_back {
        // The kernel had set-id bits cleared before it took the data.
        true => {
            if flags.kill_set_id {
                clear_capability(file)?;
            }
            file.cached_time.will_be_written_back(|| file.mtime())?;
            Origin { written_back: true, sync: open.flags.sync, hint: flags.hint, ..open.opener }
        }
        false => {
            clear_set_id(file, caller, !flags.kill_set_id)?;
            Origin::of_write(caller, flags)
        }
    };
    trim_before(core, file, end);
    let (mut done, mut moves, mut need) = (0, MoveLimit::default(), Need::new(core));
    while done < data.len() {
        let at = offset + done as u64;
        match write_some(core, file, at, end, &data[done..], io, &mut moves) {
            Ok(written) => {
                done += written;
                if flags.write_back {
                    file.cached_time.written_back();
                }
            }
            // The space of removed files may suffice.
            Err(error) if error.is_full() && need.wait() => moves = MoveLimit::default(),
            Err(error) if done == 0 => return Err(error),
            // The bytes that are done count; the error comes again with the
            // rest.
            Err(_) => break,
        }
    }
    pass_on(core, open, offset, done, &io);
    Ok(done)
}

/// Writes as much as goes with the file as it is; or, if nothing goes,
/// changes the file so that more will.
fn write_some(
    core: &Core,
    file: &File,
    offset: u64,
    end: u64,
    data: &[u8],
    io: Origin,
    moves: &mut MoveLimit,
) -> Result<usize> {
    let layout = file.layout.read();
    match &*layout {
        Layout::Plain => {
            let leave = leaves_home(core, file, offset, end, io)?;
            let written = if leave.is_some() {
                Err(Errno::ENOSPC.into())
            } else {
                core.observer.used(file, core.tiers.home().id, 0..1);
                write_home(core, file, offset, data, io.direct)
            };
            drop(layout);
            match written {
                Err(full) if full.is_full() => {
                    let leave = leave.map_or_else(|| leave_when_full(core, file, (offset, end), io), Ok)?;
                    make_room_in_plain(core, file, (offset, end), data, io, (leave, full))
                }
                Ok(written) => {
                    core.tiers.home().grew(offset, offset + written as u64);
                    Ok(written)
                }
                result => result,
            }
        }
        Layout::Spread(spread) => match write_spread(core, file, spread, offset, data, io)? {
            WriteProgress::Done(done) => Ok(done),
            WriteProgress::RangeMustMove(obstacle) => {
                let range = spread.range_size().range_of(offset);
                drop(layout);
                if move_off(core, file, offset, obstacle)? {
                    moves.count(range, core.tiers.iter().count())?;
                }
                Ok(0)
            }
        },
    }
}

/// A plain file must not, or can't, grow on home: it leaves, and the write goes
/// on from there. While the kernel does I/O on the home file by itself, only
/// home will do.
fn make_room_in_plain(
    core: &Core,
    file: &File,
    (offset, end): (u64, u64),
    data: &[u8],
    io: Origin,
    (leave, full): (Departure, Error),
) -> Result<usize> {
    match leave_home(core, file, (offset, end), io, leave) {
        Ok(()) => Ok(0),
        Err(NotSpread::Failed(error)) if !leave.must => {
            tracing::debug!(%error, "a file stays on home");
            write_if_plain(core, file, offset, data, io)
        }
        Err(NotSpread::PassedThrough) => {
            reap_now(core);
            write_if_plain(core, file, offset, data, io)
        }
        Err(NotSpread::Failed(error)) if error.is_full() => Err(full),
        Err(NotSpread::Failed(error)) => Err(error),
    }
}

/// Writes to home, if the file is plain still.
fn write_if_plain(core: &Core, file: &File, offset: u64, data: &[u8], io: Origin) -> Result<usize> {
    let layout = file.layout.read();
    let Layout::Plain = &*layout else { return Ok(0) };
    core.observer.used(file, core.tiers.home().id, 0..1);
    let written = write_home(core, file, offset, data, io.direct)?;
    core.tiers.home().grew(offset, offset + written as u64);
    Ok(written)
}

fn write_spread(
    core: &Core,
    file: &File,
    spread: &Spread,
    offset: u64,
    data: &[u8],
    io: Origin,
) -> Result<WriteProgress> {
    mark(core, file, spread)?;
    if offset > spread.size() {
        spread.index.set_gaps(true)?;
    }
    let end = (offset + data.len() as u64).min(writing_end(spread, offset));
    let data = &data[..(end - offset) as usize];
    place(core, file, spread, offset..end, io, Demand::Room)?;
    let io = Origin { hint: hint_of(core, file, spread.size(), io), ..io };
    // From here to the end, the ranges stay where they are.
    let mut writing = writing(core, spread, offset, end);
    if end > spread.size() {
        // Before anything is written: a growth that fails then would leave data behind the end.
        prepare_growth(core, file, spread)?;
    }
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let (tier, run) = run_at(spread, at, data.len() - done)?;
        let tier = core.tiers.get(tier.ok_or(Errno::EIO)?)?;
        let len = taken_or_refused(spread, &tier, at, run);
        match write_piece(file, spread, &tier, at, &data[done..done + len], io.store_io()) {
            Ok(written) => {
                done += written;
                core.observer.used(file, tier.id, spread.range_size().ranges_of(at, at + written as u64));
                spread.wrote(tier.id)?;
                grow(core, file, spread, offset + done as u64, &tier)?;
            }
            // The rest meets the obstacle again.
            Err(_) if done > 0 => break,
            Err(error) => {
                let obstacle = Obstacle::of(&tier, &error).ok_or(error)?;
                if obstacle.demand == Demand::Overwrite {
                    writing.wrote_nothing();
                }
                return Ok(WriteProgress::RangeMustMove(obstacle));
            }
        }
    }
    Ok(WriteProgress::Done(done))
}

/// How many of `len` bytes on one tier are written by one operation. One that
/// writes each byte once refuses all of it where some byte was written before,
/// and then only the range with that byte is to move.
fn taken_or_refused(spread: &Spread, tier: &Tier, at: u64, len: usize) -> usize {
    match tier.capabilities().overwrite {
        true => len,
        false => len.min(spread.range_size().rest_of(at) as usize),
    }
}

/// Keeps the ranges of `offset .. end` on their tiers until the guard is
/// dropped, and lets movers know that they were written.
pub(crate) fn writing<'c>(core: &'c Core, spread: &'c Spread, offset: u64, end: u64) -> Writing<'c> {
    let ranges = spread.range_size();
    let span = RangeSpan::new(spread.id(), &ranges.ranges_of(offset, end));
    spread.moving.write(&core.slots, span, offset..end, ranges.bytes())
}

/// The file now reaches to `end` at least; `tier` holds its last byte.
pub(crate) fn grow(core: &Core, file: &File, spread: &Spread, end: u64, tier: &Tier) -> Result<()> {
    if spread.size() < end {
        prepare_growth(core, file, spread)?;
        spread.grow(end, tier.id)?;
    }
    Ok(())
}

/// The last byte that one call of [`writing`] from `offset` on may cover,
/// exclusive.
fn writing_end(spread: &Spread, offset: u64) -> u64 {
    let ranges = spread.range_size();
    ranges.start_of(ranges.range_of(offset) + SPAN_RANGES_MAX)
}
