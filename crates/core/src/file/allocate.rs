//! `fallocate`, and copies within the volume.

use crate::core::Core;
use crate::file::clear::clear_piece;
use crate::file::demand::{Demand, Obstacle};
use crate::file::extents::{allocated_on, next_data_on, next_home_data};
use crate::file::full_range::{MoveLimit, move_off};
use crate::file::indexing::{make_index, spread_out};
use crate::file::leave_home::{leave_home, leave_when_full, leaves_home, spread_ahead};
use crate::file::mark::mark;
use crate::file::pieces::{changing, make_object};
use crate::file::place::place;
use crate::file::preallocate::{reserve_again, reserve_part};
use crate::file::presence::is_absent;
use crate::file::ranges::range_size_for;
use crate::file::release::{release_end, release_holes, release_range};
use crate::file::trim::{trim, trim_before};
use crate::file::whole_object::lengthen_object;
use crate::file::write::{grow, writing};
use crate::live::{File, Layout, Spread};
use braid_contract::{Errno, FallocateMode, Result, SetTime};
use braid_format::SIZE_MAX;
use braid_placement::Origin;
use braid_tiers::Tier;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Space of a file that may be neither data nor reserved.
const METADATA_MAX: u64 = 64 << 10;

/// The outcome of an allocation.
enum AllocationOutcome {
    All,
    /// The range at this offset has to leave its tier.
    RangeMustMove(u64, Obstacle),
    /// Home has no room for more of a plain file, which took so many bytes.
    HomeFull(u64),
}

/// Steps of an allocation, to be undone if the rest of it fails.
#[derive(Default)]
struct AllocationSteps {
    pieces: Vec<AllocatedPiece>,
    /// Up to where space was reserved before; `None` as long as nothing of a
    /// spread file was.
    reserved: Option<u64>,
}

/// Part of one range.
struct AllocatedPiece {
    tier: Arc<Tier>,
    bytes: Range<u64>,
    /// The range had no tier before.
    new: bool,
    /// By how much the file grew on the tier.
    grown: u64,
}

/// Reserves, frees or zeroes space. All of it or nothing: if not all can be
/// reserved, the file stays as it was.
pub fn allocate_file(
    core: &Core,
    file: &File,
    offset: u64,
    len: u64,
    mode: FallocateMode,
    origin: Origin,
) -> Result<()> {
    let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
    match mode {
        // Only an index records a reservation beyond the size.
        FallocateMode::Allocate { keep_size: true } => spread_to_keep(core, file, offset, end, origin)?,
        FallocateMode::Allocate { keep_size: false } => spread_ahead(core, file, offset, end, origin)?,
        _ => {}
    }
    trim_before(core, file, end);
    let mut taken = AllocationSteps::default();
    let result = allocate_somewhere(core, file, offset..end, mode, origin, &mut taken);
    match result {
        Ok(()) => {
            // Not before: it may itself be the operation that waits for room.
            if mode == FallocateMode::PunchHole {
                core.freed.note();
            }
            core.tiers.measure_again();
        }
        Err(_) => give_back(core, file, taken),
    }
    result
}

/// Spreads a plain file before space of more than one range is kept for it.
fn spread_to_keep(core: &Core, file: &File, offset: u64, end: u64, origin: Origin) -> Result<()> {
    let plain = matches!(&*file.layout.read(), Layout::Plain);
    let ranges = range_size_for(core, file, offset, end, origin)?;
    if plain && end > ranges.bytes() && end > file.home_size()? {
        // If it can't be spread, home keeps the space.
        let _ = spread_out(core, file, ranges);
    }
    Ok(())
}

fn allocate_somewhere(
    core: &Core,
    file: &File,
    bytes: Range<u64>,
    mode: FallocateMode,
    origin: Origin,
    taken: &mut AllocationSteps,
) -> Result<()> {
    let mut moves = MoveLimit::default();
    loop {
        let layout = file.layout.read();
        let allocated = match &*layout {
            Layout::Plain => allocate_plain(core, file, &bytes, mode),
            Layout::Spread(spread) => allocate_spread(core, file, spread, bytes.clone(), mode, origin, taken),
        };
        drop(layout);
        match allocated? {
            AllocationOutcome::All => return Ok(()),
            AllocationOutcome::HomeFull(before) => {
                give_back_plain(file, &bytes, before)?;
                let span = (bytes.start, bytes.end);
                let leave = leave_when_full(core, file, span, origin)?;
                leave_home(core, file, span, origin, leave).map_err(|_| Errno::ENOSPC)?;
            }
            AllocationOutcome::RangeMustMove(at, obstacle) => {
                if move_off(core, file, at, obstacle)? {
                    moves.count(at, core.tiers.iter().count())?;
                }
            }
        }
    }
}

fn allocate_plain(
    core: &Core,
    file: &File,
    bytes: &Range<u64>,
    mode: FallocateMode,
) -> Result<AllocationOutcome> {
    let before = file.data().stat()?.attr.blocks * 512;
    let takes = mode != FallocateMode::PunchHole;
    if takes && !has_room_for(core, file, bytes)? {
        return Ok(AllocationOutcome::HomeFull(before));
    }
    let len = bytes.end - bytes.start;
    let allocate = |mode| file.writable()?.allocate(mode, bytes.start, len);
    // The size comes last: a part of the allocation must not show.
    let keep = FallocateMode::Allocate { keep_size: true };
    let allocated = match mode {
        FallocateMode::Allocate { keep_size: false } => allocate(keep).and_then(|()| allocate(mode)),
        _ => allocate(mode),
    };
    match allocated {
        Ok(()) if takes => {
            core.tiers.home().took(len);
            Ok(AllocationOutcome::All)
        }
        Ok(()) => Ok(AllocationOutcome::All),
        Err(error) if error.is_full() => Ok(AllocationOutcome::HomeFull(before)),
        Err(error) => Err(error),
    }
}

/// Frees the part that the home file system allocated before it ran out of
/// room.
fn give_back_plain(file: &File, bytes: &Range<u64>, before: u64) -> Result<()> {
    let layout = file.layout.write();
    if !matches!(&*layout, Layout::Plain) {
        return Ok(());
    }
    let attr = file.data().stat()?.attr;
    let (mut at, mut data) = (0, 0);
    while let Some((start, end)) = next_home_data(file, at, attr.size)? {
        data += end - start.max(at);
        at = end;
    }
    // An earlier reservation stays.
    let had_nothing_reserved = before <= data + METADATA_MAX;
    let mut at = bytes.start;
    let hole_end = bytes.end.min(attr.size);
    while at < hole_end && had_nothing_reserved {
        let next = next_home_data(file, at, hole_end)?;
        let (start, end) = next.unwrap_or((hole_end, hole_end));
        if at < start {
            file.writable()?.allocate(FallocateMode::PunchHole, at, start - at)?;
        }
        at = end.max(at + 1);
    }
    if had_nothing_reserved {
        file.writable()?.truncate(attr.size)?;
    }
    file.data().set_times(None, Some(SetTime::At(attr.mtime)))
}

/// Whether home has room, beside its reserve, for those of some bytes that a
/// plain file does not have yet.
fn has_room_for(core: &Core, file: &File, &Range { start, end }: &Range<u64>) -> Result<bool> {
    let home = core.tiers.home();
    if home.room() >= end - start {
        return Ok(true);
    }
    home.measure_again();
    let (mut missing, mut at) = (0, start);
    while let Some((data, data_end)) = next_home_data(file, at, end)? {
        missing += data.saturating_sub(at);
        at = data_end;
    }
    Ok(home.room() >= missing + (end - at.min(end)))
}

fn allocate_spread(
    core: &Core,
    file: &File,
    spread: &Spread,
    bytes: Range<u64>,
    mode: FallocateMode,
    origin: Origin,
    taken: &mut AllocationSteps,
) -> Result<AllocationOutcome> {
    mark(core, file, spread)?;
    spread.touch_inode();
    match mode {
        FallocateMode::PunchHole => {
            punch_spread(core, file, spread, bytes.start, bytes.end.min(spread.size()))
        }
        FallocateMode::Allocate { keep_size } => {
            reserve_spread(core, file, spread, bytes, keep_size, origin, taken)
        }
        FallocateMode::ZeroRange { keep_size } => {
            match punch_spread(core, file, spread, bytes.start, bytes.end.min(spread.size()))? {
                AllocationOutcome::All => reserve_spread(core, file, spread, bytes, keep_size, origin, taken),
                obstacle => Ok(obstacle),
            }
        }
    }
}

/// Zeroes the data in `offset .. end`, and frees it where the tier can. The
/// ranges keep their tiers.
fn punch_spread(
    core: &Core,
    file: &File,
    spread: &Spread,
    offset: u64,
    end: u64,
) -> Result<AllocationOutcome> {
    // After the size that is synced, a hole may look like data that was
    // lost, unless the index says otherwise, durably, before there is one.
    if end > spread.index.known_synced_size()? {
        spread.index.set_gaps(true)?;
        core.index.sync(&spread.index)?;
    }
    for range in spread.range_size().ranges_of(offset, end) {
        let (start, end) = part_of(spread, range, offset, end);
        let _writing = writing(core, spread, start, end);
        let Some(entry) = spread.index.entry(range)? else { continue };
        let tier = core.tiers.get(entry.tier)?;
        let cleared = changing(spread, &tier, || clear_piece(file, spread, &tier, start, end - start));
        if let Err(error) = cleared {
            let obstacle = Obstacle::of(&tier, &error).filter(|_| !tier.capabilities().punch);
            return obstacle.map(|obstacle| AllocationOutcome::RangeMustMove(start, obstacle)).ok_or(error);
        }
    }
    Ok(AllocationOutcome::All)
}

/// Gives each range of `offset .. end` a tier and reserves its space there. The
/// size follows when all of it is reserved.
fn reserve_spread(
    core: &Core,
    file: &File,
    spread: &Spread,
    Range { start: offset, end }: Range<u64>,
    keep_size: bool,
    origin: Origin,
    taken: &mut AllocationSteps,
) -> Result<AllocationOutcome> {
    refuse_hopeless(core, spread, offset, end)?;
    if keep_size && end > spread.size() && spread.index.whole().is_some() {
        make_index(core, file, spread)?;
    }
    let reserved = spread.index.reserved()?;
    taken.reserved.get_or_insert(reserved);
    for range in spread.range_size().ranges_of(offset, end) {
        let (start, end) = part_of(spread, range, offset, end);
        let new = spread.index.entry(range)?.is_none();
        let obstacle = loop {
            place(core, file, spread, start..end, origin, Demand::Allocate)?;
            match reserve_range(core, file, spread, (range, start..end, new), taken)? {
                Reserved::Elsewhere => {}
                Reserved::Here => break None,
                Reserved::Not(obstacle) => break Some(obstacle),
            }
        };
        if let Some(obstacle) = obstacle {
            return Ok(AllocationOutcome::RangeMustMove(start, obstacle));
        }
    }
    // Before there is a size that needs it.
    if end > reserved && spread.index.whole().is_none() {
        spread.index.set_reserved(end)?;
        spread.gives_up_reserved.store(false, Ordering::Release);
    }
    spread.index.set_gaps(true)?;
    if !keep_size && end > spread.size() {
        let last = spread.index.entry(spread.range_size().range_of(end - 1))?.ok_or(Errno::EIO)?;
        let tier = core.tiers.get(last.tier)?;
        lengthen_object(core, spread, offset..end)?;
        grow(core, file, spread, end, &tier)?;
        spread.index.size_was_set();
    }
    Ok(AllocationOutcome::All)
}

/// Where the space for a part of a range was reserved.
enum Reserved {
    /// On the tier that has the range.
    Here,
    /// On the one that had it until its first write came meanwhile.
    Elsewhere,
    /// Nowhere: its tier lacks this.
    Not(Obstacle),
}

/// Reserves the space of `bytes`, a part of a range, on the tier that has it.
fn reserve_range(
    core: &Core,
    file: &File,
    spread: &Spread,
    (range, bytes, new): (u64, Range<u64>, bool),
    taken: &mut AllocationSteps,
) -> Result<Reserved> {
    let _writing = writing(core, spread, bytes.start, bytes.end);
    let entry = spread.index.entry(range)?.ok_or(Errno::EIO)?;
    let tier = core.tiers.get(entry.tier)?;
    let lacks = |demand| Ok(Reserved::Not(Obstacle { tier: entry.tier, demand }));
    if !tier.capabilities().allocate {
        return lacks(Demand::Allocate);
    }
    let before = allocated_on(file, spread, &tier);
    let result = reserve_on(file, spread, &tier, bytes.clone());
    let grown = allocated_on(file, spread, &tier).saturating_sub(before);
    {
        // The range can't come back to the tier while this is locked.
        let _placing = spread.placing.lock();
        if spread.index.entry(range)?.is_some_and(|now| now.tier != tier.id) {
            spread.left_set_aside.lock().push((tier.id, range));
            return Ok(Reserved::Elsewhere);
        }
    }
    if new || grown > 0 {
        taken.pieces.push(AllocatedPiece { tier, bytes, new, grown });
    }
    match result {
        Err(error) if error.is_full() => lacks(Demand::Room),
        result => result.map(|()| Reserved::Here),
    }
}

fn reserve_on(file: &File, spread: &Spread, tier: &Tier, bytes: Range<u64>) -> Result<()> {
    let reserve = || match reserve_part(file, spread, tier, bytes.clone()) {
        Err(error) if is_absent(spread, tier, &error)? => {
            make_object(spread, tier)?;
            reserve_part(file, spread, tier, bytes)
        }
        result => result,
    };
    changing(spread, tier, reserve).map_err(|error| tier.note_error(error))
}

/// Undoes the steps of an allocation that failed.
fn give_back(core: &Core, file: &File, taken: AllocationSteps) {
    let layout = file.layout.write();
    let (Layout::Spread(spread), Some(reserved)) = (&*layout, taken.reserved) else { return };
    // A range that goes does not come elsewhere.
    spread.moving.cancel_all();
    let result = match spread.index.whole() {
        Some(_) => trim(core, file, spread, spread.size()),
        None => taken.pieces.iter().try_for_each(|piece| give_back_piece(core, file, spread, piece)),
    };
    let ends = core.tiers.iter().filter(|tier| taken.pieces.iter().any(|piece| piece.tier.id == tier.id));
    let result = ends.fold(result, |result, tier| {
        let released = release_end(file, spread, &tier);
        result.and(released).and_then(|()| reserve_again(file, spread, &tier, reserved))
    });
    if let Err(error) = result {
        tracing::warn!(file = %spread.id(), %error, "a file keeps space of an allocation that failed");
    }
    core.tiers.measure_again();
}

/// Frees the space that a piece got, unless it was written meanwhile, or some
/// of it was reserved before.
fn give_back_piece(core: &Core, file: &File, spread: &Spread, piece: &AllocatedPiece) -> Result<()> {
    let (tier, bytes) = (&*piece.tier, piece.bytes.clone());
    let range = spread.range_size().range_of(bytes.start);
    let entry = spread.index.entry(range)?;
    if entry.is_none_or(|entry| entry.tier != tier.id) {
        return Ok(());
    }
    let (mut at, mut data) = (bytes.start, 0);
    while let Some((start, end)) = next_data_on(file, spread, tier, at, bytes.end)? {
        data += end - start.max(at);
        at = end;
    }
    if piece.new && data == 0 {
        spread.index.clear_entry(range)?;
        spread.cleared.store(true, Ordering::Release);
        core.tiers.count_range(Some(tier.id), None);
        return release_range(file, spread, tier, range);
    }
    match piece.grown + data >= bytes.end - bytes.start {
        true => release_holes(file, spread, tier, bytes),
        false => Ok(()),
    }
}

/// An allocation that can't fit is refused before it fills every tier.
fn refuse_hopeless(core: &Core, spread: &Spread, offset: u64, end: u64) -> Result<()> {
    let mut new_bytes = 0;
    for range in spread.range_size().ranges_of(offset, end) {
        if spread.index.entry(range)?.is_none() {
            let (start, end) = part_of(spread, range, offset, end);
            new_bytes += end - start;
        }
    }
    let fits = || new_bytes <= core.tiers.iter().map(|tier| tier.room()).sum::<u64>();
    if fits() {
        return Ok(());
    }
    core.tiers.measure_again();
    if fits() { Ok(()) } else { Err(Errno::ENOSPC.into()) }
}

/// Copies between two plain files as the home file system does it, shared
/// extents and all. Everything else is left to the kernel, whose writes
/// are placed like any others.
pub fn copy_between(
    core: &Core,
    (from, offset): (&File, u64),
    (to, to_offset): (&File, u64),
    len: u64,
    origin: Origin,
) -> Result<u64> {
    let end = to_offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
    if leaves_home(core, to, to_offset, end, origin)?.is_some() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    // Always in the same order, and the same file once: a copy the other
    // way round may be waiting for the same two locks.
    let (first, second) =
        if std::ptr::from_ref(from) <= std::ptr::from_ref(to) { (from, to) } else { (to, from) };
    let first_layout = first.layout.read();
    let second_layout = (!std::ptr::eq(first, second)).then(|| second.layout.read());
    let plain = |layout: &Layout| matches!(layout, Layout::Plain);
    if !plain(&first_layout) || !second_layout.as_deref().is_none_or(plain) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    match from.data().copy_range(offset, &**to.writable()?, to_offset, len) {
        Err(error) if error.errno() != Errno::EINVAL => Err(Errno::EOPNOTSUPP.into()),
        result => result,
    }
}

/// The part of `range` that is in `offset .. end`.
fn part_of(spread: &Spread, range: u64, offset: u64, end: u64) -> (u64, u64) {
    let bytes = spread.range_size().bytes_of(range..range + 1, end);
    (bytes.start.max(offset), bytes.end)
}
