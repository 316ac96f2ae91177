//! What a replacement of the home tier that did not come to its end means for
//! the next mount: exactly one of the two directories is home.

use crate::dirs::empty_dir;
use crate::home::Home;
use crate::open_error::OpenError;
use crate::replacement::{INTENT, LIMBO, read_label, read_record, remove_record, write_record};
use braid_contract::{Access, Errno, Fd, Result};
use braid_format::{BRAID_DIR, RehomeRecord, RehomeStage};
use std::ffi::OsStr;

/// Looks at the directory that home was being copied to when the daemon or the
/// machine ended, if `old` is a home of which that is not known; `open` opens
/// a directory by its name. Answers a copy that is not complete and may be
/// removed ([`discard_copy`]).
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

/// Removes a copy of a home that was never completed. What says that it is one
/// goes last.
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

/// Where a home was being copied to when that ended too early, if it was.
pub fn copy_begun(home: &Fd) -> Result<Option<String>> {
    let record = read_record(home)?;
    let unfinished =
        record.filter(|record| matches!(record.stage, RehomeStage::Copying | RehomeStage::Incoming));
    Ok(unfinished.map(|record| record.place))
}

/// Whether the directory may be used as home, as far as replacements go.
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

/// The directory is home: what a replacement left in it goes.
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
            // What is recovered next must not find it again.
            root.sync_fs()?;
        }
        Err(error) if error.errno() == Errno::ENOENT => {}
        Err(error) => return Err(error),
    }
    remove_record(&root)
}
