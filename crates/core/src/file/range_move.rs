//! Moving a range to another tier: copy, make durable, switch the index, make
//! that durable, release the source (ordering rule 1). Readers and writers go
//! on meanwhile; `braid-coord` keeps them and the move apart.

use crate::coord::Registered;
use crate::core::Core;
use crate::failpoint::Failpoint;
use crate::file::choose::hint_of;
use crate::file::clear::{clear_piece, clear_range};
use crate::file::extents::next_data_on;
use crate::file::home_inode::unnoticed;
use crate::file::indexing::make_index;
use crate::file::mark::mark;
use crate::file::pieces::{ensure_object, note_write, read_to_copy, write_piece};
use crate::file::preallocate::reserve_part;
use crate::file::release::release_range;
use crate::file::share::Sharing;
use crate::file::sync::sync_tier;
use crate::file::unneeded;
use crate::live::{File, Layout, Spread};
use braid_contract::{Errno, Error, Result, StoreIo, TierId};
use braid_coord::{Busy, CHUNKS, CopyStats, CopySteps, RangeSpan, carry_out};
use braid_format::{Entry, Owners, RangeSize, Reason};
use braid_placement::Origin;
use braid_sys::AlignedBuf;
use braid_tiers::Tier;
use parking_lot::RwLockReadGuard;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// Why a range was not moved.
#[derive(Debug)]
pub(super) enum NotMoved {
    /// Another mover has it, or it must not be moved now.
    Busy,
    /// The file changed its shape meanwhile; the range may be gone.
    Overtaken,
    /// The target did not take it.
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

pub(super) type MoveResult<T> = std::result::Result<T, NotMoved>;

/// Bytes copied at a time: a truncation of the file waits for them.
const RUN_MAX: u64 = 1 << 20;

/// Moves one range; `None` if there is nothing to be moved.
pub(super) fn move_range_at(
    core: &Core,
    file: &File,
    offset: u64,
    to: &Tier,
    reason: Reason,
    between: &mut dyn FnMut(),
) -> MoveResult<Option<CopyStats>> {
    let (ranges, range, this, entry, id) = {
        let layout = file.layout.read();
        let Layout::Spread(spread) = &*layout else { return Ok(None) };
        let (ranges, range) = (spread.range_size(), spread.range_size().range_of(offset));
        mark(core, file, spread).map_err(NotMoved::Other)?;
        let this = match reason {
            // A write waits.
            Reason::Moved => spread.moving.begin_urgent(range),
            _ => spread.moving.begin(range),
        };
        let this = this.map_err(|Busy| NotMoved::Busy)?;
        let Some(entry) = spread.index.entry(range).map_err(NotMoved::Other)? else { return Ok(None) };
        if entry.tier == to.id {
            return Ok(None);
        }
        if !spread.index.can_name(to.id) {
            // It counts the ranges that writers give it.
            let _placing = spread.placing.lock();
            make_index(core, file, spread).map_err(|error| match error.is_full() {
                true => NotMoved::NoIndex(error),
                false => NotMoved::Other(error),
            })?;
        }
        (ranges, range, this, entry, spread.id())
    };
    let from = core.tiers.get(entry.tier).map_err(NotMoved::Other)?;
    take_mtime_home(core, file, &[from.id, to.id]).map_err(NotMoved::Other)?;
    let (sharing, between) = (Sharing::between(file, id, &from, to), RefCell::new(between));
    let move_ = RangeMove { core, file, ranges, range, entry, from, to, reason, this, sharing, between };
    let outcome = move_.run(RangeSpan::new(id, &(range..range + 1)));
    move_.release_what_is_left(outcome.is_ok());
    let RangeMove { from, this, .. } = move_;
    drop(this);
    unneeded::left(core, file, if outcome.is_ok() { &from } else { to });
    let start = ranges.start_of(range);
    core.observer.data_changed(&file.inode, start..start.saturating_add(ranges.bytes()));
    outcome.map(Some)
}

/// A move changes the times of objects: if the tier that owns the file's
/// modification time is one of `moving`, home has it durably, and owns it, from
/// now on.
fn take_mtime_home(core: &Core, file: &File, moving: &[TierId]) -> Result<()> {
    let layout = file.layout.read();
    let Layout::Spread(spread) = &*layout else { return Ok(()) };
    let (owners, home) = (spread.index.owners()?, core.tiers.home().id);
    let concerned = |owner: TierId| owner != home && moving.contains(&owner);
    if !concerned(owners.mtime) && !concerned(owners.synced_mtime) {
        return Ok(());
    }
    file.update_times(spread)?;
    file.data().sync(false)?;
    spread.change_owners(|owners| match spread.times.mtime() {
        None => Owners { mtime: home, synced_mtime: home, ..owners },
        // A write came meanwhile.
        Some(_) => owners,
    })
}

/// One range on its way.
struct RangeMove<'a> {
    core: &'a Core,
    file: &'a File,
    ranges: RangeSize,
    range: u64,
    /// Its entry in the index when the move began.
    entry: Entry,
    from: Arc<Tier>,
    to: &'a Tier,
    reason: Reason,
    this: Registered,
    /// How source and target share blocks, if they can.
    sharing: Option<Sharing<'a>>,
    /// Called after each copy.
    between: RefCell<&'a mut dyn FnMut()>,
}

/// The file's layout, which is the same spread one as when the move began.
struct HeldLayout<'a>(RwLockReadGuard<'a, Layout>);

impl HeldLayout<'_> {
    fn spread(&self) -> MoveResult<&Spread> {
        match &*self.0 {
            Layout::Spread(spread) => Ok(spread),
            Layout::Plain => Err(NotMoved::Overtaken),
        }
    }
}

impl RangeMove<'_> {
    fn run(&self, span: RangeSpan) -> MoveResult<CopyStats> {
        {
            let hold = self.hold()?;
            let spread = hold.spread()?;
            ensure_object(spread, self.to).map_err(NotMoved::Target)?;
            clear_range(self.file, spread, self.to, self.range).map_err(NotMoved::Target)?;
            self.reserve(spread)?;
        }
        let outcome = carry_out(self, &self.core.slots, span, &self.this)?;
        // The source is released only when the entry is durable. If that fails,
        // the entry names the target in memory, the source keeps its copy, and
        // the caller finds the range in its place the next time.
        if !self.core.fails_at(Failpoint::PunchBeforeEntryIsDurable) {
            let hold = HeldLayout(self.file.layout.read());
            if let Ok(spread) = hold.spread() {
                self.core.index.sync(&spread.index).map_err(NotMoved::Other)?;
            }
        }
        Ok(outcome)
    }

    /// Reserves the range's reserved space on the target.
    fn reserve(&self, spread: &Spread) -> MoveResult<()> {
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
        // The tier can't get the range again while this is locked.
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

    /// Copies the data that the source has in `start .. end`.
    fn copy_data(&self, spread: &Spread, start: u64, end: u64) -> MoveResult<()> {
        thread_local! {
            static BUF: RefCell<AlignedBuf> = const { RefCell::new(AlignedBuf::new()) };
        }
        let mut offset = start;
        while let Some((at, data_end)) =
            next_data_on(self.file, spread, &self.from, offset, end).map_err(NotMoved::Other)?
        {
            let left = self.share_copy(spread, at..data_end)?;
            if !left.is_empty() {
                BUF.with_borrow_mut(|buf| {
                    let buf = buf.bytes((left.end - left.start) as usize);
                    read_to_copy(self.file, spread, &self.from, left.start, buf).map_err(NotMoved::Other)?;
                    self.write_copy(spread, left.start, buf)
                })?;
            }
            offset = data_end;
        }
        Ok(())
    }

    /// Copies by the file system that both tiers are on, if they are; answers
    /// the bytes left to be copied.
    fn share_copy(&self, spread: &Spread, bytes: Range<u64>) -> MoveResult<Range<u64>> {
        let Some(sharing) = &self.sharing else { return Ok(bytes) };
        note_write(spread, self.to);
        let copied = unnoticed(self.file, spread, self.to, || Ok(sharing.copy(bytes.clone())));
        Ok(copied.map_err(NotMoved::Target)?..bytes.end)
    }

    fn write_copy(&self, spread: &Spread, at: u64, data: &[u8]) -> MoveResult<()> {
        let io =
            StoreIo { direct: true, hint: hint_of(self.core, self.file, spread.size(), Origin::default()) };
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
        = HeldLayout<'a>
    where
        Self: 'a;
    type Error = NotMoved;

    fn hold(&self) -> MoveResult<HeldLayout<'_>> {
        let layout = self.file.layout.read();
        match &*layout {
            Layout::Spread(spread) if self.this.is_of(&spread.moving) && !self.this.is_cancelled() => {
                Ok(HeldLayout(layout))
            }
            _ => Err(NotMoved::Overtaken),
        }
    }

    fn runs(&self, chunks: u64) -> Vec<u64> {
        split(chunks, (RUN_MAX / self.chunk()).clamp(1, CHUNKS))
    }

    fn copy(&self, hold: &HeldLayout<'_>, chunks: u64, again: bool) -> MoveResult<()> {
        let spread = hold.spread()?;
        let first = u64::from(chunks.trailing_zeros());
        let start = self.ranges.start_of(self.range) + first * self.chunk();
        let len = u64::from(chunks.count_ones()) * self.chunk();
        if again {
            // Data that became a hole must not stay.
            let clear = || clear_piece(self.file, spread, self.to, start, len);
            unnoticed(self.file, spread, self.to, clear).map_err(NotMoved::Target)?;
        }
        self.copy_data(spread, start, (start + len).min(spread.size()))
    }

    fn copied(&self) {
        (self.between.borrow_mut())();
    }

    fn sync(&self, hold: &HeldLayout<'_>) -> MoveResult<()> {
        if self.core.fails_at(Failpoint::SwitchBeforeCopyIsDurable) {
            return Ok(());
        }
        sync_tier(self.file, hold.spread()?, self.to, true).map_err(NotMoved::Target)
    }

    fn switch(&self, hold: &HeldLayout<'_>) -> MoveResult<()> {
        let version = self.entry.version.wrapping_add(1);
        let spread = hold.spread()?;
        // A writer that deals the range anew stores what its entry implies.
        let _placing = spread.placing.lock();
        // The target may have been closed to new ranges since the move began.
        // As with writers, this is asked with the layout held, and not before.
        let _admission = self.to.admit().map_err(NotMoved::Target)?;
        let moved = Entry { tier: self.to.id, reason: self.reason, version };
        spread.index.set_entry(self.range, moved).map_err(NotMoved::Other)?;
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
