//! Reading.

use crate::core::Core;
use crate::file::access_time::renew;
use crate::file::pieces::{read_home, read_pieces};
use crate::file::read_ahead;
use crate::live::{File, Layout, OpenFile, Spread};
use braid_contract::{ReadPiece, Result, TierId};
use braid_format::Entry;
use braid_tiers::{Account, present};
use std::sync::atomic::{Ordering, fence};

/// Pieces on several tiers are read at the same time if there is this much to
/// read, in bytes; handing less to another thread costs more than it saves.
const PARALLEL_MIN: usize = 128 << 10;

/// The part of a read on one tier, or in holes.
struct TierPart<'a> {
    tier: Option<TierId>,
    pieces: Vec<ReadPiece<'a>>,
}

/// Reads at `offset`; answers how many bytes there were. `direct` bypasses the page cache.
pub fn read_file(core: &Core, open: &OpenFile, offset: u64, buf: &mut [u8], direct: bool) -> Result<usize> {
    let file = &*open.file;
    match &*file.layout.read() {
        Layout::Plain => {
            if is_for_application() {
                core.observer.used(file, core.tiers.home().id, 0..1);
            }
            read_home(core, file.data(), offset, buf, direct)
        }
        Layout::Spread(spread) => {
            let len = spread.size().saturating_sub(offset).min(buf.len() as u64) as usize;
            if len == 0 {
                return Ok(0);
            }
            if !direct {
                read_ahead::look(core, open, spread, offset..offset + len as u64);
            }
            read_spread(core, file, spread, offset, &mut buf[..len], direct)?;
            Ok(len)
        }
    }
}

fn read_spread(
    core: &Core,
    file: &File,
    spread: &Spread,
    offset: u64,
    buf: &mut [u8],
    direct: bool,
) -> Result<()> {
    let len = buf.len();
    unmoved(spread, offset, offset + len as u64, || {
        let buf = &mut *buf;
        let (tier, run) = run_at(spread, offset, len)?;
        if run == len {
            return read_part(core, file, spread, tier, &mut [ReadPiece::new(offset, buf)], direct);
        }
        let read =
            |mut part: TierPart<'_>| read_part(core, file, spread, part.tier, &mut part.pieces, direct);
        let parts = parts_of(spread, offset, buf)?;
        match len < PARALLEL_MIN || parts.len() == 1 {
            true => parts.into_iter().try_for_each(read),
            false => core.side_by_side(parts, read),
        }
    })?;
    if is_for_application() {
        renew(core, file, spread, offset + len as u64);
    }
    Ok(())
}

/// Repeats `look` until no range of `offset .. end` moves meanwhile: a move may
/// punch the range while it is read.
pub(crate) fn unmoved<T>(
    spread: &Spread,
    offset: u64,
    end: u64,
    mut look: impl FnMut() -> Result<T>,
) -> Result<T> {
    let entries = || -> Result<Vec<Option<Entry>>> {
        let ranges = spread.range_size().ranges_of(offset, end);
        ranges.map(|range| spread.index.entry(range)).collect()
    };
    loop {
        let (switches, moving) = (spread.moving.switches(), spread.moving.is_active());
        // With no move under way, it is enough that none begins.
        let before = if moving { entries()? } else { Vec::new() };
        let seen = look();
        fence(Ordering::Acquire);
        if spread.moving.switches() == switches || moving && entries()? == before {
            return seen;
        }
    }
}

/// Splits a read where the tier changes, and groups the parts by tier.
fn parts_of<'a>(spread: &Spread, mut offset: u64, mut buf: &'a mut [u8]) -> Result<Vec<TierPart<'a>>> {
    let mut parts: Vec<TierPart<'a>> = Vec::new();
    while !buf.is_empty() {
        let (tier, len) = run_at(spread, offset, buf.len())?;
        let (piece, rest) = buf.split_at_mut(len);
        let piece = ReadPiece::new(offset, piece);
        match parts.iter_mut().find(|part| part.tier == tier) {
            Some(part) => part.pieces.push(piece),
            None => parts.push(TierPart { tier, pieces: vec![piece] }),
        }
        (offset, buf) = (offset + len as u64, rest);
    }
    Ok(parts)
}

/// The tier of the range at `offset`, `None` if it was never written; and
/// how many of `len` bytes from there on are in the same place.
pub(crate) fn run_at(spread: &Spread, offset: u64, len: usize) -> Result<(Option<TierId>, usize)> {
    let ranges = spread.range_size();
    let tier_at = |offset| -> Result<Option<TierId>> {
        Ok(spread.index.entry(ranges.range_of(offset))?.map(|entry| entry.tier))
    };
    let tier = tier_at(offset)?;
    let mut run = ranges.rest_of(offset);
    while (run as usize) < len && tier_at(offset + run)? == tier {
        run += ranges.bytes();
    }
    Ok((tier, len.min(run as usize)))
}

/// Whether an application reads: other reads leave no trace.
fn is_for_application() -> bool {
    present() != Account::Mover
}

fn read_part(
    core: &Core,
    file: &File,
    spread: &Spread,
    tier: Option<TierId>,
    pieces: &mut [ReadPiece<'_>],
    direct: bool,
) -> Result<()> {
    let Some(tier) = tier else {
        pieces.iter_mut().for_each(|piece| piece.buf.fill(0));
        return Ok(());
    };
    for piece in &*pieces {
        let end = piece.offset + piece.buf.len() as u64;
        if is_for_application() {
            core.observer.used(file, tier, spread.range_size().ranges_of(piece.offset, end));
        }
    }
    read_pieces(file, spread, &*core.tiers.get(tier)?, pieces, direct)
}
