//! Refusals of log file systems, and of settings of their mounts.

use super::refuse::refuse_at;
use super::settings::LogSettings;
use crate::config::{Config, MountSettings, is_readonly};
use crate::refusal::{Place, Refusal};
use braid_contract::{Errno, Error, Renewal};
use braid_log::{Disk, Use};

/// Refuses a log file system that can't be mounted like this. Its device is not changed.
///
/// # Errors
/// The first obstacle.
pub(crate) fn look(log: &LogSettings, config: &Config) -> Result<(), Refusal> {
    unfit(&config.mount, config.create)?;
    if let Some(salvage) = log.salvage.as_ref().filter(|salvage| salvage.value) {
        // A stack that is not mounted has no options.
        if config.direct().is_none() && !is_readonly(&config.mount.options) {
            let advice = "write mount: { options: [ro] }";
            return Err(salvage.place.refuse("what is salvaged is only read", advice));
        }
        // What is left of it is found when it is opened.
        return Disk::open_by(log.driver, &log.device.value, Use::Read)
            .map(drop)
            .map_err(|error| refuse_at(&log.device, &error));
    }
    let disk = Disk::open_by(log.driver, &log.device.value, Use::Write)
        .map_err(|error| refuse_at(&log.device, &error))?;
    match braid_log::is_log(&disk).map_err(|error| refuse_at(&log.device, &error))? {
        true => Ok(()),
        false => Err(refuse_at(&log.device, &Error::new(Errno::EINVAL, "there is no log file system in it"))),
    }
}

/// Refuses settings of a mount that a log file system can't keep to.
fn unfit(mount: &MountSettings, create: bool) -> Result<(), Refusal> {
    if create {
        let advice = "make one first: braid log create DEVICE; then mount without this flag";
        return Err(Place::flag("--create").refuse("a mount makes no log file system", advice));
    }
    if let Some(inodes) = &mount.inodes {
        let found = "a log file system has all inodes in memory, whatever the kernel remembers";
        return Err(inodes.place.refuse(found, "leave it out"));
    }
    let times = braid_fuse::access_times(&mount.options);
    if times.is_some_and(|times| times.renewal == Renewal::Always) {
        let found = "reading does not renew access times on a log file system";
        return Err(Place::flag("option strictatime").refuse(found, "leave it out"));
    }
    Ok(())
}
