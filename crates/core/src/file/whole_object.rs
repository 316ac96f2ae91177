//! The one object of a whole file in use: how long it is, and how many ranges of
//! it count for its tier.

use crate::core::Core;
use crate::file::pieces::{changing, ensure_object};
use crate::live::Spread;
use braid_contract::Result;
use braid_tiers::{Backend, bit};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The object of a whole file is as long as the file is said to be.
pub(super) fn grow_object(core: &Core, spread: &Spread, size: u64) -> Result<()> {
    let Some(whole) = spread.index.whole() else { return Ok(()) };
    let tier = core.tiers.get(whole.tier)?;
    let Backend::Store(store) = &tier.backend else { return Ok(()) };
    ensure_object(spread, &tier)?;
    spread.dirty.fetch_or(bit(tier.id), Ordering::AcqRel);
    let cut = store.truncate(spread.id(), size);
    spread.space.changed();
    cut.map_err(|error| tier.note_error(error))
}

/// The same beside other writers, where space is reserved already.
pub(super) fn lengthen_object(core: &Core, spread: &Spread, Range { start, end }: Range<u64>) -> Result<()> {
    let Some(whole) = spread.index.whole() else { return Ok(()) };
    let tier = core.tiers.get(whole.tier)?;
    let Backend::Store(store) = &tier.backend else { return Ok(()) };
    let allocated = changing(spread, &tier, || store.allocate(spread.id(), start, end - start, false));
    spread.space.changed();
    allocated.map_err(|error| tier.note_error(error))
}

/// Brings the tier's count of ranges up to date with a whole file; `false`
/// if the file is none.
pub(crate) fn count_whole(core: &Core, spread: &Spread) -> bool {
    let counted = spread.index.with_whole(|whole| {
        let before = std::mem::replace(&mut whole.counted, whole.ranges);
        (whole.tier, before, whole.ranges)
    });
    let Some((tier, before, now)) = counted else { return false };
    (now..before).for_each(|_| core.tiers.count_range(Some(tier), None));
    (before..now).for_each(|_| core.tiers.count_range(None, Some(tier)));
    true
}

/// Takes the ranges of a whole file out of the counts: it has none any
/// more.
pub(crate) fn count_whole_gone(core: &Core, spread: &Spread) {
    if spread.index.whole().is_some() {
        let _ = spread.index.clear_from(0);
        count_whole(core, spread);
    }
}

/// Forgets ranges behind the end of a whole file, which a write that failed
/// was to have.
pub(super) fn unclaim(core: &Core, spread: &Spread) {
    if spread.index.whole().is_some() {
        let _ = spread.index.clear_from(spread.range_size().count(spread.size()));
        count_whole(core, spread);
    }
}
