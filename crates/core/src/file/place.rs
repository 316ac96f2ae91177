//! Assigns tiers to ranges.

use crate::core::Core;
use crate::file::choose::{PlacementRequest, credited, find_room, placed};
use crate::file::clear::clear_range;
use crate::file::demand::Demand;
use crate::file::extents::next_data_on;
use crate::file::indexing::make_index;
use crate::file::pieces::{changing, ensure_object};
use crate::file::preallocate::reserve_part;
use crate::file::release::{release_range, release_set_aside};
use crate::file::sync::sync_tier;
use crate::file::whole_object::count_whole;
use crate::live::{File, Spread};
use braid_contract::Result;
use braid_format::{Entry, Reason};
use braid_placement::{Credits, Origin, WriteSpan};
use braid_tiers::{Backend, Tier, bit};
use std::ops::Range;

/// Gives all ranges of some bytes that have no tier yet one and the same, which
/// meets the demand (PolyStore §4.4.2: one write, one tier). A write is a
/// request of the front end: the kernel splits those longer than 1 MiB.
///
/// Ranges whose space was set aside before there was data get their tier anew
/// with their first write, and their space with it: when it was set aside,
/// neither the writer nor the load of that moment was known.
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
    if undealt(spread, ranges.clone(), origin)?.is_empty() {
        return Ok(());
    }
    let mut credits = spread.placing.lock();
    let new = undealt(spread, ranges, origin)?;
    let (file_size, new_bytes) = (spread.size(), new.len() as u64 * size.bytes());
    let span =
        WriteSpan { offset, len: end - offset, size: file_size, size_after: file_size.max(end), new_bytes };
    let mut request = PlacementRequest::new(file, origin, span);
    let mut excluded = demand.unmet_by(core);
    if let Some(entry) = new.iter().find_map(|new| new.set_aside) {
        request.set_aside_on = Some(entry.tier);
        excluded |= Demand::Allocate.unmet_by(core) & !bit(entry.tier);
    }
    if !sets_aside(spread, offset, end, origin)? {
        return place_new(core, spread, &request, new, (&mut credits, false), excluded);
    }
    // Writes decide the file's shares.
    let mut set_aside = spread.set_aside.lock();
    place_new(core, spread, &request, new, (&mut set_aside, true), excluded)
}

/// A range that a write is to give a tier.
#[derive(Clone, Copy)]
struct NewRange {
    number: u64,
    /// Its entry, if its space is set aside.
    set_aside: Option<Entry>,
}

/// Those of `ranges` that get their tier now.
fn undealt(spread: &Spread, ranges: Range<u64>, origin: Origin) -> Result<Vec<NewRange>> {
    let mut new = Vec::new();
    for number in ranges {
        match spread.index.entry(number)? {
            None => new.push(NewRange { number, set_aside: None }),
            Some(entry) if entry.reason == Reason::SetAside && !origin.reserves => {
                new.push(NewRange { number, set_aside: Some(entry) });
            }
            Some(_) => {}
        }
    }
    Ok(new)
}

/// Whether space is set aside for the file's whole part of a range, so that it
/// can be set aside elsewhere in its place.
fn sets_aside(spread: &Spread, offset: u64, end: u64, origin: Origin) -> Result<bool> {
    if !origin.reserves || spread.index.whole().is_some() {
        return Ok(false);
    }
    let ranges = spread.range_size();
    let whole = ranges.bytes_of(ranges.ranges_of(offset, end), spread.size().max(spread.index.reserved()?));
    Ok(offset.is_multiple_of(ranges.bytes()) && (end.is_multiple_of(ranges.bytes()) || end >= whole.end))
}

/// Finds a tier for `new` ranges and records it. Tiers that are excluded, fail
/// or turn out to be full are passed over; when none is left, ranges whose
/// space is set aside stay where it is, and `ENOSPC` if there are others. With
/// `aside`, it is their space that is set aside now.
fn place_new(
    core: &Core,
    spread: &Spread,
    request: &PlacementRequest<'_>,
    mut new: Vec<NewRange>,
    (credits, aside): (&mut Credits, bool),
    mut excluded: u64,
) -> Result<()> {
    while !new.is_empty() {
        let choice = match find_room(core, request, credits, excluded) {
            Err(error) if error.is_full() && new.iter().all(|new| new.set_aside.is_some()) => {
                return new.iter().try_for_each(|new| stay_set_aside(spread, *new));
            }
            choice => choice?,
        };
        let tier = &choice.tier;
        let reason = if aside { Reason::SetAside } else { choice.reason };
        match give(core, request.file, spread, tier, reason, &new) {
            Ok(()) if aside => {
                credited(core, request, credits, &choice);
                tier.took(request.span.taken_bytes());
                break;
            }
            Ok(()) => {
                placed(core, request, credits, &choice);
                // Space that was set aside is counted where it goes.
                if request.set_aside_on.is_none() {
                    tier.took(request.span.taken_bytes());
                }
                break;
            }
            Err(error) if tier.is_home() && !error.is_full() => return Err(error),
            Err(_) => excluded |= bit(tier.id),
        }
        // Ranges that got it stay: they may have been written to.
        let (first, last) = (new[0].number, new[new.len() - 1].number);
        new = undealt(spread, first..last + 1, request.origin)?;
    }
    Ok(())
}

/// No other tier can have the range: its first write goes to the space that is
/// set aside.
fn stay_set_aside(spread: &Spread, new: NewRange) -> Result<()> {
    match new.set_aside {
        Some(entry) => spread.index.set_entry(new.number, Entry { reason: Reason::Spill, ..entry }),
        None => Ok(()),
    }
}

/// Records that `ranges` are on `tier`.
fn give(
    core: &Core,
    file: &File,
    spread: &Spread,
    tier: &Tier,
    reason: Reason,
    ranges: &[NewRange],
) -> Result<()> {
    if !spread.index.can_name(tier.id) {
        make_index(core, file, spread)?;
    }
    // Held until the index says so: a tier that is on its way out gets no range
    // unseen.
    let _admission = tier.admit()?;
    ensure_object(spread, tier)?;
    let gets = |new: &&NewRange| new.set_aside.is_none_or(|entry| entry.tier != tier.id);
    // A tier that can't clear one of them gets none.
    ranges.iter().filter(gets).try_for_each(|new| clear_leftovers(file, spread, tier, new.number))?;
    for NewRange { number: range, set_aside } in ranges.iter().copied() {
        if let Some(entry) = set_aside {
            deal_anew(core, file, spread, (range, entry), tier, reason)?;
            continue;
        }
        spread.index.set_entry(range, Entry { tier: tier.id, reason, version: 0 })?;
        if !count_whole(core, spread) {
            core.tiers.count_range(None, Some(tier.id));
        }
        core.observer.placed(file, tier.id, range..range + 1);
    }
    Ok(())
}

/// A range whose space is set aside is about to be written first: its space
/// goes to `tier`. After a crash that the switched entry did not survive, the
/// range has its tier of before, without the space; there was no data that had
/// been synced.
fn deal_anew(
    core: &Core,
    file: &File,
    spread: &Spread,
    (range, entry): (u64, Entry),
    tier: &Tier,
    reason: Reason,
) -> Result<()> {
    let stays = || spread.index.set_entry(range, Entry { reason, ..entry });
    if entry.tier == tier.id {
        return stays();
    }
    let (ranges, old) = (spread.range_size(), core.tiers.get(entry.tier)?);
    let bytes = ranges.bytes_of(range..range + 1, spread.size().max(spread.index.reserved()?));
    // A range that is moving already gets its tier there; and a crash may have
    // left data without the entry that says so.
    let Ok(moving) = spread.moving.begin(range) else { return stays() };
    if next_data_on(file, spread, &old, ranges.start_of(range), ranges.start_of(range + 1))?.is_some() {
        return stays();
    }
    if let Err(error) = changing(spread, tier, || reserve_part(file, spread, tier, bytes.clone())) {
        // File systems keep what they had room for, and nothing leads there.
        if let Err(error) = release_range(file, spread, tier, range) {
            tracing::debug!(file = %spread.id(), range, %error, "space that was set aside for a file stays with it");
        }
        return Err(tier.note_error(error));
    }
    let version = entry.version.wrapping_add(1);
    spread.index.set_entry(range, Entry { tier: tier.id, reason, version })?;
    core.tiers.count_range(Some(old.id), Some(tier.id));
    core.observer.placed(file, tier.id, range..range + 1);
    tier.took(bytes.end - bytes.start);
    drop(moving);
    spread.left_set_aside.lock().push((old.id, range));
    release_set_aside(core, file, spread, false);
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
