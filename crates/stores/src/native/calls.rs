//! Calls that need more than one system call, or a choice between two.

use super::btrfs::{BTRFS_SUPER_MAGIC, delayed};
use braid_contract::{
    Access, AccessTimes, Attr, Errno, FallocateMode, FileKind, InodeId, NativeStat, NativeUsage, Renewal,
    Result, SetTime, Timestamp, Usage,
};
use rustix::fs::{
    FallocateFlags, OFlags, StatVfsMountFlags, Statx, StatxFlags, StatxTimestamp, Timespec, Timestamps,
};
use std::os::fd::{AsFd, AsRawFd};

const TMPFS_MAGIC: i64 = 0x0102_1994;
/// ext2 to ext4.
const EXT_MAGIC: i64 = 0xef53;
const XFS_MAGIC: i64 = 0x5846_5342;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// A path that leads to an open descriptor, for calls that take no `O_PATH`.
pub(super) fn proc_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// The flags of `open(2)` that stand for an access.
pub(super) fn flags_of(access: Access) -> OFlags {
    OFlags::CLOEXEC
        | match access {
            Access::Path => OFlags::PATH,
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
            Access::ReadWrite => OFlags::RDWR,
            Access::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
        }
}

/// The kernel's 32-bit encoding of a device number as the C library's.
pub(super) fn decode_device(rdev: u32) -> u64 {
    let major = (rdev & 0xf_ff00) >> 8;
    let minor = rdev & 0xff | (rdev >> 12) & 0xf_ff00;
    rustix::fs::makedev(major, minor)
}

/// The attributes in the contract's form.
pub(super) fn stat_of(stat: &Statx) -> Result<NativeStat> {
    let time = |time: &StatxTimestamp| Timestamp { secs: time.tv_sec, nanos: time.tv_nsec };
    let attr = Attr {
        ino: InodeId(stat.stx_ino),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: time(&stat.stx_atime),
        mtime: time(&stat.stx_mtime),
        ctime: time(&stat.stx_ctime),
        btime: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(&stat.stx_btime)),
        kind: FileKind::from_mode(u32::from(stat.stx_mode)).ok_or(Errno::EIO)?,
        mode: stat.stx_mode & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        // The low 32 bits are the kernel's own encoding.
        rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor) as u32,
        block_size: stat.stx_blksize,
    };
    Ok(NativeStat { attr, device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor) })
}

/// Times to set, in the kernel's form.
pub(super) fn timestamps(atime: Option<SetTime>, mtime: Option<SetTime>) -> Timestamps {
    let timespec = |time| match time {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW as _ },
        Some(SetTime::At(Timestamp { secs, nanos })) => Timespec { tv_sec: secs, tv_nsec: nanos.into() },
    };
    Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) }
}

/// Reserves, frees or zeroes space of a file.
pub(super) fn allocate(fd: impl AsFd, mode: FallocateMode, offset: u64, len: u64) -> rustix::io::Result<()> {
    let allocate = |flags| rustix::io::retry_on_intr(|| rustix::fs::fallocate(&fd, flags, offset, len));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let size_flag = |keep| if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    match mode {
        FallocateMode::Allocate { keep_size } => allocate(size_flag(keep_size)),
        FallocateMode::PunchHole => allocate(punch),
        FallocateMode::ZeroRange { keep_size } => {
            match allocate(FallocateFlags::ZERO_RANGE | size_flag(keep_size)) {
                // Not every file system supports it; the two together do the
                // same.
                Err(rustix::io::Errno::OPNOTSUPP) => {
                    allocate(punch).and_then(|()| allocate(size_flag(keep_size)))
                }
                result => result,
            }
        }
    }
}

/// Space and limits of the file system that `fd` is on.
pub(super) fn usage(fd: impl AsFd) -> Result<NativeUsage> {
    let magic = rustix::fs::fstatfs(&fd)?.f_type as i64;
    // Before the rest, so that data which is allocated in between counts twice
    // rather than not at all.
    let delayed = if magic == BTRFS_SUPER_MAGIC { delayed(&fd) } else { 0 };
    let space = rustix::fs::fstatvfs(&fd)?;
    Ok(NativeUsage {
        space: Usage {
            total: space.f_blocks * space.f_frsize,
            free: (space.f_bfree * space.f_frsize).saturating_sub(delayed),
            available: (space.f_bavail * space.f_frsize).saturating_sub(delayed),
            device: rustix::fs::fstat(&fd)?.st_dev,
        },
        files: space.f_files,
        files_free: space.f_ffree,
        name_max: u32::try_from(space.f_namemax).unwrap_or(u32::MAX),
        read_only: space.f_flag.contains(StatVfsMountFlags::RDONLY),
        volatile: matches!(magic, TMPFS_MAGIC | RAMFS_MAGIC),
        journal_order: matches!(magic, EXT_MAGIC | XFS_MAGIC | TMPFS_MAGIC | RAMFS_MAGIC),
        preallocates: magic == XFS_MAGIC,
        access_times: access_times(space.f_flag),
    })
}

/// The renewal of access times by the options of a mount.
fn access_times(flags: StatVfsMountFlags) -> AccessTimes {
    let renewal = if flags.contains(StatVfsMountFlags::NOATIME) {
        Renewal::Never
    } else if flags.contains(StatVfsMountFlags::RELATIME) {
        Renewal::Relative
    } else {
        Renewal::Always
    };
    AccessTimes { renewal, directories: !flags.contains(StatVfsMountFlags::NODIRATIME) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_decoded_whole() {
        // Major 0xabc and minor 0x12345, as `new_encode_dev` has them.
        let encoded = 0x45 | 0xabc << 8 | (0x12345 & !0xff) << 12;
        assert_eq!(decode_device(encoded), rustix::fs::makedev(0xabc, 0x12345));
        assert_eq!(decode_device(encoded) as u32, encoded);
    }
}
