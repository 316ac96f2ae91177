//! Whether a tier is still there, and what to do if it went away and came back.

use super::store::DirStore;
use super::tier::{Tier, read_label_on_device};
use crate::native::{mount_of, open_dir, try_lock};
use braid_contract::{Context, Errno, Error, Fd, Result};
use std::path::Path;
use std::sync::{Arc, PoisonError};

impl DirStore {
    /// Makes sure that the directory is the tier with this label, and is
    /// where it is looked for; if a file system with it was mounted anew there,
    /// goes over to that.
    pub(super) fn probe_tier(&self, label: &[u8]) -> Result<()> {
        let _probing = self.probing.lock().unwrap_or_else(PoisonError::into_inner);
        let held = self.tier();
        let Some(path) = &self.path else {
            check_label(&held.root, label)?;
            return check_writable(&held.root);
        };
        self.probe_at(path, &held, label).with_context(|| path.display().to_string())
    }

    fn probe_at(&self, path: &Path, held: &Tier, label: &[u8]) -> Result<()> {
        let found = open_dir(path).map_err(|error| match error.errno() {
            Errno::ENOENT | Errno::ENOTDIR => gone(),
            _ => error,
        })?;
        check_label(&found, label)?;
        let same_inode = is_same_inode(&found, &held.root)?;
        if same_inode && mount_of(&found) == mount_of(&held.root) {
            return check_writable(&found);
        }
        check_writable(&found)?;
        // Device numbers are used again: that it is the same file system is
        // only told by what was open before being alive.
        if same_inode && check_label(&held.root, label).is_ok() {
            // The same file system, unmounted lazily and mounted again. What is
            // open now would not keep that mount from being taken away.
            self.go_over_to(held.through(found));
            return Ok(());
        }
        try_lock(&found)?;
        // Held until what is lost is known: whoever finds the new file system
        // finds that too.
        let mut lost = self.lost();
        let unsynced = self.go_over_to(Tier::new(found)).unsynced.all();
        lost.any |= !unsynced.is_empty();
        lost.objects.extend(unsynced);
        Ok(())
    }

    /// Uses `tier` from now on. Answers the one that was used until now.
    fn go_over_to(&self, tier: Tier) -> Arc<Tier> {
        let mut current = self.tier.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, Arc::new(tier))
    }
}

fn check_label(root: &Fd, label: &[u8]) -> Result<()> {
    match read_label_on_device(root)? {
        Some(found) if found == label => Ok(()),
        _ => Err(gone()),
    }
}

fn check_writable(root: &Fd) -> Result<()> {
    if root.usage()?.read_only { Err(Errno::EROFS.into()) } else { Ok(()) }
}

/// By the kernel's numbers. What was opened before may be on a device that
/// does not answer any more, and is then not the same.
fn is_same_inode(found: &Fd, held: &Fd) -> Result<bool> {
    let found = found.stat()?;
    Ok(held.stat().is_ok_and(|held| (held.device, held.attr.ino) == (found.device, found.attr.ino)))
}

fn gone() -> Error {
    Error::new(Errno::ESTALE, "the directory is not the tier any more (is its device mounted?)")
}
