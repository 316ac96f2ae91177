//! Adding a tier to a volume in use.

use super::shared::Membership;
use braid_contract::{Errno, Error, RefusalKind, Result, TierId};
use braid_tiers::TierConfig;

impl Membership {
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
    pub(crate) fn add(&self, new: TierConfig) -> Result<TierId> {
        self.add_for(new, None)
    }

    /// As [`add`](Self::add), but read only until it is set otherwise: it stays
    /// empty, so that it can be [taken back](Self::take_back).
    ///
    /// # Errors
    /// Those of `add`.
    pub(crate) fn add_closed(&self, new: TierConfig) -> Result<TierId> {
        self.join_as(new, None, true)
    }

    /// Undoes `add_closed`: the volume is as it was before.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    pub(crate) fn take_back(&self, name: &str) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let mut table = self.core.table.lock();
        let id = self.remove_inside(&mut table, name)?.id;
        let mut next = table.clone();
        // Its number never was on disk.
        next.removed.retain(|old| old.tier != id || old.leaving);
        self.core.switch_table(&mut table, next)
    }

    /// As [`add`](Self::add), for the job `by`.
    pub(crate) fn add_for(&self, new: TierConfig, by: Option<u64>) -> Result<TierId> {
        self.join_as(new, by, false)
    }

    fn join_as(&self, new: TierConfig, by: Option<u64>, readonly: bool) -> Result<TierId> {
        let _entered = self.core.barrier.enter();
        let mut table = self.core.table.lock();
        if self.core.tiers.number(&new.name).is_some() {
            let what = format!("there is a tier {} already", new.name);
            return Err(Error::refused(Errno::EEXIST, RefusalKind::Taken, what));
        }
        self.claims.free_name(&new.name, by)?;
        let next = table.clone();
        let new = self.let_join(&mut table, next, new)?;
        let id = new.id;
        new.set_readonly(readonly);
        tracing::info!(tier = %new.name, location = %new.location(), "tier was added");
        self.left_out.lock().retain(|name| *name != new.name);
        self.core.tiers.add(new);
        self.renew_policy();
        Ok(id)
    }
}
