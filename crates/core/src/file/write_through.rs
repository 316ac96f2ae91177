//! Passes on at once data that the tiers' file systems would keep in memory for
//! a while: data that the kernel wrote back from its cache of Braid's files, and
//! data that a stream of writes has passed. Where the data is spread, the kernel
//! would first hold up writers to the slowest tier, and leave the others idle.

use crate::core::Core;
use crate::file::read::run_at;
use crate::live::{Layout, OpenFile};
use braid_placement::Origin;

/// The least bytes that the kernel wrote back at once for them to count: small
/// ones are most often followed by a sync.
const WRITTEN_BACK_MIN: usize = 128 << 10;

/// `len` bytes were written at `offset`. Reports to the observer data that may
/// go to the device.
pub(super) fn pass_on(core: &Core, open: &OpenFile, offset: u64, len: usize, io: &Origin) {
    if len == 0 || !io.is_buffered() {
        return;
    }
    let written = offset..offset + len as u64;
    let bytes = match io.written_back {
        true => Some(written).filter(|_| len >= WRITTEN_BACK_MIN),
        false => open.written.wrote(offset, len as u64),
    };
    let Some(bytes) = bytes else { return };
    let layout = open.file.layout.read();
    let Layout::Spread(spread) = &*layout else { return };
    let mut at = bytes.start;
    while at < bytes.end {
        let Ok((tier, run)) = run_at(spread, at, (bytes.end - at) as usize) else { return };
        let next = at + run as u64;
        if let Some(tier) = tier {
            core.observer.written_through_cache(&open.file, spread.id(), tier, at..next);
        }
        at = next;
    }
}
