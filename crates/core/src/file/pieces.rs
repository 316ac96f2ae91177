//! One file's bytes on one tier: every read and write of data passes here, is
//! counted, and has its errors examined.

use crate::core::Core;
use crate::file::preallocate::allocate_growth;
use crate::file::presence::is_absent;
use crate::live::{File, Spread};
use braid_contract::{FallocateMode, Fd, Hint, ObjectId, ReadPiece, Result, Store, StoreIo};
use braid_placement::Direction;
use braid_tiers::{Backend, Tier, bit};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

/// Reads from the file's part on `tier`, past the page cache, to copy it; bytes
/// past the end of that part are zeros. Its access time stays.
pub(crate) fn read_to_copy(
    file: &File,
    spread: &Spread,
    tier: &Tier,
    offset: u64,
    buf: &mut [u8],
) -> Result<()> {
    read_from(file.unnoticed(), spread, tier, &mut [ReadPiece::new(offset, buf)], true)
}

/// Reads pieces of the file's part on `tier`, by one operation where that is up
/// to a store; bytes past the end of that part are zeros.
pub(crate) fn read_pieces(
    file: &File,
    spread: &Spread,
    tier: &Tier,
    pieces: &mut [ReadPiece<'_>],
    direct: bool,
) -> Result<()> {
    read_from(file.data(), spread, tier, pieces, direct)
}

fn read_from(
    home: &Fd,
    spread: &Spread,
    tier: &Tier,
    pieces: &mut [ReadPiece<'_>],
    direct: bool,
) -> Result<()> {
    let len = pieces.iter().map(|piece| piece.buf.len()).sum();
    let read = tier.count(Direction::Read, (len, direct), || {
        match &tier.backend {
            Backend::Home(_) => read_from_home(home, pieces, direct),
            Backend::Store(store) => read_to_end(&**store, spread.id(), pieces, direct),
        }
        .map(|()| pieces.iter().map(|piece| piece.done).sum())
    });
    match read {
        Err(error) if is_absent(spread, tier, &error)? => {}
        result => _ = result.map_err(|error| tier.note_error(error))?,
    }
    for ReadPiece { buf, done, .. } in pieces {
        buf[*done..].fill(0);
    }
    Ok(())
}

fn read_from_home(home: &Fd, pieces: &mut [ReadPiece<'_>], direct: bool) -> Result<()> {
    for ReadPiece { offset, buf, done } in pieces {
        *done = home.read_at(*offset, &mut [IoSliceMut::new(buf)], direct)?;
    }
    Ok(())
}

/// Writes to the file's part on `tier`. Short only if an error follows. A tier
/// that is set to be read-only answers `ENOSPC` too, so that the range goes to
/// another.
pub(crate) fn write_piece(
    file: &File,
    spread: &Spread,
    tier: &Tier,
    offset: u64,
    data: &[u8],
    io: StoreIo,
) -> Result<usize> {
    tier.refuse_if_readonly()?;
    note_write(spread, tier);
    allocate_growth(file, spread, tier, offset..offset + data.len() as u64)?;
    let write = || match &tier.backend {
        Backend::Home(_) => {
            let _shared = file.home_len.read();
            let home = file.writable()?;
            if let Some(life) = io.hint.life {
                home.expect_life(life);
            }
            home.write_at(offset, &[IoSlice::new(data)], io.direct)
        }
        Backend::Store(store) => store.write_at(spread.id(), offset, &[IoSlice::new(data)], io),
    };
    let written = match tier.count(Direction::Write, (data.len(), io.direct), write) {
        Err(error) if is_absent(spread, tier, &error)? => {
            make_object(spread, tier)?;
            tier.count(Direction::Write, (data.len(), io.direct), write)
        }
        result => result,
    };
    // A sync beside the write may have taken the note for its own.
    note_write(spread, tier);
    written.map_err(|error| tier.note_error(error))
}

/// Notes that data which is being written on `tier` is not durable there.
pub(super) fn note_write(spread: &Spread, tier: &Tier) {
    spread.untimed.fetch_or(bit(tier.id), Ordering::AcqRel);
    spread.dirty.fetch_or(bit(tier.id), Ordering::AcqRel);
    spread.space.changed();
}

/// Makes a change that has no data on `tier`, and notes that it is not durable there, before and
/// after it: a sync beside it may take the first note for its own.
pub(super) fn changing<T>(spread: &Spread, tier: &Tier, change: impl FnOnce() -> T) -> T {
    let note = || spread.dirty.fetch_or(bit(tier.id), Ordering::AcqRel);
    note();
    let changed = change();
    note();
    changed
}

/// Zeroes and frees part of the file's part on `tier`.
pub(crate) fn punch_piece(file: &File, spread: &Spread, tier: &Tier, offset: u64, len: u64) -> Result<()> {
    let punched = match &tier.backend {
        Backend::Home(_) => file.writable()?.allocate(FallocateMode::PunchHole, offset, len),
        Backend::Store(store) => store.punch(spread.id(), offset, len),
    };
    spread.space.changed();
    match punched {
        Err(error) if is_absent(spread, tier, &error)? => Ok(()),
        result => result.map_err(|error| tier.note_error(error)),
    }
}

/// Reads from the home file of a plain file, by one of its descriptors.
pub(crate) fn read_home(core: &Core, home: &Fd, offset: u64, buf: &mut [u8], direct: bool) -> Result<usize> {
    core.tiers.home().count(Direction::Read, (buf.len(), direct), || {
        home.read_at(offset, &mut [IoSliceMut::new(buf)], direct)
    })
}

/// Writes to the home file of a plain file.
pub(crate) fn write_home(core: &Core, file: &File, offset: u64, data: &[u8], direct: bool) -> Result<usize> {
    let home = core.tiers.home();
    let written = home.count(Direction::Write, (data.len(), direct), || {
        file.writable()?.write_at(offset, &[IoSlice::new(data)], direct)
    });
    written.map_err(|error| home.note_error(error))
}

/// Makes sure that the tier has the file's object.
pub(crate) fn ensure_object(spread: &Spread, tier: &Tier) -> Result<()> {
    if spread.created.load(Ordering::Acquire) & bit(tier.id) != 0 {
        return Ok(());
    }
    if let Backend::Store(store) = &tier.backend
        && spread.index.is_object_durable(tier.id)?
    {
        // It exists, or it was lost with its data: an empty one in its place
        // would turn that data to zeros.
        store.stat(spread.id()).map_err(|error| tier.note_error(error))?;
        spread.object_was_made(tier.id);
        return Ok(());
    }
    make_object(spread, tier)
}

/// Makes the file's object on the tier; home needs none.
pub(super) fn make_object(spread: &Spread, tier: &Tier) -> Result<()> {
    if let Backend::Store(store) = &tier.backend {
        store.create(spread.id()).map_err(|error| tier.note_error(error))?;
    }
    spread.object_was_made(tier.id);
    Ok(())
}

/// Reads until there is no more: a read may be short in the middle too.
fn read_to_end(store: &dyn Store, id: ObjectId, pieces: &mut [ReadPiece<'_>], direct: bool) -> Result<()> {
    let io = StoreIo { direct, hint: Hint::default() };
    if pieces.len() > 1 {
        store.read_pieces(id, pieces, io)?;
    }
    for ReadPiece { offset, buf, done } in pieces {
        while *done < buf.len() {
            let at = *offset + *done as u64;
            match store.read_at(id, at, &mut [IoSliceMut::new(&mut buf[*done..])], io)? {
                0 => break,
                more => *done += more,
            }
        }
    }
    Ok(())
}
