//! Whether a tier is still there, and what to do if it went away and came back.

use super::store::DirStore;
use super::tier::{LABEL, Tier, read_label_on_device};
use crate::native::{mount_of, open_dir, try_lock};
use braid_contract::{Access, Context, Errno, Error, Fd, Result, SetTime, Shown};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, PoisonError};

impl DirStore {
    /// Makes sure that the directory is the tier with this label, and is
    /// where it is looked for; if a file system with it was mounted anew there,
    /// goes over to that. One that died is let go of, so that it can be
    /// unmounted, checked, and mounted again.
    pub(super) fn probe_tier(&self, label: &[u8]) -> Result<()> {
        let _probing = self.probing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = &self.path else {
            // It could not be found again.
            let root = &self.tier()?.root;
            check_label(root, label)?;
            return check_writable(root);
        };
        if self.held().is_some_and(|held| is_dead(&held.root)) {
            self.let_go();
        }
        self.probe_at(path, label)
            .inspect_err(|error| {
                // What refuses writes is kept for what can be read, but not if
                // it was taken away from its place.
                let is_gone = error.errno() == Errno::ESTALE;
                if is_gone && self.held().is_some_and(|held| refuses_writes(&held.root)) {
                    self.let_go();
                }
            })
            .with_context(|| path.shown().to_string())
    }

    fn probe_at(&self, path: &Path, label: &[u8]) -> Result<()> {
        let found = open_dir(path).map_err(|error| match error.errno() {
            Errno::ENOENT | Errno::ENOTDIR => gone(),
            _ => error,
        })?;
        check_label(&found, label)?;
        check_writable(&found)?;
        if let Some(held) = self.held()
            && is_same_inode(&found, &held.root)
        {
            if mount_of(&found) == mount_of(&held.root) {
                return Ok(());
            }
            // Device numbers are used again: that it is the same file system is
            // only told by what was open before being alive.
            if check_label(&held.root, label).is_ok() {
                // Unmounted lazily and mounted again. What is open now would
                // not keep that mount from being taken away.
                self.use_from_now_on(Some(held.through(found)));
                return Ok(());
            }
        }
        try_lock(&found)?;
        // Whoever had the lock a moment ago may have made it another tier.
        check_label(&found, label)?;
        self.give_up_for(Some(Tier::new(found)));
        Ok(())
    }

    /// Closes every descriptor of the file system. Operations under way keep
    /// theirs until they end.
    fn let_go(&self) {
        self.give_up_for(None);
    }

    /// Uses `tier` from now on, and remembers what the one before loses.
    fn give_up_for(&self, tier: Option<Tier>) {
        // Held until what is lost is known: whoever finds the new file system
        // finds that too.
        let mut lost = self.lost();
        let before = self.use_from_now_on(tier);
        let unsynced = before.as_ref().map(|before| before.unsynced.give_up()).unwrap_or_default();
        lost.any |= !unsynced.is_empty();
        lost.objects.extend(unsynced);
        // What is closed may take its time.
        drop(lost);
        drop(before);
    }

    /// Uses `tier` from now on. Answers the one that was used until now.
    fn use_from_now_on(&self, tier: Option<Tier>) -> Option<Arc<Tier>> {
        let mut current = self.tier.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, tier.map(Arc::new))
    }
}

/// Whether the file system can't be read any more, to judge by its label. That
/// the label is another one, or that memory or descriptors are short, says
/// nothing of the kind.
fn is_dead(root: &Fd) -> bool {
    read_label_on_device(root).is_err_and(|error| match error.errno() {
        Errno::EROFS => false,
        Errno::EUCLEAN => true,
        errno => errno.is_failing(),
    })
}

fn refuses_writes(root: &Fd) -> bool {
    check_writable(root).is_err_and(|error| error.errno() == Errno::EROFS)
}

fn check_label(root: &Fd, label: &[u8]) -> Result<()> {
    match read_label_on_device(root)? {
        Some(found) if found == label => Ok(()),
        _ => Err(gone()),
    }
}

/// Sets a time of the label: a file system that stopped itself after an error
/// may not say so otherwise.
fn check_writable(root: &Fd) -> Result<()> {
    if root.usage()?.read_only {
        return Err(Errno::EROFS.into());
    }
    root.open_at(OsStr::new(LABEL), Access::ReadWrite)?.set_times(None, Some(SetTime::Now))
}

/// By the kernel's numbers.
fn is_same_inode(found: &Fd, held: &Fd) -> bool {
    let (Ok(found), Ok(held)) = (found.stat(), held.stat()) else { return false };
    (held.device, held.attr.ino) == (found.device, found.attr.ino)
}

fn gone() -> Error {
    Error::new(Errno::ESTALE, "the directory is not the tier any more (is its device mounted?)")
}
