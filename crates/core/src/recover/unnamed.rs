//! Cleaning up after an import that was interrupted.

use crate::core::Core;
use braid_contract::{Access, Errno, Result};
use braid_home::empty_dir;
use braid_home::names_in;
use std::ffi::OsStr;

/// The directory below `.braid` where files of an import wait for their names.
pub const IMPORT_DIR: &str = "import";

/// Removes files that an import left without a name: the originals are still
/// where they were.
pub fn discard_unnamed(core: &Core) -> Result<()> {
    let braid = core.home.braid()?;
    let unnamed = match braid.open_at(OsStr::new(IMPORT_DIR), Access::Directory) {
        Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
        result => result?,
    };
    for name in names_in(&*unnamed)? {
        let fd = unnamed.open_at(&name, Access::Path)?;
        let identity = core.home.identify(&*fd)?;
        if let Some(attr) = core.home.id_attr(&*fd, &identity)? {
            for (_, store) in core.tiers.stores() {
                store.remove(&[attr.id])?;
            }
        }
    }
    empty_dir(&*unnamed, &[])?;
    braid.remove_at(OsStr::new(IMPORT_DIR), true)
}
