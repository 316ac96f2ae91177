//! How many ranges each tier holds: saved at a clean unmount, counted again
//! after a crash, while the volume is in use: a mount must not take longer for
//! more files.

use crate::core::Core;
use crate::live::Layout;
use braid_contract::{Context, Errno, Fd, InodeId, ObjectId, Result, TierId};
use braid_format::{SavedCounts, WholeAttr};
use braid_home::Identity;
use braid_index::Whole;
use braid_tiers::Counts;
use std::collections::HashSet;

/// Saves the counts, for the next mount; unless they are not exact.
pub fn save_counts(core: &Core) -> Result<()> {
    // An index that a removed file left would be subtracted again.
    if core.tiers.counts() != Counts::Exact || !core.removals.ids().is_empty() {
        return Ok(());
    }
    let mut saved = SavedCounts::default();
    for tier in core.tiers.iter() {
        saved.0[usize::from(tier.id.0)] = tier.ranges.get();
    }
    core.home.braid()?.replace_small("counts", &saved.encode()).context("saving counts")
}

/// Takes the saved counts, which are stale from now on. Without them, the
/// indexes are to be counted.
pub(crate) fn load_counts(core: &Core) -> Result<()> {
    let braid = core.home.braid()?;
    let saved = braid.read_small("counts", SavedCounts::LEN + 1)?;
    let known = saved.is_some();
    match saved.and_then(|bytes| SavedCounts::decode(&bytes).ok()) {
        Some(saved) => {
            for tier in core.tiers.iter() {
                tier.ranges.set(saved.0[usize::from(tier.id.0)]);
            }
            core.tiers.set_counts(Counts::Exact);
        }
        None => core.tiers.set_counts(Counts::Unknown),
    }
    braid.ensure_gone_at("counts").context("removing old counts")?;
    // If power loss undid the removal they would be believed, while an index
    // may have reached the disk earlier than that.
    if known { braid.sync(false) } else { Ok(()) }
}

/// Counts the ranges of all indexes, if the counts are unknown. Changes
/// meanwhile make them inexact: then the next mount counts again. Ends early
/// when `stopped` says so.
pub fn count_ranges(core: &Core, stopped: &dyn Fn() -> bool) {
    if core.tiers.counts() != Counts::Unknown {
        return;
    }
    let changes = core.tiers.changes();
    let gone = core.removals.counted_out();
    let mut counts = [0_u64; TierId::LIMIT as usize];
    let counted = core.index.list(&mut |id| {
        if stopped() {
            return Err(Errno::EINTR.into());
        }
        // One that can't be read, or is gone by now, counts nothing.
        if !gone.contains(&id) {
            let _ = count_index(core, id, &mut counts);
        }
        Ok(())
    });
    let counted = counted.and_then(|()| count_whole_files(core, &mut counts, stopped));
    if let Err(error) = counted {
        tracing::debug!(%error, "counting ranges");
        return;
    }
    for tier in core.tiers.iter() {
        tier.ranges.set(counts[usize::from(tier.id.0)]);
    }
    let exact = core.tiers.changes() == changes;
    core.tiers.set_counts(if exact { Counts::Exact } else { Counts::Near });
}

/// Whole files have no index: only the namespace leads to them, and open files
/// to those without a name.
fn count_whole_files(core: &Core, counts: &mut [u64], stopped: &dyn Fn() -> bool) -> Result<()> {
    let open = each_open_whole_file(core, &mut |whole| {
        if let Some(count) = counts.get_mut(usize::from(whole.tier.0)) {
            *count += whole.counted;
        }
    });
    each_whole_file(core, &mut |_, identity, whole| {
        if stopped() {
            return Err(Errno::EINTR.into());
        }
        if open.contains(&core.home.public_ino(identity.ino())) {
            return Ok(());
        }
        if let Some(count) = counts.get_mut(usize::from(whole.tier.0)) {
            *count += whole.range_size.count(identity.size());
        }
        Ok(())
    })
}

/// Calls `visit` once for each open whole file, with a name or without.
/// Answers which they are: a walk of the names after that passes over them,
/// since each may get or lose a name meanwhile.
pub fn each_open_whole_file(core: &Core, visit: &mut dyn FnMut(Whole)) -> HashSet<InodeId> {
    let mut seen = HashSet::new();
    for open in core.handles.files() {
        if let Layout::Spread(spread) = &*open.file.layout.read()
            && let Some(whole) = spread.index.whole()
            // A file may be open several times.
            && seen.insert(open.file.inode.ino)
        {
            visit(whole);
        }
    }
    seen
}

/// Calls `visit` with every whole file that has a name. A file with an invalid
/// attribute is none.
pub fn each_whole_file(
    core: &Core,
    visit: &mut dyn FnMut(&Fd, &Identity, WholeAttr) -> Result<()>,
) -> Result<()> {
    let mut linked = HashSet::new();
    core.home.walk(&mut |_, fd, identity| {
        let attr = core.home.id_attr(&**fd, identity).ok().flatten();
        match attr.and_then(|attr| attr.kind.whole()) {
            Some(whole) if identity.attr.nlink == 1 || linked.insert(identity.ino()) => {
                visit(fd, identity, whole)
            }
            _ => Ok(()),
        }
    })
}

fn count_index(core: &Core, id: ObjectId, counts: &mut [u64]) -> Result<()> {
    core.index.open_index(id)?.for_each(0, |_, entry| {
        if let Some(count) = entry.ok().and_then(|entry| counts.get_mut(usize::from(entry.tier.0))) {
            *count += 1;
        }
        Ok(())
    })
}
