//! The file system in use.

use crate::after_crash::CrashedLog;
use crate::background::Background;
use crate::bucket::LogBucket;
use crate::checkpoint::checkpoint;
use crate::core::Core;
use crate::device::{BLOCK, Device};
use crate::handover::LiveLog;
use crate::open::{Before, open};
use crate::ops::{attributes, data, handles, names, paths, rename, reserve, xattrs};
use crate::salvage::{self, Salvaged};
use crate::settings::Settings;
use crate::sync::Mutex;
use braid_contract::{
    Attr, Caller, DirSink, Entry, Environment, Errno, Error, FallocateMode, FileKind, FileSystem,
    FileSystemCapabilities, FrontCache, HandleId, InodeId, IoMode, OpenFlags, OpenRequest, Opened,
    RenameMode, Result, SeekTarget, SetAttr, StatFs, WriteFlags, XattrMode,
};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long names and attributes stay true: all changes come through the kernel.
const CACHE_TTL: Duration = Duration::from_secs(1 << 30);
/// Bytes of the device for one inode more, in the figure of free inodes.
const BYTES_PER_INODE: u64 = 512;

/// A log-structured file system. Without a close, it is recovered when it is opened
/// again; [`close`](Self::close) makes that quick.
#[derive(Debug)]
pub struct LogFs {
    core: Arc<Core>,
    background: Mutex<Option<Background>>,
}

impl LogFs {
    /// Opens the file system on a device that has no other user.
    ///
    /// # Errors
    /// `EINVAL` if there is none, or it has another format; `EUCLEAN` if it is damaged,
    /// with the place; those of the device.
    pub fn open(
        device: Arc<dyn Device>,
        settings: Settings,
        environment: Arc<dyn Environment>,
    ) -> Result<Self> {
        Self::open_with(device, settings, environment, Before::Unknown)
    }

    /// Goes on with the file system of another process, which [gave](Self::give) it.
    ///
    /// # Errors
    /// `ESTALE` if it is not as that process left it, and those of [`open`](Self::open).
    pub fn open_taken(
        device: Arc<dyn Device>,
        settings: Settings,
        environment: Arc<dyn Environment>,
        live: LiveLog,
    ) -> Result<Self> {
        Self::open_with(device, settings, environment, Before::Gave(live))
    }

    /// Goes on with the file system of a process that crashed: every operation that it answered is
    /// there.
    ///
    /// # Errors
    /// `EUCLEAN` if not all of them are, and those of [`open`](Self::open).
    pub fn open_after_crash(
        device: Arc<dyn Device>,
        settings: Settings,
        environment: Arc<dyn Environment>,
        crashed: CrashedLog,
    ) -> Result<Self> {
        Self::open_with(device, settings, environment, Before::Crashed(crashed))
    }

    fn open_with(
        device: Arc<dyn Device>,
        settings: Settings,
        environment: Arc<dyn Environment>,
        before: Before,
    ) -> Result<Self> {
        let core = Arc::new(open(&device, settings, Arc::clone(&environment), before)?);
        let background = environment.threads().then(|| Background::begin(&core)).transpose()?;
        Ok(Self { core, background: Mutex::new(background) })
    }

    /// Opens what can be read of the file system on a device, damaged or not, to be read only;
    /// tells what is wrong. Nothing is written to the device, and every change is `EROFS`.
    ///
    /// # Errors
    /// `EINVAL` if there is none, or it has another format; those of the device if nothing of
    /// it can be read.
    pub fn salvage(
        device: &Arc<dyn Device>,
        settings: Settings,
        environment: Arc<dyn Environment>,
    ) -> Result<(Self, Salvaged)> {
        let (core, salvaged) = salvage::salvage(device, settings, environment)?;
        Ok((Self { core: Arc::new(core), background: Mutex::default() }, salvaged))
    }

    /// Makes everything durable and a checkpoint, so that the next use begins at once;
    /// nothing can be changed from then on. Without it, as after a crash, unsynced
    /// changes may be lost.
    ///
    /// # Errors
    /// Those of the device.
    pub fn close(&self) -> Result<()> {
        self.end_background();
        if self.core.journal.is_read_only() {
            return Ok(());
        }
        checkpoint(&self.core, true)?;
        self.core.journal.close();
        Ok(())
    }

    /// Has operations that were answered outlive this process, from now on: another one can
    /// [go on](Self::open_after_crash) with the returned memory, whenever this one ends. It must know
    /// the open files by itself. Transfers to the device must end with the process.
    ///
    /// # Errors
    /// Those of getting the memory.
    pub fn outlive(&self) -> Result<Vec<OwnedFd>> {
        Ok(self.core.journal.outlive()?)
    }

    /// Shortens what [`give`](Self::give) has to do, while operations go on.
    ///
    /// # Errors
    /// `EIO` if the log takes no changes any more; those of the device.
    pub fn prepare_to_give(&self) -> Result<()> {
        self.core.journal.check()?;
        match checkpoint(&self.core, false) {
            // The next process reads the logs, then.
            Err(error) if error.errno() == Errno::ENOSPC => Ok(()),
            done => done,
        }
    }

    /// Ends the use of it in this process, for another one, and returns the state that is not on
    /// the device. No operation is under way, and none comes any more. The device is free when this
    /// is dropped.
    ///
    /// # Errors
    /// Those of the device: no process can go on then.
    pub fn give(&self) -> Result<LiveLog> {
        self.end_background();
        match checkpoint(&self.core, true) {
            Err(error) if error.errno() == Errno::ENOSPC => self.sync()?,
            done => done?,
        }
        self.core.journal.close();
        Ok(LiveLog::of(&self.core))
    }

    /// A directory as keys and values. `cache` is that of the mount which shows the same
    /// files, if there is one.
    ///
    /// # Errors
    /// `ESTALE` if there is no such inode, `ENOTDIR`.
    pub fn bucket(&self, dir: InodeId, cache: Option<Arc<dyn FrontCache>>) -> Result<LogBucket> {
        LogBucket::new(Arc::clone(&self.core), dir, cache)
    }

    /// Makes a checkpoint now.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for it, those of the device.
    pub fn checkpoint(&self) -> Result<()> {
        checkpoint(&self.core, false)
    }

    /// The identity of the file system: random, given when it was made.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.core.anchor.lock().superblock.uuid
    }

    /// Flushes of the device since it was opened, those of checkpoints' superblocks not
    /// included.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.core.journal.flushes()
    }

    /// Free bytes of each worker's share of the device.
    #[must_use]
    pub fn free_by_worker(&self) -> Vec<u64> {
        let free = self.core.journal.medium.space.by_worker();
        free.into_iter().map(|blocks| blocks * BLOCK).collect()
    }

    /// Bytes that workers took of others' shares since it was opened.
    #[must_use]
    pub fn stolen(&self) -> u64 {
        self.core.journal.medium.space.stolen() * BLOCK
    }

    /// Frees blocks that wait to be free, and compares the free blocks with those that
    /// nothing refers to.
    ///
    /// # Errors
    /// `EUCLEAN` with the difference, those of the device.
    pub fn audit(&self) -> Result<()> {
        self.core.journal.settle()?;
        crate::audit::audit(&self.core)
    }

    fn end_background(&self) {
        if let Some(background) = self.background.lock().take() {
            background.end();
        }
    }
}

fn opened(handle: HandleId, mode: u16) -> Opened {
    Opened { handle, mode: IoMode::Cached, set_id: mode & 0o6000 != 0 }
}

impl Drop for LogFs {
    fn drop(&mut self) {
        self.end_background();
    }
}

impl FileSystem for LogFs {
    fn capabilities(&self) -> FileSystemCapabilities {
        FileSystemCapabilities {
            cache_ttl: CACHE_TTL,
            passthrough: false,
            rename_modes: true,
            posix_acl: false,
            flush_at_close: false,
            caller_groups: false,
            holds_up: false,
            writes_through: false,
        }
    }

    fn lookup(&self, _caller: &Caller, parent: InodeId, name: &OsStr) -> Result<Entry> {
        names::lookup(&self.core, parent, name)
    }

    fn forget(&self, ino: InodeId, count: u64) {
        handles::forget(&self.core, ino, count);
    }

    fn getattr(&self, _caller: &Caller, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
        attributes::getattr(&self.core, ino, handle)
    }

    fn setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        self.core.journal.writable()?;
        attributes::setattr(&self.core, caller, ino, handle, changes)
    }

    fn readlink(&self, _caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        let inode = self.core.inode(ino)?;
        let state = inode.state.read();
        match &state.content {
            crate::inode::Content::Target(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL.into()),
        }
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
        self.core.journal.writable()?;
        let kind =
            FileKind::from_mode(mode).filter(|kind| !matches!(kind, FileKind::Directory | FileKind::Symlink));
        kind.ok_or(Errno::EINVAL)?;
        let making = names::Making { mode, umask, rdev, ..Default::default() };
        names::make(&self.core, caller, parent, name, &making).map(|(entry, _)| entry)
    }

    fn mkdir(&self, caller: &Caller, parent: InodeId, name: &OsStr, mode: u32, umask: u32) -> Result<Entry> {
        self.core.journal.writable()?;
        let mode = FileKind::Directory.mode() | mode & 0o7777;
        let making = names::Making { mode, umask, ..Default::default() };
        names::make(&self.core, caller, parent, name, &making).map(|(entry, _)| entry)
    }

    fn symlink(&self, caller: &Caller, parent: InodeId, name: &OsStr, target: &OsStr) -> Result<Entry> {
        self.core.journal.writable()?;
        let mode = FileKind::Symlink.mode() | 0o777;
        let making = names::Making { mode, target: target.as_bytes(), ..Default::default() };
        names::make(&self.core, caller, parent, name, &making).map(|(entry, _)| entry)
    }

    fn link(&self, caller: &Caller, ino: InodeId, parent: InodeId, name: &OsStr) -> Result<Entry> {
        self.core.journal.writable()?;
        names::link(&self.core, caller, ino, parent, name)
    }

    fn unlink(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        self.core.journal.writable()?;
        names::unlink(&self.core, caller, parent, name)
    }

    fn rmdir(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        self.core.journal.writable()?;
        names::rmdir(&self.core, caller, parent, name)
    }

    fn rename(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        new_parent: InodeId,
        new_name: &OsStr,
        mode: RenameMode,
    ) -> Result<()> {
        self.core.journal.writable()?;
        rename::rename(&self.core, caller, rename::Rename { parent, name, new_parent, new_name, mode })
    }

    fn open(&self, caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        self.openable(request.flags)?;
        let handle = handles::open(&self.core, caller, ino, request.flags)?;
        let mode = attributes::getattr(&self.core, ino, Some(handle))?.mode;
        Ok(opened(handle, mode))
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
        if let Err(read_only) = self.core.journal.writable() {
            // One that is there can be opened.
            let is_new =
                |error: Error| if error.errno() == Errno::ENOENT { read_only.clone() } else { error };
            let is_change = exclusive || request.flags.write;
            let open = || self.open_existing(caller, parent, name, request.flags).map_err(is_new);
            return if is_change { Err(read_only.clone()) } else { open() };
        }
        let mode = FileKind::Regular.mode() | mode & 0o7777;
        let making = names::Making { mode, umask, open: Some(request.flags), ..Default::default() };
        loop {
            match names::make(&self.core, caller, parent, name, &making) {
                Ok((entry, Some(handle))) => return Ok((entry, opened(handle, entry.attr.mode))),
                Err(error) if error.errno() == Errno::EEXIST && !exclusive => {}
                made => return Err(made.err().unwrap_or_else(|| Errno::EIO.into())),
            }
            // It may be gone again by now.
            match self.open_existing(caller, parent, name, request.flags) {
                Err(error) if [Errno::ENOENT, Errno::ESTALE].contains(&error.errno()) => {}
                opened => return opened,
            }
        }
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: InodeId,
        mode: u32,
        umask: u32,
        request: OpenRequest,
    ) -> Result<(Entry, Opened)> {
        self.core.journal.writable()?;
        let mode = FileKind::Regular.mode() | mode & 0o7777;
        let making = names::Making { mode, umask, open: Some(request.flags), ..Default::default() };
        let (entry, handle) = names::make_unnamed(&self.core, caller, parent, &making)?;
        Ok((entry, opened(handle.ok_or(Errno::EIO)?, entry.attr.mode)))
    }

    fn read(
        &self,
        _caller: &Caller,
        handle: HandleId,
        offset: u64,
        buf: &mut [u8],
        _direct: bool,
    ) -> Result<usize> {
        data::read(&self.core, &*self.core.file(handle)?, offset, buf)
    }

    fn write(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        self.core.journal.writable()?;
        data::write(&self.core, caller, &*self.core.file(handle)?, offset, data, flags)
    }

    fn flush(&self, _caller: &Caller, handle: HandleId) -> Result<()> {
        self.core.file(handle).map(drop)
    }

    fn release(&self, handle: HandleId) -> Result<()> {
        handles::release(&self.core, handle, false)
    }

    fn fsync(&self, _caller: &Caller, handle: HandleId, _data_only: bool) -> Result<()> {
        handles::sync(&self.core, &*self.core.file(handle)?)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        self.core.journal.writable()?;
        reserve::fallocate(&self.core, caller, &*self.core.file(handle)?, (offset, len), mode)
    }

    fn seek(&self, _caller: &Caller, handle: HandleId, offset: u64, target: SeekTarget) -> Result<u64> {
        reserve::seek(&*self.core.file(handle)?, offset, target)
    }

    fn copy_range(&self, _: &Caller, _: HandleId, _: u64, _: HandleId, _: u64, _: u64) -> Result<u64> {
        self.core.journal.writable()?;
        Err(Errno::EOPNOTSUPP.into())
    }

    fn open_dir(&self, caller: &Caller, ino: InodeId) -> Result<HandleId> {
        handles::open_dir(&self.core, caller, ino)
    }

    fn read_dir(
        &self,
        _caller: &Caller,
        handle: HandleId,
        offset: i64,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        handles::read_dir(&self.core, &*self.core.dir(handle)?, offset, plus, sink)
    }

    fn release_dir(&self, handle: HandleId) -> Result<()> {
        handles::release(&self.core, handle, true)
    }

    fn sync_dir(&self, _caller: &Caller, handle: HandleId) -> Result<()> {
        handles::sync(&self.core, &*self.core.dir(handle)?)
    }

    fn statfs(&self, _caller: &Caller) -> Result<StatFs> {
        let space = &self.core.journal.medium.space;
        let free = space.free_blocks() + self.core.journal.pending_blocks();
        let kept = space.reserve().max(0).cast_unsigned() * crate::layout::GROUP_BLOCKS;
        let (files, available) = (self.core.table.len() as u64, free.saturating_sub(kept) * BLOCK);
        let files_free = available / BYTES_PER_INODE;
        Ok(StatFs {
            total: space.blocks() * BLOCK,
            free: free * BLOCK,
            available,
            files: files + files_free,
            files_free,
            block_size: BLOCK as u32,
            name_max: names::NAME_MAX as u32,
        })
    }

    fn getxattr(&self, _caller: &Caller, ino: InodeId, name: &OsStr) -> Result<Vec<u8>> {
        xattrs::get(&self.core, ino, name)
    }

    fn listxattr(&self, _caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        xattrs::list(&self.core, ino)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.core.journal.writable()?;
        xattrs::set(&self.core, caller, ino, (name, value), mode)
    }

    fn removexattr(&self, caller: &Caller, ino: InodeId, name: &OsStr) -> Result<()> {
        self.core.journal.writable()?;
        xattrs::remove(&self.core, caller, ino, name)
    }

    fn sync(&self) -> Result<()> {
        self.core.journal.commit(self.core.journal.last_record())
    }

    fn path(&self, ino: InodeId) -> Result<PathBuf> {
        paths::path(&self.core, ino)
    }
}

impl LogFs {
    /// Refuses to open a file for writing where nothing can be written.
    fn openable(&self, flags: OpenFlags) -> Result<()> {
        if flags.write { self.core.journal.writable() } else { Ok(()) }
    }

    /// Opens a file of another process.
    fn open_existing(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        let entry = names::lookup(&self.core, parent, name)?;
        let ino = entry.attr.ino;
        let handle = handles::open(&self.core, caller, ino, flags);
        let handle = handle.inspect_err(|_| handles::forget(&self.core, ino, 1))?;
        Ok((entry, opened(handle, entry.attr.mode)))
    }
}
