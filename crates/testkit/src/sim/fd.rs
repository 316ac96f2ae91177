//! Descriptors of a simulated disk: [`NativeFd`] in terms of the disk's state.

use super::content::BLOCK;
use super::disk::{Shared, Subject};
use super::inode::{Body, Dir, Entry, KIND, ROOT};
use super::state::{Context, State};
use super::words::SimWords;
use braid_contract::{
    Access, AccessTimes, Errno, FallocateMode, Fd, NativeDirEntry, NativeFd, NativeHandle, NativeStat,
    NativeUsage, NativeWords, RenameMode, Renewal, Result, SeekTarget, SetTime, Usage, XattrMode,
};
use std::any::Any;
use std::ffi::OsStr;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Type of the handles of simulated inodes.
const HANDLE_KIND: i32 = 0x51;
const SYMLINK_MAX: usize = 4095;

/// An open inode. It keeps the inode from going while it lasts.
pub(super) struct SimFd {
    shared: Arc<Shared>,
    ino: u64,
    access: Access,
}

impl SimFd {
    pub(super) fn open(shared: &Arc<Shared>, ino: u64, access: Access) -> Fd {
        *shared.lock().opens.entry(ino).or_default() += 1;
        Arc::new(Self { shared: shared.clone(), ino, access })
    }

    /// Opens an existing inode, if it can be opened in this way.
    fn open_checked(&self, find: impl FnOnce(&State) -> Result<u64>, access: Access) -> Result<Fd> {
        self.shared.may_do("open")?;
        let mut guarded = self.shared.lock();
        let ino = find(&guarded.state)?;
        check_open(&guarded.state.node(ino)?.body, access)?;
        *guarded.opens.entry(ino).or_default() += 1;
        drop(guarded);
        Ok(Arc::new(Self { shared: self.shared.clone(), ino, access }))
    }

    fn look<R>(&self, look: impl FnOnce(&State) -> Result<R>) -> Result<R> {
        self.shared.may_do("look")?;
        look(&self.shared.lock().state)
    }

    fn effect<R>(
        &self,
        operation: &'static str,
        change: impl FnOnce(&mut State, &Context<'_>) -> Result<R>,
    ) -> Result<R> {
        self.shared.effect(Subject::inode(operation, self.ino), change)
    }

    /// Walks through the directories of a path of several names, which are
    /// opened before the operation in the last of them.
    fn go_to(&self, path: &OsStr) -> Result<()> {
        let has_several = path.as_bytes().contains(&b'/');
        if has_several { self.look(|state| state.walk(self.ino, path).map(drop)) } else { Ok(()) }
    }

    fn name_effect<R>(
        &self,
        operation: &'static str,
        name: &OsStr,
        change: impl FnOnce(&mut State, &Context<'_>) -> Result<R>,
    ) -> Result<R> {
        self.shared.effect(Subject::name(operation, self.ino, name), change)
    }

    /// `fd`, if it is on the same disk.
    fn same_disk<'a>(&self, fd: &'a dyn NativeFd) -> Result<&'a Self> {
        let other = fd.as_any().downcast_ref::<Self>();
        other.filter(|other| Arc::ptr_eq(&other.shared, &self.shared)).ok_or_else(|| Errno::EXDEV.into())
    }

    fn may_read(&self) -> Result<()> {
        match self.access {
            Access::Path | Access::Write => Err(Errno::EBADF.into()),
            _ => Ok(()),
        }
    }

    fn may_write(&self, refusal: Errno) -> Result<()> {
        match self.access {
            Access::Write | Access::ReadWrite => Ok(()),
            Access::Path => Err(Errno::EBADF.into()),
            _ => Err(refusal.into()),
        }
    }
}

impl Drop for SimFd {
    fn drop(&mut self) {
        let mut guarded = self.shared.lock();
        let count = guarded.opens.get(&self.ino).copied().unwrap_or(0);
        if count > 1 {
            guarded.opens.insert(self.ino, count - 1);
            return;
        }
        guarded.opens.remove(&self.ino);
        let orphan = guarded.state.node(self.ino).is_ok_and(|node| node.names.is_empty());
        if orphan {
            let super::disk::Guarded { state, opens } = &mut *guarded;
            Arc::make_mut(state).bury(self.ino, opens);
        }
    }
}

impl fmt::Debug for SimFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.shared.lock().state.path_of(self.ino);
        write!(f, "{}:{path} ({:?})", self.shared.config.name, self.access)
    }
}

/// The kernel's answer to opening such an inode.
fn check_open(body: &Body, access: Access) -> Result<()> {
    let refusal = match (body, access) {
        (_, Access::Path) | (Body::Dir(_), Access::Directory | Access::Read) => return Ok(()),
        (Body::File(_), Access::Read | Access::Write | Access::ReadWrite) => return Ok(()),
        (Body::Dir(_), _) => Errno::EISDIR,
        (_, Access::Directory) => Errno::ENOTDIR,
        (Body::Symlink(_), _) => Errno::ELOOP,
        _ => Errno::ENXIO,
    };
    Err(refusal.into())
}

fn file() -> Body {
    Body::File(super::content::Content::default())
}

impl NativeFd for SimFd {
    fn open_at(&self, name: &OsStr, access: Access) -> Result<Fd> {
        self.open_checked(|state| state.lookup(self.ino, name), access)
    }

    fn create_at(&self, name: &OsStr, mode: u32) -> Result<Fd> {
        let mode = 0o100_000 | (mode & 0o7777);
        let ino = self.name_effect("create", name, |state, context| {
            state.make(context, self.ino, name, mode, 0, file())
        })?;
        Ok(Self::open(&self.shared, ino, Access::ReadWrite))
    }

    fn create_unnamed(&self, mode: u32) -> Result<Fd> {
        let mode = 0o100_000 | (mode & 0o7777);
        let ino = self.effect("create a file without a name in", |state, context| {
            state.make_unnamed(context, self.ino, mode, file())
        })?;
        Ok(Self::open(&self.shared, ino, Access::ReadWrite))
    }

    fn make_dir_at(&self, name: &OsStr, mode: u32) -> Result<()> {
        let mode = 0o040_000 | (mode & 0o1777);
        self.name_effect("mkdir", name, |state, context| {
            state.make(context, self.ino, name, mode, 0, Body::Dir(Dir::default()))
        })?;
        Ok(())
    }

    fn make_node_at(&self, name: &OsStr, mode: u32, rdev: u32) -> Result<()> {
        self.go_to(name)?;
        let (kind, body) = match mode & KIND {
            0 | 0o100_000 => (0o100_000, file()),
            0o040_000 => return Err(Errno::EPERM.into()),
            kind @ (0o010_000 | 0o140_000 | 0o020_000 | 0o060_000) => (kind, Body::Other),
            _ => return Err(Errno::EINVAL.into()),
        };
        let rdev = if matches!(kind, 0o020_000 | 0o060_000) { rdev } else { 0 };
        self.name_effect("mknod", name, |state, context| {
            state.make(context, self.ino, name, kind | (mode & 0o7777), rdev, body)
        })?;
        Ok(())
    }

    fn make_symlink_at(&self, name: &OsStr, target: &OsStr) -> Result<()> {
        self.go_to(name)?;
        match target.len() {
            0 => return Err(Errno::ENOENT.into()),
            len if len > SYMLINK_MAX => return Err(Errno::ENAMETOOLONG.into()),
            _ => {}
        }
        let body = Body::Symlink(target.as_bytes().into());
        self.name_effect("symlink", name, |state, context| {
            state.make(context, self.ino, name, 0o120_777, 0, body)
        })?;
        Ok(())
    }

    fn link_to(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<()> {
        let dir = self.same_disk(dir)?;
        dir.name_effect("link", name, |state, context| state.link(context, self.ino, dir.ino, name))
    }

    fn remove_at(&self, name: &OsStr, dir: bool) -> Result<()> {
        let operation = if dir { "rmdir" } else { "unlink" };
        self.name_effect(operation, name, |state, context| state.remove(context, self.ino, name, dir))
    }

    fn rename_at(&self, name: &OsStr, to: &dyn NativeFd, new_name: &OsStr, mode: RenameMode) -> Result<()> {
        let to = self.same_disk(to)?;
        let mut arrow = name.to_owned();
        arrow.push(" -> ");
        arrow.push(new_name);
        self.name_effect("rename", &arrow, |state, context| {
            state.rename(context, (self.ino, name), (to.ino, new_name), mode)
        })
    }

    fn read_dir(
        &self,
        mut offset: i64,
        visit: &mut dyn FnMut(&NativeDirEntry<'_>) -> Result<bool>,
    ) -> Result<()> {
        self.may_read()?;
        loop {
            let entries = self.look(|state| state.list(self.ino, offset))?;
            if entries.is_empty() {
                return Ok(());
            }
            for (name, Entry { ino, kind, cookie }) in entries {
                if !visit(&NativeDirEntry { name: &name, ino, kind, next_offset: cookie })? {
                    return Ok(());
                }
                offset = cookie;
            }
        }
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        self.look(|state| match &state.node(self.ino)?.body {
            Body::Symlink(target) => Ok(target.to_vec()),
            // The kernel's answer to an empty path.
            _ => Err(Errno::ENOENT.into()),
        })
    }

    fn stat(&self) -> Result<NativeStat> {
        let attr = self.look(|state| Ok(state.node(self.ino)?.attr(self.ino)))?;
        Ok(NativeStat { attr, device: self.shared.config.device })
    }

    fn handle(&self) -> Result<NativeHandle> {
        self.handle_of(self.ino)
    }

    fn handle_of(&self, ino: u64) -> Result<NativeHandle> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&ino.to_le_bytes());
        bytes[8..].copy_from_slice(&self.shared.config.device.to_le_bytes());
        NativeHandle::from_parts(HANDLE_KIND, &bytes).ok_or_else(|| Errno::EOVERFLOW.into())
    }

    fn open_handle(&self, handle: &NativeHandle, access: Access) -> Result<Fd> {
        let (kind, bytes) = handle.parts();
        let (ino, device) = bytes.split_first_chunk::<8>().ok_or(Errno::ESTALE)?;
        if kind != HANDLE_KIND || device != self.shared.config.device.to_le_bytes() {
            return Err(Errno::ESTALE.into());
        }
        self.open_checked(|_| Ok(u64::from_le_bytes(*ino)), access)
    }

    fn reopen(&self, access: Access) -> Result<Fd> {
        self.open_checked(|_| Ok(self.ino), access)
    }

    fn get_xattr(&self, name: &OsStr, buf: &mut [u8]) -> Result<usize> {
        self.look(|state| state.get_xattr(self.ino, name, buf))
    }

    fn list_xattr(&self, buf: &mut [u8]) -> Result<usize> {
        self.look(|state| state.list_xattr(self.ino, buf))
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        self.effect("set xattr of", |state, context| {
            state.set_xattr(context, self.ino, name, Some(value), mode)
        })
    }

    fn remove_xattr(&self, name: &OsStr) -> Result<()> {
        self.effect("remove xattr of", |state, context| {
            state.set_xattr(context, self.ino, name, None, XattrMode::Replace)
        })
    }

    fn set_mode(&self, mode: u32) -> Result<()> {
        self.effect("chmod", |state, context| state.set_mode(context, self.ino, mode))
    }

    fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.effect("chown", |state, context| state.set_owner(context, self.ino, uid, gid))
    }

    fn set_times(&self, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<()> {
        self.effect("set times of", |state, context| state.set_times(context, self.ino, atime, mtime))
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>], _direct: bool) -> Result<usize> {
        self.may_read()?;
        self.look(|state| {
            let content = state.content(self.ino)?;
            let mut done = 0;
            for buf in bufs {
                let wanted = buf.len();
                let read = content.read(offset.saturating_add(done as u64), buf);
                done += read;
                if read < wanted {
                    break;
                }
            }
            Ok(done)
        })
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>], _direct: bool) -> Result<usize> {
        self.may_write(Errno::EBADF)?;
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let subject = Subject::part("write", self.ino, offset, len);
        self.shared.effect(subject, |state, context| state.write(context, self.ino, offset, bufs))
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.may_write(Errno::EINVAL)?;
        let subject = Subject::part("truncate", self.ino, size, 0);
        self.shared.effect(subject, |state, context| state.truncate(context, self.ino, size))
    }

    fn allocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.may_write(Errno::EBADF)?;
        let operation = match mode {
            FallocateMode::Allocate { .. } => "allocate",
            FallocateMode::PunchHole => "punch",
            FallocateMode::ZeroRange { .. } => "zero",
        };
        let subject = Subject::part(operation, self.ino, offset, len);
        self.shared.effect(subject, |state, context| state.allocate(context, self.ino, mode, offset, len))
    }

    fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        if self.access == Access::Path {
            return Err(Errno::EBADF.into());
        }
        self.look(|state| state.content(self.ino)?.seek(offset, target))
    }

    fn copy_range(&self, offset: u64, to: &dyn NativeFd, to_offset: u64, len: u64) -> Result<u64> {
        const AT_ONCE: u64 = 1 << 20;
        let to = self.same_disk(to)?;
        self.may_read()?;
        to.may_write(Errno::EBADF)?;
        let len = len.min(
            self.look(|state| state.content(self.ino).map(|content| content.size))?.saturating_sub(offset),
        );
        if to.ino == self.ino && offset.abs_diff(to_offset) < len {
            return Err(Errno::EINVAL.into());
        }
        let mut bytes = vec![0; len.min(AT_ONCE) as usize];
        let read = self.read_at(offset, &mut [IoSliceMut::new(&mut bytes)], false)?;
        Ok(to.write_at(to_offset, &[IoSlice::new(&bytes[..read])], false)? as u64)
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        if self.access == Access::Path {
            return Err(Errno::EBADF.into());
        }
        let operation = if data_only { "fdatasync" } else { "fsync" };
        self.effect(operation, |state, _| {
            state.sync(self.ino, data_only);
            Ok(())
        })
    }

    fn sync_fs(&self) -> Result<()> {
        self.effect("syncfs", |state, _| {
            state.sync_all();
            Ok(())
        })
    }

    fn map(&self, offset: u64, len: usize) -> Result<Box<dyn NativeWords>> {
        if !offset.is_multiple_of(BLOCK) || !(len as u64).is_multiple_of(BLOCK) || len == 0 {
            return Err(Errno::EINVAL.into());
        }
        if matches!(self.access, Access::Path | Access::Write) {
            return Err(if self.access == Access::Path { Errno::EBADF } else { Errno::EACCES }.into());
        }
        self.look(|state| state.content(self.ino).map(|_| ()))?;
        let file = Self::open(&self.shared, self.ino, self.access);
        let writable = self.access == Access::ReadWrite;
        Ok(Box::new(SimWords::new(self.shared.clone(), file, self.ino, (offset, len as u64), writable)))
    }

    fn usage(&self) -> Result<NativeUsage> {
        let (total, used) = self.look(|state| Ok((state.capacity * BLOCK, state.used * BLOCK)))?;
        let free = total.saturating_sub(used);
        let device = self.shared.config.device;
        Ok(NativeUsage {
            space: Usage { total, free, available: free, device },
            files: 0,
            files_free: 0,
            name_max: 255,
            read_only: false,
            volatile: self.shared.config.volatile,
            journal_order: self.shared.config.model.journal_order,
            preallocates: false,
            access_times: AccessTimes { renewal: Renewal::Relative, directories: true },
        })
    }

    fn path(&self) -> Result<PathBuf> {
        self.look(|state| {
            let (mut ino, mut names) = (self.ino, Vec::new());
            while ino != ROOT {
                let link = state.node(ino)?.names.first().ok_or(Errno::ENOENT)?;
                names.push(link.name.clone());
                ino = link.dir;
            }
            Ok(Path::new("/").join(names.iter().rev().map(|name| &**name).collect::<PathBuf>()))
        })
    }

    fn kernel_fd(&self) -> Option<Arc<OwnedFd>> {
        None
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_native(&self) -> &dyn NativeFd {
        self
    }
}
