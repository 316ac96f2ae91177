//! Replacing a lost tier by an empty one.

use super::shared::Membership;
use braid_contract::{Errno, Error, RefusalKind, Result};
use braid_core::file::concerns;
use braid_core::live::Layout;
use braid_tiers::TierConfig;
use braid_tiers::{Tier, bit};

impl Membership {
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
    pub(crate) fn replace_lost(&self, new: TierConfig) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let mut table = self.core.table.lock();
        let old = self.core.tiers.named(&new.name)?;
        if old.is_home() {
            let what = "the home tier holds the names of all files, and can't be replaced while the volume is mounted";
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Home, what));
        }
        if old.is_healthy() {
            let what = format!("tier {} is {}: what is on it would be lost", old.name, old.state().name());
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Healthy, what));
        }
        if let Some(id) = self.claims.emptied_by(&old.name) {
            let what = format!("job {id} is emptying tier {}: cancel it", old.name);
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Job, what));
        }
        let mut next = table.clone();
        next.tiers.retain(|(number, _)| *number != old.id);
        next.lost.push((old.id, old.name.clone()));
        // The new tier takes new ranges, even if a crash follows right after it
        // has the name.
        let freed = self.claims.free_ranges(&old.name)?;
        let new = self.let_join(&mut table, next, new).inspect_err(|_| self.claims.hold_again(&freed))?;
        self.core.tiers.replace(&old, new);
        self.renew_policy();
        self.tell_of_loss(&old);
        tracing::warn!(tier = %old.name, location = %old.location(), "tier was replaced; what was on it is lost");
        Ok(())
    }

    /// Unsynced writes to the lost tier can't be synced any more: marks every
    /// descriptor with the error.
    fn tell_of_loss(&self, old: &Tier) {
        for open in self.core.handles.files() {
            if let Layout::Spread(spread) = &*open.file.layout.read()
                && spread.dirty.load(std::sync::atomic::Ordering::Acquire) & bit(old.id) != 0
                && concerns(spread, old).unwrap_or(true)
            {
                open.file.note_sync_error(&Errno::EIO.into());
            }
        }
    }
}
