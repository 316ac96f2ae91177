//! Checking whether a tier is still there, and handling one that went away and
//! came back.

use super::held::Held;
use super::tier::{LABEL, Tier, read_label_on_device};
use crate::native::{mount_of, open_dir, try_lock};
use braid_contract::{Access, Context, Errno, Error, Fd, Result, SetTime, Shown};
use std::ffi::OsStr;
use std::path::Path;

/// Makes sure that the directory is the tier with this label, and can be
/// written to.
pub(super) fn open_one(root: &Fd, label: &[u8]) -> Result<()> {
    check_label(root, label)?;
    check_writable(root)
}

/// Checks that the directory at `path` is the tier with this label, and the one
/// that is held; if a file system with it was mounted there again, switches to
/// that. A dead one is released, so that it can be unmounted, checked, and
/// mounted again.
pub(super) fn at(held: &Held, path: &Path, label: &[u8]) -> Result<()> {
    if held.get().is_some_and(|open| is_dead(&open.root)) {
        held.let_go();
    }
    go_over(held, path, label)
        .inspect_err(|error| {
            // A read-only one is kept for reads, but not if it is no longer
            // mounted at its path.
            let is_gone = error.errno() == Errno::ESTALE;
            if is_gone && held.get().is_some_and(|open| refuses_writes(&open.root)) {
                held.let_go();
            }
        })
        .with_context(|| path.shown().to_string())
}

/// Switches to the directory at the path, if that is the tier.
fn go_over(held: &Held, path: &Path, label: &[u8]) -> Result<()> {
    let found = open_dir(path).map_err(|error| match error.errno() {
        Errno::ENOENT | Errno::ENOTDIR => gone(),
        _ => error,
    })?;
    check_label(&found, label)?;
    check_writable(&found)?;
    if let Some(open) = held.get()
        && is_same_inode(&found, &open.root)
    {
        if mount_of(&found) == mount_of(&open.root) {
            return Ok(());
        }
        // Device numbers are reused: only if the old descriptor still works, it
        // is the same file system.
        if check_label(&open.root, label).is_ok() {
            // Unmounted lazily and mounted again. The present descriptor would
            // not keep that mount from being removed.
            held.use_from_now_on(Some(open.through(found)));
            return Ok(());
        }
    }
    try_lock(&found)?;
    // The process that had the lock a moment ago may have made it another tier.
    check_label(&found, label)?;
    held.give_up_for(Some(Tier::new(found)));
    Ok(())
}

/// Whether the file system can't be read any more, judged by its label. Another
/// label, or a lack of memory or descriptors, does not count.
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

/// Sets a time of the label: a file system that shut down after an error may
/// not show that otherwise.
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
