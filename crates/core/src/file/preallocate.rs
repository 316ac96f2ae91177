//! Space for files that grow, on file systems that would give them more than
//! they need.
//!
//! XFS gives a file that is written past its end up to as much again, and
//! leaves it that where the file goes on behind a hole. Each part of a spread
//! file goes on behind holes: the ranges that are on other tiers. So the growth
//! of a part is allocated before it is written, and nothing is guessed: a range
//! to its end while the file is appended to, so that it lies in one piece, and
//! the bytes of the write otherwise. `release.rs` gives the rest back at the
//! last close.

use crate::file::extents::part_size;
use crate::live::{AllocatedAhead, File, Spread};
use braid_contract::{Errno, FallocateMode, Result};
use braid_tiers::{Backend, Tier};
use std::ops::Range;

/// A file up to this size is given no more than it needs.
const GUESS_FROM: u64 = 64 << 10;

/// Allocates the growth of the file's part on `tier` by a write of
/// `offset .. end`, where the file system would allocate more.
///
/// # Errors
/// `ENOSPC` only; the write reports any other error.
pub(super) fn allocate_growth(
    file: &File,
    spread: &Spread,
    tier: &Tier,
    Range { start: offset, end }: Range<u64>,
) -> Result<()> {
    // The one object of a whole file begins as any small file does.
    let is_small = end <= GUESS_FROM && spread.index.whole().is_some();
    if is_small || !tier.capabilities().preallocates || spread.is_ahead(tier, offset, end) {
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
    let reserved = match &tier.backend {
        Backend::Home(_) => {
            file.writable()?.allocate(FallocateMode::Allocate { keep_size: true }, start, end - start)
        }
        Backend::Store(store) => store.allocate(spread.id(), start, end - start, true),
    };
    spread.space.changed();
    reserved
}

/// Reserves again what the file has reserved on `tier` up to `reserved`, after the space behind the
/// end of its part was freed.
pub(super) fn reserve_again(file: &File, spread: &Spread, tier: &Tier, reserved: u64) -> Result<()> {
    let part = match part_size(file, spread, tier) {
        Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
        part => part?,
    };
    if part >= reserved {
        return Ok(());
    }
    let ranges = spread.range_size();
    for range in ranges.ranges_of(part, reserved) {
        if spread.index.entry(range)?.is_some_and(|entry| entry.tier == tier.id) {
            let bytes = ranges.bytes_of(range..range + 1, reserved);
            reserve_part(file, spread, tier, bytes.start.max(part)..bytes.end)?;
        }
    }
    Ok(())
}

impl Spread {
    /// Whether all of `offset .. end` was allocated on `tier` before it is
    /// written. A range that this fills is not ahead any more.
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
