//! The records of a replacement of home, in the old and the new directory.

use braid_contract::{Access, Context, Errno, Error, Fd, Result};
use braid_format::{BRAID_DIR, Label, RehomeRecord, TABLE_LEN};
use std::ffi::OsStr;

/// Records of operations with several steps, in `.braid`.
pub const INTENT: &str = "intent";
/// Copies without a name, in `.braid` of a new home.
pub const LIMBO: &str = "limbo";
/// The record of a replacement, in [`INTENT`].
pub const RECORD: &str = "rehome";

/// The record of a home directory, if it has one.
pub fn read_record(root: &Fd) -> Result<Option<RehomeRecord>> {
    let path = format!("{BRAID_DIR}/{INTENT}/{RECORD}");
    let Some(bytes) = root.read_small(&path, RehomeRecord::LEN + 1)? else { return Ok(None) };
    let record = RehomeRecord::decode(&bytes)
        .map_err(|error| Error::new(Errno::EUCLEAN, format!("{path} is damaged: {error}")))?;
    Ok(Some(record))
}

/// Writes the record, durably.
pub fn write_record(root: &Fd, record: &RehomeRecord) -> Result<()> {
    let braid = root.open_at(OsStr::new(BRAID_DIR), Access::Directory)?;
    braid.ensure_dir_at(INTENT)?;
    braid.sync(false)?;
    let intent = braid.open_at(OsStr::new(INTENT), Access::Directory)?;
    intent.replace_small(RECORD, &record.encode()).context("writing .braid/intent/rehome")
}

/// Removes the record, durably.
pub fn remove_record(root: &Fd) -> Result<()> {
    let intent = match root.open_at(OsStr::new(&format!("{BRAID_DIR}/{INTENT}")), Access::Directory) {
        Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
        result => result?,
    };
    intent.ensure_gone_at(&format!("{RECORD}.new"))?;
    intent.ensure_gone_at(RECORD)?;
    intent.sync(false)
}

/// The label of a directory, if it has one; the flag says whether its home is
/// incomplete.
pub fn read_label(root: &Fd) -> Result<Option<(Option<Label>, bool)>> {
    let bytes = root.read_small(&format!("{BRAID_DIR}/label"), TABLE_LEN)?;
    Ok(bytes.map(|bytes| (Label::decode(&bytes).ok(), Label::is_incoming(&bytes))))
}
