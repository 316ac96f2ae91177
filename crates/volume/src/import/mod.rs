//! Files that a tier's directory has of its own come into the namespace, where
//! they are: each becomes an object by one more name on its tier, gets a home
//! inode with its owner, mode, times and extended attributes, and loses its old
//! name when both are durable. No data is copied. The way in for people who
//! have a union of disks.
//!
//! Where home has something of the same name, that is what stays visible, and
//! the tier's file stays where it is; directories are merged. `jobs` calls this;
//! it may be ended at any moment and begun anew. `walk` goes through the tier's
//! directory, `adopt` takes files over, many at a time.

mod adopt;
mod walk;

pub(crate) use walk::give_attributes;

use crate::Volume;
use braid_contract::{Access, Errno, Error, Fd, RefusalKind, Result, Store};
use braid_core::recover::unnamed::{IMPORT_DIR, discard_unnamed};
use braid_tiers::Tier;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names that file systems make at their root, and no user.
const NATIVE_NAMES: [&str; 1] = ["lost+found"];

/// Conflicts that are told by name.
const NAMED_MAX: usize = 1000;

/// What a tier's directory has of its own, and what becomes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportSurvey {
    /// Regular files that come in, each name of one counted.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Symbolic links and other inodes without data that come in.
    pub others: u64,
    /// Directories that are made, or merged with those that home has.
    pub dirs: u64,
    /// What stays on the tier, since home has something of that name.
    pub conflicts: u64,
    /// The first of them, below the tier's directory.
    pub named: Vec<PathBuf>,
    /// What can't be looked at, and why; or is on another file system.
    pub failed: Vec<(PathBuf, String)>,
}

/// What is told of an import under way.
pub(crate) trait ImportObserver {
    /// So much came in. `ECANCELED` ends it.
    fn came(&mut self, files: u64, bytes: u64) -> Result<()>;
    /// This stays, since home has something of that name.
    fn conflict(&mut self, path: &Path);
    /// This could not be brought in. `ECANCELED` ends it.
    fn failed(&mut self, path: &Path, error: &Error) -> Result<()>;
}

impl Volume {
    /// Looks at what `braid import` would do with a tier; changes nothing.
    ///
    /// # Errors
    /// `ENOENT` if there is no such tier, `EINVAL` if it is home or no
    /// directory; those of the tier.
    pub fn survey_import(&self, tier: &str) -> Result<ImportSurvey> {
        let (_, _, root) = self.importable(tier)?;
        let _entered = self.core.barrier.enter();
        walk::survey(self, &root)
    }

    /// A tier that has a directory whose files can come in.
    pub(crate) fn importable(&self, name: &str) -> Result<(Arc<Tier>, Arc<dyn Store>, Fd)> {
        let refuse = |why, what: String| Err(Error::refused(Errno::EINVAL, why, what));
        let tier = self.core.tiers.named(name)?;
        if tier.is_home() {
            let what = format!("tier {name} is home: the files in its directory are the volume's already");
            return refuse(RefusalKind::Home, what);
        }
        if !tier.is_healthy() || tier.is_draining() || tier.is_set_readonly() {
            let what = format!("tier {name} is {}: it takes no files", tier.state().name());
            return Err(Error::refused(Errno::EBUSY, RefusalKind::Trouble, what));
        }
        let Some((_, store)) = self.core.tiers.stores().find(|(other, _)| other.id == tier.id) else {
            return Err(Errno::ENODEV.into());
        };
        match store.directory() {
            Ok(root) => Ok((tier, store, root)),
            Err(error) if error.errno() == Errno::EOPNOTSUPP => refuse(
                RefusalKind::Request,
                format!("tier {name} is no directory: it has no files of its own"),
            ),
            Err(error) => Err(error),
        }
    }

    /// Brings everything in. `from` and what it has stay usable all the time.
    pub(crate) fn import_tier(&self, name: &str, observer: &mut dyn ImportObserver) -> Result<()> {
        let (tier, store, root) = self.importable(name)?;
        // The front end is told of names, and may have to wait for requests:
        // the barrier must not be frozen for those.
        let _alone = self.state.overhaul.try_lock().ok_or_else(|| {
            Error::new(Errno::EBUSY, "a check or the replacement of home is under way; try again after it")
        })?;
        let _entered = self.core.barrier.enter();
        discard_unnamed(&self.core)?;
        let braid = self.core.home.braid()?;
        braid.ensure_dir_at(IMPORT_DIR)?;
        let unnamed = braid.open_at(OsStr::new(IMPORT_DIR), Access::Directory)?;
        let adopter = adopt::Adopter::new(self, &tier, &*store, (Fd::clone(&root), unnamed), observer);
        walk::bring_in(self, &root, adopter)
    }
}
