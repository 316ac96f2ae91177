//! [`KernelFd`] itself.

use super::below::{open_below, parent_of};
use super::btrfs::BTRFS_SUPER_MAGIC;
use super::calls::{allocate, decode_device, flags_of, proc_path, stat_of, timestamps, usage};
use super::own_mount::OwnMount;
use super::words::KernelWords;
use braid_contract::{
    Access, AccessTimes, Errno, FallocateMode, Fd, NativeDirEntry, NativeFd, NativeHandle, NativeStat,
    NativeUsage, NativeWords, RenameMode, Result, SeekTarget, SetTime, WriteLife, XattrMode, open_by_steps,
};
use braid_sys::{DataFile, WordMap, handle_of, numbered_handle, open_handle};
use rustix::fs::{
    Advice, AtFlags, FileType, Gid, IFlags, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, SeekFrom,
    StatxFlags, Uid, XattrFlags,
};
use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of directory entries fetched at a time.
const DIR_BATCH: usize = 32 << 10;

/// A descriptor of the kernel.
#[derive(Debug)]
pub struct KernelFd {
    file: DataFile,
    /// Whether it was opened with `O_PATH`: operations on the inode then need a
    /// path.
    path_only: bool,
    /// The mount that it is on, if that is its own.
    mount: Option<OwnMount>,
}

impl AsFd for KernelFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl KernelFd {
    /// Takes over a descriptor that was not opened with `O_PATH`.
    #[must_use]
    pub fn open(fd: OwnedFd) -> Fd {
        Self::with(fd, false)
    }

    /// Takes over a descriptor of another process, however it was opened.
    #[must_use]
    pub fn received(fd: OwnedFd) -> Fd {
        let path_only = rustix::fs::fcntl_getfl(&fd).is_ok_and(|flags| flags.contains(OFlags::PATH));
        Self::with(fd, path_only)
    }

    fn with(fd: OwnedFd, path_only: bool) -> Fd {
        Arc::new(Self { file: DataFile::new(fd), path_only, mount: None })
    }

    /// Takes over a directory at the root of a mount.
    pub(super) fn root_of(mount: OwnMount) -> Result<Fd> {
        let file = DataFile::new(mount.root()?);
        Ok(Arc::new(Self { file, path_only: false, mount: Some(mount) }))
    }

    /// The kernel's descriptor behind another one; `EXDEV` if there is none.
    pub(crate) fn of(fd: &dyn NativeFd) -> Result<&Self> {
        fd.as_any().downcast_ref().ok_or_else(|| Errno::EXDEV.into())
    }
}

/// The attributes that a `stat` asks for.
const STAT_WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

impl NativeFd for KernelFd {
    fn open_at(&self, name: &OsStr, access: Access) -> Result<Fd> {
        let flags = flags_of(access);
        // There may be a FIFO now, and opening it must not block.
        let waits = matches!(access, Access::Read | Access::Write);
        let fd = match waits.then(|| open_below(self, name, flags | OFlags::NONBLOCK)) {
            Some(Ok(fd)) => fd,
            // Another process has a lease on the file.
            Some(Err(rustix::io::Errno::WOULDBLOCK)) | None => open_below(self, name, flags)?,
            Some(Err(error)) => return Err(error.into()),
        };
        Ok(Self::with(fd, access == Access::Path))
    }

    fn open_below(&self, path: &Path) -> Result<Fd> {
        let path_or_self = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = flags_of(Access::Directory) | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(self, path_or_self, flags, Mode::empty(), resolve) {
            // Before Linux 5.6, and where a filter does not know it.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => open_by_steps(self, path),
            result => Ok(Self::with(result?, false)),
        }
    }

    fn create_at(&self, name: &OsStr, mode: u32) -> Result<Fd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (dir, name) = parent_of(self, name)?;
        Ok(Self::open(rustix::fs::openat(dir, name, flags, mode_of(mode))?))
    }

    fn create_unnamed(&self, mode: u32) -> Result<Fd> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        Ok(Self::open(rustix::fs::openat(self, ".", flags, mode_of(mode))?))
    }

    fn make_dir_at(&self, name: &OsStr, mode: u32) -> Result<()> {
        let (dir, name) = parent_of(self, name)?;
        Ok(rustix::fs::mkdirat(dir, name, mode_of(mode))?)
    }

    fn make_node_at(&self, name: &OsStr, mode: u32, rdev: u32) -> Result<()> {
        let kind = FileType::from_raw_mode(mode);
        let (dir, name) = parent_of(self, name)?;
        Ok(rustix::fs::mknodat(dir, name, kind, mode_of(mode), decode_device(rdev))?)
    }

    fn make_symlink_at(&self, name: &OsStr, target: &OsStr) -> Result<()> {
        let (dir, name) = parent_of(self, name)?;
        Ok(rustix::fs::symlinkat(target, dir, name)?)
    }

    fn link_to(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<()> {
        let (dir, name) = parent_of(Self::of(dir)?, name)?;
        // An empty path would work, but needs a privilege.
        let flags = AtFlags::SYMLINK_FOLLOW;
        Ok(rustix::fs::linkat(rustix::fs::CWD, proc_path(self), dir, name, flags)?)
    }

    fn remove_at(&self, name: &OsStr, dir: bool) -> Result<()> {
        let flags = if dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let (parent, name) = parent_of(self, name)?;
        Ok(rustix::fs::unlinkat(parent, name, flags)?)
    }

    fn rename_at(&self, name: &OsStr, to: &dyn NativeFd, new_name: &OsStr, mode: RenameMode) -> Result<()> {
        let (from, name) = parent_of(self, name)?;
        let (to, new_name) = parent_of(Self::of(to)?, new_name)?;
        let flags = match mode {
            RenameMode::Replace => return Ok(rustix::fs::renameat(from, name, to, new_name)?),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
            RenameMode::Whiteout => RenameFlags::WHITEOUT,
        };
        Ok(rustix::fs::renameat_with(from, name, to, new_name, flags)?)
    }

    fn read_dir(
        &self,
        offset: i64,
        visit: &mut dyn FnMut(&NativeDirEntry<'_>) -> Result<bool>,
    ) -> Result<()> {
        rustix::fs::seek(self, SeekFrom::Start(offset.cast_unsigned()))?;
        let mut buf = [const { MaybeUninit::uninit() }; DIR_BATCH];
        let mut entries = RawDir::new(self, &mut buf);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let kind = match entry.file_type() {
                FileType::Unknown => 0,
                kind => kind.as_raw_mode(),
            };
            let more = visit(&NativeDirEntry {
                name: OsStr::from_bytes(entry.file_name().to_bytes()),
                ino: entry.ino(),
                kind,
                next_offset: entry.next_entry_cookie().cast_signed(),
            })?;
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(self, "", Vec::new())?.into_bytes())
    }

    fn stat(&self) -> Result<NativeStat> {
        stat_of(&rustix::fs::statx(self, "", AtFlags::EMPTY_PATH, STAT_WANTED)?)
    }

    fn stat_at(&self, name: &OsStr) -> Result<NativeStat> {
        let (dir, name) = parent_of(self, name)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        stat_of(&rustix::fs::statx(dir, name, flags, STAT_WANTED)?)
    }

    fn handle(&self) -> Result<NativeHandle> {
        let (kind, bytes) = handle_of(self)?;
        NativeHandle::from_parts(kind, &bytes).ok_or_else(|| Errno::EOPNOTSUPP.into())
    }

    fn open_handle(&self, handle: &NativeHandle, access: Access) -> Result<Fd> {
        let (kind, bytes) = handle.parts();
        let fd = open_handle(self, kind, bytes, flags_of(access))?;
        Ok(Self::with(fd, access == Access::Path))
    }

    fn handle_of(&self, ino: u64) -> Result<NativeHandle> {
        let (kind, bytes) = numbered_handle(self, ino)?;
        NativeHandle::from_parts(kind, &bytes).ok_or_else(|| Errno::EOPNOTSUPP.into())
    }

    fn reopen(&self, access: Access) -> Result<Fd> {
        if access == Access::Path && self.path_only {
            // Such a descriptor has no state, so that it can be shared.
            return Ok(Arc::new(Self {
                file: DataFile::shared(self.file.fd()),
                path_only: true,
                mount: None,
            }));
        }
        let fd = rustix::fs::open(proc_path(self), flags_of(access), Mode::empty())?;
        Ok(Self::with(fd, access == Access::Path))
    }

    fn get_xattr(&self, name: &OsStr, buf: &mut [u8]) -> Result<usize> {
        Ok(if self.path_only {
            rustix::fs::getxattr(proc_path(self), name, buf)
        } else {
            rustix::fs::fgetxattr(self, name, buf)
        }?)
    }

    fn list_xattr(&self, buf: &mut [u8]) -> Result<usize> {
        Ok(if self.path_only {
            rustix::fs::listxattr(proc_path(self), buf)
        } else {
            rustix::fs::flistxattr(self, buf)
        }?)
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        let flags = match mode {
            XattrMode::Set => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        Ok(if self.path_only {
            rustix::fs::setxattr(proc_path(self), name, value, flags)
        } else {
            rustix::fs::fsetxattr(self, name, value, flags)
        }?)
    }

    fn remove_xattr(&self, name: &OsStr) -> Result<()> {
        Ok(if self.path_only {
            rustix::fs::removexattr(proc_path(self), name)
        } else {
            rustix::fs::fremovexattr(self, name)
        }?)
    }

    fn set_mode(&self, mode: u32) -> Result<()> {
        Ok(if self.path_only {
            rustix::fs::chmod(proc_path(self), mode_of(mode))
        } else {
            rustix::fs::fchmod(self, mode_of(mode))
        }?)
    }

    fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        Ok(rustix::fs::chownat(self, "", uid, gid, AtFlags::EMPTY_PATH)?)
    }

    fn set_times(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<()> {
        let times = timestamps(atime, mtime);
        if !self.path_only {
            return Ok(rustix::fs::futimens(self, &times)?);
        }
        match rustix::fs::utimensat(self, "", &times, AtFlags::EMPTY_PATH) {
            // Before Linux 5.8 the empty path is not taken.
            Err(rustix::io::Errno::INVAL) => {
                let cwd = rustix::fs::CWD;
                Ok(rustix::fs::utimensat(cwd, proc_path(self), &times, AtFlags::empty())?)
            }
            result => Ok(result?),
        }
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>], direct: bool) -> Result<usize> {
        Ok(self.file.read_at(offset, bufs, direct)?)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>], direct: bool) -> Result<usize> {
        Ok(self.file.write_at(offset, bufs, direct)?)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        Ok(rustix::io::retry_on_intr(|| rustix::fs::ftruncate(self, size))?)
    }

    fn allocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        Ok(allocate(self, mode, offset, len)?)
    }

    fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        let from = match target {
            SeekTarget::Data => SeekFrom::Data(offset),
            SeekTarget::Hole => SeekFrom::Hole(offset),
        };
        Ok(rustix::fs::seek(self, from)?)
    }

    fn copy_range(&self, mut offset: u64, to: &dyn NativeFd, mut to_offset: u64, len: u64) -> Result<u64> {
        let to = Self::of(to)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let done = rustix::fs::copy_file_range(self, Some(&mut offset), to, Some(&mut to_offset), len)?;
        Ok(done as u64)
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        Ok(if data_only { rustix::fs::fdatasync(self) } else { rustix::fs::fsync(self) }?)
    }

    fn sync_fs(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(self)?)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Box<dyn NativeWords>> {
        let writable = rustix::fs::fcntl_getfl(self)? & OFlags::RWMODE == OFlags::RDWR;
        let map = WordMap::new(self, offset, len, writable)?;
        // btrfs wants free space for each store to a mapping, also where data
        // stays in place; for a write it looks whether that needs any.
        let copies = rustix::fs::fstatfs(self)?.f_type as i64 == BTRFS_SUPER_MAGIC;
        let written = match writable && copies {
            true => Some((File::from(self.as_fd().try_clone_to_owned()?), offset)),
            false => None,
        };
        Ok(Box::new(KernelWords { map, written }))
    }

    fn write_in_place(&self) {
        // Other file systems than btrfs neither know the flag nor need it.
        if let Ok(flags) = rustix::fs::ioctl_getflags(self) {
            let _ = rustix::fs::ioctl_setflags(self, flags | IFlags::NOCOW);
        }
    }

    fn start_write_back(&self, offset: u64, len: u64) -> Result<()> {
        Ok(braid_sys::start_write_back(self, offset, len)?)
    }

    fn start_read(&self, offset: u64, len: u64) -> Result<()> {
        // The kernel takes no more than this of one call, on usual devices.
        const STEP: u64 = 128 << 10;
        let end = offset.saturating_add(len);
        for at in (offset..end).step_by(STEP as usize) {
            rustix::fs::fadvise(self, at, NonZeroU64::new((end - at).min(STEP)), Advice::WillNeed)?;
        }
        Ok(())
    }

    fn access_times(&self) -> Option<AccessTimes> {
        self.mount.as_ref().map(OwnMount::access_times)
    }

    fn set_access_times(&self, times: AccessTimes) -> Result<()> {
        self.mount.as_ref().ok_or(Errno::EOPNOTSUPP)?.set_access_times(times)
    }

    fn keep_access_time(&self) {
        // Only for the owner of the file, and with `CAP_FOWNER`.
        if let Ok(flags) = rustix::fs::fcntl_getfl(self) {
            let _ = rustix::fs::fcntl_setfl(self, flags | OFlags::NOATIME);
        }
    }

    fn expect_life(&self, life: WriteLife) {
        // `RWH_WRITE_LIFE_SHORT` and on.
        self.file.expect_life(match life {
            WriteLife::Short => 2,
            WriteLife::Medium => 3,
            WriteLife::Long => 4,
            WriteLife::Extreme => 5,
        });
    }

    fn usage(&self) -> Result<NativeUsage> {
        usage(self)
    }

    fn path(&self) -> Result<PathBuf> {
        let target = rustix::fs::readlink(proc_path(self), Vec::new())?.into_bytes();
        // The kernel appends this for a removed file; but a name may end like
        // that too.
        if target.ends_with(b" (deleted)") && self.stat()?.attr.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        Ok(PathBuf::from(OsString::from_vec(target)))
    }

    fn kernel_fd(&self) -> Option<Arc<OwnedFd>> {
        Some(self.file.fd())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_native(&self) -> &dyn NativeFd {
        self
    }
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}
