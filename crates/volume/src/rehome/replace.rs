//! The replacement of home: checks before it, and undoing it if it fails.

use super::changes::Changes;
use super::commit::begin_copy;
use super::copier::{Bystanders, Copier};
use super::progress::{RehomePhase, RehomeProgress, RehomeReport};
use crate::heat::Heat;
use braid_contract::{Access, Context, Errno, Error, Fd, RefusalKind, Result, Shown};
use braid_core::Core;
use braid_format::BRAID_DIR;
use braid_home::{Home, LIMBO, discard_copy, empty_dir, names_in, read_label, remove_record};
use braid_index::Dirs;
use braid_tiers::rate::{Pace, Throttles};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::sync::Arc;

/// Replaces home by another directory.
pub(crate) struct HomeReplacement {
    pub(super) core: Arc<Core>,
    pub(super) heat: Arc<Heat>,
    pub(super) throttles: Arc<Throttles>,
    /// Changes while home is copied.
    pub(super) changes: Arc<Changes>,
}

impl HomeReplacement {
    pub(crate) fn new(
        core: &Arc<Core>,
        heat: &Arc<Heat>,
        throttles: &Arc<Throttles>,
        changes: &Arc<Changes>,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            heat: Arc::clone(heat),
            throttles: Arc::clone(throttles),
            changes: Arc::clone(changes),
        }
    }

    /// Ends a replacement under way, since the volume is being closed.
    pub(crate) fn end(&self) {
        self.changes.end();
    }

    /// Checks a directory that is to become home.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub(crate) fn check(&self, root: &Fd) -> Result<()> {
        self.usable_home(root).map(drop)
    }

    /// Makes the empty directory `root` home, as fast as `pace` allows; also
    /// ends when that is stopped. The caller prevents checks and other
    /// replacements meanwhile.
    pub(crate) fn replace(
        &self,
        root: &Fd,
        location: &str,
        (pace, host): (&Pace, &dyn Bystanders),
        tell: &mut dyn FnMut(&RehomeProgress) -> bool,
    ) -> Result<RehomeReport> {
        let _copying = self.changes.copying.lock();
        let new = self.usable_home(root)?;
        let copy = self.core.new_object_id()?.0;
        let old_location = self.core.tiers.home().location();
        let result = begin_copy(&self.core, root, copy, location).and_then(|()| {
            self.changes.switch(true);
            let copier = Copier::new(self, new, (pace, host), tell)?;
            copier.run(copy, location)
        });
        self.changes.switch(false);
        match result {
            Ok(report) => {
                tracing::warn!(from = %old_location, to = %location, "the home tier was replaced");
                Ok(RehomeReport { old_location, ..report })
            }
            Err(error) => {
                self.undo_copy(root);
                Err(error)
            }
        }
    }

    /// Checks everything about a directory that is to become home.
    fn usable_home(&self, root: &Fd) -> Result<Home> {
        let mut new = Home::open(Fd::clone(root))?;
        if !(self.core.home.opens_handles() && new.opens_handles()) {
            let what = "home can be replaced only as root, between file systems that have file handles";
            return Err(Error::refused(Errno::EOPNOTSUPP, RefusalKind::Request, what));
        }
        if root.usage()?.read_only {
            let what = "the new directory's file system is read-only";
            return Err(Error::refused(Errno::EROFS, RefusalKind::Request, what));
        }
        self.empty_enough(root)?;
        new.use_user_xattr(self.core.user_xattr);
        new.use_seal(*self.core.home.seal());
        new.try_xattr().context("the new directory does not take the extended attributes of a home tier")?;
        Ok(new)
    }

    fn empty_enough(&self, root: &Fd) -> Result<()> {
        match read_label(root)? {
            Some((Some(label), true)) if label.volume == self.core.id => discard_copy(root)?,
            Some(_) => {
                let what = "the directory is a tier already, of this or another volume";
                return Err(Error::refused(Errno::EEXIST, RefusalKind::Taken, what));
            }
            None => {}
        }
        for name in names_in(&**root)? {
            // An empty one was created with the file system.
            let gone = name == "lost+found" && root.remove_at(&name, true).is_ok();
            if !gone {
                let what = format!("the directory is not empty: there is {}", name.shown());
                return Err(Error::refused(Errno::ENOTEMPTY, RefusalKind::Taken, what));
            }
        }
        Ok(())
    }

    /// Removes the copy; the present home stays home.
    fn undo_copy(&self, root: &Fd) {
        let undone = match read_label(root) {
            Ok(Some((_, true))) => discard_copy(root),
            Ok(None) => match root.open_at(OsStr::new(BRAID_DIR), Access::Directory) {
                Ok(braid) => {
                    empty_dir(&*braid, &[]).and_then(|()| root.remove_at(OsStr::new(BRAID_DIR), true))
                }
                Err(_) => Ok(()),
            },
            _ => return tracing::error!("the copy of the home tier could not be undone"),
        };
        if let Err(error) = undone.and_then(|()| remove_record(&self.core.home.root())) {
            tracing::warn!(%error, "the unfinished copy of the home tier was not removed; the next mount does not use it");
        }
    }
}

impl<'a> Copier<'a> {
    fn new(
        home: &'a HomeReplacement,
        new: Home,
        (pace, host): (&'a Pace, &'a dyn Bystanders),
        tell: &'a mut dyn FnMut(&RehomeProgress) -> bool,
    ) -> Result<Self> {
        let braid = new.braid()?;
        let progress = RehomeProgress {
            phase: RehomePhase::Counting,
            files: 0,
            total_files: 0,
            bytes: 0,
            total_bytes: 0,
            waiting: 0,
        };
        Ok(Self {
            core: &home.core,
            throttles: &home.throttles,
            changes: &home.changes,
            heat: &home.heat,
            host,
            dirs: Dirs::open(&*braid, home.core.tiers.home().id)?,
            limbo: braid.open_at(OsStr::new(LIMBO), Access::Directory)?,
            braid,
            new,
            known: HashMap::new(),
            pending: Vec::new(),
            touched: HashMap::new(),
            linked: HashSet::new(),
            orphans: Vec::new(),
            unnamed: Vec::new(),
            read_times: HashMap::new(),
            last: false,
            passes: 0,
            hurried: false,
            progress,
            pace,
            tell,
            told_ns: 0,
        })
    }
}
