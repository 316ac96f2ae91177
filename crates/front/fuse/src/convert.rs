//! Conversions between the library's types and the contract's. Pure; used by
//! the rest of this crate.

use braid_contract as contract;
use braid_contract::{
    Attr, Caller, FallocateMode, FileKind, HandleId, InodeId, RenameMode, SeekTarget, SetTime, Timestamp,
    XattrMode,
};
use fuser::{FileAttr, FileHandle, FileType, INodeNo, RenameFlags, Request, TimeOrNow};
use rustix::fs::{FallocateFlags, OFlags, XattrFlags};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest error number that the kernel accepts in a reply. It discards a
/// reply with a larger one, and the caller would wait for ever.
const ERRNO_MAX: i32 = 511;

/// The highest count that fits a copy's reply and leaves the end page-aligned.
const COPY_MAX_BYTES: u64 = 0xffff_f000;

pub(crate) fn inode(ino: INodeNo) -> InodeId {
    InodeId(ino.0)
}

pub(crate) fn handle(fh: FileHandle) -> HandleId {
    HandleId(fh.0)
}

/// The identity in a request. The kernel sends the id of the thread and not
/// that of its process, so both are the thread's here.
pub(crate) fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid(), gid: req.gid(), groups: None, pid: req.pid(), tid: req.pid(), of_stack: false }
}

/// The error number to answer with.
///
/// `ENOSYS` is answered as `EOPNOTSUPP`: to the kernel it means that the
/// request is unknown for the life of the mount, and for `fsync` that there is
/// nothing to sync.
pub(crate) fn errno(errno: contract::Errno) -> fuser::Errno {
    match errno {
        contract::Errno::ENOSYS => fuser::Errno::EOPNOTSUPP,
        contract::Errno(number @ 1..=ERRNO_MAX) => fuser::Errno::from_i32(number),
        contract::Errno(_) => fuser::Errno::EIO,
    }
}

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        // Linux asks for the time of birth by a request of its own.
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: attr.mode & 0o7777,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.block_size,
        flags: 0,
    }
}

/// The attributes of a negative entry: inode number 0 means to the kernel that
/// the name does not exist, and that it may cache that.
pub(crate) fn negative_attr() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

/// A time for a reply; the library splits it again by rounding seconds down,
/// which is exact. Times outside the range of `SystemTime` become the epoch.
pub(crate) fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.secs.unsigned_abs());
    let whole = if time.secs < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// A time from a `setattr` request, correcting the conversion of the library.
///
/// Before the epoch, the kernel sends `secs` rounded down and `nanos` counted
/// up from there, and the library subtracts *both* from the epoch
/// (`system_time_from_time`): the time it hands over is wrong by twice the
/// nanoseconds. The distance to the epoch still holds the two numbers apart.
fn timestamp_from_request(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp {
            secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanos: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let secs = 0_i64.checked_sub_unsigned(before.as_secs()).unwrap_or(i64::MIN);
            Timestamp { secs, nanos: before.subsec_nanos() }
        }
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp_from_request(time)),
    }
}

/// Flags of `open(2)`, of an open or of one read or write.
pub(crate) fn open_flags(bits: i32) -> contract::OpenFlags {
    let flags = OFlags::from_bits_retain(bits.cast_unsigned());
    let access = flags & OFlags::RWMODE;
    contract::OpenFlags {
        read: access != OFlags::WRONLY,
        write: access == OFlags::WRONLY || access == OFlags::RDWR,
        direct: flags.contains(OFlags::DIRECT),
        // O_SYNC contains the bit of O_DSYNC.
        sync: flags.contains(OFlags::DSYNC),
    }
}

pub(crate) fn is_exclusive(bits: i32) -> bool {
    OFlags::from_bits_retain(bits.cast_unsigned()).contains(OFlags::EXCL)
}

/// `None` for a combination that has no meaning here. A file system without
/// `modes` can only replace.
pub(crate) fn rename_mode(flags: RenameFlags, modes: bool) -> Option<RenameMode> {
    if flags.is_empty() {
        Some(RenameMode::Replace)
    } else if !modes {
        None
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Some(RenameMode::NoReplace)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Some(RenameMode::Exchange)
    } else if flags - RenameFlags::RENAME_NOREPLACE == RenameFlags::RENAME_WHITEOUT {
        // The kernel has seen that nothing is there to be replaced.
        Some(RenameMode::Whiteout)
    } else {
        None
    }
}

/// `None` for a mode that is not supported.
pub(crate) fn fallocate_mode(bits: i32) -> Option<FallocateMode> {
    let flags = FallocateFlags::from_bits_retain(bits.cast_unsigned());
    let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
    let action = flags - FallocateFlags::KEEP_SIZE;
    if action.is_empty() {
        Some(FallocateMode::Allocate { keep_size })
    } else if action == FallocateFlags::PUNCH_HOLE && keep_size {
        Some(FallocateMode::PunchHole)
    } else if action == FallocateFlags::ZERO_RANGE {
        Some(FallocateMode::ZeroRange { keep_size })
    } else {
        None
    }
}

/// `None` for other searches than for data or a hole.
pub(crate) fn seek_target(whence: i32) -> Option<SeekTarget> {
    // The numbers are the same on every Linux architecture.
    match whence {
        3 => Some(SeekTarget::Data),
        4 => Some(SeekTarget::Hole),
        _ => None,
    }
}

/// `None` for flags that are unknown or exclude each other.
pub(crate) fn xattr_mode(bits: i32) -> Option<XattrMode> {
    let flags = XattrFlags::from_bits_retain(bits.cast_unsigned());
    if flags.is_empty() {
        Some(XattrMode::Set)
    } else if flags == XattrFlags::CREATE {
        Some(XattrMode::Create)
    } else if flags == XattrFlags::REPLACE {
        Some(XattrMode::Replace)
    } else {
        None
    }
}

/// The part of a copy whose count a reply can hold.
pub(crate) fn copy_len(len: u64) -> u64 {
    len.min(COPY_MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library's conversion of the seconds and nanoseconds in a request.
    fn as_the_library_reads(secs: i64, nanos: u32) -> SystemTime {
        if secs >= 0 {
            UNIX_EPOCH + Duration::new(secs.unsigned_abs(), nanos)
        } else {
            UNIX_EPOCH - Duration::new(secs.unsigned_abs(), nanos)
        }
    }

    /// The library's conversion for a reply.
    fn as_the_library_writes(time: SystemTime) -> (i64, u32) {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => (after.as_secs().cast_signed(), after.subsec_nanos()),
            Err(before) => {
                let before = before.duration();
                match before.subsec_nanos() {
                    0 => (0_i64.wrapping_sub_unsigned(before.as_secs()), 0),
                    nanos => (0_i64.wrapping_sub_unsigned(before.as_secs()) - 1, 1_000_000_000 - nanos),
                }
            }
        }
    }

    const TIMES: [(i64, u32); 11] = [
        (0, 0),
        (0, 1),
        (1, 999_999_999),
        (-1, 0),
        (-1, 1),
        (-1, 999_999_999),
        (-2_177_452_800, 123_456_789), // 1901
        (1_700_000_000, 123_456_789),
        (i64::MIN, 0),
        (i64::MIN + 1, 5),
        (i64::MAX, 999_999_999),
    ];

    #[test]
    fn times_are_exact_in_both_directions() {
        for (secs, nanos) in TIMES {
            let time = Timestamp { secs, nanos };
            assert_eq!(timestamp_from_request(as_the_library_reads(secs, nanos)), time);
            assert_eq!(as_the_library_writes(system_time(time)), (secs, nanos));
        }
    }

    #[test]
    fn impossible_nanoseconds_do_not_panic() {
        let time = Timestamp { secs: i64::MAX, nanos: u32::MAX };
        assert_eq!(system_time(time), UNIX_EPOCH);
    }

    #[test]
    fn every_errno_is_one_that_the_kernel_takes() {
        assert_eq!(errno(contract::Errno::ENOSPC), fuser::Errno::ENOSPC);
        assert_eq!(errno(contract::Errno::EUCLEAN).code(), 117);
        for (ours, answered) in [(-5, 5), (0, 5), (511, 511), (512, 5), (i32::MAX, 5), (38, 95)] {
            assert_eq!(errno(contract::Errno(ours)).code(), answered, "errno {ours}");
        }
    }

    #[test]
    fn access_modes_and_flags() {
        let flags = |bits: OFlags| open_flags(bits.bits().cast_signed());
        let read = contract::OpenFlags { read: true, ..Default::default() };
        let write = contract::OpenFlags { write: true, ..Default::default() };
        assert_eq!(flags(OFlags::RDONLY), read);
        assert_eq!(flags(OFlags::WRONLY), write);
        assert_eq!(flags(OFlags::RDWR), contract::OpenFlags { read: true, ..write });
        assert_eq!(flags(OFlags::RDONLY | OFlags::DIRECT), contract::OpenFlags { direct: true, ..read });
        assert_eq!(flags(OFlags::WRONLY | OFlags::SYNC), contract::OpenFlags { sync: true, ..write });
        assert_eq!(flags(OFlags::WRONLY | OFlags::DSYNC), contract::OpenFlags { sync: true, ..write });
    }

    #[test]
    fn fallocate_modes() {
        let mode = |bits: FallocateFlags| fallocate_mode(bits.bits().cast_signed());
        let keep = FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate_mode(0), Some(FallocateMode::Allocate { keep_size: false }));
        assert_eq!(mode(keep), Some(FallocateMode::Allocate { keep_size: true }));
        assert_eq!(mode(FallocateFlags::PUNCH_HOLE | keep), Some(FallocateMode::PunchHole));
        assert_eq!(mode(FallocateFlags::ZERO_RANGE), Some(FallocateMode::ZeroRange { keep_size: false }));
        assert_eq!(
            mode(FallocateFlags::ZERO_RANGE | keep),
            Some(FallocateMode::ZeroRange { keep_size: true })
        );
        for refused in [
            FallocateFlags::PUNCH_HOLE,
            FallocateFlags::COLLAPSE_RANGE,
            FallocateFlags::INSERT_RANGE,
            FallocateFlags::UNSHARE_RANGE | keep,
        ] {
            assert_eq!(mode(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn rename_and_xattr_flags_that_exclude_each_other_are_refused() {
        let mode = |flags| rename_mode(flags, true);
        assert_eq!(mode(RenameFlags::RENAME_NOREPLACE), Some(RenameMode::NoReplace));
        assert_eq!(mode(RenameFlags::RENAME_EXCHANGE), Some(RenameMode::Exchange));
        assert_eq!(mode(RenameFlags::RENAME_WHITEOUT), Some(RenameMode::Whiteout));
        assert_eq!(mode(RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE), None);
        let both = RenameFlags::RENAME_WHITEOUT | RenameFlags::RENAME_NOREPLACE;
        assert_eq!(mode(both), Some(RenameMode::Whiteout));
        assert_eq!(mode(RenameFlags::RENAME_WHITEOUT | RenameFlags::RENAME_EXCHANGE), None);
        assert_eq!(
            [0, 1, 2, 3, 4].map(xattr_mode)[1..],
            [Some(XattrMode::Create), Some(XattrMode::Replace), None, None]
        );
    }
}
