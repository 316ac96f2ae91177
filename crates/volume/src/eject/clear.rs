//! The last step of an ejection: every file has its place, and `.braid` is
//! removed from every tier, from home last. A record on home marks this step:
//! with it, the directories are no volume any more, and the step can be
//! repeated.

use super::in_place::{Site, sites};
use super::settle::Settlement;
use crate::config::VolumeConfig;
use braid_contract::{Access, Context, Errno, Error, Fd, Result};
use braid_core::Core;
use braid_format::{BRAID_DIR, Label, Seal, TABLE_LEN};
use braid_home::{Home, names_in};
use braid_home::{INTENT, empty_dir};
use std::ffi::OsStr;
use std::sync::Arc;

/// The record, in [`INTENT`].
const RECORD: &str = "eject";
/// Its text, for people.
const TEXT: &[u8] =
    b"This volume is being taken apart; all data is in plain files. Go on with: braid eject\n";

/// More text, if files stay on other tiers.
const IN_PLACE: &[u8] = b"Files that are whole on another tier stay there: home's names of them go.\n";

/// Whether this home is in the last step of an ejection.
pub(crate) fn begun(root: &Fd) -> Result<bool> {
    Ok(record(root)?.is_some())
}

fn record(root: &Fd) -> Result<Option<Vec<u8>>> {
    root.read_small(&format!("{BRAID_DIR}/{INTENT}/{RECORD}"), TEXT.len() + IN_PLACE.len())
}

/// Ends an ejection that has removed everything except the directory of the
/// record; answers whether there was one. A label on any tier means that this
/// is no ejection.
pub(crate) fn end_hollow(config: &VolumeConfig) -> Result<bool> {
    let root = &config.home.root;
    if !is_hollow(root)? {
        return Ok(false);
    }
    for store in config.tiers.iter().filter_map(|tier| tier.store.as_ref()) {
        if store.label()?.is_some() {
            return Ok(false);
        }
    }
    clear_home(root).map(|()| true)
}

fn is_hollow(root: &Fd) -> Result<bool> {
    let names_of = |path: &str| match root.open_at(OsStr::new(path), Access::Directory) {
        Err(error) if error.errno() == Errno::ENOENT => Ok(None),
        dir => names_in(&*dir?).map(Some),
    };
    let Some(names) = names_of(BRAID_DIR)? else { return Ok(false) };
    let record_dir = names_of(&format!("{BRAID_DIR}/{INTENT}"))?.unwrap_or_default();
    Ok(names.iter().all(|name| name == INTENT) && record_dir.is_empty())
}

/// Writes the record, durably.
pub(super) fn begin(home: &Home, in_place: bool) -> Result<()> {
    let braid = home.braid()?;
    braid.ensure_dir_at(INTENT)?;
    braid.sync(false)?;
    let intent = braid.open_at(OsStr::new(INTENT), Access::Directory)?;
    let text = if in_place { [TEXT, IN_PLACE].concat() } else { TEXT.to_vec() };
    intent.replace_small(RECORD, &text).context("writing .braid/intent/eject")
}

/// Carries out the last step for a volume that was shut down.
pub(crate) fn clear(core: &Core, in_place: bool) -> Result<()> {
    if in_place {
        Settlement { home: &core.home, sites: &sites(core)? }.carry_out()?;
    }
    for (tier, store) in core.tiers.stores() {
        store.clear().map_err(|error| error.context(format!("tier {}", tier.name)))?;
    }
    clear_home(&core.home.root())
}

/// Continues an interrupted last step. Home keeps its label until all others
/// are cleared; a tier with another volume's label is not touched.
pub(crate) fn go_on(config: &VolumeConfig) -> Result<()> {
    let label_of = |label: Vec<u8>| Label::decode(&label).ok();
    let home = config.home.root.read_small(&format!("{BRAID_DIR}/label"), TABLE_LEN)?.and_then(label_of);
    let (mut stores, mut sites) = (Vec::new(), Vec::new());
    for tier in &config.tiers {
        let Some(store) = &tier.store else { continue };
        if let Some(bytes) = store.label()? {
            let label = label_of(bytes);
            if label.as_ref().map(|label| label.volume) != home.as_ref().map(|label| label.volume) {
                let what = format!("tier {} is not of the volume that is being taken apart", tier.name);
                return Err(Error::new(Errno::EINVAL, what));
            }
            if let Some(label) = label {
                sites.extend(Site::of(label.tier, &tier.name, Arc::clone(store))?);
            }
        }
        stores.push((tier, store));
    }
    if let Some(label) = home
        && record(&config.home.root)?.is_some_and(|text| text.ends_with(IN_PLACE))
    {
        let mut home = Home::open(Fd::clone(&config.home.root))?;
        home.use_user_xattr(label.user_xattr);
        home.use_seal(Seal { volume: label.volume, secret: label.secret });
        Settlement { home: &home, sites: &sites }.carry_out()?;
    }
    for (tier, store) in stores {
        store.clear().map_err(|error| error.context(format!("tier {}", tier.name)))?;
    }
    clear_home(&config.home.root)
}

fn clear_home(root: &Fd) -> Result<()> {
    let braid = root.open_at(OsStr::new(BRAID_DIR), Access::Directory)?;
    empty_dir(&*braid, &[INTENT])?;
    // Before the record is removed.
    root.sync_fs()?;
    empty_dir(&*braid, &[])?;
    root.remove_at(OsStr::new(BRAID_DIR), true).context("removing .braid")?;
    root.sync(false)
}
