//! The directory of a tier: opened, locked, measured.

use rustix::fs::{FlockOperation, Mode, OFlags, StatVfsMountFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Opens a directory and locks it, so that one process at a time uses it as a
/// tier. The lock ends with the descriptor. Creates nothing.
///
/// # Errors
/// Those of `open(2)`; `EBUSY` if another process has the lock.
pub fn lock_tier_dir(dir: &Path) -> io::Result<OwnedFd> {
    let fd = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(fd),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(rustix::io::Errno::BUSY.into()),
        Err(error) => Err(error.into()),
    }
}

/// Space of the file system that a directory is on, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Its size.
    pub total: u64,
    /// What nobody uses.
    pub free: u64,
    /// What this process may use.
    pub available: u64,
    /// Its device number.
    pub device: u64,
    /// Whether it refuses writes.
    pub read_only: bool,
}

/// Measures the space of the file system that `dir` is on.
///
/// # Errors
/// Those of `statvfs(3)`.
pub fn measure_space(dir: impl AsFd) -> io::Result<Space> {
    let space = rustix::fs::fstatvfs(&dir)?;
    Ok(Space {
        total: space.f_blocks * space.f_frsize,
        free: space.f_bfree * space.f_frsize,
        available: space.f_bavail * space.f_frsize,
        device: rustix::fs::fstat(&dir)?.st_dev,
        read_only: space.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_locked_once_and_measured() {
        let dir = tempfile::tempdir().unwrap();
        let fd = lock_tier_dir(dir.path()).unwrap();
        assert_eq!(lock_tier_dir(dir.path()).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        let space = measure_space(&fd).unwrap();
        assert!(space.available <= space.free && space.free <= space.total && !space.read_only);
        drop(fd);
        assert!(lock_tier_dir(dir.path()).is_ok());
    }
}
