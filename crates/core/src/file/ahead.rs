//! Space for what grows, on file systems that would give it more than it needs.
//!
//! XFS gives a file that is written past its end up to as much again, and
//! leaves it that where the file goes on behind a hole. Each part of a spread
//! file goes on behind holes: the ranges that are on other tiers. So what a part
//! grows by is allocated before it is written, and nothing is guessed: a range
//! to its end while the file is appended to, which then lies in one piece, and
//! what is written otherwise. What was not needed is given back at the last close.

use crate::core::Core;
use crate::file::pieces::punch_piece;
use crate::file::relocate::next_data_on;
use crate::live::{AllocatedAhead, File, Layout, Spread};
use braid_contract::{FallocateMode, Result, SetTime};
use braid_tiers::{Backend, Tier};
use std::ops::Range;

/// What file systems allocate in, at least.
const BLOCK: u64 = 4096;

/// A file up to this size is given no more than it needs.
const GUESS_FROM: u64 = 64 << 10;

/// No file system gives a file more than this at a time.
const GUESS_MAX: u64 = 16 << 30;

/// Allocates what the file's part on `tier` grows by with a write of
/// `offset .. end`, where it would get more otherwise.
///
/// # Errors
/// `ENOSPC` only; what else is wrong, the write will tell.
pub(super) fn allocate_growth(
    file: &File,
    spread: &Spread,
    tier: &Tier,
    Range { start: offset, end }: Range<u64>,
) -> Result<()> {
    // The one object of a whole file begins as any small file does.
    let is_small = end <= GUESS_FROM && spread.index.whole().is_some();
    if is_small || !tier.preallocates() || spread.is_ahead(tier, offset, end) {
        return Ok(());
    }
    let is_there = end <= spread.index.reserved()?;
    if is_there || end <= part_size(file, spread, tier).unwrap_or(u64::MAX) {
        return Ok(());
    }
    let (ranges, size) = (spread.range_size(), spread.size());
    let last = ranges.range_of(end - 1);
    let range_end = ranges.start_of(last + 1);
    if end > size && offset <= size && end < range_end {
        let reserved = reserve_part(file, spread, tier, offset..range_end);
        spread.ahead.lock().insert(last, AllocatedAhead { tier: tier.id, whole: reserved.is_ok() });
        match reserved {
            Err(error) if error.is_full() => {}
            _ => return Ok(()),
        }
    }
    match reserve_part(file, spread, tier, offset..end) {
        Err(error) if error.is_full() => Err(tier.note_error(error)),
        _ => Ok(()),
    }
}

/// Reserves space in the file's part on `tier`, whose size stays.
pub(super) fn reserve_part(
    file: &File,
    spread: &Spread,
    tier: &Tier,
    Range { start, end }: Range<u64>,
) -> Result<()> {
    match &tier.backend {
        Backend::Home(_) => {
            file.writable()?.allocate(FallocateMode::Allocate { keep_size: true }, start, end - start)
        }
        Backend::Store(store) => store.allocate(spread.id(), start, end - start, true),
    }
}

/// Where the file's part on `tier` ends.
fn part_size(file: &File, spread: &Spread, tier: &Tier) -> Result<u64> {
    match &tier.backend {
        Backend::Home(_) => file.home_size(),
        Backend::Store(store) => Ok(store.stat(spread.id())?.size),
    }
}

/// Gives back what was allocated further than the file goes. Nobody writes
/// to it any more.
pub(super) fn release_ahead(core: &Core, file: &File) {
    let layout = file.layout.write();
    let Layout::Spread(spread) = &*layout else { return };
    let ahead = std::mem::take(&mut *spread.ahead.lock());
    for (range, AllocatedAhead { tier, .. }) in ahead {
        let bytes = spread.range_size().start_of(range)..spread.range_size().start_of(range + 1);
        let released = core.tiers.get(tier).and_then(|tier| {
            let is_there = spread.index.entry(range)?.is_some_and(|entry| entry.tier == tier.id);
            if is_there { release_holes(file, spread, &tier, bytes) } else { Ok(()) }
        });
        if let Err(error) = released {
            tracing::debug!(file = %spread.id(), range, %error, "space that was set aside for a file stays with it");
        }
    }
}

/// Frees what the file's part on `tier` has in `bytes` and is no data. The
/// caller holds the layout alone.
pub(super) fn release_holes(file: &File, spread: &Spread, tier: &Tier, bytes: Range<u64>) -> Result<()> {
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
    if tier.is_home() { file.update_times(spread, Some(mtime)) } else { Ok(()) }
}

/// Gives back what the home file system gave a file that was plain beyond
/// its end: as a part of a spread file, it goes on behind a hole.
pub(super) fn release_guess(core: &Core, file: &File, size: u64) -> Result<()> {
    if !core.tiers.home().preallocates() {
        return Ok(());
    }
    let fd = file.writable()?;
    let mtime = fd.stat()?.attr.mtime;
    fd.allocate(FallocateMode::PunchHole, size.next_multiple_of(BLOCK), GUESS_MAX)?;
    fd.set_times(None, Some(SetTime::At(mtime)))
}

impl Spread {
    /// Whether all of `offset .. end` was allocated on `tier` before it is
    /// written. What is filled by that is not ahead any more.
    fn is_ahead(&self, tier: &Tier, offset: u64, end: u64) -> bool {
        let ranges = self.range_size();
        let mut ahead = self.ahead.lock();
        let mut written = ranges.ranges_of(offset, end);
        let all =
            written.all(|range| ahead.get(&range) == Some(&AllocatedAhead { tier: tier.id, whole: true }));
        if all && end.is_multiple_of(ranges.bytes()) {
            ahead.remove(&ranges.range_of(end - 1));
        }
        all
    }
}
