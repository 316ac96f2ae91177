//! Files get their range index: a plain file as it is spread out, a whole one
//! before its first range goes to another tier. The index is durable before the
//! id attribute makes it count.

use crate::core::Core;
use crate::failpoint::Failpoint;
use crate::file::choose::charge_home;
use crate::file::extents::next_home_data;
use crate::file::id_attr::whole_attr;
use crate::file::pieces::ensure_object;
use crate::file::release::release_guess;
use crate::file::sync::sync_tier;
use crate::file::whole_object::count_whole;
use crate::live::{File, Layout, Shape, Spread};
use braid_contract::{Errno, Error, Result};
use braid_format::{Entry, Header, IdAttr, IdKind, RangeSize, Reason, SIZE_MAX};
use braid_tiers::bit;
use std::sync::atomic::Ordering;

/// Why a file could not be spread.
pub(crate) enum NotSpread {
    /// The kernel does I/O on the home file by itself at present.
    PassedThrough,
    /// It failed.
    Failed(Error),
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
    let id = core.index.take_marked(None, &|| core.new_object_id())?;
    let header = Header {
        volume: core.id,
        id,
        range_size: ranges,
        ino: identity.ino(),
        btime_ns: identity.btime_ns(),
        plain_size: identity.size(),
        handle: identity.handle.clone(),
    };
    let attr = IdAttr { kind: IdKind::Spread, id, ino: identity.ino(), btime_ns: identity.btime_ns() };
    let make = || -> Result<(Spread, u64)> {
        let index = core.index.create_index(header)?;
        // A block, for its header and the first entries.
        core.tiers.home().took(1);
        let home_ranges = enter_home_ranges(core, file, &index, identity.size())?;
        index.set_size(identity.size())?;
        core.index.sync(&index)?;
        core.home.set_id_attr(&**file.data(), &attr)?;
        let credits = charge_home(core, file, home_ranges * ranges.bytes(), ranges);
        let spread = Spread::load(index, credits, &core.environment)?;
        // No other tier has anything of it, and home perhaps its inode only.
        let unsynced = if home_ranges == 0 { 0 } else { bit(core.tiers.home().id) };
        spread.dirty.store(unsynced, Ordering::Release);
        spread.untimed.store(unsynced, Ordering::Release);
        Ok((spread, home_ranges))
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
                core.home.remove_id_attr(&**file.data())?;
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

/// A whole file is about to have ranges on several tiers: it gets an index.
/// The object is durable first, so that nothing before the size at this
/// moment is taken for lost; then the index is, and then the attribute that
/// makes it count, before any range is elsewhere.
pub(crate) fn make_index(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    let Some(whole) = spread.index.whole() else { return Ok(()) };
    let size = spread.size();
    count_whole(core, spread);
    core.index.sync_marks()?;
    ensure_object(spread, &*core.tiers.get(whole.tier)?)?;
    sync_tier(file, spread, &*core.tiers.get(whole.tier)?, true)?;
    let identity = core.home.identify(&**file.data())?;
    let before = whole_attr(spread.id(), &identity, spread, &whole);
    let attr = IdAttr { kind: IdKind::Spread, ..before };
    // A sync of the attribute that fails may take effect all the same, as may that of what undoes it.
    spread.inode_dirty.store(true, Ordering::Release);
    core.index.give_file(&spread.index, size, || {
        core.home.set_id_attr(&**file.data(), &attr)?;
        match file.data().sync(false) {
            Err(error) if core.home.set_id_attr(&**file.data(), &before).is_ok() => Err(error),
            // It says so now, and can't be made to say anything else.
            _ => Ok(()),
        }
    })
}
