//! Giving back space on a tier that a file does not need, and making that
//! durable before the size may grow over it (ordering rule 3).

use crate::core::Core;
use crate::failpoint::Failpoint;
use crate::file::extents::{next_data_on, part_size};
use crate::file::home_inode::unnoticed;
use crate::file::pieces::punch_piece;
use crate::file::presence::concerning;
use crate::file::sync::sync_if_concerned;
use crate::live::{AllocatedAhead, File, Layout, Spread};
use braid_contract::{Context, Errno, FallocateMode, Result, SetTime, TierId};
use braid_tiers::{Backend, Tier, bit};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The smallest block that file systems allocate.
const BLOCK: u64 = 4096;

/// No file system gives a file more than this at a time.
const GUESS_MAX: u64 = 16 << 30;

/// Notes that something of the file was cut or punched on a tier.
pub(super) fn note_release(spread: &Spread, tier: TierId) {
    spread.dirty.fetch_or(bit(tier), Ordering::AcqRel);
    spread.released.fetch_or(bit(tier), Ordering::AcqRel);
}

/// Makes cuts and punches of the file durable. Until then, power loss may undo
/// them, so this comes before the size may grow over them (ordering rule 3).
pub(crate) fn make_releases_durable(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    let released = spread.released.load(Ordering::Acquire);
    let nothing = released == 0 && !spread.cleared.load(Ordering::Acquire);
    if nothing || core.fails_at(Failpoint::GrowOverUnclearedEntries) {
        return Ok(());
    }
    for tier in core.tiers.iter().filter(|tier| released & bit(tier.id) != 0) {
        sync_if_concerned(file, spread, &tier, true)?;
    }
    core.index.sync(&spread.index)?;
    spread.released.fetch_and(!released, Ordering::AcqRel);
    spread.cleared.store(false, Ordering::Release);
    Ok(())
}

/// Frees the space of a range on a tier that does not hold it, or not any more;
/// on one that frees only whole objects (`unneeded.rs`), nothing.
pub(crate) fn release_range(file: &File, spread: &Spread, tier: &Tier, range: u64) -> Result<()> {
    if !tier.capabilities().punch {
        // `stat` counts no range that the tier does not hold.
        spread.space.changed();
        return Ok(());
    }
    note_release(spread, tier.id);
    let ranges = spread.range_size();
    let punch = || punch_piece(file, spread, tier, ranges.start_of(range), ranges.bytes());
    unnoticed(file, spread, tier, punch).context("freeing the space of a range")
}

/// Frees space that was set aside, of ranges that got their tier elsewhere. Some
/// file systems free none behind the end of a part, which is not to be longer
/// than the file: so the space waits until the file is as long, or, with `all`,
/// until its last writer is gone.
pub(super) fn release_set_aside(core: &Core, file: &File, spread: &Spread, all: bool) {
    let (ranges, size) = (spread.range_size(), spread.size());
    let due: Vec<(TierId, u64)> = {
        let mut left = spread.left_set_aside.lock();
        left.extract_if(.., |(_, range)| all || ranges.start_of(*range + 1) <= size).collect()
    };
    for (tier, range) in due {
        // A move may be bringing the range back: its copy is there before the
        // entry says so.
        let Ok(_moving) = spread.moving.begin(range) else {
            spread.left_set_aside.lock().push((tier, range));
            continue;
        };
        let released =
            core.tiers.get(tier).and_then(|tier| release_unwritten(file, spread, &tier, range, size));
        if let Err(error) = released {
            tracing::debug!(file = %spread.id(), range, %error, "space that was set aside is not freed");
        }
    }
}

/// Frees the space of a range on a tier that never had data in it.
fn release_unwritten(file: &File, spread: &Spread, tier: &Tier, range: u64, size: u64) -> Result<()> {
    let is_there = spread.index.entry(range)?.is_some_and(|entry| entry.tier == tier.id);
    if is_there || !tier.capabilities().punch {
        return Ok(());
    }
    let ranges = spread.range_size();
    let bytes = ranges.bytes_of(range..range + 1, size);
    let release = || {
        if !bytes.is_empty() && part_size(file, spread, tier)? < bytes.end {
            // It only ever makes the part longer, whatever others do with it.
            lengthen_part(file, spread, tier, bytes)?;
        }
        punch_piece(file, spread, tier, ranges.start_of(range), ranges.bytes())
    };
    unnoticed(file, spread, tier, release).context("freeing space that was set aside")
}

/// Has the file's part reach to the end of `bytes`, whose space it has.
fn lengthen_part(file: &File, spread: &Spread, tier: &Tier, bytes: Range<u64>) -> Result<()> {
    let (start, len) = (bytes.start, bytes.end - bytes.start);
    let lengthened = match &tier.backend {
        Backend::Home(_) => {
            file.writable()?.allocate(FallocateMode::Allocate { keep_size: false }, start, len)
        }
        Backend::Store(store) => store.allocate(spread.id(), start, len, false),
    };
    spread.space.changed();
    lengthened
}

/// Frees space on `tier` beyond the end of the file's part there. The caller
/// holds the layout alone.
pub(super) fn release_end(file: &File, spread: &Spread, tier: &Tier) -> Result<()> {
    if let Backend::Store(store) = &tier.backend {
        let cut = match store.stat(spread.id()) {
            Ok(stat) if stat.allocated > 0 => store.truncate(spread.id(), stat.size),
            Err(error) if error.errno() != Errno::ENOENT => Err(error),
            _ => Ok(()),
        };
        spread.space.changed();
        return cut.or_else(|error| concerning(spread, tier, tier.note_error(error)));
    }
    let attr = file.data().stat()?.attr;
    file.writable()?.truncate(attr.size)?;
    file.hold_times().update(spread, Some(attr.mtime))
}

/// Gives back space that was allocated beyond the end of the file, after its
/// last writer.
pub(super) fn release_ahead(core: &Core, file: &File) {
    let layout = file.layout.write();
    let Layout::Spread(spread) = &*layout else { return };
    release_set_aside(core, file, spread, true);
    // Space that was reserved since is the program's.
    let Ok(reserved) = spread.index.reserved() else { return };
    let ahead = std::mem::take(&mut *spread.ahead.lock());
    for (range, AllocatedAhead { tier, .. }) in ahead {
        let ranges = spread.range_size();
        let bytes = ranges.start_of(range).max(reserved)..ranges.start_of(range + 1);
        let released = core.tiers.get(tier).and_then(|tier| {
            let is_there = spread.index.entry(range)?.is_some_and(|entry| entry.tier == tier.id);
            if is_there { release_holes(file, spread, &tier, bytes) } else { Ok(()) }
        });
        if let Err(error) = released {
            tracing::debug!(file = %spread.id(), range, %error, "space that was set aside for a file stays with it");
        }
    }
}

/// Frees the space in `bytes` of the file's part on `tier` that holds no data,
/// if the tier can. The caller holds the layout alone.
pub(super) fn release_holes(file: &File, spread: &Spread, tier: &Tier, bytes: Range<u64>) -> Result<()> {
    if !tier.capabilities().punch {
        return Ok(());
    }
    let mtime = file.data().stat()?.attr.mtime;
    let mut at = bytes.start;
    while at < bytes.end {
        let data = next_data_on(file, spread, tier, at, bytes.end)?;
        let (data, data_end) = data.unwrap_or((bytes.end, bytes.end));
        let hole = at.next_multiple_of(BLOCK)..data;
        if hole.start < hole.end {
            punch_piece(file, spread, tier, hole.start, hole.end - hole.start)?;
        }
        at = data_end.max(at + 1);
    }
    if tier.is_home() { file.hold_times().update(spread, Some(mtime)) } else { Ok(()) }
}

/// Gives back space that the home file system allocated beyond the end of a
/// plain file: as a part of a spread file, it goes on behind a hole.
pub(super) fn release_guess(core: &Core, file: &File, size: u64) -> Result<()> {
    if !core.tiers.home().capabilities().preallocates {
        return Ok(());
    }
    let mtime = file.data().stat()?.attr.mtime;
    file.writable()?.allocate(FallocateMode::PunchHole, size.next_multiple_of(BLOCK), GUESS_MAX)?;
    file.data().set_times(None, Some(SetTime::At(mtime)))
}
