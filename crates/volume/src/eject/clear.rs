//! The last step of an ejection: all data is home, and `.braid` goes from every
//! tier, from home last. A record on home says that this is going on: with it,
//! the directories are no volume any more, and the step can be done again.

use crate::namespace::{BRAID_DIR, Home, names_in};
use crate::rehome::{INTENT, empty_dir};
use crate::{Volume, VolumeConfig};
use braid_contract::{Access, Context, Errno, Fd, Result};
use std::ffi::OsStr;

/// The record, in [`INTENT`].
const RECORD: &str = "eject";
/// What it says, for people.
const TEXT: &[u8] =
    b"This volume is being taken apart; all data is in plain files. Go on with: braid eject\n";

/// Whether the last step was begun at this home.
pub(crate) fn begun(root: &Fd) -> Result<bool> {
    let recorded = root.read_small(&format!("{BRAID_DIR}/{INTENT}/{RECORD}"), TEXT.len())?.is_some();
    Ok(recorded || is_hollow(root)?)
}

/// Whether the last that goes, the record, is gone, and its directory is not.
fn is_hollow(root: &Fd) -> Result<bool> {
    let names_of = |path: &str| match root.open_at(OsStr::new(path), Access::Directory) {
        Err(error) if error.errno() == Errno::ENOENT => Ok(None),
        dir => names_in(&*dir?).map(Some),
    };
    let Some(names) = names_of(BRAID_DIR)? else { return Ok(false) };
    let record_dir = names_of(&format!("{BRAID_DIR}/{INTENT}"))?.unwrap_or_default();
    Ok(names.iter().all(|name| name == INTENT) && record_dir.is_empty())
}

/// Says so, durably.
pub(super) fn begin(home: &Home) -> Result<()> {
    let braid = home.braid()?;
    braid.ensure_dir_at(INTENT)?;
    braid.sync(false)?;
    let intent = braid.open_at(OsStr::new(INTENT), Access::Directory)?;
    intent.replace_small(RECORD, TEXT).context("writing .braid/intent/eject")
}

/// Carries it out for a volume that was shut down.
pub(super) fn clear(volume: &Volume) -> Result<()> {
    for (tier, store) in volume.tiers.stores() {
        store.clear().map_err(|error| error.context(format!("tier {}", tier.name)))?;
    }
    clear_home(&volume.home.root())
}

/// Carries on what was interrupted.
pub(super) fn go_on(config: &VolumeConfig) -> Result<()> {
    for tier in &config.tiers {
        if let Some(store) = &tier.store {
            store.clear().map_err(|error| error.context(format!("tier {}", tier.name)))?;
        }
    }
    clear_home(&config.home.root)
}

fn clear_home(root: &Fd) -> Result<()> {
    let braid = root.open_at(OsStr::new(BRAID_DIR), Access::Directory)?;
    empty_dir(&*braid, &[INTENT])?;
    // Before the record may go.
    root.sync_fs()?;
    empty_dir(&*braid, &[])?;
    root.remove_at(OsStr::new(BRAID_DIR), true).context("removing .braid")?;
    root.sync(false)
}
