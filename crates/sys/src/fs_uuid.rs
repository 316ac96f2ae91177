//! The UUID of a mounted file system (`FS_IOC_GETFSUUID`, Linux 6.9).

use std::os::fd::{AsFd, AsRawFd};

/// `_IOR(0x15, 0, struct fsuuid2)`.
const FS_IOC_GETFSUUID: u32 = 0x8011_1500;

/// The kernel's `struct fsuuid2`.
#[repr(C)]
struct RawUuid {
    len: u8,
    uuid: [u8; 16],
}

/// The UUID of the file system that `fd`, which is not `O_PATH`, is on; `None`
/// if the kernel or the file system does not report it.
#[must_use]
pub fn fs_uuid(fd: impl AsFd) -> Option<[u8; 16]> {
    let mut raw = RawUuid { len: 0, uuid: [0; 16] };
    // SAFETY: `raw` has the layout that this request writes, and lives across
    // the call; file systems that do not know the request refuse it.
    let status = unsafe {
        libc::ioctl(fd.as_fd().as_raw_fd(), FS_IOC_GETFSUUID as libc::Ioctl, (&raw mut raw).cast::<RawUuid>())
    };
    (status == 0 && usize::from(raw.len) == raw.uuid.len()).then_some(raw.uuid)
}
