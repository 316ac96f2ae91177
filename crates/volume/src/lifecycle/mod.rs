//! Tiers come and go while the volume is in use: added, set, drained, removed,
//! and replaced when they are lost. The control socket of the daemon calls
//! this; `open` finishes at a mount what a crash interrupted.
//!
//! The volume table of the home tier is what counts, and is switched
//! atomically. A tier that is removed is *leaving* in it first: that is the
//! record of an operation with several steps (`finish_removals`).

mod add;
mod change;
mod reconfigure;
mod remove;
mod replace;

pub use change::TierChange;
pub use reconfigure::PlacementConfig;
pub use remove::RemovedTier;
pub(crate) use remove::leave_out_removed;

use crate::Volume;
use crate::notice::leave_notice;
use crate::open::join;
use braid_contract::{Errno, Error, RefusalKind, Result, TierId};
use braid_format::{Label, VolumeTable};
use braid_tiers::TierConfig;
use braid_tiers::{Place, Tier, TierParts};
use std::sync::Arc;

impl Volume {
    /// The tiers are not those that policy and rules were made for.
    fn renew_policy(&self) {
        self.placement.renew(|name| self.core.tiers.number(name));
    }

    /// The label of a tier other than home.
    fn label_of(&self, tier: TierId, name: &str) -> Label {
        Label {
            volume: self.core.id,
            tier,
            home: false,
            user_xattr: self.core.user_xattr,
            range_size: self.core.range_size,
            name: name.to_owned(),
            secret: self.core.home.seal().secret,
        }
    }

    /// Labels the store of a tier that joins, and then enters it in the table:
    /// a crash in between leaves a label that counts for nothing. `next` is the
    /// table as it is to be otherwise.
    fn let_join(&self, table: &mut VolumeTable, mut next: VolumeTable, new: TierConfig) -> Result<Tier> {
        let store = new.store.ok_or(Errno::EINVAL)?;
        let id = join(&mut next, &new.name)
            .map_err(|error| Error::refused(Errno::ENOSPC, RefusalKind::Request, error.to_string()))?;
        let label = self.label_of(id, &new.name).encode();
        if self.may_take(&next, &label, store.label()?)? {
            store.clear()?;
        }
        store.set_label(&label)?;
        leave_notice(&new.name, &*store);
        self.core.switch_table(table, next)?;
        let parts = TierParts {
            id,
            name: new.name,
            location: new.location,
            place: Place::Store(Some(store)),
            weight: new.weight,
            profile: new.profile,
            reserve: new.reserve,
            label,
            monitor: self.state.monitor,
        };
        Ok(Tier::new(parts, &self.core.environment))
    }

    /// Looks at the label that a directory carries which is to be a tier with
    /// another one; answers whether what is left of a tier that was removed has
    /// to go first.
    fn may_take(&self, table: &VolumeTable, label: &[u8], found: Option<Vec<u8>>) -> Result<bool> {
        let Some(found) = found else { return Ok(false) };
        let refused = |what: String| Err(Error::refused(Errno::EEXIST, RefusalKind::Taken, what));
        // One like that was left where the table could not be written.
        if found == label {
            return Ok(false);
        }
        let Ok(found) = Label::decode(&found) else {
            return refused("the directory has a tier's label that can't be read".into());
        };
        if found.volume != self.core.id {
            return refused(format!("the directory is a tier of another volume, {}", found.volume));
        }
        let is = |(number, _): &(TierId, String)| *number == found.tier;
        if table.lost.iter().any(is) {
            return refused(format!("the directory is tier {} of this volume, which was lost", found.name));
        }
        // The number may have been given to the one that joins just now.
        let joining = |name: &String| Label::decode(label).is_ok_and(|label| label.name == *name);
        if table.tiers.iter().any(|tier| is(tier) && !joining(&tier.1)) {
            return refused(format!("the directory is tier {} of this volume", found.name));
        }
        Ok(true)
    }
}
