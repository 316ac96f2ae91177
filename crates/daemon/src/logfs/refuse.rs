//! Refusals of devices that can't be used, with advice.

use crate::refusal::{Located, Place, Refusal};
use braid_contract::{Errno, Error, Shown};
use std::path::{Path, PathBuf};

/// Refuses a device that an argument names, with advice by the error.
pub(super) fn refuse(path: &Path, error: &Error) -> Refusal {
    refuse_at(&argument(path), error)
}

/// Refuses to repair a device that an argument names.
pub(super) fn refuse_repair(path: &Path, error: &Error) -> Refusal {
    let device = argument(path);
    match error.errno() {
        Errno::ENOSPC => {
            let shown = path.shown();
            let advice = format!(
                "it is as it was; copy out what can be read, and make it anew: \
                 braid log mount --salvage {shown} DIRECTORY"
            );
            say(&device, error, advice)
        }
        _ => refuse_salvage(&device, error),
    }
}

fn argument(path: &Path) -> Located<PathBuf> {
    Located::new(path.to_owned(), Place::flag(path.to_string_lossy()))
}

/// Refuses a device, with advice by the error.
pub(super) fn refuse_at(device: &Located<PathBuf>, error: &Error) -> Refusal {
    let shown = device.value.shown();
    let advice = match error.errno() {
        Errno::ENOENT => format!("make one first: braid log create {shown} --size SIZE"),
        Errno::EBUSY => "unmount it first: braid umount MOUNTPOINT".into(),
        Errno::EUCLEAN => {
            format!(
                "see what is wrong: braid log check {shown}; \
                 read what is left: braid log mount --salvage {shown} DIRECTORY"
            )
        }
        Errno::ENODEV => "name a block device, a file, or the generic device of an NVMe namespace".into(),
        Errno::EINVAL => format!(
            "make one first: braid log create {shown}; \
             or read what is left of one: braid log mount --salvage {shown} DIRECTORY"
        ),
        Errno::EACCES | Errno::EPERM => "use it as a user who may read and write it".into(),
        _ => "check the device; the kernel's log may say more".into(),
    };
    say(device, error, advice)
}

/// Refuses a device of which nothing can be salvaged.
pub(super) fn refuse_salvage(device: &Located<PathBuf>, error: &Error) -> Refusal {
    match error.errno() {
        Errno::EINVAL => {
            say(device, error, "name the device that had it; its files are in your backups".into())
        }
        _ => refuse_at(device, error),
    }
}

fn say(device: &Located<PathBuf>, error: &Error, advice: String) -> Refusal {
    let shown = device.value.shown();
    let text = error.to_string();
    // An argument is its own place, which is said once.
    let said = format!("{shown}: ");
    let found = text.strip_prefix(&said).unwrap_or(&text);
    let is_argument = device.place == Place::flag(device.value.to_string_lossy());
    let found = if is_argument { found.to_owned() } else { format!("{said}{found}") };
    device.place.refuse(found, advice).about(error.errno())
}
