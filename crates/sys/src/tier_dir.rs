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
    lock_dir(&fd)?;
    Ok(fd)
}

/// Locks an open directory.
///
/// # Errors
/// `EBUSY` if somebody else has the lock.
pub fn lock_dir(dir: impl AsFd) -> io::Result<()> {
    match rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
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
    /// Inodes that it can have, 0 where there is no limit.
    pub files: u64,
    /// Inodes that it can still have.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
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
        files: space.f_files,
        files_free: space.f_ffree,
        name_max: u32::try_from(space.f_namemax).unwrap_or(u32::MAX),
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
