//! An import from its beginning to its end.

use super::adopt::Adopter;
use super::bring::bring_in;
use super::shared::Importer;
use super::survey::survey;
use super::types::{ImportObserver, ImportSurvey};
use braid_contract::{Access, Fd, Result};
use braid_core::recover::{IMPORT_DIR, discard_unnamed};
use std::ffi::OsStr;

impl Importer {
    /// Surveys the effect of `braid import` on a tier, without changing
    /// anything.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `EINVAL` if it is home or no
    /// directory; those of the tier.
    pub(crate) fn survey(&self, tier: &str) -> Result<ImportSurvey> {
        let (_, _, root) = self.importable(tier)?;
        let _entered = self.core.barrier.enter();
        survey(&self.core, &root)
    }

    /// Brings everything in. The tier and its files stay usable all the time.
    pub(crate) fn import(&self, name: &str, observer: &mut dyn ImportObserver) -> Result<()> {
        let (tier, store, root) = self.importable(name)?;
        let _entered = self.core.barrier.enter();
        discard_unnamed(&self.core)?;
        let braid = self.core.home.braid()?;
        braid.ensure_dir_at(IMPORT_DIR)?;
        let unnamed = braid.open_at(OsStr::new(IMPORT_DIR), Access::Directory)?;
        let adopter = Adopter::new(self, &tier, &*store, (Fd::clone(&root), unnamed), observer);
        bring_in(&self.core, &root, adopter)
    }
}
