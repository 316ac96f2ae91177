//! Whether and how a plain file leaves home, as it grows or since home is full.

use crate::core::Core;
use crate::file::choose::{
    PlacementRequest, charge_home, choose, find_room, is_ruled_away, placed, share_of, stays,
};
use crate::file::indexing::{NotSpread, spread_out};
use crate::file::ranges::{range_size_for, smallest_range};
use crate::file::whole::become_whole;
use crate::live::{File, Layout};
use braid_contract::Result;
use braid_format::RangeSize;
use braid_placement::{Credits, Origin, TURNS_MAX, WriteSpan};
use braid_tiers::bit;

/// How a plain file leaves home.
#[derive(Clone, Copy)]
pub(crate) struct Departure {
    /// How long its ranges are to be.
    pub(crate) ranges: RangeSize,
    /// It goes to one other tier as a whole, and needs no index.
    pub(crate) whole: bool,
    /// Home has no room for the write.
    pub(crate) must: bool,
}

/// Whether a plain file should leave home before a write of `offset .. end`,
/// and how: it begins, and home is well filled; or the write goes beyond the
/// ranges that it has, and the policy wants another tier for that; or home has
/// no room. `ENOSPC` if no tier has room: the reserve of home is for names and
/// indexes.
pub(crate) fn leaves_home(
    core: &Core,
    file: &File,
    offset: u64,
    end: u64,
    origin: Origin,
) -> Result<Option<Departure>> {
    let home = core.tiers.home();
    let has_room = home.room() >= end - offset;
    let smallest = smallest_range(core);
    if end <= smallest.bytes() && has_room {
        return begins_elsewhere(core, file, offset, end, origin);
    }
    let size = file.home_size()?;
    let grows = |ranges: RangeSize| !ranges.ranges_of(ranges.round_up(size).max(offset), end).is_empty();
    let has_no_room = end > size && home.room() < end - size.max(offset);
    if !(grows(smallest) || has_no_room) || !may_spread(file) {
        return Ok(None);
    }
    let ranges = range_size_for(core, file, offset, end, origin)?;
    if end <= ranges.bytes() && has_room {
        return begins_elsewhere(core, file, offset, end, origin);
    }
    if !(grows(ranges) || has_no_room) {
        return Ok(None);
    }
    let new_bytes = ranges.round_up(end) - ranges.start_of(ranges.range_of(offset));
    let credits = credits_of_plain(core, file, size, ranges);
    let span = WriteSpan { offset, len: end - offset, size, size_after: end.max(size), new_bytes };
    let request = PlacementRequest::new(file, origin, span);
    let whole = has_no_room && size <= ranges.bytes();
    let chosen = if has_no_room {
        find_room(core, &request, &credits, 0)
    } else {
        choose(core, &request, &credits, 0)
    };
    match chosen {
        Ok(choice) if choice.tier.is_home() => {
            stays(core, &request, &credits, &choice);
            // Ranges that are left out get their tier when their data comes.
            let leaves_out = origin.written_back && offset > ranges.round_up(size);
            Ok(leaves_out.then_some(Departure { ranges, whole: false, must: false }))
        }
        Ok(_) => Ok(Some(Departure { ranges, whole, must: has_no_room })),
        // Perhaps the file as a whole, or a part of the write, still fits
        // somewhere.
        Err(_) if has_no_room && core.tiers.iter().any(|tier| tier.room() > 0) => {
            Ok(Some(Departure { ranges, whole, must: true }))
        }
        Err(error) if has_no_room => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether a file that fits in one range should get its first bytes on
/// another tier: a rule says so, or home is well filled and the policy
/// wants it.
fn begins_elsewhere(
    core: &Core,
    file: &File,
    offset: u64,
    end: u64,
    origin: Origin,
) -> Result<Option<Departure>> {
    let ruled = !core.placer.rules().is_empty();
    let spared = spares_home(core);
    if !(ruled || spared) || !may_spread(file) || file.home_size()? > 0 {
        return Ok(None);
    }
    let ranges = range_size_for(core, file, offset, end, origin)?;
    let span = WriteSpan { offset, len: end - offset, size: 0, size_after: end, new_bytes: ranges.bytes() };
    let leave = Departure { ranges, whole: true, must: false };
    if ruled && is_ruled_away(core, file, origin, span) {
        return Ok(Some(leave));
    }
    let (request, credits) =
        (PlacementRequest::new(file, origin, span), credits_of_plain(core, file, 0, ranges));
    match choose(core, &request, &credits, 0) {
        Ok(choice) if spared && !choice.tier.is_home() => Ok(Some(leave)),
        Ok(choice) if spared => {
            stays(core, &request, &credits, &choice);
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Whether a file may grow on home unwatched: there is no other tier that it
/// could go to when home is full.
pub(crate) fn grows_on_home(core: &Core) -> bool {
    core.tiers.iter().all(|tier| tier.is_home())
}

/// Whether small files may begin on other tiers, to spare home. Tiers that
/// share its space would not spare it.
fn spares_home(core: &Core) -> bool {
    let home = core.tiers.home();
    let device = home.last_usage().device;
    let spares = core.placer.spares_home(home.filled());
    spares && core.tiers.iter().any(|tier| tier.last_usage().device != device)
}

/// A plain file leaves home before a write of `offset .. end`. One that
/// goes as a whole, or for whose index home has no room, goes to the tier
/// that the policy names.
pub(crate) fn leave_home(
    core: &Core,
    file: &File,
    (offset, end): (u64, u64),
    origin: Origin,
    leave: Departure,
) -> std::result::Result<(), NotSpread> {
    let spread_out = || spread_out(core, file, leave.ranges);
    if leave.whole {
        match leave_as_whole(core, file, (offset, end), origin, leave.ranges) {
            Err(NotSpread::Failed(error)) if error.is_full() && leave.must => spread_out(),
            result => result,
        }
    } else {
        match spread_out() {
            Err(NotSpread::Failed(error)) if error.is_full() => {
                leave_as_whole(core, file, (offset, end), origin, leave.ranges)
            }
            result => result,
        }
    }
}

fn leave_as_whole(
    core: &Core,
    file: &File,
    (offset, end): (u64, u64),
    origin: Origin,
    ranges: RangeSize,
) -> std::result::Result<(), NotSpread> {
    let mut excluded = bit(core.tiers.home().id);
    let mut credits = Credits::new(file.inode.ino.0, ranges.get());
    loop {
        let size = file.home_size().map_err(NotSpread::Failed)?;
        let (len, size_after) = (end - offset + size, end.max(size));
        let span = WriteSpan { offset, len, size, size_after, new_bytes: ranges.round_up(size_after) };
        let request = PlacementRequest::new(file, origin, span);
        let choice = find_room(core, &request, &credits, excluded).map_err(NotSpread::Failed)?;
        match become_whole(core, file, &choice.tier, choice.reason, (ranges, end)) {
            Ok(()) => {
                placed(core, &request, &mut credits, &choice);
                return Ok(());
            }
            Err(NotSpread::Failed(error)) => {
                tracing::debug!(tier = %choice.tier.name, %error, "a tier did not take a file");
                excluded |= bit(choice.tier.id);
            }
            passed_through => return passed_through,
        }
    }
}

/// How a plain file leaves home that had no room for a write after all.
pub(super) fn leave_when_full(
    core: &Core,
    file: &File,
    (offset, end): (u64, u64),
    io: Origin,
) -> Result<Departure> {
    let ranges = range_size_for(core, file, offset, end, io)?;
    Ok(Departure { ranges, whole: file.home_size()? <= ranges.bytes(), must: true })
}

/// Spreads a plain file before it gets room for data in `offset .. end`, if
/// the policy wants another tier for some of it.
pub(crate) fn spread_ahead(core: &Core, file: &File, offset: u64, end: u64, origin: Origin) -> Result<()> {
    let plain = matches!(&*file.layout.read(), Layout::Plain);
    if plain && let Some(ranges) = should_spread_ahead(core, file, offset, end, origin)? {
        // If it can't be spread, home gives the room.
        let _ = spread_out(core, file, ranges);
    }
    Ok(())
}

fn should_spread_ahead(
    core: &Core,
    file: &File,
    offset: u64,
    end: u64,
    origin: Origin,
) -> Result<Option<RangeSize>> {
    if end <= smallest_range(core).bytes() || !may_spread(file) || grows_on_home(core) {
        return Ok(None);
    }
    let ranges = range_size_for(core, file, offset, end, origin)?;
    if end <= ranges.bytes() {
        return Ok(None);
    }
    let size = file.home_size()?;
    let mut credits = credits_of_plain(core, file, size.min(offset), ranges);
    for range in ranges.ranges_of(offset, end).take(TURNS_MAX) {
        let (offset, size_after) = (ranges.start_of(range), end.max(size));
        let span = WriteSpan { offset, len: ranges.bytes(), size, size_after, new_bytes: ranges.bytes() };
        match choose(core, &PlacementRequest::new(file, origin, span), &credits, 0) {
            Ok(choice) if !choice.tier.is_home() || choice.may_differ_at_write() => return Ok(Some(ranges)),
            Ok(choice) => credits.add(choice.tier.id, ranges.bytes(), share_of(core, &choice.tier)),
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// The credits of a plain file of `size` bytes: all of it is dealt to home.
fn credits_of_plain(core: &Core, file: &File, size: u64, ranges: RangeSize) -> Credits {
    charge_home(core, file, ranges.round_up(size), ranges)
}

/// Whether nothing keeps a file plain: the kernel's own I/O on it would.
fn may_spread(file: &File) -> bool {
    file.opens.lock().passthrough == 0
}
