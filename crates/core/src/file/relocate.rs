//! Moving a range to another tier: copy, make durable, switch the index, make
//! that durable, release the source (ordering rule 1). Readers and writers go
//! on meanwhile; `braid-coord` keeps them and the move apart.

use super::choose::PlacementRequest;
use super::pieces::is_absent;
use super::place::NotSpread;
use super::truncate::note_release;
use crate::coord::{Entered, Registered};
use crate::core::Core;
use crate::failpoint::Failpoint;
use crate::file::ahead::reserve_part;
use crate::file::choose::find_room;
use crate::file::open::mark;
use crate::file::pieces::{ensure_object, punch_piece, read_piece, write_piece};
use crate::file::place::spread_out;
use crate::file::ranges::range_size_of;
use crate::file::seek::next_home_data;
use crate::file::sync::{sync_tier, unnoticed};
use crate::file::whole::{make_index, move_at_once, moves_at_once};
use crate::live::{File, Layout, Spread};
use crate::reap::reap_now;
use braid_contract::{Context, Errno, Error, Hint, Result, StoreIo, TierId};
use braid_coord::{Busy, CHUNKS, CopyStats, CopySteps, RangeSpan, carry_out};
use braid_format::{Entry, Owners, RangeSize, Reason};
use braid_placement::Origin;
use braid_sys::AlignedBuf;
use braid_tiers::rate::{MoveRate, Stopped};
use braid_tiers::{Account, Backend, Tier, act_for, bit};
use parking_lot::RwLockReadGuard;
use std::cell::RefCell;
use std::sync::Arc;

/// How often one range was moved within one call. A tier whose figures promise
/// room that writes then do not get must not send it around for ever.
#[derive(Debug, Default)]
pub(super) struct Moves {
    at: Option<u64>,
    count: usize,
}

impl Moves {
    /// Counts a move of what is at `at`; `ENOSPC` if all `tiers` were tried.
    pub(crate) fn count(&mut self, at: u64, tiers: usize) -> Result<()> {
        self.count = if self.at == Some(at) { self.count + 1 } else { 1 };
        self.at = Some(at);
        if self.count > tiers { Err(Errno::ENOSPC.into()) } else { Ok(()) }
    }
}

/// Why a range was not moved.
#[derive(Debug)]
enum NotMoved {
    /// Something else moves it, or it is not to be moved now.
    Busy,
    /// The file changed its shape meanwhile; what there was to move may be
    /// gone.
    Overtaken,
    /// The target would not take it.
    Target(Error),
    /// The file needs an index, for which home has no room.
    NoIndex(Error),
    /// Something else failed.
    Other(Error),
}

impl From<NotMoved> for Error {
    fn from(not: NotMoved) -> Self {
        match not {
            NotMoved::Busy | NotMoved::Overtaken => Errno::EBUSY.into(),
            NotMoved::Target(error) | NotMoved::NoIndex(error) | NotMoved::Other(error) => error,
        }
    }
}

type Moved<T> = std::result::Result<T, NotMoved>;

/// What moving a file of a few bytes counts as.
const BLOCK: u64 = 4096;

/// Bytes copied at a time: whoever wants to truncate the file waits for them.
const RUN_MAX: u64 = 1 << 20;

/// The tier of the range at `offset` has no room for more of it, or takes no
/// writes: the range goes to another one. Answers whether it was moved; if
/// not, something else has changed, and what failed may be tried again.
/// `ENOSPC` if no tier has room.
pub(crate) fn move_full_range(core: &Core, file: &File, offset: u64) -> Result<bool> {
    let Some(entry) = entry_at(file, offset)? else { return Ok(false) };
    let from = core.tiers.get(entry.tier)?;
    // Space of removed files may be all that is missing.
    if !from.is_set_readonly() && reap_now(core) {
        return Ok(false);
    }
    let mut excluded = bit(from.id);
    loop {
        let Some(to) = next_target(core, file, offset, excluded)? else { return Ok(false) };
        match move_full_to(core, file, offset, &to) {
            Ok(true) => {
                tracing::info!(offset, from = %from.name, to = %to.name, "moved a range off a tier that took no more of it");
                return Ok(true);
            }
            Ok(false) | Err(NotMoved::Overtaken) => return Ok(false),
            // The mover is below on this very stack, and can't end first.
            Err(NotMoved::Busy) if !core.environment.threads() => return Err(Errno::ENOSPC.into()),
            // Whatever moves it may be in no hurry; this is.
            Err(NotMoved::Busy) => end_move_at(file, offset),
            Err(NotMoved::Target(error) | NotMoved::NoIndex(error)) => {
                tracing::debug!(tier = %to.name, %error, "a tier did not take a range");
                excluded |= bit(to.id);
            }
            Err(NotMoved::Other(error)) => return Err(error),
        }
    }
}

/// Moves the range at `offset` off a tier that takes no more of it, or all
/// of the file if it is small or an index can't be had; answers whether
/// anything was moved.
fn move_full_to(core: &Core, file: &File, offset: u64, to: &Tier) -> Moved<bool> {
    if moves_at_once(core, file).map_err(NotMoved::Other)?.is_none() {
        match move_range_at(core, file, offset, to, Reason::Moved, &mut || {}) {
            Err(NotMoved::NoIndex(error)) => {
                tracing::debug!(%error, "a file moves as a whole, since home has no room for an index");
            }
            moved => return moved.map(|moved| moved.is_some()),
        }
    }
    match move_at_once(core, file, to, Reason::Moved) {
        Ok(moved) => Ok(moved.is_some()),
        Err(NotSpread::PassedThrough) => Err(NotMoved::Busy),
        Err(NotSpread::Failed(error)) => Err(NotMoved::Target(error)),
    }
}

fn entry_at(file: &File, offset: u64) -> Result<Option<Entry>> {
    match &*file.layout.read() {
        Layout::Plain => Ok(None),
        Layout::Spread(spread) => spread.index.entry(spread.range_size().range_of(offset)),
    }
}

/// The tier for a range that has to go elsewhere; `None` if the file is
/// plain by now.
fn next_target(core: &Core, file: &File, offset: u64, excluded: u64) -> Result<Option<Arc<Tier>>> {
    let layout = file.layout.read();
    let Layout::Spread(spread) = &*layout else { return Ok(None) };
    let (ranges, size) = (spread.range_size(), spread.size());
    let (start, bytes) = (ranges.start_of(ranges.range_of(offset)), ranges.bytes());
    let credits = spread.placing.lock();
    let span =
        braid_placement::WriteSpan { offset: start, len: bytes, size, size_after: size, new_bytes: bytes };
    let request = PlacementRequest { file, origin: Origin::default(), span };
    Ok(Some(find_room(core, &request, &credits, excluded)?.tier))
}

/// Ends the move of a range that somebody else began.
fn end_move_at(file: &File, offset: u64) {
    let (moving, range) = match &*file.layout.read() {
        Layout::Plain => return,
        Layout::Spread(spread) => (spread.moving.clone(), spread.range_size().range_of(offset)),
    };
    moving.end(range);
}

/// Moves the range at `offset` to a tier, if it is not there already, as
/// fast as `order` and the throttles of both tiers allow. Ranges that were never written are nowhere, and
/// stay so; a plain file is spread first. Answers the bytes that were
/// copied. The caller has the file in use.
///
/// # Errors
/// `EBUSY` if the kernel does I/O on the file by itself at present, or
/// something else moves or changes the range; `ECANCELED` if the pace was
/// stopped; those of both tiers.
pub fn relocate(
    core: &Core,
    file: &File,
    offset: u64,
    to: &Tier,
    order: (Reason, MoveRate<'_>),
) -> Result<u64> {
    relocate_watched(core, file, offset, to, order, &mut || {})
}

/// As [`relocate`](relocate); `between` is called after each copy,
/// while nothing is held.
pub fn relocate_watched(
    core: &Core,
    file: &File,
    offset: u64,
    to: &Tier,
    (reason, rate): (Reason, MoveRate<'_>),
    between: &mut dyn FnMut(),
) -> Result<u64> {
    if let Some(bytes) = moves_at_once(core, file)? {
        let moved = relocate_at_once(core, file, to, (reason, rate), bytes);
        between();
        return moved;
    }
    match spread_to_move(core, file, to) {
        // Home has no room for an index.
        Err(error) if error.is_full() => {
            return relocate_at_once(core, file, to, (reason, rate), file.home_size()?);
        }
        spread => spread?,
    }
    let Some(entry) = entry_at(file, offset)?.filter(|entry| entry.tier != to.id) else {
        return Ok(0);
    };
    let (from, bytes) = (core.tiers.get(entry.tier)?, range_size_of(core, file)?.bytes());
    let _passage = rate.throttle(&[&from, to], bytes).map_err(|Stopped| Errno::ECANCELED)?;
    let _entered = enter_to_move(core, file)?;
    // What is read and written here is nobody's who waits for it.
    let _for = act_for(Account::Mover);
    let moved = move_range_at(core, file, offset, to, reason, between)?;
    Ok(moved.map_or(0, |_| bytes))
}

/// Moves all of a file of so many bytes, which is on one tier, while nobody
/// else is at it.
fn relocate_at_once(
    core: &Core,
    file: &File,
    to: &Tier,
    (reason, rate): (Reason, MoveRate<'_>),
    bytes: u64,
) -> Result<u64> {
    let from = match &*file.layout.read() {
        Layout::Plain => core.tiers.home().id,
        Layout::Spread(spread) => spread.index.whole_tier().ok_or(Errno::EBUSY)?,
    };
    if from == to.id {
        return Ok(0);
    }
    let from = core.tiers.get(from)?;
    let bytes = bytes.max(BLOCK);
    let _passage = rate.throttle(&[&from, to], bytes).map_err(|Stopped| Errno::ECANCELED)?;
    let _entered = enter_to_move(core, file)?;
    let _for = act_for(Account::Mover);
    match move_at_once(core, file, to, reason) {
        Ok(moved) => Ok(moved.unwrap_or(0)),
        Err(NotSpread::PassedThrough) => Err(Errno::EBUSY.into()),
        Err(NotSpread::Failed(error)) => Err(error),
    }
}

/// A plain file is spread before any of it can leave home.
fn spread_to_move(core: &Core, file: &File, to: &Tier) -> Result<()> {
    let _entered = enter_to_move(core, file)?;
    if matches!(&*file.layout.read(), Layout::Plain) && !to.is_home() {
        let spread = spread_out(core, file, range_size_of(core, file)?);
        core.observer.inode_changed(&file.inode);
        spread.map_err(|not| match not {
            NotSpread::PassedThrough => Errno::EBUSY.into(),
            NotSpread::Failed(error) => error,
        })?;
    }
    Ok(())
}

/// `ESTALE` if the file was taken into use before home was replaced.
pub(super) fn enter_to_move<'c>(core: &'c Core, file: &File) -> Result<Entered<'c>> {
    let pass = core.barrier.enter();
    let usable = file.inode.is_of(&core.home) && !file.opens.lock().dead;
    if usable { Ok(pass) } else { Err(Errno::ESTALE.into()) }
}

/// Moves one range; `None` if there is nothing to be moved.
fn move_range_at(
    core: &Core,
    file: &File,
    offset: u64,
    to: &Tier,
    reason: Reason,
    between: &mut dyn FnMut(),
) -> Moved<Option<CopyStats>> {
    let (ranges, range, this, entry, span) = {
        let layout = file.layout.read();
        let Layout::Spread(spread) = &*layout else { return Ok(None) };
        let (ranges, range) = (spread.range_size(), spread.range_size().range_of(offset));
        mark(core, file, spread).map_err(NotMoved::Other)?;
        let this = spread.moving.begin(range).map_err(|Busy| NotMoved::Busy)?;
        let Some(entry) = spread.index.entry(range).map_err(NotMoved::Other)? else { return Ok(None) };
        if entry.tier == to.id {
            return Ok(None);
        }
        if !spread.index.can_name(to.id) {
            make_index(core, file, spread).map_err(|error| match error.is_full() {
                true => NotMoved::NoIndex(error),
                false => NotMoved::Other(error),
            })?;
        }
        (ranges, range, this, entry, RangeSpan::new(spread.id(), &(range..range + 1)))
    };
    let from = core.tiers.get(entry.tier).map_err(NotMoved::Other)?;
    take_mtime_home(core, file, &[from.id, to.id]).map_err(NotMoved::Other)?;
    let between = RefCell::new(between);
    let move_ = RangeMove { core, file, ranges, range, entry, from, to, reason, this, between };
    let outcome = move_.run(span);
    move_.release_what_is_left(outcome.is_ok());
    let start = ranges.start_of(range);
    core.observer.data_changed(&file.inode, start..start.saturating_add(ranges.bytes()));
    outcome.map(Some)
}

/// What moves changes the times of objects: if the tier that owns the
/// file's modification time is one of `moving`, home owns it from now on,
/// which knows it durably.
fn take_mtime_home(core: &Core, file: &File, moving: &[TierId]) -> Result<()> {
    let layout = file.layout.read();
    let Layout::Spread(spread) = &*layout else { return Ok(()) };
    let (owners, home) = (spread.index.owners()?, core.tiers.home().id);
    let concerned = |owner: TierId| owner != home && moving.contains(&owner);
    if !concerned(owners.mtime) && !concerned(owners.synced_mtime) {
        return Ok(());
    }
    file.update_times(spread, None)?;
    file.data().sync(false)?;
    spread.change_owners(|owners| match spread.times.mtime() {
        None => Owners { mtime: home, synced_mtime: home, ..owners },
        // Somebody wrote meanwhile.
        Some(_) => owners,
    })
}

/// The first stretch of data of the file's part on `tier` in
/// `offset .. end`.
pub(crate) fn next_data_on(
    file: &File,
    spread: &Spread,
    tier: &Tier,
    offset: u64,
    end: u64,
) -> Result<Option<(u64, u64)>> {
    if offset >= end {
        return Ok(None);
    }
    let found = match &tier.backend {
        Backend::Home(_) => return next_home_data(file, offset, end),
        Backend::Store(store) => match store.next_data(spread.id(), offset) {
            Err(error) if is_absent(spread, tier, &error)? => None,
            result => result.map_err(|error| tier.note_error(error))?,
        },
    };
    Ok(found.filter(|(start, _)| *start < end).map(|(start, data_end)| (start, data_end.min(end))))
}

/// Frees what a tier holds of a range that is not, or no longer, its.
pub(crate) fn release_range(file: &File, spread: &Spread, tier: &Tier, range: u64) -> Result<()> {
    let ranges = spread.range_size();
    note_release(spread, tier.id);
    let punch = || punch_piece(file, spread, tier, ranges.start_of(range), ranges.bytes());
    unnoticed(file, spread, tier, punch).context("releasing a range")
}

/// One range on its way.
struct RangeMove<'a> {
    core: &'a Core,
    file: &'a File,
    ranges: RangeSize,
    range: u64,
    /// What the index said when the move began.
    entry: Entry,
    from: Arc<Tier>,
    to: &'a Tier,
    reason: Reason,
    this: Registered,
    /// Called after each copy.
    between: RefCell<&'a mut dyn FnMut()>,
}

/// The file's layout, which is the same spread one as when the move began.
struct Hold<'a>(RwLockReadGuard<'a, Layout>);

impl Hold<'_> {
    fn spread(&self) -> Moved<&Spread> {
        match &*self.0 {
            Layout::Spread(spread) => Ok(spread),
            Layout::Plain => Err(NotMoved::Overtaken),
        }
    }
}

impl RangeMove<'_> {
    fn run(&self, span: RangeSpan) -> Moved<CopyStats> {
        {
            let hold = self.hold()?;
            let spread = hold.spread()?;
            ensure_object(spread, self.to).map_err(NotMoved::Target)?;
            release_range(self.file, spread, self.to, self.range).map_err(NotMoved::Target)?;
            self.reserve(spread)?;
        }
        let outcome = carry_out(self, &self.core.slots, span, &self.this)?;
        // Only what is durable may be released; that it is not is no failure
        // of the move, but the source keeps its copy then.
        if !self.core.fails_at(Failpoint::PunchBeforeEntryIsDurable) {
            let hold = Hold(self.file.layout.read());
            if let Ok(spread) = hold.spread() {
                self.core.index.sync(&spread.index).map_err(NotMoved::Other)?;
            }
        }
        Ok(outcome)
    }

    /// What is reserved for the file is so wherever it is.
    fn reserve(&self, spread: &Spread) -> Moved<()> {
        let reserved = spread.index.reserved().map_err(NotMoved::Other)?;
        let bytes = self.ranges.bytes_of(self.range..self.range + 1, reserved);
        if bytes.is_empty() {
            return Ok(());
        }
        let result = reserve_part(self.file, spread, self.to, bytes);
        result.map_err(|error| NotMoved::Target(self.to.note_error(error)))
    }

    /// The source's copy after a move, the target's after one that failed:
    /// space only, which is cleared before the tier gets the range again.
    fn release_what_is_left(&self, moved: bool) {
        let tier = if moved { &*self.from } else { self.to };
        let layout = self.file.layout.read();
        let Layout::Spread(spread) = &*layout else { return };
        if !self.this.is_of(&spread.moving) {
            return;
        }
        // Nobody gives the range to the tier while this is locked.
        let _placing = spread.placing.lock();
        let owner = spread.index.entry(self.range);
        if owner.as_ref().is_ok_and(|owner| owner.is_none_or(|entry| entry.tier != tier.id)) {
            let released = release_range(self.file, spread, tier, self.range);
            if let Err(error) = released
                && moved
            {
                tracing::warn!(file = %spread.id(), range = self.range, tier = %tier.name, %error, "could not free what a range left");
            }
        }
        if moved {
            let start = self.ranges.start_of(self.range);
            self.to.took(spread.size().saturating_sub(start).min(self.ranges.bytes()));
        }
    }

    /// Bytes of a chunk.
    fn chunk(&self) -> u64 {
        self.ranges.bytes() / CHUNKS
    }

    /// Copies what the source has of `start .. end`.
    fn copy_data(&self, spread: &Spread, start: u64, end: u64) -> Moved<()> {
        thread_local! {
            static BUF: RefCell<AlignedBuf> = const { RefCell::new(AlignedBuf::new()) };
        }
        let mut offset = start;
        while let Some((at, data_end)) =
            next_data_on(self.file, spread, &self.from, offset, end).map_err(NotMoved::Other)?
        {
            BUF.with_borrow_mut(|buf| {
                let buf = buf.bytes((data_end - at) as usize);
                read_piece(self.file, spread, &self.from, at, buf, true).map_err(NotMoved::Other)?;
                self.write_copy(spread, at, buf)
            })?;
            offset = data_end;
        }
        Ok(())
    }

    fn write_copy(&self, spread: &Spread, at: u64, data: &[u8]) -> Moved<()> {
        let io = StoreIo { direct: true, hint: Hint::default() };
        let mut done = 0;
        while done < data.len() {
            let (at, data) = (at + done as u64, &data[done..]);
            let write = || write_piece(self.file, spread, self.to, at, data, io);
            let written = unnoticed(self.file, spread, self.to, write);
            match written.map_err(NotMoved::Target)? {
                0 => return Err(NotMoved::Target(Errno::EIO.into())),
                more => done += more,
            }
        }
        Ok(())
    }
}

impl CopySteps for RangeMove<'_> {
    type Hold<'a>
        = Hold<'a>
    where
        Self: 'a;
    type Error = NotMoved;

    fn hold(&self) -> Moved<Hold<'_>> {
        let layout = self.file.layout.read();
        match &*layout {
            Layout::Spread(spread) if self.this.is_of(&spread.moving) && !self.this.is_cancelled() => {
                Ok(Hold(layout))
            }
            _ => Err(NotMoved::Overtaken),
        }
    }

    fn runs(&self, chunks: u64) -> Vec<u64> {
        split(chunks, (RUN_MAX / self.chunk()).clamp(1, CHUNKS))
    }

    fn copy(&self, hold: &Hold<'_>, chunks: u64, again: bool) -> Moved<()> {
        let spread = hold.spread()?;
        let first = u64::from(chunks.trailing_zeros());
        let start = self.ranges.start_of(self.range) + first * self.chunk();
        let len = u64::from(chunks.count_ones()) * self.chunk();
        if again {
            // What became a hole must not stay data.
            let punch = || punch_piece(self.file, spread, self.to, start, len);
            unnoticed(self.file, spread, self.to, punch).map_err(NotMoved::Target)?;
        }
        self.copy_data(spread, start, (start + len).min(spread.size()))
    }

    fn copied(&self) {
        (self.between.borrow_mut())();
    }

    fn sync(&self, hold: &Hold<'_>) -> Moved<()> {
        if self.core.fails_at(Failpoint::SwitchBeforeCopyIsDurable) {
            return Ok(());
        }
        sync_tier(self.file, hold.spread()?, self.to, true).map_err(NotMoved::Target)
    }

    fn switch(&self, hold: &Hold<'_>) -> Moved<()> {
        let version = self.entry.version.wrapping_add(1);
        // It may have been closed to new ranges since the move began. Asked
        // for as writers do: with the layout held, and not before.
        let _admission = self.to.admit().map_err(NotMoved::Target)?;
        let moved = Entry { tier: self.to.id, reason: self.reason, version };
        hold.spread()?.index.set_entry(self.range, moved).map_err(NotMoved::Other)?;
        self.core.tiers.count_range(Some(self.from.id), Some(self.to.id));
        self.core.observer.placed(self.file, self.to.id, self.range..self.range + 1);
        Ok(())
    }
}

/// Splits a set of chunks into runs without gaps of at most `max` chunks.
fn split(mut chunks: u64, max: u64) -> Vec<u64> {
    let mut runs = Vec::new();
    while chunks != 0 {
        let first = chunks.trailing_zeros();
        let len = u64::from((chunks >> first).trailing_ones()).min(max);
        let run = (u64::MAX >> (CHUNKS - len)) << first;
        runs.push(run);
        chunks &= !run;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_no_gaps_and_cover_every_chunk_once() {
        assert_eq!(split(u64::MAX, 64), [u64::MAX]);
        assert_eq!(split(u64::MAX, 32), [u64::MAX >> 32, u64::MAX << 32]);
        assert_eq!(split(0b1011_0001, 64), [0b1, 0b11_0000, 0b1000_0000]);
        assert_eq!(split(0b111, 2), [0b11, 0b100]);
        assert_eq!(split(1 << 63, 1), [1 << 63]);
        assert_eq!(split(0, 8), [] as [u64; 0]);
    }
}
