//! A native file system as Braid uses it: by descriptors.
//!
//! The namespace of a volume and the objects of directory tiers are on file
//! systems of the kernel. All access to them goes through [`NativeFd`], so that
//! a simulated file system, which forgets unsynced data, can replace the
//! kernel's, and the code above it can be tested for losses in a crash.

use crate::{
    Attr, Errno, FallocateMode, RenameMode, Result, SeekTarget, SetTime, Usage, WriteLife, XattrMode,
};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::ffi::OsStr;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open descriptor, shared.
pub type Fd = Arc<dyn NativeFd>;

/// The purpose of an open descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// To look at the inode, not at its contents (`O_PATH`). Needs no
    /// permission on the inode itself.
    Path,
    /// To read a file.
    Read,
    /// To write a file.
    Write,
    /// To read and write a file.
    ReadWrite,
    /// To read and sync a directory.
    Directory,
}

/// The answer of `stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeStat {
    /// Its attributes; `ino` is the native number.
    pub attr: Attr,
    /// The file system that it is on.
    pub device: u64,
}

/// Identifies an inode of one file system for as long as the inode exists,
/// across renames, restarts and reuse of its number (`name_to_handle_at(2)`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NativeHandle {
    kind: i32,
    bytes: Box<[u8]>,
}

impl NativeHandle {
    /// Most bytes that a handle has.
    pub const BYTES_MAX: usize = 128;

    /// A handle from its type and bytes; `None` if there are more bytes than a
    /// handle has.
    #[must_use]
    pub fn from_parts(kind: i32, bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= Self::BYTES_MAX).then(|| Self { kind, bytes: bytes.into() })
    }

    /// The handle's type and bytes, to be stored.
    #[must_use]
    pub fn parts(&self) -> (i32, &[u8]) {
        (self.kind, &self.bytes)
    }

    /// A number that differs between two inodes that had the same inode number
    /// one after another, as far as the file system tells them apart.
    #[must_use]
    pub fn generation(&self) -> u64 {
        // FNV-1a: stable, and the handles are a few words.
        self.bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct NativeDirEntry<'a> {
    /// The name; `.` and `..` are included.
    pub name: &'a OsStr,
    /// Native inode number.
    pub ino: u64,
    /// Type bits of the inode's mode (`S_IFMT`), 0 where the directory does not
    /// tell.
    pub kind: u32,
    /// Offset for resuming after this entry.
    pub next_offset: i64,
}

/// Space and limits of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeUsage {
    /// Its space.
    pub space: Usage,
    /// Inodes that it can have, 0 where there is no limit.
    pub files: u64,
    /// Inodes that it can still have.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// It refuses writes.
    pub read_only: bool,
    /// It loses everything at power loss (a file system in memory).
    pub volatile: bool,
    /// It has one journal: a sync of anything makes every earlier change of
    /// names and attributes durable, of whatever inode.
    pub journal_order: bool,
    /// It preallocates space for a file that is written past its end, and
    /// leaves that space to the file where it skips some: callers that do not
    /// want that allocate the space first.
    pub preallocates: bool,
    /// When reads update access times, by the options of its mount.
    pub access_times: AccessTimes,
}

/// When reads update access times, as set for a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccessTimes {
    /// How often.
    pub renewal: Renewal,
    /// Whether those of directories are updated too.
    pub directories: bool,
}

/// How often reads update an access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Renewal {
    /// If it is not after the modification time and the change time, or is a
    /// day old (`relatime`).
    Relative,
    /// With each read (`strictatime`).
    Always,
    /// Not at all (`noatime`).
    Never,
}

/// Part of a file as little-endian 8-byte words, mapped shared: each load and
/// store is atomic, and visible to all users of the file at once. A store is
/// durable after [`sync`](NativeFd::sync) of the file, and may be at any time
/// before that.
pub trait NativeWords: Send + Sync + fmt::Debug {
    /// Loads a word, by its index in the mapping. `EIO` if the device can't
    /// read it.
    fn load(&self, word: usize) -> Result<u64>;

    /// Stores a word. The file must have a block there. `EIO` as for a load,
    /// `EROFS` if the file is open for reading only.
    fn store(&self, word: usize, value: u64) -> Result<()>;
}

/// A descriptor of a native file system. Methods are the system calls that
/// Braid makes, with their meaning and their errors; names are single
/// components, or paths below the directory that contain no symbolic links, and
/// a symbolic link at the end is never followed. Which methods are valid
/// depends on the [`Access`] of the descriptor.
pub trait NativeFd: Send + Sync + fmt::Debug {
    /// Opens the inode that `name` leads to.
    fn open_at(&self, name: &OsStr, access: Access) -> Result<Fd>;

    /// Opens a directory below this one, this one if the path is empty, on a
    /// path that other users may have tampered with: `ELOOP` or `ENOTDIR` if it
    /// leads through a symbolic link or another non-directory, `EXDEV` if it is
    /// on another mount.
    fn open_below(&self, path: &Path) -> Result<Fd> {
        open_by_steps(self.as_native(), path)
    }

    /// Creates a regular file and opens it for reading and writing; `EEXIST` if
    /// the name is taken.
    fn create_at(&self, name: &OsStr, mode: u32) -> Result<Fd>;

    /// Creates a regular file without a name, on the file system and with the
    /// inheritance of this directory, and opens it for reading and writing.
    /// [`link_to`](Self::link_to) gives it one; without, it goes with its last
    /// descriptor. `EOPNOTSUPP` where the file system can't.
    fn create_unnamed(&self, mode: u32) -> Result<Fd>;

    /// Creates a directory.
    fn make_dir_at(&self, name: &OsStr, mode: u32) -> Result<()>;

    /// Creates an inode of the kind in `mode`. `rdev` is the kernel's 32-bit
    /// device number.
    fn make_node_at(&self, name: &OsStr, mode: u32, rdev: u32) -> Result<()>;

    /// Creates a symbolic link.
    fn make_symlink_at(&self, name: &OsStr, target: &OsStr) -> Result<()>;

    /// Gives this inode one more name, in `dir`. `ENOENT` if it had names and
    /// lost the last one.
    fn link_to(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<()>;

    /// Removes a name; `dir` says whether it is a directory's.
    fn remove_at(&self, name: &OsStr, dir: bool) -> Result<()>;

    /// Renames, atomically.
    fn rename_at(&self, name: &OsStr, to: &dyn NativeFd, new_name: &OsStr, mode: RenameMode) -> Result<()>;

    /// Hands entries after `offset` (0: from the start) to `visit` until that
    /// answers `false`. One thread at a time on one descriptor.
    fn read_dir(&self, offset: i64, visit: &mut dyn FnMut(&NativeDirEntry<'_>) -> Result<bool>)
    -> Result<()>;

    /// The target of a symbolic link.
    fn read_link(&self) -> Result<Vec<u8>>;

    /// The inode's attributes.
    fn stat(&self) -> Result<NativeStat>;

    /// The attributes of the inode that `name` leads to.
    fn stat_at(&self, name: &OsStr) -> Result<NativeStat> {
        self.open_at(name, Access::Path)?.stat()
    }

    /// The inode's handle; `EOPNOTSUPP` where there are none.
    fn handle(&self) -> Result<NativeHandle>;

    /// Opens an inode by its handle, on the file system that this descriptor
    /// is on. `ESTALE` if it does not exist any more, `EPERM` without the
    /// privilege to.
    fn open_handle(&self, handle: &NativeHandle, access: Access) -> Result<Fd>;

    /// A handle of the inode with this number, on the file system of this
    /// descriptor, a directory's. `ESTALE` if there is no such inode, which may
    /// show only when the handle is opened; `EOPNOTSUPP` where inodes can't be
    /// found by number.
    fn handle_of(&self, ino: u64) -> Result<NativeHandle>;

    /// Opens the same inode again.
    fn reopen(&self, access: Access) -> Result<Fd>;

    /// Reads an extended attribute into `buf`; `ERANGE` if it is too small.
    fn get_xattr(&self, name: &OsStr, buf: &mut [u8]) -> Result<usize>;

    /// Reads the names of all extended attributes, each ended by a NUL.
    fn list_xattr(&self, buf: &mut [u8]) -> Result<usize>;

    /// Sets an extended attribute.
    fn set_xattr(&self, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()>;

    /// Removes an extended attribute.
    fn remove_xattr(&self, name: &OsStr) -> Result<()>;

    /// Sets permission, set-id and sticky bits.
    fn set_mode(&self, mode: u32) -> Result<()>;

    /// Sets owner and group, or one of them.
    fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()>;

    /// Sets the times, or one of them.
    fn set_times(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<()>;

    /// Fills `bufs` from `offset` on, short only at the end of the file. With
    /// `direct`, bypasses the page cache where alignment allows it.
    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>], direct: bool) -> Result<usize>;

    /// Writes `bufs` at `offset`. After a short count, the error that caused it
    /// is answered when the rest is written.
    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>], direct: bool) -> Result<usize>;

    /// Sets the file's size.
    fn truncate(&self, size: u64) -> Result<()>;

    /// Reserves, frees or zeroes space.
    fn allocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()>;

    /// Where data or a hole begins at or after `offset`; `ENXIO` if nowhere.
    fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64>;

    /// Copies between two files, sharing blocks where the file system can.
    fn copy_range(&self, offset: u64, to: &dyn NativeFd, to_offset: u64, len: u64) -> Result<u64>;

    /// Has the kernel begin to write this data to the device, if it would keep it
    /// in memory for a while. Waits for nothing but room in the device's queue.
    fn start_write_back(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Has the kernel begin to read this data into its page cache. Waits for
    /// nothing but room in the device's queue.
    fn start_read(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Makes contents and attributes durable; for a directory, its names. With
    /// `data_only`, attributes that are not needed to read the contents may be
    /// left.
    fn sync(&self, data_only: bool) -> Result<()>;

    /// Makes everything on the file system durable.
    fn sync_fs(&self) -> Result<()>;

    /// Maps part of a file, which must lie below its end as long as the
    /// mapping exists. Both numbers are multiples of 4096.
    fn map(&self, offset: u64, len: usize) -> Result<Box<dyn NativeWords>>;

    /// Where a file system copies on write, makes it write new files in this
    /// directory in place, so that a store to a mapped block can't fail for
    /// lack of space.
    fn write_in_place(&self) {}

    /// When reads through this descriptor, a directory's, and those opened from
    /// it, update access times; `None` where the mount of the file system
    /// decides.
    fn access_times(&self) -> Option<AccessTimes> {
        None
    }

    /// Sets that; `EOPNOTSUPP` where the mount of the file system decides.
    fn set_access_times(&self, _times: AccessTimes) -> Result<()> {
        Err(Errno::EOPNOTSUPP.into())
    }

    /// From now on, reads through this descriptor leave the access time alone,
    /// if the file system lets the process say so (`O_NOATIME`).
    fn keep_access_time(&self) {}

    /// Gives the kernel and the device the expected life of written data, if they take it
    /// (`F_SET_RW_HINT`).
    fn expect_life(&self, _life: WriteLife) {}

    /// Space and limits of the file system.
    fn usage(&self) -> Result<NativeUsage>;

    /// Its current path, from the root of the descriptor's mount namespace;
    /// `ENOENT` if it has no name any more.
    fn path(&self) -> Result<PathBuf>;

    /// The kernel's descriptor, where there is one.
    fn kernel_fd(&self) -> Option<Arc<OwnedFd>>;

    /// Lets implementations recognise their own descriptors.
    fn as_any(&self) -> &dyn Any;

    /// Creates a directory for its owner alone, unless it exists.
    fn ensure_dir_at(&self, name: &str) -> Result<()> {
        match self.make_dir_at(OsStr::new(name), 0o700) {
            Err(error) if error.errno() != Errno::EEXIST => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates an empty file for its owner alone, unless it exists.
    fn ensure_file_at(&self, name: &str) -> Result<()> {
        match self.create_at(OsStr::new(name), 0o600) {
            Err(error) if error.errno() != Errno::EEXIST => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes a file's name, if it exists.
    fn ensure_gone_at(&self, name: &str) -> Result<()> {
        match self.remove_at(OsStr::new(name), false) {
            Err(error) if error.errno() != Errno::ENOENT => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads the small file `name` in this directory, at most `limit` bytes of
    /// it; `None` if it does not exist.
    fn read_small(&self, name: &str, limit: usize) -> Result<Option<Vec<u8>>> {
        let file = match self.open_at(OsStr::new(name), Access::Read) {
            Err(error) if error.errno() == Errno::ENOENT => return Ok(None),
            result => result?,
        };
        let mut bytes = vec![0; limit];
        let len = file.read_at(0, &mut [IoSliceMut::new(&mut bytes)], false)?;
        bytes.truncate(len);
        Ok(Some(bytes))
    }

    /// Writes all of `bytes` at `offset`. `EIO` if a write makes no progress.
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += match self.write_at(offset + done as u64, &[IoSlice::new(&bytes[done..])], false)? {
                0 => return Err(Errno::EIO.into()),
                written => written,
            };
        }
        Ok(())
    }

    /// The first stretch of data at or after `offset`, as its start and end;
    /// `None` if there is none.
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let start = match self.seek(offset, SeekTarget::Data) {
            Err(error) if error.errno() == Errno::ENXIO => return Ok(None),
            result => result?,
        };
        Ok(Some((start, self.seek(start, SeekTarget::Hole)?)))
    }

    /// Replaces the small file `name` in this directory, durably: a crash
    /// leaves the old file or the new one.
    fn replace_small(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let new = &format!("{name}.new");
        let replace = || {
            // A leftover of a crash.
            self.ensure_gone_at(new)?;
            let file = self.create_at(OsStr::new(new), 0o600)?;
            file.write_all_at(0, bytes)?;
            file.sync(false)?;
            self.rename_at(OsStr::new(new), self.as_native(), OsStr::new(name), RenameMode::Replace)?;
            self.sync(false)
        };
        replace().inspect_err(|_| {
            // This leaves a stray temporary file, which the next replacement
            // removes.
            let _ = self.ensure_gone_at(new);
        })
    }

    /// Itself, for calls that take two descriptors.
    fn as_native(&self) -> &dyn NativeFd;
}

/// [`NativeFd::open_below`] where no system call does it: mounts are told apart
/// by their file systems.
pub fn open_by_steps(dir: &dyn NativeFd, path: &Path) -> Result<Fd> {
    let device = dir.stat()?.device;
    let mut at = dir.open_at(OsStr::new("."), Access::Directory)?;
    for name in path {
        if name == ".." {
            return Err(Errno::EXDEV.into());
        }
        at = at.open_at(name, Access::Directory)?;
        if at.stat()?.device != device {
            return Err(Errno::EXDEV.into());
        }
    }
    Ok(at)
}
