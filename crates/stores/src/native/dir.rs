//! Directories that are opened by a path: the roots of tiers.

use super::fd::KernelFd;
use super::own_mount::OwnMount;
use braid_contract::{AccessTimes, Context, Fd, Result, Shown};
use braid_sys::lock_dir;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use std::path::Path;

/// Opens a directory and locks it, so that one process at a time uses it as a
/// tier. The lock ends with the descriptor. Creates nothing.
///
/// # Errors
/// Those of `open(2)`; `EBUSY` if another process has the lock.
pub fn open_tier_dir(dir: &Path) -> Result<Fd> {
    let locked = open_dir(dir).and_then(|fd| try_lock(&fd).map(|()| fd));
    locked.with_context(|| dir.shown().to_string())
}

/// The same directory, already opened and locked, through a mount of its own
/// with these settings for access times, whatever the file system is mounted
/// with. The lock is kept, and mounts below the directory are not visible.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOSYS` before Linux 5.12.
pub fn with_access_times(dir: &Fd, times: AccessTimes) -> Result<Fd> {
    let visible = KernelFd::of(dir.as_native())?;
    KernelFd::root_of(OwnMount::of(visible, Fd::clone(dir), times)?)
}

/// Opens a directory without locking it.
///
/// # Errors
/// Those of `open(2)`.
pub fn open_dir(dir: &Path) -> Result<Fd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(KernelFd::open(rustix::fs::open(dir, flags, Mode::empty())?))
}

/// Locks an open directory of the kernel's; `EBUSY` if another process has the
/// lock.
pub(crate) fn try_lock(dir: &Fd) -> Result<()> {
    lock_dir(KernelFd::of(dir.as_native())?)?;
    Ok(())
}

/// The mount that a descriptor was opened through, if the kernel reports it.
pub(crate) fn mount_of(fd: &Fd) -> Option<u64> {
    let fd = KernelFd::of(fd.as_native()).ok()?;
    let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// Writes all dirty data of a file to the device; where there is no call for
/// that alone, syncs the file.
pub(crate) fn write_back(file: &Fd) -> Result<()> {
    match KernelFd::of(file.as_native()) {
        Ok(fd) => Ok(braid_sys::write_back(fd)?),
        Err(_) => file.sync(true),
    }
}
