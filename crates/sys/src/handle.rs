//! File handles: names of inodes that survive renames, restarts and reuse of
//! inode numbers (`name_to_handle_at(2)`).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const BYTES_MAX: usize = 128;

/// The kernel's `struct file_handle` with room for the longest handle.
#[repr(C, align(8))]
struct RawHandle {
    handle_bytes: u32,
    handle_type: i32,
    f_handle: [u8; BYTES_MAX],
}

/// Names an inode of one file system for as long as the inode exists.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileHandle {
    kind: i32,
    bytes: Box<[u8]>,
}

impl FileHandle {
    /// The handle of the inode that `fd` (which may be `O_PATH`) refers to.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the file system has no handles.
    pub fn of(fd: impl AsFd) -> io::Result<Self> {
        const EMPTY: &CStr = c"";
        let mut raw = RawHandle { handle_bytes: BYTES_MAX as u32, handle_type: 0, f_handle: [0; BYTES_MAX] };
        let mut mount_id = 0;
        // SAFETY: `raw` has the layout of `struct file_handle` with room for
        // the `handle_bytes` that it announces, and lives across the call; the
        // name is a NUL-terminated constant; `mount_id` is a valid int.
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
        Ok(Self { kind: raw.handle_type, bytes: raw.f_handle[..len].into() })
    }

    /// A handle that was stored as its type and bytes; `None` if there are
    /// more bytes than a handle has.
    #[must_use]
    pub fn from_parts(kind: i32, bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= BYTES_MAX).then(|| Self { kind, bytes: bytes.into() })
    }

    /// The handle's type and bytes, to be stored.
    #[must_use]
    pub fn parts(&self) -> (i32, &[u8]) {
        (self.kind, &self.bytes)
    }

    /// Opens the inode. `mount` is any descriptor, not `O_PATH`, on the same
    /// mounted file system; `flags` are those of `open(2)`.
    ///
    /// # Errors
    /// `ESTALE` if the inode does not exist any more; `EPERM` without
    /// `CAP_DAC_READ_SEARCH`.
    pub fn open(&self, mount: impl AsFd, flags: rustix::fs::OFlags) -> io::Result<OwnedFd> {
        let mut raw = RawHandle {
            handle_bytes: self.bytes.len() as u32,
            handle_type: self.kind,
            f_handle: [0; BYTES_MAX],
        };
        raw.f_handle[..self.bytes.len()].copy_from_slice(&self.bytes);
        let flags = (flags | rustix::fs::OFlags::CLOEXEC).bits().cast_signed();
        // SAFETY: `raw` has the layout of `struct file_handle`, announces no
        // more bytes than it has, and lives across the call.
        let fd = unsafe { libc::open_by_handle_at(mount.as_fd().as_raw_fd(), (&raw mut raw).cast(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so `fd` is open and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// A number that differs between two inodes which had the same inode
    /// number one after another, as far as the file system tells them apart.
    #[must_use]
    pub fn generation(&self) -> u64 {
        // FNV-1a: stable, and the handles are a few words.
        self.bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
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
        let Ok(handle) = FileHandle::of(&file) else {
            return; // A file system without handles has nothing to test.
        };
        drop(file);
        std::fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        let mount = File::open(dir.path()).unwrap();
        let (kind, bytes) = handle.parts();
        let stored = FileHandle::from_parts(kind, bytes).unwrap();
        match stored.open(&mount, OFlags::PATH) {
            Ok(fd) => assert_eq!(FileHandle::of(fd).unwrap(), handle),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
        std::fs::remove_file(dir.path().join("b")).unwrap();
        assert!(stored.open(&mount, OFlags::PATH).is_err());
    }
}
