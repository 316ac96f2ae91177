//! Log-structured file systems: made, mounted, checked and shown. Mounted, one is the bottom
//! of a stack (`bottom`), as a volume is, but has no tiers. [`settings`] has its settings in a
//! stack file.

pub(crate) mod bottom;
pub(crate) mod look;
mod refuse;
pub mod settings;

use refuse::refuse;

use crate::refusal::{Place, Refusal};
use braid_log::{Checked, Device, Disk, Figures, Owner, Use};
use braid_stores::native::Machine;
use std::path::Path;
use std::sync::Arc;

/// The least size of a log file system, in bytes.
pub const SIZE_MIN: u64 = braid_log::SIZE_MIN;

/// Makes a log file system on a device, or in a file, which is made with this size if it
/// is not there. Returns its size.
///
/// # Errors
/// If the device holds something and `force` is not given, is in use, or is too small.
pub fn create(path: &Path, size: Option<u64>, force: bool) -> Result<u64, Refusal> {
    let place = Place::flag(path.to_string_lossy());
    let is_new =
        matches!(std::fs::metadata(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound);
    if is_new {
        let advice = "say how large the file is to be: --size SIZE; or name a block device";
        let size = size.ok_or_else(|| place.refuse("there is no such file or device", advice))?;
        large_enough(&place, size)?;
        braid_log::make_file(path, size).map_err(|error| refuse(path, &error))?;
    }
    let made = format(path, &place, size.filter(|_| !is_new), force);
    if made.is_err() && is_new {
        // It is of no use.
        let _ = std::fs::remove_file(path);
    }
    made
}

fn large_enough(place: &Place, size: u64) -> Result<(), Refusal> {
    if size >= SIZE_MIN {
        return Ok(());
    }
    let needed = braid_contract::units::show_size(SIZE_MIN);
    Err(place.refuse(format!("{size} bytes are too few"), format!("a log file system needs {needed}")))
}

fn format(path: &Path, place: &Place, size: Option<u64>, force: bool) -> Result<u64, Refusal> {
    let disk = Disk::open(path, Use::Write).map_err(|error| refuse(path, &error))?;
    if size.is_some_and(|size| size != disk.size()) {
        let found = format!("it is there already, and has {} bytes", disk.size());
        return Err(
            place.refuse(found, "leave --size out to use all of it, or name a file that is not there")
        );
    }
    large_enough(place, disk.size())?;
    let holds = braid_log::known(&disk).map_err(|error| refuse(path, &error))?;
    if let Some(what) = holds.filter(|_| !force) {
        let advice = "everything in it would be lost; pass --force if that is meant";
        return Err(place.refuse(format!("it holds {what}"), advice));
    }
    let size = disk.size();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let disk: Arc<dyn Device> = Arc::new(disk);
    braid_log::format(&disk, Owner { uid, gid }, &Machine).map_err(|error| refuse(path, &error))?;
    Ok(size)
}

/// Checks a log file system that is not mounted.
///
/// # Errors
/// If it can't be opened, or there is none.
pub fn check(path: &Path) -> Result<Checked, Refusal> {
    let disk = Disk::open(path, Use::Read).map_err(|error| refuse(path, &error))?;
    braid_log::check(&disk).map_err(|error| refuse(path, &error))
}

/// The figures of a log file system that is not mounted.
///
/// # Errors
/// If it can't be opened, there is none, or it can't be used.
pub fn figures(path: &Path) -> Result<Figures, Refusal> {
    let disk = Disk::open(path, Use::Read).map_err(|error| refuse(path, &error))?;
    braid_log::figures(&disk).map_err(|error| refuse(path, &error))
}
