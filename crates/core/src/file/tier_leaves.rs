//! Letting go of a tier that leaves the volume. The volume's
//! `membership` calls this when the tier takes no new ranges any more.

use crate::core::Core;
use crate::file::access_time::hand_over;
use crate::file::release::{make_releases_durable, release_end};
use crate::file::trim::trim;
use crate::live::{File, Layout, Spread};
use braid_contract::{ObjectId, Result, TierId};
use braid_format::Owners;
use braid_tiers::{Tier, bit};
use std::sync::atomic::Ordering;

/// Brings the home inode up to date with the tier, and removes reservations and
/// leftovers of a crash behind the end of the file. Answers how many ranges are
/// on the tier.
pub fn prepare_leave(core: &Core, file: &File, tier: &Tier) -> Result<u64> {
    let layout = file.layout.write();
    let Layout::Spread(spread) = &*layout else { return Ok(0) };
    let end = spread.range_size().count(spread.size());
    let (mut ranges, mut beyond) = (0, false);
    spread.index.for_each(0, |range, entry| {
        let there = entry?.tier == tier.id;
        ranges += u64::from(there && range < end);
        beyond |= there && range >= end;
        Ok(())
    })?;
    if beyond {
        spread.index.set_reserved(0)?;
        trim(core, file, spread, spread.size())?;
        core.tiers.iter().try_for_each(|tier| release_end(file, spread, &tier))?;
        make_releases_durable(core, file, spread)?;
    }
    file.update_times(spread)?;
    if ranges == 0 {
        hand_over(core, file, spread, tier)?;
    }
    Ok(ranges)
}

/// Makes home the owner of size and times that the tier owns; home has them
/// durably.
pub fn disown(core: &Core, file: &File, tier: &Tier) -> Result<()> {
    match &*file.layout.write() {
        Layout::Plain => Ok(()),
        Layout::Spread(spread) => spread.disown(tier.id, core.tiers.home().id),
    }
}

impl File {
    /// The file's object id, if it is spread.
    pub fn spread_id(&self) -> Option<ObjectId> {
        match &*self.layout.read() {
            Layout::Plain => None,
            Layout::Spread(spread) => Some(spread.id()),
        }
    }

    /// The tier is not part of the volume any more: forgets that the file has
    /// an object there.
    pub fn forget_tier(&self, tier: TierId) -> Result<()> {
        match &*self.layout.write() {
            Layout::Plain => Ok(()),
            Layout::Spread(spread) => spread.forget(tier),
        }
    }
}

impl Spread {
    /// Forgets that the file has an object on a tier where nothing of it is. The
    /// caller holds the layout alone.
    pub(super) fn forget(&self, tier: TierId) -> Result<()> {
        for set in [&self.created, &self.dirty, &self.untimed, &self.released] {
            set.fetch_and(!bit(tier), Ordering::AcqRel);
        }
        self.space.changed();
        self.index.clear_object_durable(tier)
    }

    /// Makes `home` the owner of everything that `tier` owns.
    fn disown(&self, tier: TierId, home: TierId) -> Result<()> {
        self.change_owners(|owners| {
            let instead = |owner| if owner == tier { home } else { owner };
            Owners {
                size: instead(owners.size),
                mtime: instead(owners.mtime),
                atime: instead(owners.atime),
                synced_mtime: instead(owners.synced_mtime),
            }
        })
    }
}
