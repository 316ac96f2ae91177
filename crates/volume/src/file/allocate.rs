//! `fallocate`, and copies within the volume.

use super::pieces::is_absent;
use super::relocate::Moves;
use super::{File, Layout, Spread};
use crate::Volume;
use crate::format::SIZE_MAX;
use crate::placement::Origin;
use crate::tiers::{Backend, Tier, bit};
use braid_contract::{Errno, FallocateMode, Result};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How an allocation went.
enum Allocated {
    All,
    /// The tier of the range at this offset has no room for it.
    FullAt(u64),
}

impl Volume {
    pub(crate) fn allocate_file(
        &self,
        file: &File,
        offset: u64,
        len: u64,
        mode: FallocateMode,
        origin: Origin,
    ) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
        if mode == (FallocateMode::Allocate { keep_size: false }) {
            self.spread_ahead(file, offset, end, origin)?;
        }
        self.trim_before(file, end);
        let mut moves = Moves::default();
        loop {
            let layout = file.layout.read();
            let plain = matches!(&*layout, Layout::Plain);
            let allocated = match &*layout {
                Layout::Plain => self.allocate_plain(file, offset..end, mode),
                Layout::Spread(spread) => self.allocate_spread(file, spread, offset..end, mode, origin),
            };
            drop(layout);
            match allocated? {
                Allocated::All => return Ok(()),
                Allocated::FullAt(_) if plain => {
                    let leave = self.leave_when_full(file, (offset, end), origin)?;
                    self.leave_home(file, (offset, end), origin, leave).map_err(|_| Errno::ENOSPC)?;
                }
                Allocated::FullAt(at) => {
                    if self.move_full_range(file, at)? {
                        moves.count(at, self.tiers.iter().count())?;
                    }
                }
            }
        }
    }

    fn allocate_plain(
        &self,
        file: &File,
        Range { start: offset, end }: Range<u64>,
        mode: FallocateMode,
    ) -> Result<Allocated> {
        let home = self.tiers.home();
        if mode != FallocateMode::PunchHole && !self.has_room_for(file, offset..end)? {
            return Ok(Allocated::FullAt(offset));
        }
        match file.writable()?.allocate(mode, offset, end - offset) {
            Ok(()) if mode != FallocateMode::PunchHole => {
                home.took(end - offset);
                Ok(Allocated::All)
            }
            Ok(()) => Ok(Allocated::All),
            Err(error) if error.is_full() => Ok(Allocated::FullAt(offset)),
            Err(error) => Err(error),
        }
    }

    /// Whether home has room for what a plain file does not have yet of some
    /// bytes, leaving its reserve.
    fn has_room_for(&self, file: &File, Range { start, end }: Range<u64>) -> Result<bool> {
        let home = self.tiers.home();
        if home.room() >= end - start {
            return Ok(true);
        }
        home.measure_again();
        let (mut missing, mut at) = (0, start);
        while let Some((data, data_end)) = self.next_home_data(file, at, end)? {
            missing += data.saturating_sub(at);
            at = data_end;
        }
        Ok(home.room() >= missing + (end - at.min(end)))
    }

    fn allocate_spread(
        &self,
        file: &File,
        spread: &Spread,
        Range { start: offset, end }: Range<u64>,
        mode: FallocateMode,
        origin: Origin,
    ) -> Result<Allocated> {
        self.mark(file, spread)?;
        spread.touch_inode();
        match mode {
            FallocateMode::PunchHole => self.punch_spread(file, spread, offset, end.min(spread.size())),
            FallocateMode::Allocate { keep_size } => {
                self.reserve_spread(file, spread, offset..end, keep_size, origin)
            }
            FallocateMode::ZeroRange { keep_size } => {
                self.punch_spread(file, spread, offset, end.min(spread.size()))?;
                self.reserve_spread(file, spread, offset..end, keep_size, origin)
            }
        }
    }

    /// Zeroes and frees what is there of `offset .. end`. The ranges keep
    /// their tiers.
    fn punch_spread(&self, file: &File, spread: &Spread, offset: u64, end: u64) -> Result<Allocated> {
        // After the size that is synced, a hole may look like data that was
        // lost, unless the index says otherwise, durably, before there is one.
        if end > spread.index.synced_size()? {
            spread.index.set_gaps(true)?;
            self.index.sync(&spread.index)?;
        }
        for range in spread.range_size().ranges_of(offset, end) {
            let (start, end) = part_of(spread, range, offset, end);
            let _writing = self.writing(spread, start, end);
            let Some(entry) = spread.index.entry(range)? else { continue };
            let tier = self.tiers.get(entry.tier)?;
            spread.dirty.fetch_or(bit(tier.id), Ordering::AcqRel);
            self.punch_piece(file, spread, &tier, start, end - start)?;
        }
        Ok(Allocated::All)
    }

    /// Gives each range of `offset .. end` a tier and reserves its space
    /// there. Beyond the file's size nothing is reserved: what an index says
    /// there does not count.
    fn reserve_spread(
        &self,
        file: &File,
        spread: &Spread,
        Range { start: offset, end }: Range<u64>,
        keep_size: bool,
        origin: Origin,
    ) -> Result<Allocated> {
        let end = if keep_size { end.min(spread.size()) } else { end };
        if offset < end {
            self.refuse_hopeless(spread, offset, end)?;
        }
        for range in spread.range_size().ranges_of(offset, end) {
            let (start, end) = part_of(spread, range, offset, end);
            self.place(file, spread, start, end, origin)?;
            let _writing = self.writing(spread, start, end);
            let entry = spread.index.entry(range)?.ok_or(Errno::EIO)?;
            let tier = self.tiers.get(entry.tier)?;
            match self.reserve_on(file, spread, &tier, start, end - start) {
                Ok(()) => {
                    spread.index.set_gaps(true)?;
                    self.grow(file, spread, end, &tier)?;
                }
                Err(error) if error.is_full() => return Ok(Allocated::FullAt(start)),
                Err(error) => return Err(error),
            }
        }
        Ok(Allocated::All)
    }

    fn reserve_on(&self, file: &File, spread: &Spread, tier: &Tier, offset: u64, len: u64) -> Result<()> {
        spread.dirty.fetch_or(bit(tier.id), Ordering::AcqRel);
        let reserved = match &tier.backend {
            Backend::Home(_) => {
                let _shared = file.home_len.read();
                file.writable()?.allocate(FallocateMode::Allocate { keep_size: false }, offset, len)
            }
            Backend::Store(store) => match store.allocate(spread.id(), offset, len, false) {
                Err(error) if is_absent(spread, tier, &error)? => {
                    self.make_object(spread, tier)?;
                    store.allocate(spread.id(), offset, len, false)
                }
                result => result,
            },
        };
        reserved.map_err(|error| tier.note_error(error))
    }

    /// An allocation that can't fit is refused before it fills every tier.
    fn refuse_hopeless(&self, spread: &Spread, offset: u64, end: u64) -> Result<()> {
        let mut new_bytes = 0;
        for range in spread.range_size().ranges_of(offset, end) {
            if spread.index.entry(range)?.is_none() {
                let (start, end) = part_of(spread, range, offset, end);
                new_bytes += end - start;
            }
        }
        let fits = || new_bytes <= self.tiers.iter().map(|tier| tier.room()).sum::<u64>();
        if fits() {
            return Ok(());
        }
        self.tiers.measure_again();
        if fits() { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// Copies between two plain files as the home file system does it, shared
    /// extents and all. Everything else is left to the kernel, whose writes
    /// are placed like any others.
    pub(crate) fn copy_between(
        &self,
        (from, offset): (&File, u64),
        (to, to_offset): (&File, u64),
        len: u64,
        origin: Origin,
    ) -> Result<u64> {
        let end = to_offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
        if self.leaves_home(to, to_offset, end, origin)?.is_some() {
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
}

/// The part of `range` that is in `offset .. end`.
fn part_of(spread: &Spread, range: u64, offset: u64, end: u64) -> (u64, u64) {
    let bytes = spread.range_size().bytes_of(range..range + 1, end);
    (bytes.start.max(offset), bytes.end)
}
