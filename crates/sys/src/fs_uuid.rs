//! The UUID of a mounted file system.

use std::os::fd::{AsFd, AsRawFd};

/// `_IOR(0x15, 0, struct fsuuid2)`, Linux 6.9.
const FS_IOC_GETFSUUID: u32 = 0x8011_1500;
/// `_IOR(0x94, 31, struct btrfs_ioctl_fs_info_args)`.
const BTRFS_IOC_FS_INFO: u32 = 0x8400_941f;

/// The kernel's `struct fsuuid2`.
#[repr(C)]
struct RawUuid {
    len: u8,
    uuid: [u8; 16],
}

/// The kernel's `struct btrfs_ioctl_fs_info_args`.
#[repr(C)]
struct RawBtrfsInfo {
    max_id: u64,
    num_devices: u64,
    fsid: [u8; 16],
    rest: [u8; 992],
}

/// The UUID of the file system that `fd`, which is not `O_PATH`, is on; `None`
/// if the kernel or the file system does not report it.
#[must_use]
pub fn fs_uuid(fd: impl AsFd) -> Option<[u8; 16]> {
    // btrfs does not answer the general request.
    general(&fd).or_else(|| of_btrfs(&fd))
}

fn general(fd: impl AsFd) -> Option<[u8; 16]> {
    let mut raw = RawUuid { len: 0, uuid: [0; 16] };
    // SAFETY: `raw` has the layout that this request writes, and lives across
    // the call; file systems that do not know the request refuse it.
    let status = unsafe {
        libc::ioctl(fd.as_fd().as_raw_fd(), FS_IOC_GETFSUUID as libc::Ioctl, (&raw mut raw).cast::<RawUuid>())
    };
    (status == 0 && usize::from(raw.len) == raw.uuid.len()).then_some(raw.uuid)
}

fn of_btrfs(fd: impl AsFd) -> Option<[u8; 16]> {
    let mut raw = RawBtrfsInfo { max_id: 0, num_devices: 0, fsid: [0; 16], rest: [0; 992] };
    // SAFETY: as above.
    let status = unsafe {
        libc::ioctl(
            fd.as_fd().as_raw_fd(),
            BTRFS_IOC_FS_INFO as libc::Ioctl,
            (&raw mut raw).cast::<RawBtrfsInfo>(),
        )
    };
    (status == 0).then_some(raw.fsid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_are_the_kernels() {
        let size = |request: u32| (request >> 16 & 0x3fff) as usize;
        assert_eq!(size(FS_IOC_GETFSUUID), size_of::<RawUuid>());
        assert_eq!(size(BTRFS_IOC_FS_INFO), size_of::<RawBtrfsInfo>());
    }
}
