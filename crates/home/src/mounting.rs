//! How a mount handles an interrupted replacement of the home tier: exactly one
//! of the two directories is home.

use crate::dirs::empty_dir;
use crate::home::Home;
use crate::open_error::OpenError;
use crate::replacement::{INTENT, LIMBO, read_label, read_record, remove_record, write_record};
use braid_contract::{Access, Errno, Fd, Result};
use braid_format::{BRAID_DIR, RehomeRecord, RehomeStage};
use std::ffi::OsStr;

/// Settles an interrupted replacement of `old`, if its record leaves that open,
/// by a look at the directory of the copy; `open` opens a directory by its
/// name. Answers a copy that is not complete and may be removed
/// ([`discard_copy`]).
///
/// # Errors
/// Those of both directories.
pub fn settle_home(old: &Fd, open: &mut dyn FnMut(&str) -> Result<Fd>) -> Result<Option<Fd>> {
    let Some(record) = read_record(old)? else { return Ok(None) };
    let undecided = record.stage == RehomeStage::Committing;
    if !undecided && record.stage != RehomeStage::Copying {
        return Ok(None);
    }
    let Ok(new) = open(&record.place) else { return Ok(None) };
    match read_label(&new)? {
        Some((Some(label), false)) if undecided && label.home && label.volume == record.volume => {
            write_record(old, &RehomeRecord { stage: RehomeStage::Moved, ..record })?;
            Ok(None)
        }
        Some((_, true)) if read_record(&new)?.is_some_and(|theirs| theirs.copy == record.copy) => {
            remove_record(old)?;
            Ok(Some(new))
        }
        _ => Ok(None),
    }
}

/// Removes a copy of a home that was never completed. Its record is removed
/// last.
///
/// # Errors
/// Those of the directory; `EINVAL` if it is not such a copy.
pub fn discard_copy(root: &Fd) -> Result<()> {
    let Some((_, true)) = read_label(root)? else { return Err(Errno::EINVAL.into()) };
    empty_dir(&**root, &[BRAID_DIR])?;
    let braid = root.open_at(OsStr::new(BRAID_DIR), Access::Directory)?;
    empty_dir(&*braid, &["label", INTENT])?;
    root.sync_fs()?;
    empty_dir(&*braid, &[])?;
    root.remove_at(OsStr::new(BRAID_DIR), true)?;
    root.sync(false)
}

/// The location of the copy of an interrupted replacement, if there was one.
pub fn copy_begun(home: &Fd) -> Result<Option<String>> {
    let record = read_record(home)?;
    let unfinished =
        record.filter(|record| matches!(record.stage, RehomeStage::Copying | RehomeStage::Incoming));
    Ok(unfinished.map(|record| record.place))
}

/// Checks that no replacement keeps the directory from being used as home.
pub fn guard(home: &Home, tier: &str) -> std::result::Result<(), OpenError> {
    let failed = |error| OpenError::Tier { tier: tier.into(), error };
    let root = home.root();
    let record = read_record(&root).map_err(failed)?;
    let place = record.as_ref().map(|record| record.place.clone()).unwrap_or_default();
    if let Some((_, true)) = read_label(&root).map_err(failed)? {
        return Err(OpenError::IncompleteHome { tier: tier.into(), of: place });
    }
    match record.map(|record| record.stage) {
        Some(RehomeStage::Moved) => Err(OpenError::HomeMoved { tier: tier.into(), to: place }),
        Some(RehomeStage::Committing) => Err(OpenError::HomeUndecided { tier: tier.into(), to: place }),
        Some(RehomeStage::Copying | RehomeStage::Incoming) | None => Ok(()),
    }
}

/// Removes the leftovers of a replacement in the directory, which is home.
pub fn clean_up(home: &Home) -> Result<()> {
    let root = home.root();
    let Some(record) = read_record(&root)? else { return Ok(()) };
    if record.stage == RehomeStage::Copying {
        tracing::warn!(copy = %record.place, "the replacement of the home tier did not come to its end; its copy is not used");
    }
    let braid = home.braid()?;
    match braid.open_at(OsStr::new(LIMBO), Access::Directory) {
        Ok(limbo) => {
            empty_dir(&*limbo, &[])?;
            braid.remove_at(OsStr::new(LIMBO), true)?;
            // The following recovery must not find the record.
            root.sync_fs()?;
        }
        Err(error) if error.errno() == Errno::ENOENT => {}
        Err(error) => return Err(error),
    }
    remove_record(&root)
}
