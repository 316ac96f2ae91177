//! Cleaning up after an import that was interrupted.

use crate::core::Core;
use braid_contract::{Access, Context, Errno, Fd, Result, Store};
use braid_home::empty_dir;
use braid_home::names_in;
use braid_tiers::Tier;
use std::ffi::OsStr;
use std::sync::Arc;

/// The directory below `.braid` where files of an import wait for their names.
pub const IMPORT_DIR: &str = "import";

/// Removes files that an import left without a name: the originals are still
/// where they were. Files stay whose tiers can't be asked now.
///
/// # Errors
/// The first of those; all others are removed.
pub fn discard_unnamed(core: &Core) -> Result<()> {
    let braid = core.home.braid()?;
    let unnamed = match braid.open_at(OsStr::new(IMPORT_DIR), Access::Directory) {
        Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
        result => result?,
    };
    let names = names_in(&*unnamed)?;
    let discarded = names.iter().map(|name| discard(core, &unnamed, name));
    discarded.fold(Ok(()), Result::and)?;
    empty_dir(&*unnamed, &[])?;
    braid.remove_at(OsStr::new(IMPORT_DIR), true)
}

fn discard(core: &Core, unnamed: &Fd, name: &OsStr) -> Result<()> {
    let fd = unnamed.open_at(name, Access::Path)?;
    let identity = core.home.identify(&*fd)?;
    if let Some(attr) = core.home.id_attr(&*fd, &identity)? {
        // Only the name leads to the object.
        let remove = |(tier, store): (Arc<Tier>, Arc<dyn Store>)| {
            store.remove(&[attr.id]).with_context(|| format!("tier {}", tier.name))
        };
        core.tiers.stores().map(remove).fold(Ok(()), Result::and)?;
    }
    unnamed.remove_at(name, false)
}
