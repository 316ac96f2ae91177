//! Giving ranges their tier.

use crate::core::Core;
use crate::file::choose::{PlacementRequest, find_room, placed};
use crate::file::clear::clear_range;
use crate::file::demand::Demand;
use crate::file::extents::next_data_on;
use crate::file::indexing::make_index;
use crate::file::pieces::ensure_object;
use crate::file::sync::sync_tier;
use crate::file::whole_object::count_whole;
use crate::live::{File, Spread};
use braid_contract::Result;
use braid_format::{Entry, Reason};
use braid_placement::{Credits, Origin, WriteSpan};
use braid_tiers::{Backend, Tier, bit};
use std::ops::Range;

/// Gives all ranges of some bytes that have no tier yet one and the same, which
/// has what is demanded (PolyStore §4.4.2: one write, one tier). A write is a request of the front
/// end: the kernel splits those longer than 1 MiB.
pub(crate) fn place(
    core: &Core,
    file: &File,
    spread: &Spread,
    Range { start: offset, end }: Range<u64>,
    origin: Origin,
    demand: Demand,
) -> Result<()> {
    let size = spread.range_size();
    let ranges = size.ranges_of(offset, end);
    let mut missing = false;
    for range in ranges.clone() {
        missing |= spread.index.entry(range)?.is_none();
    }
    if !missing {
        return Ok(());
    }
    let mut credits = spread.placing.lock();
    let mut new = Vec::new();
    for range in ranges {
        if spread.index.entry(range)?.is_none() {
            new.push(range);
        }
    }
    let (size, new_bytes) = (spread.size(), new.len() as u64 * size.bytes());
    let span = WriteSpan { offset, len: end - offset, size, size_after: size.max(end), new_bytes };
    let request = PlacementRequest { file, origin, span };
    place_new(core, spread, &request, new, &mut credits, demand.unmet_by(core))
}

/// Finds a tier for `new` ranges and records it. Tiers that are excluded, fail
/// or turn out to be full are passed over; `ENOSPC` when none is left.
fn place_new(
    core: &Core,
    spread: &Spread,
    request: &PlacementRequest<'_>,
    mut new: Vec<u64>,
    credits: &mut Credits,
    mut excluded: u64,
) -> Result<()> {
    while !new.is_empty() {
        let choice = find_room(core, request, credits, excluded)?;
        let tier = &choice.tier;
        match give(core, request.file, spread, tier, choice.reason, &new) {
            Ok(()) => {
                placed(core, request, credits, &choice);
                tier.took(request.span.taken_bytes());
                break;
            }
            Err(error) if tier.is_home() && !error.is_full() => return Err(error),
            Err(_) => excluded |= bit(tier.id),
        }
        // Ranges that got it stay: they may have been written to.
        let mut left = Vec::new();
        for range in new {
            if spread.index.entry(range)?.is_none() {
                left.push(range);
            }
        }
        new = left;
    }
    Ok(())
}

/// Records that `ranges` are on `tier`.
fn give(
    core: &Core,
    file: &File,
    spread: &Spread,
    tier: &Tier,
    reason: Reason,
    ranges: &[u64],
) -> Result<()> {
    if !spread.index.can_name(tier.id) {
        make_index(core, file, spread)?;
    }
    // Held until the index says so: a tier that is on its way out gets no range
    // unseen.
    let _admission = tier.admit()?;
    ensure_object(spread, tier)?;
    // A tier that can't clear one of them gets none.
    ranges.iter().try_for_each(|range| clear_leftovers(file, spread, tier, *range))?;
    for range in ranges {
        spread.index.set_entry(*range, Entry { tier: tier.id, reason, version: 0 })?;
        if !count_whole(core, spread) {
            core.tiers.count_range(None, Some(tier.id));
        }
        core.observer.placed(file, tier.id, *range..range + 1);
    }
    Ok(())
}

/// Removes old bytes that a tier may hold where it gets a range. They must
/// never show, so they go, durably, before the entry says that the range is
/// there (ordering rule 5).
fn clear_leftovers(file: &File, spread: &Spread, tier: &Tier, range: u64) -> Result<()> {
    let ranges = spread.range_size();
    let start = ranges.start_of(range);
    let size = match &tier.backend {
        Backend::Home(_) => file.home_size()?,
        Backend::Store(store) => store.stat(spread.id())?.size,
    };
    if size > start && next_data_on(file, spread, tier, start, start + ranges.bytes())?.is_some() {
        clear_range(file, spread, tier, range)?;
        sync_tier(file, spread, tier, true)?;
    }
    Ok(())
}
