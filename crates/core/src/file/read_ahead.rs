//! Reading ahead on the other tiers: the kernel reads a few ranges of a stream
//! ahead, and a tier would wait while all of these are on others.

use crate::core::Core;
use crate::live::{OpenFile, Spread};
use braid_tiers::bit;

/// How far ahead a tier's next range is looked for, in ranges and in bytes.
const RANGES_MAX: u64 = 32;
const BYTES_MAX: u64 = 64 << 20;

/// Bytes up to `end` are being read through the page cache. Where that enters a
/// range as part of a stream, tells the observer of the next range on each other
/// tier.
pub(super) fn look(core: &Core, open: &OpenFile, spread: &Spread, end: u64) {
    let size = spread.size();
    if end > size {
        // It was truncated meanwhile.
        return;
    }
    let ranges = spread.range_size();
    let range = ranges.range_of(end - 1);
    if !open.read.enters(range) {
        return;
    }
    let last = (range + (BYTES_MAX / ranges.bytes()).clamp(1, RANGES_MAX)).min(ranges.range_of(size - 1));
    let mut seen = 0;
    for later in range..=last {
        // Reading the range tells what is wrong with the index.
        let Ok(entry) = spread.index.entry(later) else { return };
        let Some(entry) = entry.filter(|entry| seen & bit(entry.tier) == 0) else { continue };
        seen |= bit(entry.tier);
        if later > range && open.read.asks(later) {
            let start = ranges.start_of(later);
            let bytes = start..start.saturating_add(ranges.bytes()).min(size);
            core.observer.needed_soon(&open.file, spread.id(), entry.tier, bytes);
        }
    }
}
