//! A tier that is lost is replaced by an empty one, while the volume is in use.

use crate::Volume;
use crate::config::TierConfig;
use crate::file::Layout;
use crate::format::Label;
use crate::open::join;
use crate::placement;
use crate::tiers::{Place, Tier, TierParts, bit};
use braid_contract::{Errno, Error, Result};

impl Volume {
    /// Puts an empty tier in the place of one that is failing, hangs or is
    /// absent, under the same name and another number. What was on the old one
    /// is lost: its ranges answer `EIO` until they are truncated away or their
    /// files removed; everything else goes on, and new ranges go to the new
    /// tier. The volume table is the one thing that is switched, atomically, so
    /// a crash leaves the volume with the old tier or with the new one.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `EBUSY` if it is home or is doing
    /// well, `EEXIST` if the new one has a label, those of the new one.
    pub fn replace_tier(&self, new: TierConfig) -> Result<()> {
        let _pass = self.door.pass();
        let mut table = self.table.lock();
        let old = self.tiers.iter().find(|tier| tier.name == new.name);
        let old = old.ok_or_else(|| Error::new(Errno::ENOENT, format!("there is no tier {}", new.name)))?;
        if old.is_home() {
            return Err(Error::new(Errno::EBUSY, "the home tier holds the names of all files"));
        }
        if old.is_healthy() {
            let what = format!("tier {} is {}: what is on it would be lost", old.name, old.state().name());
            return Err(Error::new(Errno::EBUSY, what));
        }
        let store = new.store.ok_or(Errno::EINVAL)?;
        let mut next = table.clone();
        next.tiers.retain(|(number, _)| *number != old.id);
        next.lost.push((old.id, old.name.clone()));
        let id = join(&mut next, &new.name).map_err(|error| Error::new(Errno::ENOSPC, error.to_string()))?;
        let label = Label {
            volume: self.id,
            tier: id,
            home: false,
            user_xattr: self.user_xattr,
            range_size: self.range_size,
            name: new.name.clone(),
        };
        let label = label.encode();
        // One like that was left where the table could not be written.
        if store.label()?.is_some_and(|found| found != label) {
            return Err(Error::new(
                Errno::EEXIST,
                "the directory is a tier already, of this or another volume",
            ));
        }
        store.set_label(&label)?;
        self.home.braid()?.replace_small("volume", &next.encode())?;
        *table = next;
        let parts = TierParts {
            id,
            name: new.name,
            location: new.location,
            place: Place::Store(Some(store)),
            weight: new.weight,
            reserve: new.reserve,
            label,
        };
        self.tiers.replace(&old, Tier::new(parts, &self.environment));
        if let Some(policy) = placement::make(&self.policy_config, |name| self.tiers.number(name)) {
            *self.policy.write() = policy;
        }
        self.tell_of_loss(&old);
        tracing::warn!(tier = %old.name, location = %old.location(), "tier was replaced; what was on it is lost");
        Ok(())
    }

    /// What was written to the lost tier and not synced, nobody can sync now:
    /// every descriptor is told.
    fn tell_of_loss(&self, old: &Tier) {
        for open in self.handles.files() {
            if let Layout::Spread(spread) = &*open.file.layout.read()
                && spread.dirty.load(std::sync::atomic::Ordering::Acquire) & bit(old.id) != 0
                && self.concerns(spread, old).unwrap_or(true)
            {
                open.file.note_sync_error(&Errno::EIO.into());
            }
        }
    }
}
