//! The operations of [`DirFs`].

use super::{DirFs, Handle, Violation, attr, kind, os};
use braid_contract::{
    Attr, Caller, DirEntry, DirSink, Entry, Errno, FallocateMode, FileSystem, FileSystemCapabilities,
    HandleId, InodeId, IoMode, OpenRequest, Opened, RenameMode, Result, SeekTarget, SetAttr, StatFs,
    WriteFlags, XattrMode,
};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Uid, XattrFlags,
};
use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl FileSystem for DirFs {
    fn capabilities(&self) -> FileSystemCapabilities {
        FileSystemCapabilities {
            cache_ttl: Duration::from_secs(3600),
            passthrough: true,
            rename_modes: true,
            posix_acl: true,
            flush_at_close: false,
            caller_groups: false,
            holds_up: false,
            writes_through: false,
        }
    }

    fn lookup(&self, _caller: &Caller, parent: InodeId, name: &OsStr) -> Result<Entry> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        if name == "." {
            let fd = self.inodes.lock().unwrap().get(&parent).ok_or(Errno::ESTALE)?.fd.clone();
            return self.entry_of(os(fd.try_clone().map_err(|_| rustix::io::Errno::MFILE))?);
        }
        self.entry(&self.child(parent, name)?)
    }

    fn forget(&self, ino: InodeId, count: u64) {
        let mut inodes = self.inodes.lock().unwrap();
        let Some(inode) = inodes.get_mut(&ino) else { return };
        inode.lookups -= count;
        if inode.lookups == 0 {
            inodes.remove(&ino);
            self.forgotten.notify_all();
        }
    }

    fn getattr(&self, _caller: &Caller, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
        let mut found = match handle {
            Some(handle) => attr(&self.file(handle, |file| rustix::fs::fstat(&file.file))?),
            None => {
                let fd = self.inodes.lock().unwrap().get(&ino).ok_or(Errno::ESTALE)?.fd.clone();
                attr(&os(rustix::fs::fstat(&*fd))?)
            }
        };
        // An open file is itself, whatever the number is.
        if handle.is_none() {
            found.ino = ino;
        }
        Ok(found)
    }

    fn setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let path = self.path(ino)?;
        if changes.uid.is_some() || changes.gid.is_some() {
            os(rustix::fs::chown(&path, changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw)))?;
        }
        if let Some(mode) = changes.mode {
            os(rustix::fs::chmod(&path, Mode::from_raw_mode(mode)))?;
        }
        if let Some(size) = changes.size {
            let file = os(rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()))?;
            os(rustix::fs::ftruncate(&file, size))?;
            if !caller.keeps_set_id_bits() {
                os(Self::kill_set_id(&file))?;
            }
        }
        if changes.kill_set_id {
            let file = os(rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))?;
            os(Self::kill_set_id(&file))?;
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            Self::set_times(&path, changes)?;
        }
        self.getattr(caller, ino, handle)
    }

    fn readlink(&self, _caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        let fd = self.inodes.lock().unwrap().get(&ino).ok_or(Errno::ESTALE)?.fd.clone();
        Ok(os(rustix::fs::readlinkat(&*fd, "", Vec::new()))?.into_bytes())
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<Entry> {
        let _alone = self.alone();
        let path = self.child(parent, name)?;
        let permissions = Mode::from_raw_mode(mode & 0o7777 & !umask);
        os(rustix::fs::mknodat(CWD, &path, FileType::from_raw_mode(mode), permissions, u64::from(rdev)))?;
        self.own(&path, caller)?;
        self.entry(&path)
    }

    fn mkdir(&self, caller: &Caller, parent: InodeId, name: &OsStr, mode: u32, umask: u32) -> Result<Entry> {
        let _alone = self.alone();
        let path = self.child(parent, name)?;
        let umask = if self.breaks(Violation::IgnoresUmask) { 0 } else { umask };
        os(rustix::fs::mkdir(&path, Mode::from_raw_mode(mode & !umask)))?;
        self.own(&path, caller)?;
        self.entry(&path)
    }

    fn symlink(&self, caller: &Caller, parent: InodeId, name: &OsStr, target: &OsStr) -> Result<Entry> {
        let _alone = self.alone();
        let path = self.child(parent, name)?;
        os(rustix::fs::symlink(target, &path))?;
        self.own(&path, caller)?;
        self.entry(&path)
    }

    fn link(&self, _caller: &Caller, ino: InodeId, parent: InodeId, name: &OsStr) -> Result<Entry> {
        let _alone = self.alone();
        let path = self.child(parent, name)?;
        os(rustix::fs::linkat(CWD, self.path(ino)?, CWD, &path, AtFlags::SYMLINK_FOLLOW))?;
        self.entry(&path)
    }

    fn unlink(&self, _caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        let _alone = self.alone();
        let path = self.child(parent, name)?;
        if self.breaks(Violation::LosesUnlinked) {
            std::fs::File::options().write(true).truncate(true).open(&path)?;
        }
        os(rustix::fs::unlink(path))
    }

    fn rmdir(&self, _caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        let _alone = self.alone();
        os(rustix::fs::rmdir(self.child(parent, name)?))
    }

    fn rename(
        &self,
        _caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        new_parent: InodeId,
        new_name: &OsStr,
        mode: RenameMode,
    ) -> Result<()> {
        let _alone = self.alone();
        if self.breaks(Violation::LosesRename) && parent != new_parent {
            return Ok(());
        }
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace if self.breaks(Violation::ReplacesAnyway) => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
            RenameMode::Whiteout => RenameFlags::WHITEOUT,
        };
        os(rustix::fs::renameat_with(
            CWD,
            self.child(parent, name)?,
            CWD,
            self.child(new_parent, new_name)?,
            flags,
        ))
    }

    fn open(&self, _caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        let path = self.path(ino)?;
        let handle = self.open_path(&path, request.flags)?;
        let mode = self.mode(&path, request, handle.0)?;
        if matches!(mode, IoMode::Passthrough(_)) {
            self.passthrough_opens.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Opened { handle, mode, set_id: attr(&os(rustix::fs::stat(&path))?).is_set_id() })
    }

    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        exclusive: bool,
        request: OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let _alone = self.alone();
        let path = self.child(parent, name)?;
        let create = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::EXCL;
        match os(rustix::fs::open(&path, create, Mode::from_raw_mode(mode & !umask))) {
            Ok(_) => self.own(&path, caller)?,
            Err(error) if error.errno() == Errno::EEXIST && !exclusive => {
                os(rustix::fs::open(
                    &path,
                    OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                ))?;
            }
            Err(error) => return Err(error),
        }
        let entry = self.entry(&path)?;
        let handle = self.open_path(&path, request.flags)?;
        Ok((
            entry,
            Opened { handle, mode: self.mode(&path, request, handle.0)?, set_id: entry.attr.is_set_id() },
        ))
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: InodeId,
        mode: u32,
        umask: u32,
        request: OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let made = os(rustix::fs::open(self.path(parent)?, flags, Mode::from_raw_mode(mode & !umask)))?;
        // By its descriptor, since nothing else leads to it.
        let path = PathBuf::from(format!("/proc/self/fd/{}", made.as_raw_fd()));
        if (caller.uid, caller.gid)
            != (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        {
            os(rustix::fs::fchown(&made, Some(Uid::from_raw(caller.uid)), Some(Gid::from_raw(caller.gid))))?;
        }
        let entry = self.entry_of(os(rustix::fs::open(&path, OFlags::PATH, Mode::empty()))?)?;
        let handle = self.open_path(&path, request.flags)?;
        Ok((
            entry,
            Opened { handle, mode: self.mode(&path, request, handle.0)?, set_id: entry.attr.is_set_id() },
        ))
    }

    fn read(
        &self,
        _caller: &Caller,
        handle: HandleId,
        offset: u64,
        buf: &mut [u8],
        direct: bool,
    ) -> Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.file(handle, |file| {
            // The memory is the front end's to align; place and length come from
            // the application, by way of the kernel.
            let direct = direct && offset.is_multiple_of(4096) && buf.len().is_multiple_of(4096);
            let from = if direct { file.direct.as_ref().unwrap_or(&file.file) } else { &file.file };
            let mut done = 0;
            while done < buf.len() {
                match rustix::io::pread(from, &mut buf[done..], offset + done as u64)? {
                    0 => break,
                    count => done += count,
                }
            }
            Ok(done)
        })
    }

    fn write(
        &self,
        _caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        *self.last_write.lock().unwrap() = flags;
        self.file(handle, |file| {
            if flags.kill_set_id {
                Self::kill_set_id(&file.file)?;
            }
            let count = rustix::io::pwrite(&file.file, data, offset)?;
            if flags.sync {
                rustix::fs::fdatasync(&file.file)?;
            }
            Ok(count)
        })
    }

    fn flush(&self, _caller: &Caller, handle: HandleId) -> Result<()> {
        self.file(handle, |_| Ok(()))
    }

    fn release(&self, handle: HandleId) -> Result<()> {
        self.handles.lock().unwrap().remove(&handle.0).ok_or(Errno::EBADF)?;
        self.released.notify_all();
        Ok(())
    }

    fn fsync(&self, _caller: &Caller, handle: HandleId, data_only: bool) -> Result<()> {
        self.file(handle, |file| {
            if data_only { rustix::fs::fdatasync(&file.file) } else { rustix::fs::fsync(&file.file) }
        })
    }

    fn fallocate(
        &self,
        _: &Caller,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        let keep = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        if mode == FallocateMode::PunchHole && self.breaks(Violation::PunchesNothing) {
            return Ok(());
        }
        let flags = match mode {
            FallocateMode::Allocate { keep_size } => keep(keep_size),
            FallocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateMode::ZeroRange { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
        };
        self.file(handle, |file| rustix::fs::fallocate(&file.file, flags, offset, len))
    }

    fn seek(&self, _caller: &Caller, handle: HandleId, offset: u64, target: SeekTarget) -> Result<u64> {
        let to = match target {
            SeekTarget::Data => SeekFrom::Data(offset),
            SeekTarget::Hole => SeekFrom::Hole(offset),
        };
        self.file(handle, |file| rustix::fs::seek(&file.file, to))
    }

    fn copy_range(
        &self,
        _caller: &Caller,
        from: HandleId,
        mut from_offset: u64,
        to: HandleId,
        mut to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.file(from, |from| {
            self.file(to, |to| {
                let (offsets, len) = ((Some(&mut from_offset), Some(&mut to_offset)), len as usize);
                rustix::fs::copy_file_range(&from.file, offsets.0, &to.file, offsets.1, len)
            })
            .map_err(|error| rustix::io::Errno::from_raw_os_error(error.errno().0))
        })
        .map(|count| count as u64)
    }

    fn open_dir(&self, _caller: &Caller, ino: InodeId) -> Result<HandleId> {
        // Opening a directory is not to renew its access time.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME;
        let fd = os(rustix::fs::open(self.path(ino)?, flags, Mode::empty()))?;
        let mut entries = Vec::new();
        for entry in os(rustix::fs::Dir::new(fd))? {
            let entry = os(entry)?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            entries.push((name, entry.ino(), entry.file_type()));
        }
        Ok(self.add_handle(Handle::Dir(entries, ino)))
    }

    fn read_dir(
        &self,
        _caller: &Caller,
        handle: HandleId,
        offset: i64,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let handle = self.handle(handle)?;
        let Handle::Dir(entries, dir) = &*handle else { return Err(Errno::ENOTDIR.into()) };
        let start = usize::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let start = if self.breaks(Violation::ListsAgain) { 0 } else { start };
        for (index, (name, ino, file_type)) in entries.iter().enumerate().skip(start) {
            let is_dot = name == "." || name == "..";
            let found = if plus && !is_dot { self.entry(&self.path(*dir)?.join(name)).ok() } else { None };
            // Without "plus", kinds are left for the front end to find.
            let known = (plus || is_dot).then(|| kind(*file_type));
            let (ino, next_offset) = (InodeId(*ino), index as i64 + 1);
            if !sink.add(&DirEntry { ino, next_offset, kind: known, name, entry: found, damaged: false }) {
                if let Some(entry) = found {
                    self.forget(entry.attr.ino, 1);
                }
                break;
            }
        }
        Ok(())
    }

    fn release_dir(&self, handle: HandleId) -> Result<()> {
        self.release(handle)
    }

    fn sync_dir(&self, _caller: &Caller, _handle: HandleId) -> Result<()> {
        Ok(())
    }

    fn statfs(&self, _caller: &Caller) -> Result<StatFs> {
        let found = os(rustix::fs::statvfs(self.path(InodeId::ROOT)?))?;
        Ok(StatFs {
            total: found.f_blocks * found.f_frsize,
            free: found.f_bfree * found.f_frsize,
            available: found.f_bavail * found.f_frsize,
            files: found.f_files,
            files_free: found.f_ffree,
            block_size: 4096,
            name_max: 255,
        })
    }

    fn getxattr(&self, _caller: &Caller, ino: InodeId, name: &OsStr) -> Result<Vec<u8>> {
        let mut value = vec![0; 65536];
        let len = os(rustix::fs::getxattr(self.path(ino)?, name, &mut value[..]))?;
        value.truncate(len);
        Ok(value)
    }

    fn listxattr(&self, _caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        let mut names = vec![0; 65536];
        let len = os(rustix::fs::listxattr(self.path(ino)?, &mut names[..]))?;
        names.truncate(len);
        Ok(names)
    }

    fn setxattr(&self, _: &Caller, ino: InodeId, name: &OsStr, value: &[u8], mode: XattrMode) -> Result<()> {
        let flags = match mode {
            XattrMode::Set => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        os(rustix::fs::setxattr(self.path(ino)?, name, value, flags))
    }

    fn removexattr(&self, _caller: &Caller, ino: InodeId, name: &OsStr) -> Result<()> {
        os(rustix::fs::removexattr(self.path(ino)?, name))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn path(&self, ino: InodeId) -> Result<PathBuf> {
        let of = |ino| -> Result<PathBuf> { Ok(std::fs::read_link(Self::path(self, ino)?)?) };
        let (path, root) = (of(ino)?, of(InodeId::ROOT)?);
        let gone = path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)");
        let below = path.strip_prefix(root).ok().filter(|_| !gone);
        Ok(below.ok_or(Errno::ENOENT)?.to_owned())
    }
}
