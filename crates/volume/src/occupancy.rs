//! The ranges of files on each tier, by their indexes, with a name or without.
//! Operations that empty or remove a tier use this.

use braid_contract::{Errno, ObjectId, Result, TierId};
use braid_core::Core;
use braid_core::file::range_size_in;
use braid_core::live::{File, Layout};
use braid_core::recover::{each_open_whole_file, each_whole_file};
use braid_format::{RANGE_SIZE_MAX, RangeSize, SIZE_MAX};
use braid_index::Index;
use braid_tiers::{Backend, Counts, Tier};

/// A range of a file that is on a tier.
pub(crate) struct Stretch {
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes of the file in it; none behind its end.
    pub(crate) len: u64,
    /// Range size of the file.
    pub(crate) ranges: RangeSize,
    pub(crate) tier: TierId,
}

/// Calls `visit` with each range of a file that is on a tier, from the one at
/// offset `first` on.
pub(crate) fn each_range(
    core: &Core,
    file: &File,
    first: u64,
    visit: &mut dyn FnMut(Stretch) -> Result<()>,
) -> Result<()> {
    let layout = file.layout.read();
    let ranges = range_size_in(core, file, &layout)?;
    let first = ranges.range_of(first);
    let stretch = |range: u64, tier: TierId, size: u64| {
        let offset = ranges.start_of(range);
        Stretch { offset, len: size.saturating_sub(offset).min(ranges.bytes()), ranges, tier }
    };
    match &*layout {
        Layout::Plain => {
            let (size, home) = (file.home_size()?.min(SIZE_MAX), core.tiers.home().id);
            (first..ranges.count(size)).try_for_each(|range| visit(stretch(range, home, size)))
        }
        Layout::Spread(spread) => {
            let size = spread.size();
            spread.index.for_each(first, |range, entry| match entry {
                // No file has so many ranges: a damaged index, which fsck
                // reports.
                _ if ranges.start_of(range) >= SIZE_MAX => Ok(()),
                Ok(entry) => visit(stretch(range, entry.tier, size)),
                // Its tier is unknown; reading it reports that.
                Err(_) => Ok(()),
            })
        }
    }
}

/// Bytes of a file that are on other tiers.
pub(crate) fn bytes_elsewhere(core: &Core, file: &File, than: &Tier) -> Result<u64> {
    let mut bytes = 0;
    each_range(core, file, 0, &mut |range| {
        bytes += if range.tier == than.id { 0 } else { range.len };
        Ok(())
    })?;
    Ok(bytes)
}

/// Ranges on a tier by its count; none where that is not exact.
pub(crate) fn ranges_counted_on(core: &Core, tier: &Tier) -> u64 {
    match core.tiers.counts() {
        Counts::Exact => tier.ranges.get(),
        Counts::Near | Counts::Unknown => 0,
    }
}

/// Ranges on a tier by all indexes, with a name or without.
pub(crate) fn ranges_on(core: &Core, tier: &Tier) -> Result<u64> {
    let whole = whole_files_on(core, tier)?;
    let mut ranges = whole.iter().map(|whole| whole.ranges).sum();
    each_index(core, &mut |id| {
        ranges += ranges_in(&core.index.open_index(id)?, tier)?;
        Ok(())
    })?;
    Ok(ranges)
}

fn each_index(core: &Core, visit: &mut dyn FnMut(ObjectId) -> Result<()>) -> Result<()> {
    core.index.list(&mut |id| match visit(id) {
        // The file is gone by now, or can't be read, which the check reports.
        Err(error) if matches!(error.errno(), Errno::ENOENT | Errno::EUCLEAN) => Ok(()),
        result => result,
    })
}

fn ranges_in(index: &Index, tier: &Tier) -> Result<u64> {
    let mut ranges = 0;
    index.for_each(0, |_, entry| {
        ranges += u64::from(entry.is_ok_and(|entry| entry.tier == tier.id));
        Ok(())
    })?;
    Ok(ranges)
}

/// Bytes that may have to move when a tier is emptied: the count of its ranges
/// times the longest size, if the count is exact and that fits in `room`;
/// otherwise a closer figure from indexes and objects.
pub(crate) fn bytes_on(core: &Core, tier: &Tier, room: u64) -> Result<u64> {
    let most = tier.ranges.get().saturating_mul(RANGE_SIZE_MAX.into());
    if core.tiers.counts() == Counts::Exact && most <= room {
        return Ok(most);
    }
    let Backend::Store(store) = &tier.backend else { return Ok(most) };
    let whole = whole_files_on(core, tier)?;
    let mut bytes = whole.iter().fold(0_u64, |bytes, file| bytes.saturating_add(file.size));
    each_index(core, &mut |id| {
        let index = core.index.open_index(id)?;
        let ranges = ranges_in(&index, tier)?;
        if ranges > 0 {
            let taken = store.stat(id).map_or(u64::MAX, |stat| stat.allocated);
            bytes = bytes.saturating_add(taken.min(index.range_size().start_of(ranges)));
        }
        Ok(())
    })?;
    Ok(bytes)
}

/// A whole file on a tier.
pub(crate) struct WholeOn {
    /// Its number of ranges, at least one: it has some data there.
    pub(crate) ranges: u64,
    pub(crate) size: u64,
}

/// The whole files on a tier, with a name or open without one, also if they
/// get or lose it meanwhile. They come before the indexes in a count of both:
/// a whole file may get an index meanwhile, and none loses it while on the tier.
pub(crate) fn whole_files_on(core: &Core, tier: &Tier) -> Result<Vec<WholeOn>> {
    let mut files = Vec::new();
    let mut add = |size: u64, ranges: u64| files.push(WholeOn { ranges: ranges.max(1), size });
    let open = each_open_whole_file(core, &mut |whole| {
        if whole.tier == tier.id {
            add(whole.size, whole.ranges);
        }
    });
    each_whole_file(core, &mut |_, identity, whole| {
        if whole.tier == tier.id && !open.contains(&core.home.public_ino(identity.ino())) {
            add(identity.size(), whole.range_size.count(identity.size()));
        }
        Ok(())
    })?;
    Ok(files)
}
