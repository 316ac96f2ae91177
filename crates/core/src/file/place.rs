//! Ranges get their tier.

use super::choose::PlacementRequest;
use crate::core::Core;
use crate::failpoint::Failpoint;
use crate::file::ahead::release_guess;
use crate::file::choose::{choose, find_room, is_ruled_away, placed, share_of, stays};
use crate::file::pieces::ensure_object;
use crate::file::ranges::{range_size_for, smallest_range};
use crate::file::relocate::{next_data_on, release_range};
use crate::file::seek::next_home_data;
use crate::file::sync::sync_tier;
use crate::file::whole::{become_whole, count_whole, make_index};
use crate::live::{File, Layout, Shape, Spread};
use braid_contract::{Context, Errno, Error, Result, TierId};
use braid_format::{Entry, Header, IdAttr, IdKind, RangeSize, Reason, SIZE_MAX};
use braid_placement::{Credits, Origin, WriteSpan};
use braid_tiers::{Backend, Tier, bit};

/// Why a file could not be spread.
pub(crate) enum NotSpread {
    /// The kernel does I/O on the home file by itself at present.
    PassedThrough,
    /// It failed.
    Failed(Error),
}

/// How a plain file leaves home.
#[derive(Clone, Copy)]
pub(crate) struct Leave {
    /// How long its ranges are to be.
    pub(crate) ranges: RangeSize,
    /// All that it has goes to one other tier, and it needs no index.
    pub(crate) whole: bool,
    /// Home has no room for what is to be written.
    pub(crate) must: bool,
}

/// Gives all ranges of `offset .. end` that have no tier yet one and the
/// same (PolyStore §4.4.2: one write, one tier). A write is a request of the
/// front end: the kernel parts what is longer than 1 MiB.
pub(crate) fn place(
    core: &Core,
    file: &File,
    spread: &Spread,
    offset: u64,
    end: u64,
    origin: Origin,
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
    place_new(core, spread, &PlacementRequest { file, origin, span }, &new, &mut credits)
}

/// Finds a tier for `new` ranges and records it. Tiers that fail or turn
/// out to be full are passed over; `ENOSPC` when none is left.
fn place_new(
    core: &Core,
    spread: &Spread,
    request: &PlacementRequest<'_>,
    new: &[u64],
    credits: &mut Credits,
) -> Result<()> {
    let mut excluded = 0;
    while !new.is_empty() {
        let choice = find_room(core, request, credits, excluded)?;
        let tier = &choice.tier;
        match give(core, request.file, spread, tier, choice.reason, new) {
            Ok(()) => {
                placed(core, request, credits, &choice);
                tier.took(request.span.taken_bytes());
                break;
            }
            Err(error) if tier.is_home() && !error.is_full() => return Err(error),
            Err(_) => excluded |= bit(tier.id),
        }
    }
    Ok(())
}

/// The credits of a file that has so many bytes, all of them on home.
fn charge_home(core: &Core, file: &File, bytes: u64, ranges: RangeSize) -> Credits {
    let mut credits = Credits::new(file.inode.ino.0, ranges.get());
    if bytes > 0 {
        credits.add(core.tiers.home().id, bytes, share_of(core, core.tiers.home()));
    }
    credits
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
    // Held until the index says so: a tier that is on its way out gets
    // nothing that nobody sees.
    let _admission = tier.admit()?;
    ensure_object(spread, tier)?;
    for range in ranges {
        clear_leftovers(file, spread, tier, *range)?;
        spread.index.set_entry(*range, Entry { tier: tier.id, reason, version: 0 })?;
        if !count_whole(core, spread) {
            core.tiers.count_range(None, Some(tier.id));
        }
        core.observer.placed(file, tier.id, *range..range + 1);
    }
    Ok(())
}

/// A tier that gets a range may hold bytes there from an earlier time,
/// which must never show: they go, durably, before the entry says that the
/// range is there (ordering rule 5).
fn clear_leftovers(file: &File, spread: &Spread, tier: &Tier, range: u64) -> Result<()> {
    let ranges = spread.range_size();
    let start = ranges.start_of(range);
    let size = match &tier.backend {
        Backend::Home(_) => file.home_size()?,
        Backend::Store(store) => store.stat(spread.id())?.size,
    };
    if size > start && next_data_on(file, spread, tier, start, start + ranges.bytes())?.is_some() {
        release_range(file, spread, tier, range).context("clearing leftovers")?;
        sync_tier(file, spread, tier, true)?;
    }
    Ok(())
}

/// Whether a plain file should leave home before a write of
/// `offset .. end`, and how: it begins, and home is well filled; or the
/// write goes beyond the ranges that it has, and the policy wants another
/// tier for that; or home has no room. `ENOSPC` if no tier has: what home
/// keeps in reserve is for names and indexes.
pub(crate) fn leaves_home(
    core: &Core,
    file: &File,
    offset: u64,
    end: u64,
    origin: Origin,
) -> Result<Option<Leave>> {
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
    let request = PlacementRequest { file, origin, span };
    let whole = has_no_room && size <= ranges.bytes();
    let chosen = if has_no_room {
        find_room(core, &request, &credits, 0)
    } else {
        choose(core, &request, &credits, 0)
    };
    match chosen {
        Ok(choice) if choice.tier.is_home() => {
            stays(core, &request, &credits, &choice);
            Ok(None)
        }
        Ok(_) => Ok(Some(Leave { ranges, whole, must: has_no_room })),
        // It may be that only all that the file has, or a part of what is
        // written, fits anywhere.
        Err(_) if has_no_room && core.tiers.iter().any(|tier| tier.room() > 0) => {
            Ok(Some(Leave { ranges, whole, must: true }))
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
) -> Result<Option<Leave>> {
    let ruled = !core.placer.rules().is_empty();
    let spared = spares_home(core);
    if !(ruled || spared) || !may_spread(file) || file.home_size()? > 0 {
        return Ok(None);
    }
    let ranges = range_size_for(core, file, offset, end, origin)?;
    let span = WriteSpan { offset, len: end - offset, size: 0, size_after: end, new_bytes: ranges.bytes() };
    let leave = Leave { ranges, whole: true, must: false };
    if ruled && is_ruled_away(core, file, origin, span) {
        return Ok(Some(leave));
    }
    let (request, credits) =
        (PlacementRequest { file, origin, span }, credits_of_plain(core, file, 0, ranges));
    match choose(core, &request, &credits, 0) {
        Ok(choice) if spared && !choice.tier.is_home() => Ok(Some(leave)),
        Ok(choice) if spared => {
            stays(core, &request, &credits, &choice);
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Whether small files may begin on other tiers, to spare home. Those that
/// share its space would not.
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
    leave: Leave,
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
        let request = PlacementRequest { file, origin, span };
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
    /// Turns of the policy that are looked at: its pattern repeats.
    const TURNS_MAX: usize = 256;
    if end <= smallest_range(core).bytes() || !may_spread(file) {
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
        match choose(core, &PlacementRequest { file, origin, span }, &credits, 0) {
            Ok(choice) if !choice.tier.is_home() => return Ok(Some(ranges)),
            Ok(choice) => credits.add(choice.tier.id, ranges.bytes(), share_of(core, &choice.tier)),
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// What a plain file of `size` bytes has dealt so far: all of it to home.
fn credits_of_plain(core: &Core, file: &File, size: u64, ranges: RangeSize) -> Credits {
    charge_home(core, file, ranges.round_up(size), ranges)
}

/// Makes a plain file a spread file with such ranges, all of whose data is
/// on home so far.
pub(crate) fn spread_out(core: &Core, file: &File, ranges: RangeSize) -> std::result::Result<(), NotSpread> {
    let mut layout = file.layout.write();
    if matches!(*layout, Layout::Spread(_)) {
        return Ok(());
    }
    if file.opens.lock().passthrough > 0 {
        return Err(NotSpread::PassedThrough);
    }
    let spread = make_spread(core, file, ranges).map_err(NotSpread::Failed)?;
    if let Err(error) = release_guess(core, file, spread.size()) {
        tracing::debug!(file = %spread.id(), %error, "the home file keeps more space than it needs");
    }
    file.inode.set_shape(Shape::Spread);
    *layout = Layout::Spread(Box::new(spread));
    Ok(())
}

/// Index first, durably; then the attribute that makes it count. A crash
/// in between leaves a plain file, and an index that its mark leads to.
fn make_spread(core: &Core, file: &File, ranges: RangeSize) -> Result<Spread> {
    let identity = core.home.identify(&**file.data())?;
    if identity.size() > SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    let id = core.new_object_id()?;
    let header = Header {
        volume: core.id,
        id,
        range_size: ranges,
        ino: identity.ino(),
        btime_ns: identity.btime_ns(),
        plain_size: identity.size(),
        handle: identity.handle.clone(),
    };
    core.index.mark(id, None)?;
    let attr = IdAttr { kind: IdKind::Spread, id, ino: identity.ino(), btime_ns: identity.btime_ns() };
    let make = || -> Result<(Spread, u64)> {
        let index = core.index.create_index(header)?;
        let home_ranges = enter_home_ranges(core, file, &index, identity.size())?;
        index.set_size(identity.size())?;
        core.index.sync(&index)?;
        core.home.set_id_attr(&**file.data(), &attr)?;
        let credits = charge_home(core, file, home_ranges * ranges.bytes(), ranges);
        Ok((Spread::load(index, credits, &core.environment)?, home_ranges))
    };
    match make() {
        Ok((spread, home_ranges)) => {
            let home = core.tiers.home().id;
            (0..home_ranges).for_each(|_| core.tiers.count_range(None, Some(home)));
            *spread.marked.lock() = true;
            Ok(spread)
        }
        Err(error) => {
            if !core.fails_at(Failpoint::FailedSpreadLeavesIndex) {
                core.index.remove_index(id)?;
            }
            core.index.unmark(id)?;
            Err(error.context("spreading a file"))
        }
    }
}

/// Records the ranges in which the home file has data; answers how many
/// they are, which count once the index does.
fn enter_home_ranges(core: &Core, file: &File, index: &braid_index::Index, size: u64) -> Result<u64> {
    let home = core.tiers.home().id;
    let (mut offset, mut count, ranges) = (0, 0, index.range_size());
    while let Some((start, end)) = next_home_data(file, offset, size)? {
        for range in ranges.ranges_of(start.max(offset), end) {
            index.set_entry(range, Entry { tier: home, reason: Reason::WasPlain, version: 0 })?;
            count += 1;
        }
        offset = ranges.round_up(end);
    }
    Ok(count)
}

/// The tier that holds the byte before `end`, home if it is in a hole.
pub(crate) fn owner_before(core: &Core, spread: &Spread, end: u64) -> Result<TierId> {
    let home = core.tiers.home().id;
    if end == 0 {
        return Ok(home);
    }
    let last = spread.range_size().range_of(end - 1);
    Ok(spread.index.entry(last)?.map_or(home, |entry| entry.tier))
}

/// Whether nothing keeps a file plain: the kernel's own I/O on it would.
fn may_spread(file: &File) -> bool {
    file.opens.lock().passthrough == 0
}
