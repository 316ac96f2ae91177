//! How long the data of a file is expected to live, for the kernel and the device.

use std::os::fd::{AsFd, AsRawFd};

/// `F_SET_RW_HINT` of `fcntl(2)`, Linux 4.13.
const SET_RW_HINT: libc::c_int = 1024 + 12;

/// Sets the write-life hint of the inode behind a descriptor: one of the kernel's
/// `RWH_WRITE_LIFE_…`.
///
/// # Errors
/// Those of `fcntl(2)`.
pub(crate) fn set_write_life(fd: impl AsFd, level: u64) -> std::io::Result<()> {
    // SAFETY: the kernel reads the number, which lives beyond the call.
    let done = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), SET_RW_HINT, &raw const level) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
