//! Adding, changing and removing tiers while the volume is in use. The control
//! socket of the daemon calls this.

use crate::jobs::JobStatus;
use crate::membership::RemovedTier;
use crate::volume::Volume;
use braid_contract::{Errno, Error, JobKind, RefusalKind, Result, SpeedBasis, TierId};
use braid_placement::Reserve;
use braid_tiers::{Tier, TierConfig};
use std::sync::Arc;

/// Changes to a tier's settings; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierChange {
    /// Its share against other tiers, in MB/s; as measured if `Some(None)`.
    pub weight: Option<Option<f64>>,
    /// Space to be left free.
    pub reserve: Option<Reserve>,
    /// Whether it is read only: it takes no new ranges, and a range on it that
    /// is written to goes to another tier first.
    pub readonly: Option<bool>,
}

/// A tier of unknown speed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierOfUnknownSpeed {
    /// Its name.
    pub name: String,
    /// The device number of its file system, as in `stat`.
    pub device: u64,
    /// Bytes that may be placed there; none on one that is set to be read only.
    pub room: u64,
}

impl Volume {
    /// Adds a store to the volume as a tier; when this returns, the policy may
    /// place new ranges there. The label is written first, and the volume table
    /// makes the tier count: a crash leaves the volume with it or without it.
    /// In the latter case, the same store may be added again, or joins at a
    /// mount that names it.
    ///
    /// # Errors
    /// `EEXIST` if a tier has the name already, or the store is already a tier
    /// of this volume or another; `ENOSPC` if the volume has as many tiers as
    /// it may; `EINVAL` without a store; `EBUSY` if a job that has not ended
    /// names an earlier tier of that name; those of the store.
    pub fn add_tier(&self, new: TierConfig) -> Result<TierId> {
        self.membership.add(new)
    }

    /// As [`add_tier`](Self::add_tier), but read only until it is
    /// [set](Self::set_tier) otherwise: it stays empty, so that it can be
    /// [taken back](Self::take_back_tier).
    ///
    /// # Errors
    /// Those of `add_tier`.
    pub fn add_tier_closed(&self, new: TierConfig) -> Result<TierId> {
        self.membership.add_closed(new)
    }

    /// Undoes `add_tier_closed`: the volume is as it was before.
    ///
    /// # Errors
    /// Those of [`remove_tier`](Self::remove_tier).
    pub fn take_back_tier(&self, name: &str) -> Result<()> {
        self.membership.take_back(name)
    }

    /// Removes an empty tier from the volume, and clears its store, so that it
    /// can be used again. From then on, a mount that names it leaves it out.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `EBUSY` if it is home or the policy
    /// names it, `ENOTEMPTY` if a file has data on it, `EUCLEAN` if an index
    /// can't be read, so that the tier may hold data; those of the home tier.
    /// The tier is then unchanged.
    pub fn remove_tier(&self, name: &str) -> Result<RemovedTier> {
        self.membership.remove(name)
    }

    /// Puts an empty tier in the place of one that is failing, hangs or is
    /// absent, under the same name and another number. The data of the old one
    /// is lost: its ranges answer `EIO` until they are truncated away or their
    /// files removed. Everything else keeps working, and new ranges go to the
    /// new tier. The volume table is switched atomically, so a crash leaves the
    /// volume with the old tier or with the new one.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `EBUSY` if it is home, is healthy or
    /// is being emptied by a job, `EEXIST` if the new one has a label, those of
    /// the new one and of the home tier.
    pub fn replace_tier(&self, new: TierConfig) -> Result<()> {
        self.membership.replace_lost(new)
    }

    /// Puts `new`, which joins under a name of its own, in the place of the
    /// tier `old`, which is healthy. It joins now, and a job moves the data of
    /// `old` there, or to other tiers once it is full; then `old` is removed.
    /// The job is recorded first, so that a crash leaves either nothing, or a
    /// job that fails or continues. Answers the number of the new tier.
    ///
    /// # Errors
    /// Those of [`start_job`](Self::start_job) for an evacuation, of
    /// [`add_tier`](Self::add_tier), and `EBUSY` if the policy names `old`.
    pub fn replace_tier_by(
        &self,
        old: &str,
        new: TierConfig,
        bandwidth: Option<u64>,
    ) -> Result<(TierId, JobStatus)> {
        let tier = self.core.tiers.named(old)?;
        self.jobs.check_evacuation(&tier, Some(&new))?;
        self.membership.may_leave(&tier)?;
        let what = JobKind::Replace { tier: old.to_owned(), by: new.name.clone() };
        let mut id = None;
        let status = self.jobs.begin(what, bandwidth, |job| {
            id = Some(self.membership.add_for(new, Some(job))?);
            Ok(())
        })?;
        Ok((id.ok_or(Errno::EINVAL)?, status))
    }

    /// The tiers whose speed follows neither from a weight nor from anything
    /// else; none where there is one tier only.
    pub fn tiers_of_unknown_speed(&self) -> Vec<TierOfUnknownSpeed> {
        if self.core.tiers.iter().count() < 2 {
            return Vec::new();
        }
        let unknown = self
            .core
            .tiers
            .iter()
            .filter(|tier| tier.speed().is_none() && tier.is_healthy() && !tier.is_absent());
        let told = |tier: Arc<Tier>| TierOfUnknownSpeed {
            name: tier.name.clone(),
            device: tier.last_usage().device,
            room: if tier.is_set_readonly() { 0 } else { tier.room() },
        };
        unknown.map(told).collect()
    }

    /// Takes it that a tier reads and writes so many bytes a second, with so many
    /// parallel operations, and why.
    pub fn believe_speed(&self, name: &str, bandwidth: [(f64, u32); 2], from: SpeedBasis) {
        if let Ok(tier) = self.core.tiers.named(name) {
            tier.believe(bandwidth.map(Some), from, self.core.environment.wall_ns());
        }
    }

    /// Changes settings of a tier until the unmount; a mount sets them anew.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `EBUSY` if it is home and is to be
    /// read only.
    pub fn set_tier(&self, name: &str, change: TierChange) -> Result<()> {
        let tier = self.core.tiers.named(name)?;
        if tier.is_home() && change.readonly == Some(true) {
            let what = "the home tier holds the names of all files, and can't be read only";
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Home, what));
        }
        if let Some(weight) = change.weight {
            tier.set_weight(weight);
        }
        if let Some(reserve) = change.reserve {
            tier.set_reserve(reserve);
        }
        if let Some(readonly) = change.readonly {
            tier.set_readonly(readonly);
        }
        tracing::info!(tier = %name, ?change, "settings of a tier were changed");
        Ok(())
    }

    /// Lets a tier that was emptied take new ranges again.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `EINVAL` if it was not emptied, or is
    /// being emptied: that job can be cancelled.
    pub fn undo_evacuation(&self, tier: &str) -> Result<()> {
        self.jobs.undo_evacuation(tier)
    }
}
