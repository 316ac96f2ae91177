//! Reading ahead on all tiers: the kernel reads a few ranges of a stream ahead,
//! and a tier would wait while all of these are on others. The data goes to the
//! page cache of the tiers' file systems, so it takes no memory for good, and is
//! never stale.

use crate::core::Core;
use crate::live::{OpenFile, Spread};
use braid_contract::TierId;
use std::ops::Range;

/// How far ahead, in ranges and in bytes.
const RANGES_MAX: u64 = 48;
const BYTES_MAX: u64 = 96 << 20;
/// The ranges that the kernel itself reads next.
const KERNEL_RANGES: u64 = 2;
/// Ranges on each tier, but no more than the stream has read: throttled tiers
/// alternate between nothing and much, some ten times a second.
const EACH: usize = 12;

/// These bytes are being read through the page cache. Where that enters a range
/// as part of a stream, reports to the observer which ranges are needed next.
pub(super) fn look(core: &Core, open: &OpenFile, spread: &Spread, read: Range<u64>) {
    let (ranges, size) = (spread.range_size(), spread.size());
    if read.end > size {
        // It was truncated meanwhile.
        return;
    }
    let Some((range, read)) = open.read.enters(read, ranges.bytes()) else { return };
    let last = (range + (BYTES_MAX / ranges.bytes()).clamp(1, RANGES_MAX)).min(ranges.range_of(size - 1));
    // Reading the range itself reports the index error.
    let Ok(here) = spread.index.entry(range) else { return };
    let here = here.map(|entry| entry.tier);
    let mut found: Vec<(TierId, Vec<u64>)> = Vec::new();
    for later in range + 1..=last {
        let Ok(entry) = spread.index.entry(later) else { return };
        let is_near = |tier: &TierId| Some(*tier) == here && later <= range + KERNEL_RANGES;
        let Some(tier) = entry.map(|entry| entry.tier).filter(|tier| !is_near(tier)) else { continue };
        let at = found.iter().position(|(of, _)| *of == tier).unwrap_or_else(|| {
            found.push((tier, Vec::new()));
            found.len() - 1
        });
        found[at].1.push(later);
    }
    if found.iter().all(|(tier, _)| Some(*tier) == here) {
        return;
    }
    // A stream that was short so far may end soon.
    let each = EACH.min(usize::try_from(read).unwrap_or(EACH));
    for (tier, found) in found {
        for later in found.into_iter().take(each).filter(|later| open.read.asks(*later)) {
            let start = ranges.start_of(later);
            let bytes = start..start.saturating_add(ranges.bytes()).min(size);
            core.observer.needed_soon(&open.file, spread.id(), tier, bytes);
        }
    }
}
