//! The kernel's end of a FUSE file system: aborting it there works even if it
//! is in use.

use crate::mounts;
use rustix::fs::minor;
use rustix::mount::{MountFlags, mount};
use std::io;
use std::path::Path;

/// The kernel's directories of FUSE connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// The file system that must be mounted there.
const CONTROL: &str = "fusectl";

/// Ends the connection to the daemon of the file system `dev`: its users get
/// errors. A connection that is over already is no error.
///
/// # Errors
/// If the kernel's control file system is not there, or refuses this user.
pub fn abort(dev: u64) -> io::Result<()> {
    let is_there = |mount: &mounts::Mount| mount.fs_type == CONTROL && mount.point == Path::new(CONNECTIONS);
    if !mounts::list()?.iter().any(is_there) {
        let mounted = mount(CONTROL, CONNECTIONS, CONTROL, MountFlags::empty(), None);
        mounted.map_err(|error| {
            let error = io::Error::from(error);
            let what = format!(
                "{CONNECTIONS} is not mounted ({error}); as root: mount -t {CONTROL} none {CONNECTIONS}"
            );
            io::Error::new(error.kind(), what)
        })?;
    }
    let file = format!("{CONNECTIONS}/{}/abort", minor(dev));
    match std::fs::write(&file, "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => {
            result.map_err(|error| io::Error::new(error.kind(), format!("{file} can't be written: {error}")))
        }
    }
}
