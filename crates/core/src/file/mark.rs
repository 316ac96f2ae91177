//! Marking a file as ahead of its home inode, which leads recovery to it.

use crate::core::Core;
use crate::file::trim::trim;
use crate::live::{File, Spread};
use braid_contract::{Errno, Error, NativeHandle, ObjectId, Result};
use std::sync::atomic::Ordering;

/// Marks the file as ahead of its home inode, unless it is already. Leftovers
/// of a crash beyond its size go before it may grow over them.
pub(super) fn mark(core: &Core, file: &File, spread: &Spread) -> Result<()> {
    // The caller has the file in use, which keeps it from being settled.
    if spread.ready.load(Ordering::Acquire) {
        return Ok(());
    }
    if core.index.is_unrecovered(spread.id()) {
        let remedy = match spread.index.whole() {
            Some(_) => Some("open it again when it is back"),
            None if spread.index.grows_to()? == 0 => None,
            None => Some("mount the volume again when it is back"),
        };
        if let Some(remedy) = remedy {
            let what = format!("its tier could not be asked what a crash left of the file: {remedy}");
            return Err(Error::new(Errno::EIO, what));
        }
    }
    let mut marked = spread.marked.lock();
    if !*marked {
        core.index.mark(spread.id(), handle_of(file, spread))?;
        *marked = true;
    }
    if !spread.trimmed.load(Ordering::Relaxed) {
        // No file changes before it is marked, so this one does not change now.
        // A tier in trouble must not keep ranges on other tiers from being
        // written; the file then does not grow until it is trimmed.
        match trim(core, file, spread, spread.size()) {
            Ok(()) => spread.trimmed.store(true, Ordering::Release),
            Err(error) if error.errno() == Errno::EIO => {
                tracing::debug!(file = %spread.id(), %error, "a file is trimmed later");
            }
            Err(error) => return Err(error),
        }
    }
    spread.ready.store(spread.trimmed.load(Ordering::Acquire), Ordering::Release);
    Ok(())
}

/// Marks a file whose last name goes.
pub(crate) fn mark_orphan(core: &Core, id: ObjectId, handle: Option<&NativeHandle>) -> Result<()> {
    match core.index.mark(id, handle) {
        // A full home tier must not keep a file from being removed: without a
        // mark, a crash before the reaper leaves its objects to the check.
        Err(error) if !error.is_full() => Err(error),
        _ => Ok(()),
    }
}

/// The handle that the mark of a whole file names; the index names that of
/// others.
pub(super) fn handle_of<'a>(file: &'a File, spread: &Spread) -> Option<&'a NativeHandle> {
    spread.index.whole().and_then(|_| file.inode.handle())
}
