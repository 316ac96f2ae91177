//! The store of a tier other than home, by what its path is: a block device with zones,
//! or cut into units, a zonefs, an emulated zoned device, or a directory like any other.

use crate::config::ZonedTier;
use crate::refusal::{Place, Refusal};
use braid_contract::{Errno, Error, Result, Shown, Store, ZonedDevice};
use braid_stores::dir::DirStore;
use braid_stores::native::{Machine, open_dir, open_tier_dir};
use braid_stores::zoned::{UnitDevice, ZoneEmulator, ZonedBlockDevice, ZonedStore, Zonefs};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

pub use braid_stores::zoned::EmulatedZones;

/// What keeps a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A block device, with zones or not.
    Device,
    /// A zonefs.
    Zonefs,
    /// An emulated zoned device.
    Emulated,
    /// A directory like any other, or what can't be one.
    Directory,
}

/// What is at a path.
///
/// # Errors
/// `EUCLEAN` if it is a damaged emulated device.
pub(crate) fn kind_of(path: &Path) -> Result<Kind> {
    if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
        return Ok(Kind::Device);
    }
    if Zonefs::is_at(path) {
        return Ok(Kind::Zonefs);
    }
    match shape_of(path) {
        Ok(Some(_)) => Ok(Kind::Emulated),
        Err(error) if error.errno() == Errno::EUCLEAN => Err(error),
        // Whatever is wrong with a directory, its store deals with it.
        Ok(None) | Err(_) => Ok(Kind::Directory),
    }
}

/// Opens the store at a path. `zoned` says how zones are kept.
///
/// # Errors
/// `EBUSY` if it is in use, `EINVAL` if `zoned` is given and it can't be kept like that;
/// those of the store.
pub(crate) fn open(path: &Path, zoned: Option<ZonedTier>) -> Result<Arc<dyn Store>> {
    let ZonedTier { settings, unit } = zoned.unwrap_or_default();
    let kind = kind_of(path)?;
    let has_zones = kind != Kind::Device || ZonedBlockDevice::is_at(path);
    if has_zones && unit.is_some() {
        return Err(Error::new(Errno::EINVAL, "only a block device without zones is cut into units"));
    }
    let device: Arc<dyn ZonedDevice> = match kind {
        Kind::Device if !has_zones => Arc::new(UnitDevice::open_at(path, unit)?),
        Kind::Device => Arc::new(ZonedBlockDevice::open(path)?),
        Kind::Zonefs => Arc::new(Zonefs::open(path)?),
        Kind::Emulated => Arc::new(ZoneEmulator::open(open_tier_dir(path)?)?),
        Kind::Directory if zoned.is_some() => {
            return Err(Error::new(Errno::EINVAL, "it has no zones, and is set to be kept in zones"));
        }
        Kind::Directory => return Ok(Arc::new(DirStore::open(path)?)),
    };
    Ok(Arc::new(ZonedStore::open(device, settings, Arc::new(Machine))?))
}

/// Whether zones are at a path, of a device or emulated.
pub(crate) fn is_zoned(path: &Path) -> bool {
    kind_of(path).is_ok_and(|kind| kind != Kind::Directory)
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
