//! The store of a tier other than home, by the kind of its path: a block device with zones, or cut
//! into units, a zonefs, an emulated zoned device, a log file system on a device or in a file, or a
//! directory like any other.

use crate::config::ZonedTier;
use crate::logfs::settings::workers_by_processors;
use crate::refusal::{Place, Refusal};
use braid_contract::{Errno, Error, FileSystem, Layer, Result, Shown, Store, ZonedDevice};
use braid_log::{Device, Disk, LogFs, Settings, Use};
use braid_stores::dir::DirStore;
use braid_stores::files::FileStore;
use braid_stores::native::{Machine, open_dir, open_tier_dir};
use braid_stores::zoned::{UnitDevice, ZoneEmulator, ZonedBlockDevice, ZonedStore, Zonefs};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

pub use braid_stores::zoned::EmulatedZones;

/// The kind of a tier's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A block device, with zones or not.
    Device,
    /// A zonefs.
    Zonefs,
    /// An emulated zoned device.
    Emulated,
    /// A log file system, on a block device or in a file.
    Log,
    /// A directory like any other, or a path that can't be one.
    Directory,
}

/// The kind of a path.
///
/// # Errors
/// `EUCLEAN` if it is a damaged emulated device.
pub(crate) fn kind_of(path: &Path) -> Result<Kind> {
    if braid_log::is_log_at(path) {
        return Ok(Kind::Log);
    }
    if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
        return Ok(Kind::Device);
    }
    if Zonefs::is_at(path) {
        return Ok(Kind::Zonefs);
    }
    match shape_of(path) {
        Ok(Some(_)) => Ok(Kind::Emulated),
        Err(error) if error.errno() == Errno::EUCLEAN => Err(error),
        // The store of a directory deals with all its errors.
        Ok(None) | Err(_) => Ok(Kind::Directory),
    }
}

/// Opens the store at a path. `zoned` has the settings of zones.
///
/// # Errors
/// `EBUSY` if it is in use, `EINVAL` if `zoned` is given and it can't be kept like that;
/// those of the store.
pub(crate) fn open(path: &Path, zoned: Option<ZonedTier>) -> Result<Arc<dyn Store>> {
    let ZonedTier { settings, unit } = zoned.unwrap_or_default();
    let kind = kind_of(path)?;
    if kind == Kind::Log && zoned.is_none() {
        return open_log(path);
    }
    let has_zones = kind != Kind::Device || ZonedBlockDevice::is_at(path);
    if has_zones && unit.is_some() {
        return Err(Error::new(Errno::EINVAL, "only a block device without zones is cut into units"));
    }
    let device: Arc<dyn ZonedDevice> = match kind {
        Kind::Device if !has_zones => Arc::new(UnitDevice::open_at(path, unit)?),
        Kind::Device => Arc::new(ZonedBlockDevice::open(path)?),
        Kind::Zonefs => Arc::new(Zonefs::open(path)?),
        Kind::Emulated => Arc::new(ZoneEmulator::open(open_tier_dir(path)?)?),
        Kind::Directory | Kind::Log if zoned.is_some() => {
            return Err(Error::new(Errno::EINVAL, "it has no zones, and is set to be kept in zones"));
        }
        Kind::Directory | Kind::Log => return Ok(Arc::new(DirStore::open(path)?)),
    };
    Ok(Arc::new(ZonedStore::open(device, settings, Arc::new(Machine))?))
}

/// Whether zones are at a path, of a device or emulated.
pub(crate) fn is_zoned(path: &Path) -> bool {
    kind_of(path).is_ok_and(|kind| !matches!(kind, Kind::Directory | Kind::Log))
}

/// A log file system of a tier, which is closed with its last user.
struct LogTier(Arc<LogFs>);

impl Layer for LogTier {
    fn child(&self) -> &dyn FileSystem {
        &*self.0
    }
}

impl Drop for LogTier {
    fn drop(&mut self) {
        // Synced data is durable; the next use recovers the rest, as after a crash.
        if let Err(error) = self.0.close() {
            tracing::warn!(%error, "the log file system of a tier was not closed");
        }
    }
}

fn open_log(path: &Path) -> Result<Arc<dyn Store>> {
    let device: Arc<dyn Device> = Arc::new(Disk::open(path, Use::Write)?);
    let found = std::fs::metadata(path).map_err(Error::from)?;
    let workers = workers_by_processors();
    let settings = Settings { workers, commands: false, ..Settings::default() };
    let fs = Arc::new(LogFs::open(device, settings, Arc::new(Machine))?);
    let number = match found.file_type().is_block_device() {
        true => found.rdev(),
        // No device of the kernel has such a number.
        false => {
            fs.uuid().iter().fold(u64::MAX << 8, |number, byte| number.rotate_left(5) ^ u64::from(*byte))
                | 1 << 63
        }
    };
    Ok(Arc::new(FileStore::new(Arc::new(LogTier(fs)), number)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::{Hint, ObjectId, StoreIo};
    use braid_log::Owner;
    use braid_testkit::conformance::store::{Fresh, run};
    use std::io::IoSlice;

    fn log() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        braid_log::make_file(&path, 96 << 20).unwrap();
        let device: Arc<dyn Device> = Arc::new(Disk::open(&path, Use::Write).unwrap());
        braid_log::format(&device, Owner { uid: 0, gid: 0 }, &Machine).unwrap();
        dir
    }

    #[test]
    fn a_log_file_system_keeps_the_promises_of_a_store() {
        let fresh = || {
            let dir = log();
            Fresh::new(open(&dir.path().join("log"), None).unwrap(), dir)
        };
        run("files on a log file system", &fresh).conclude();
    }

    #[test]
    fn a_log_is_known_by_what_it_holds_and_free_when_its_store_is_gone() {
        let dir = log();
        let path = dir.path().join("log");
        assert_eq!(kind_of(&path).unwrap(), Kind::Log);
        assert_eq!(kind_of(dir.path()).unwrap(), Kind::Directory);
        let store = open(&path, None).unwrap();
        assert_eq!(kind_of(&path).unwrap(), Kind::Log, "while it is used");
        assert_eq!(open(&path, None).err().map(|error| error.errno()), Some(Errno::EBUSY));
        let id = ObjectId([7; 16]);
        store.set_label(b"label").unwrap();
        store.create(id).unwrap();
        let io = StoreIo { direct: false, hint: Hint::default() };
        assert_eq!(store.write_at(id, 5, &[IoSlice::new(b"one "), IoSlice::new(b"two")], io).unwrap(), 7);
        store.sync(&[id], true).unwrap();
        drop(store);
        let disk = Disk::open(&path, Use::Read).unwrap();
        assert!(braid_log::check(&disk).unwrap().problems.is_empty());
        drop(disk);
        let store = open(&path, None).unwrap();
        assert_eq!(store.label().unwrap().as_deref(), Some(&b"label"[..]));
        assert_eq!(store.stat(id).unwrap().size, 12);
        assert_eq!(store.usage().unwrap().device >> 63, 1);
    }
}
