//! Attributes of a mount that is reached through descriptors only.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets and clears attributes (`MOUNT_ATTR_…`) of the mount whose root `mount`
/// is.
///
/// # Errors
/// Those of `mount_setattr(2)`: `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` if it
/// is not the root of a mount, `ENOSYS` before Linux 5.12.
pub fn set_mount_attributes(mount: impl AsFd, set: u64, clear: u64) -> io::Result<()> {
    const EMPTY: &std::ffi::CStr = c"";
    let attributes = libc::mount_attr { attr_set: set, attr_clr: clear, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is a NUL-terminated constant; the attributes have the
    // kernel's layout and the size that is announced, and live across the call.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            EMPTY.as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
