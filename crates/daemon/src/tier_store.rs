//! The store of a tier other than home, by what its directory is: an emulated zoned
//! device, or a directory like any other.

use crate::refusal::{Place, Refusal};
use braid_contract::{Errno, Error, Result, Shown, Store};
use braid_stores::dir::DirStore;
use braid_stores::native::{Machine, open_dir, open_tier_dir};
use braid_stores::zoned::{ZoneEmulator, ZonedSettings, ZonedStore};
use std::path::Path;
use std::sync::Arc;

pub use braid_stores::zoned::EmulatedZones;

/// Opens the store in a directory. `zoned` says how zones are kept.
///
/// # Errors
/// `EBUSY` if it is in use, `EINVAL` if `zoned` is given and there are no zones; those
/// of the store.
pub(crate) fn open(dir: &Path, zoned: Option<ZonedSettings>) -> Result<Arc<dyn Store>> {
    match shape_of(dir) {
        Ok(Some(_)) => {}
        Err(error) if error.errno() == Errno::EUCLEAN => return Err(error),
        _ if zoned.is_some() => {
            return Err(Error::new(Errno::EINVAL, "it has no zones, and is set to be kept in zones"));
        }
        // Whatever is wrong with a directory, its store deals with it.
        Ok(None) | Err(_) => return Ok(Arc::new(DirStore::open(dir)?)),
    }
    let device = Arc::new(ZoneEmulator::open(open_tier_dir(dir)?)?);
    Ok(Arc::new(ZonedStore::open(device, zoned.unwrap_or_default(), Arc::new(Machine))?))
}

/// Whether a directory holds an emulated zoned device.
pub(crate) fn is_zoned(dir: &Path) -> bool {
    shape_of(dir).is_ok_and(|shape| shape.is_some())
}

fn shape_of(dir: &Path) -> Result<Option<EmulatedZones>> {
    ZoneEmulator::shape_in(&open_dir(dir)?)
}

/// Makes an emulated zoned device in a directory, for `braid zoned emulate`.
///
/// # Errors
/// If it is in use or not empty, or no device is like that.
pub fn emulate(dir: &Path, shape: EmulatedZones) -> std::result::Result<(), Refusal> {
    let refuse = |error: &Error, advice: &str| {
        Place::flag(dir.to_string_lossy()).refuse(format!("{}: {error}", dir.shown()), advice)
    };
    let root = open_tier_dir(dir)
        .map_err(|error| refuse(&error, "name a directory that is there and not in use"))?;
    ZoneEmulator::make(&root, shape)
        .map_err(|error| refuse(&error, "name an empty directory, and zones as devices have them"))
}
