//! Data and holes.

use crate::core::Core;
use crate::file::extents::next_data_on;
use crate::file::read::unmoved;
use crate::live::{File, Layout, Spread};
use braid_contract::{Errno, Result, SeekTarget};

/// The next data or hole at or after `offset`. `ENXIO` if there is none.
pub fn seek_file(core: &Core, file: &File, offset: u64, target: SeekTarget) -> Result<u64> {
    match &*file.layout.read() {
        Layout::Plain => file.data().seek(offset, target),
        Layout::Spread(spread) => {
            unmoved(spread, offset, spread.size(), || seek_spread(core, file, spread, offset, target))
        }
    }
}

fn seek_spread(core: &Core, file: &File, spread: &Spread, offset: u64, target: SeekTarget) -> Result<u64> {
    let size = spread.size();
    if offset >= size {
        return Err(Errno::ENXIO.into());
    }
    let mut at = offset;
    loop {
        match (next_spread_data(core, file, spread, at, size)?, target) {
            (None, SeekTarget::Data) => return Err(Errno::ENXIO.into()),
            (None, SeekTarget::Hole) => return Ok(at),
            (Some((start, _)), SeekTarget::Data) => return Ok(start),
            (Some((start, _)), SeekTarget::Hole) if start > at => return Ok(at),
            (Some((_, end)), SeekTarget::Hole) if end >= size => return Ok(size),
            (Some((_, end)), SeekTarget::Hole) => at = end,
        }
    }
}

/// The first stretch of data at or after `offset`, below `size`, that ends
/// with its range at the latest.
fn next_spread_data(
    core: &Core,
    file: &File,
    spread: &Spread,
    offset: u64,
    size: u64,
) -> Result<Option<(u64, u64)>> {
    let mut found = None;
    let ranges = spread.range_size();
    let visit = |range: u64, entry: Result<braid_format::Entry>| {
        let bytes = ranges.bytes_of(range..range + 1, size);
        let (start, end) = (bytes.start.max(offset), bytes.end);
        found = next_data_on(file, spread, &*core.tiers.get(entry?.tier)?, start, end)?;
        // Stops the visit; taken back below.
        if found.is_some() || end >= size { Err(Errno::EINTR.into()) } else { Ok(()) }
    };
    match spread.index.for_each(ranges.range_of(offset), visit) {
        Err(error) if error.errno() != Errno::EINTR => Err(error),
        _ => Ok(found),
    }
}
