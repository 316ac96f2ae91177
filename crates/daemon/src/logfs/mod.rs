//! Log-structured file systems: made, mounted, checked and shown. Mounted, one is the bottom
//! of a stack (`bottom`), as a volume is, but has no tiers. [`settings`] has its settings in a
//! stack file.

pub(crate) mod bottom;
pub(crate) mod look;
mod refuse;
pub mod settings;

pub use braid_log::{Checked, Salvaged};

use refuse::{refuse, refuse_repair};

use crate::refusal::{Place, Refusal};
use braid_log::{Device, Disk, Figures, Owner, Use};
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

/// A log file system after a repair.
pub struct Repaired {
    /// What was wrong; nothing, and nothing was written, if it was sound.
    pub salvaged: Option<Salvaged>,
    /// The check after the repair.
    pub checked: Checked,
}

/// Checks a log file system that is not mounted, and makes a sound one of what can be read of
/// it if it is damaged.
///
/// # Errors
/// If it can't be opened, nothing of one is left, or there is no room for the repair.
pub fn repair(path: &Path) -> Result<Repaired, Refusal> {
    let disk: Arc<dyn Device> = Arc::new(Disk::open(path, Use::Write).map_err(|error| refuse(path, &error))?);
    // What can't be checked may be repaired all the same.
    if let Ok(checked) = braid_log::check(&*disk)
        && checked.problems.is_empty()
    {
        return Ok(Repaired { salvaged: None, checked });
    }
    let repaired = braid_log::repair(&disk, &Machine).map_err(|error| refuse_repair(path, &error))?;
    let checked = braid_log::check(&*disk).map_err(|error| refuse(path, &error))?;
    Ok(Repaired { salvaged: Some(repaired), checked })
}

/// The figures of a log file system that is not mounted.
///
/// # Errors
/// If it can't be opened, there is none, or it can't be used.
pub fn figures(path: &Path) -> Result<Figures, Refusal> {
    let disk = Disk::open(path, Use::Read).map_err(|error| refuse(path, &error))?;
    braid_log::figures(&disk).map_err(|error| refuse(path, &error))
}
