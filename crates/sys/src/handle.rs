//! File handles: identifiers of inodes that survive renames, restarts and reuse
//! of inode numbers (`name_to_handle_at(2)`). Here they are a type and bytes;
//! the contract has the type for them.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const BYTES_MAX: usize = 128;

/// Most attempts to open an inode while the kernel lacks memory.
const TRIES: u32 = 1000;

/// The kernel's `struct file_handle` with room for the longest handle.
#[repr(C, align(8))]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; BYTES_MAX],
}

/// Type and bytes of the handle of the inode that `fd` (which may be `O_PATH`)
/// refers to.
///
/// # Errors
/// `EOPNOTSUPP` if the file system has no handles.
pub fn handle_of(fd: impl AsFd) -> io::Result<(i32, Vec<u8>)> {
    const EMPTY: &CStr = c"";
    let mut raw = RawHandle { handle_bytes: BYTES_MAX as u32, handle_type: 0, f_handle: [0; BYTES_MAX] };
    let mut mount_id = 0;
    // SAFETY: `raw` has the layout of `struct file_handle` with room for the
    // `handle_bytes` that it announces, and lives across the call; the name is
    // a NUL-terminated constant; `mount_id` is a valid int.
    let status = unsafe {
        libc::name_to_handle_at(
            fd.as_fd().as_raw_fd(),
            EMPTY.as_ptr(),
            (&raw mut raw).cast(),
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    let len = (raw.handle_bytes as usize).min(BYTES_MAX);
    Ok((raw.handle_type, raw.f_handle[..len].to_vec()))
}

/// Opens an inode by type and bytes of its handle. `mount` is any descriptor,
/// not `O_PATH`, on the same mounted file system; `flags` are those of
/// `open(2)`.
///
/// # Errors
/// `ESTALE` if the inode does not exist any more; `EPERM` without
/// `CAP_DAC_READ_SEARCH`; `EINVAL` if there are more bytes than a handle has;
/// `ENOMEM`.
pub fn open_handle(
    mount: impl AsFd,
    kind: i32,
    bytes: &[u8],
    flags: rustix::fs::OFlags,
) -> io::Result<OwnedFd> {
    let mut raw = RawHandle { handle_bytes: bytes.len() as u32, handle_type: kind, f_handle: [0; BYTES_MAX] };
    let Some(room) = raw.f_handle.get_mut(..bytes.len()) else {
        return Err(rustix::io::Errno::INVAL.into());
    };
    room.copy_from_slice(bytes);
    let flags = (flags | rustix::fs::OFlags::CLOEXEC).bits().cast_signed();
    let mount = mount.as_fd().as_raw_fd();
    let mut open = || {
        // SAFETY: `raw` has the layout of `struct file_handle`, announces no
        // more bytes than it has, and lives across the call.
        let fd = unsafe { libc::open_by_handle_at(mount, (&raw mut raw).cast(), flags) };
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
    };
    let mut opened = open();
    for _ in 0..TRIES {
        // The kernel also reports this for the number of a removed inode while
        // a new inode with that number is being created (seen with ext4 on
        // 6.18).
        if !opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOMEM)) {
            break;
        }
        std::thread::yield_now();
        opened = open();
    }
    let fd = opened?;
    // SAFETY: the call succeeded, so `fd` is open and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `FILEID_INO32_GEN`: number and generation, as on ext4, ext2 and f2fs.
const INO32_GEN: i32 = 1;

/// XFS's 64-bit number, and generation.
const XFS_INO64_GEN: i32 = 0x81;

/// `FILEID_BTRFS_WITHOUT_PARENT`: number, subvolume and generation.
const BTRFS: i32 = 0x4d;

/// Type and bytes of a handle of the inode `ino`, on the file system that
/// `mount` is on, which must not be `O_PATH`. Whether the inode exists shows
/// when it is opened.
///
/// # Errors
/// `EOPNOTSUPP` if handles of that file system can't be made from a number;
/// `ESTALE` if there is no such inode; `EPERM` without `CAP_SYS_ADMIN` (XFS).
pub fn numbered_handle(mount: impl AsFd, ino: u64) -> io::Result<(i32, Vec<u8>)> {
    let (kind, like) = handle_of(&mount)?;
    let bytes = match (kind, like.len()) {
        // ext4 and btrfs accept generation 0 for any.
        (INO32_GEN, 8) => {
            let ino = u32::try_from(ino).map_err(|_| rustix::io::Errno::STALE)?;
            [ino.to_ne_bytes(), [0; 4]].concat()
        }
        (XFS_INO64_GEN, 12) => [&ino.to_ne_bytes()[..], &xfs_generation(mount, ino)?.to_ne_bytes()].concat(),
        (BTRFS, 20) => [&ino.to_ne_bytes()[..], &like[8..16], &[0; 4]].concat(),
        _ => return Err(rustix::io::Errno::OPNOTSUPP.into()),
    };
    Ok((kind, bytes))
}

/// `struct xfs_bulk_ireq`, with room for the single answer.
#[repr(C)]
#[derive(Default)]
struct XfsBulkRequest {
    ino: u64,
    flags: u32,
    icount: u32,
    ocount: u32,
    agno: u32,
    reserved: [u64; 5],
    answer: XfsBulkStat,
}

/// The needed part of `struct xfs_bulkstat`.
#[repr(C)]
#[derive(Default)]
struct XfsBulkStat {
    ino: u64,
    sizes_and_times: [u64; 7],
    generation: u32,
    rest: [u32; 31],
}

/// The generation of an inode of XFS.
fn xfs_generation(mount: impl AsFd, ino: u64) -> io::Result<u32> {
    /// `XFS_IOC_BULKSTAT`, whose size is that of the request alone.
    const BULKSTAT: libc::Ioctl = (2 << 30 | 64 << 16 | (b'X' as libc::Ioctl) << 8) | 127;
    const _: () = assert!(size_of::<XfsBulkRequest>() == 64 + 192);
    let mut request = XfsBulkRequest { ino, icount: 1, ..XfsBulkRequest::default() };
    // SAFETY: the request has the kernel's layout, announces room for one
    // answer, which follows it, and lives across the call; all of it is plain
    // numbers, so whatever is written there is valid.
    let status = unsafe { libc::ioctl(mount.as_fd().as_raw_fd(), BULKSTAT, &raw mut request) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // It answers with the next existing inode.
    if request.ocount != 1 || request.answer.ino != ino {
        return Err(rustix::io::Errno::STALE.into());
    }
    Ok(request.answer.generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::OFlags;
    use std::fs::File;

    #[test]
    fn an_inode_is_found_again_after_a_rename_and_not_after_removal() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("a")).unwrap();
        let Ok((kind, bytes)) = handle_of(&file) else {
            return; // A file system without handles has nothing to test.
        };
        drop(file);
        std::fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        let mount = File::open(dir.path()).unwrap();
        match open_handle(&mount, kind, &bytes, OFlags::PATH) {
            Ok(fd) => assert_eq!(handle_of(fd).unwrap(), (kind, bytes.clone())),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
        std::fs::remove_file(dir.path().join("b")).unwrap();
        assert!(open_handle(&mount, kind, &bytes, OFlags::PATH).is_err());
    }

    #[test]
    fn the_number_of_an_inode_that_is_gone_may_be_given_again_meanwhile() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let mount = File::open(dir.path()).unwrap();
        let made = |name: &str| {
            let path = dir.path().join(name);
            let handle = handle_of(File::create(&path).unwrap());
            std::fs::remove_file(path).unwrap();
            handle
        };
        let Ok((kind, bytes)) = made("gone") else {
            return; // A file system without handles has nothing to test.
        };
        let end = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let makes = scope.spawn(|| {
                while !end.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = made("new");
                }
            });
            let found: std::collections::BTreeSet<_> = (0..200_000)
                .map(|_| open_handle(&mount, kind, &bytes, OFlags::PATH).unwrap_err().raw_os_error())
                .collect();
            end.store(true, std::sync::atomic::Ordering::Relaxed);
            makes.join().unwrap();
            assert!(found.is_subset(&[Some(libc::ESTALE), Some(libc::EPERM)].into()), "{found:?}");
        });
    }

    #[test]
    fn a_handle_with_too_many_bytes_is_refused() {
        let mount = File::open("/").unwrap();
        let error = open_handle(&mount, 1, &[0; BYTES_MAX + 1], OFlags::PATH).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
