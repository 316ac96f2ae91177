//! How many ranges each tier holds: saved at a clean unmount, counted anew
//! after a crash, beside users: a mount must not wait for what exists.

use crate::Volume;
use crate::namespace::Identity;
use crate::tiers::Counts;
use braid_contract::{Context, Errno, Fd, ObjectId, Result, TierId};
use braid_format::SavedCounts;
use braid_format::WholeAttr;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

impl Volume {
    /// Saves the counts, for the next mount; unless they are not exact.
    pub(crate) fn save_counts(&self) -> Result<()> {
        // An index that is left of a removed file would be counted out again.
        if self.tiers.counts() != Counts::Exact || !self.reaper.ids().is_empty() {
            return Ok(());
        }
        let mut saved = SavedCounts::default();
        for tier in self.tiers.iter() {
            saved.0[usize::from(tier.id.0)] = tier.ranges.load(Ordering::Relaxed);
        }
        self.home.braid()?.replace_small("counts", &saved.encode()).context("saving counts")
    }

    /// Takes the saved counts, which are stale from now on. Without them, the
    /// indexes are to be counted.
    pub(crate) fn load_counts(&self) -> Result<()> {
        let braid = self.home.braid()?;
        let saved = braid.read_small("counts", SavedCounts::LEN + 1)?;
        let known = saved.is_some();
        match saved.and_then(|bytes| SavedCounts::decode(&bytes).ok()) {
            Some(saved) => {
                for tier in self.tiers.iter() {
                    tier.ranges.store(saved.0[usize::from(tier.id.0)], Ordering::Relaxed);
                }
                self.tiers.set_counts(Counts::Exact);
            }
            None => self.tiers.set_counts(Counts::Unknown),
        }
        braid.ensure_gone_at("counts").context("removing old counts")?;
        // If power loss undid the removal they would be believed, while an index
        // may have reached the disk earlier than that.
        if known { braid.sync(false) } else { Ok(()) }
    }

    /// Counts the ranges of all indexes, if nobody knows them. What changes
    /// meanwhile makes the counts inexact: then the next mount counts again.
    /// Ends early when `stopped` says so.
    pub(crate) fn count_ranges(&self, stopped: &dyn Fn() -> bool) {
        if self.tiers.counts() != Counts::Unknown {
            return;
        }
        let changes = self.tiers.changes();
        let gone = self.reaper.counted_out();
        let mut counts = [0_u64; TierId::LIMIT as usize];
        let counted = self.index.list(&mut |id| {
            if stopped() {
                return Err(Errno::EINTR.into());
            }
            // One that can't be read, or is gone by now, counts nothing.
            if !gone.contains(&id) {
                let _ = self.count_index(id, &mut counts);
            }
            Ok(())
        });
        let counted = counted.and_then(|()| self.count_whole_files(&mut counts, stopped));
        if let Err(error) = counted {
            tracing::debug!(%error, "counting ranges");
            return;
        }
        for tier in self.tiers.iter() {
            tier.ranges.store(counts[usize::from(tier.id.0)], Ordering::Relaxed);
        }
        let exact = self.tiers.changes() == changes;
        self.tiers.set_counts(if exact { Counts::Exact } else { Counts::Near });
    }

    /// Whole files have no index: only the namespace leads to them.
    fn count_whole_files(&self, counts: &mut [u64], stopped: &dyn Fn() -> bool) -> Result<()> {
        self.each_whole_file(&mut |_, identity, whole| {
            if stopped() {
                return Err(Errno::EINTR.into());
            }
            if let Some(count) = counts.get_mut(usize::from(whole.tier.0)) {
                *count += whole.range_size.count(identity.size());
            }
            Ok(())
        })
    }

    /// Calls `visit` with every whole file that has a name. An attribute that
    /// can't be believed is that of none.
    pub(crate) fn each_whole_file(
        &self,
        visit: &mut dyn FnMut(&Fd, &Identity, WholeAttr) -> Result<()>,
    ) -> Result<()> {
        let mut linked = HashSet::new();
        self.home.walk(&mut |_, fd, identity| {
            let attr = self.home.id_attr(&**fd, identity).ok().flatten();
            match attr.and_then(|attr| attr.kind.whole()) {
                Some(whole) if identity.attr.nlink == 1 || linked.insert(identity.ino()) => {
                    visit(fd, identity, whole)
                }
                _ => Ok(()),
            }
        })
    }

    fn count_index(&self, id: ObjectId, counts: &mut [u64]) -> Result<()> {
        self.index.open_index(id)?.for_each(0, |_, entry| {
            if let Some(count) = entry.ok().and_then(|entry| counts.get_mut(usize::from(entry.tier.0))) {
                *count += 1;
            }
            Ok(())
        })
    }
}
