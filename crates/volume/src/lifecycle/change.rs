//! Settings of a tier that is in use.

use crate::Volume;
use braid_contract::{Errno, Error, RefusalKind, Result};
use braid_placement::Reserve;

/// What is to be changed of a tier; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierChange {
    /// Bandwidth relative to the other tiers; measured while running if
    /// `Some(None)`.
    pub weight: Option<Option<f64>>,
    /// Space to be left free.
    pub reserve: Option<Reserve>,
    /// Whether it is read only: it takes no new ranges, and a range on it that
    /// is written to goes to another tier first.
    pub readonly: Option<bool>,
}

impl Volume {
    /// Changes settings of a tier, from now to the unmount: a mount gives them
    /// anew.
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
}
