//! Where a file's part on a tier has data, how long that part is, and how much
//! space it takes.

use crate::file::presence::is_absent;
use crate::live::{File, Layout, Spread};
use braid_contract::{Result, TierId};
use braid_tiers::{Backend, Tier, next_data};

/// The first stretch of data of the home file in `offset .. end`.
pub(crate) fn next_home_data(file: &File, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
    if offset >= end {
        return Ok(None);
    }
    let found = file.data().next_data(offset)?;
    Ok(found.filter(|(start, _)| *start < end).map(|(start, data_end)| (start, data_end.min(end))))
}

/// The first stretch of data of the file's part on `tier` in `offset .. end`;
/// all of the part is one where the tier can't report holes.
pub(crate) fn next_data_on(
    file: &File,
    spread: &Spread,
    tier: &Tier,
    offset: u64,
    end: u64,
) -> Result<Option<(u64, u64)>> {
    if offset >= end {
        return Ok(None);
    }
    let found = match &tier.backend {
        Backend::Home(_) => return next_home_data(file, offset, end),
        Backend::Store(store) => match next_data(&**store, spread.id(), offset) {
            Err(error) if is_absent(spread, tier, &error)? => None,
            result => result.map_err(|error| tier.note_error(error))?,
        },
    };
    Ok(found.filter(|(start, _)| *start < end).map(|(start, data_end)| (start, data_end.min(end))))
}

/// Where the file's part on `tier` ends.
pub(super) fn part_size(file: &File, spread: &Spread, tier: &Tier) -> Result<u64> {
    match &tier.backend {
        Backend::Home(_) => file.home_size(),
        Backend::Store(store) => Ok(store.stat(spread.id())?.size),
    }
}

/// Bytes of the file's ranges on `tier`, whether they have data or not.
pub(crate) fn named_on(file: &File, tier: TierId) -> Result<u64> {
    let layout = file.layout.read();
    let Layout::Spread(spread) = &*layout else { return Ok(0) };
    let (ranges, size, mut bytes) = (spread.range_size(), spread.size(), 0);
    spread.index.for_each(0, |range, entry| {
        let there = entry.is_ok_and(|entry| entry.tier == tier);
        let range = ranges.bytes_of(range..range + 1, size);
        bytes += if there { range.end.saturating_sub(range.start) } else { 0 };
        Ok(())
    })?;
    Ok(bytes)
}

/// Bytes that the file takes on `tier`.
pub fn allocated_on(file: &File, spread: &Spread, tier: &Tier) -> u64 {
    match &tier.backend {
        Backend::Home(_) => file.data().stat().map_or(0, |stat| stat.attr.blocks * 512),
        Backend::Store(store) => store.stat(spread.id()).map_or(0, |stat| stat.allocated),
    }
}
