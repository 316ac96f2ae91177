//! Whether the other tiers have room for what one of them has; and what of
//! files is where.

use crate::Volume;
use braid_contract::units::show_size_up;
use braid_contract::{Errno, Error, ObjectId, RefusalKind, Result, TierId};
use braid_core::file::ranges::range_size_in;
use braid_core::live::{File, Layout};
use braid_format::{RANGE_SIZE_MAX, RangeSize, SIZE_MAX};
use braid_index::Index;
use braid_tiers::TierConfig;
use braid_tiers::{Backend, Counts, Tier};
use std::sync::atomic::Ordering;

/// A range of a file that is somewhere.
pub(super) struct Stretch {
    /// First byte.
    pub(super) offset: u64,
    /// Bytes of the file in it; none behind its end.
    pub(super) len: u64,
    /// How long the file's ranges are.
    pub(super) ranges: RangeSize,
    pub(super) tier: TierId,
}

impl Volume {
    /// Calls `visit` with each range of a file that is somewhere, from the one
    /// at offset `first` on.
    pub(super) fn each_range(
        &self,
        file: &File,
        first: u64,
        visit: &mut dyn FnMut(Stretch) -> Result<()>,
    ) -> Result<()> {
        let layout = file.layout.read();
        let ranges = range_size_in(&self.core, file, &layout)?;
        let first = ranges.range_of(first);
        let stretch = |range: u64, tier: TierId, size: u64| {
            let offset = ranges.start_of(range);
            Stretch { offset, len: size.saturating_sub(offset).min(ranges.bytes()), ranges, tier }
        };
        match &*layout {
            Layout::Plain => {
                let (size, home) = (file.home_size()?.min(SIZE_MAX), self.core.tiers.home().id);
                (first..ranges.count(size)).try_for_each(|range| visit(stretch(range, home, size)))
            }
            Layout::Spread(spread) => {
                let size = spread.size();
                spread.index.for_each(first, |range, entry| match entry {
                    // No file has so many: a damaged index, which fsck tells of.
                    _ if ranges.start_of(range) >= SIZE_MAX => Ok(()),
                    Ok(entry) => visit(stretch(range, entry.tier, size)),
                    // Nobody knows where it is; reading it says so.
                    Err(_) => Ok(()),
                })
            }
        }
    }

    /// Bytes of a file that are on other tiers.
    pub(super) fn bytes_elsewhere(&self, file: &File, than: &Tier) -> Result<u64> {
        let mut bytes = 0;
        self.each_range(file, 0, &mut |range| {
            bytes += if range.tier == than.id { 0 } else { range.len };
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Ranges that all indexes have on a tier, whether or not a name leads to
    /// them.
    pub(super) fn ranges_on(&self, tier: &Tier) -> Result<u64> {
        let mut ranges = 0;
        self.each_index(&mut |id| {
            ranges += self.ranges_in(&self.core.index.open_index(id)?, tier)?;
            Ok(())
        })?;
        Ok(ranges + self.whole_files_on(tier)?.iter().map(|whole| whole.ranges).sum::<u64>())
    }

    fn each_index(&self, visit: &mut dyn FnMut(ObjectId) -> Result<()>) -> Result<()> {
        self.core.index.list(&mut |id| match visit(id) {
            // It is gone by now, or can't be read, as the check tells.
            Err(error) if matches!(error.errno(), Errno::ENOENT | Errno::EUCLEAN) => Ok(()),
            result => result,
        })
    }

    fn ranges_in(&self, index: &Index, tier: &Tier) -> Result<u64> {
        let mut ranges = 0;
        index.for_each(0, |_, entry| {
            ranges += u64::from(entry.is_ok_and(|entry| entry.tier == tier.id));
            Ok(())
        })?;
        Ok(ranges)
    }

    /// Bytes that may have to find another place when a tier is emptied: as
    /// far as is known without looking, then by what its objects take. What is
    /// known is a number of ranges, each of which may be as long as can be.
    fn bytes_on(&self, tier: &Tier, room: u64) -> Result<u64> {
        let most = tier.ranges.load(Ordering::Relaxed).saturating_mul(RANGE_SIZE_MAX.into());
        if self.core.tiers.counts() == Counts::Exact && most <= room {
            return Ok(most);
        }
        let Backend::Store(store) = &tier.backend else { return Ok(most) };
        let mut bytes = 0_u64;
        self.each_index(&mut |id| {
            let index = self.core.index.open_index(id)?;
            let ranges = self.ranges_in(&index, tier)?;
            if ranges > 0 {
                let taken = store.stat(id).map_or(u64::MAX, |stat| stat.allocated);
                bytes = bytes.saturating_add(taken.min(index.range_size().start_of(ranges)));
            }
            Ok(())
        })?;
        let whole = self.whole_files_on(tier)?;
        Ok(whole.iter().fold(bytes, |bytes, file| bytes.saturating_add(file.size)))
    }

    /// Whether the other tiers, and `new`, which is about to join them, have
    /// room for what `tier` has; the numbers, if not.
    pub(super) fn check_room_for_evacuation(&self, tier: &Tier, new: Option<&TierConfig>) -> Result<()> {
        self.core.tiers.measure_again();
        let takes = |other: &Tier| other.id != tier.id && !other.is_draining() && other.is_healthy();
        let mut rooms: Vec<(String, u64)> = self
            .core
            .tiers
            .iter()
            .filter(|other| takes(other))
            .map(|other| (other.name.clone(), other.room()))
            .collect();
        if let Some((new, store)) = new.and_then(|new| Some((new, new.store.as_ref()?))) {
            let usage = store.usage()?;
            let room = usage.available.saturating_sub(new.reserve.bytes(usage.total));
            rooms.push((new.name.clone(), room));
        }
        let room = rooms.iter().fold(0_u64, |sum, (_, room)| sum.saturating_add(*room));
        let needed = self.bytes_on(tier, room)?;
        if needed <= room {
            return Ok(());
        }
        let each: Vec<String> =
            rooms.iter().map(|(name, room)| format!("{name} {}", show_size_up(*room))).collect();
        let what = format!(
            "tier {} holds {}, and the other tiers have room for {} ({}): make room, or add a tier",
            tier.name,
            show_size_up(needed),
            show_size_up(room),
            if each.is_empty() { "there is none".into() } else { each.join(", ") }
        );
        Err(Error::refused(Errno::ENOSPC, RefusalKind::Room, what))
    }
}
