//! The module as a file system.

use super::engine::Engine;
use super::files::Kind;
use super::pipeline::Pipeline;
use super::record::is_ours;
use super::settler::Settler;
use crate::sync::Mutex;
use crate::traffic::visible;
use braid_contract::{
    Attr, Caller, DirEntry, DirSink, Entry, Errno, FallocateMode, FileKind, FileSystem,
    FileSystemCapabilities, HandleId, InodeId, Layer, OpenFlags, OpenRequest, Opened, Result, SeekTarget,
    SetAttr, WriteFlags, XattrMode,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// A file system whose files are made of frames below.
pub struct Framed {
    pub(super) engine: Arc<Engine>,
    /// Not there where the caller settles.
    settler: Mutex<Option<Settler>>,
}

impl Framed {
    /// Puts frames on `child`. With `settles`, a thread makes written data durable now and then;
    /// without, [`settle`](Self::settle) does.
    ///
    /// # Errors
    /// The key is not the one of the file system, or its record can't be read.
    pub fn new(pipeline: Pipeline, child: Arc<dyn FileSystem>, settles: bool) -> Result<Self> {
        let engine = Arc::new(Engine::new(pipeline, child)?);
        let settler = settles.then(|| Settler::begin(Arc::clone(&engine)));
        Ok(Self { engine, settler: Mutex::new(settler) })
    }

    /// How the child opens a file that a program opens with `flags`.
    #[must_use]
    pub fn flags_below(flags: OpenFlags) -> OpenFlags {
        Engine::asked(flags.into()).flags
    }

    /// Makes everything durable, and gives the space of older slots back.
    ///
    /// # Errors
    /// Those of the child's `sync`.
    pub fn settle(&self) -> Result<()> {
        self.engine.settle()
    }

    /// Settles for the last time: nothing more will be written.
    pub fn end(&self) {
        if let Err(error) = self.engine.end() {
            tracing::error!(%error, "what was written in frames could not be settled at the end");
        }
    }

    /// Ends the thread that settles; answers whether there was one.
    pub(super) fn stop_settling(&self) -> bool {
        self.settler.lock().take().is_some()
    }

    /// The attributes of a file as programs see it.
    fn shown(&self, attr: &mut Attr, generation: Option<u64>) -> Result<()> {
        if attr.kind == FileKind::Regular
            && attr.size > 0
            && let Kind::Framed(geometry) = self.engine.kind(attr.ino, generation)?
        {
            attr.size = geometry.size(attr.size);
        }
        Ok(())
    }

    fn shown_entry(&self, mut entry: Entry) -> Result<Entry> {
        match self.shown(&mut entry.attr, Some(entry.generation)) {
            Ok(()) => Ok(entry),
            Err(error) => {
                self.child().forget(entry.attr.ino, 1);
                Err(error)
            }
        }
    }

    fn shown_attr(&self, mut attr: Attr) -> Result<Attr> {
        self.shown(&mut attr, None)?;
        Ok(attr)
    }

    /// A new inode may have the number of an old one.
    fn new_entry(&self, entry: Entry) -> Entry {
        self.engine.files.is_new(entry.attr.ino);
        entry
    }
}

/// Shows the entries of a directory as programs see them.
struct Showing<'a> {
    layer: &'a Framed,
    sink: &'a mut dyn DirSink,
}

impl DirSink for Showing<'_> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let mut shown = DirEntry { ..*entry };
        if let Some(found) = &mut shown.entry
            && self.layer.shown(&mut found.attr, Some(found.generation)).is_err()
        {
            // A lookup reports the reason.
            shown.damaged = true;
        }
        self.sink.add(&shown)
    }
}

impl Layer for Framed {
    fn child(&self) -> &dyn FileSystem {
        self.engine.child()
    }

    fn capabilities(&self) -> FileSystemCapabilities {
        FileSystemCapabilities { passthrough: false, ..self.child().capabilities() }
    }

    fn lookup(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<Entry> {
        self.shown_entry(self.child().lookup(caller, parent, name)?)
    }

    fn forget(&self, ino: InodeId, count: u64) {
        self.engine.forget(ino, count);
    }

    fn getattr(&self, caller: &Caller, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
        self.shown_attr(self.child().getattr(caller, ino, handle)?)
    }

    fn setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let attr = match changes.size {
            Some(size) => self.engine.set_size(caller, ino, handle, changes, size)?,
            None => self.engine.set_attributes(caller, ino, handle, changes)?,
        };
        self.shown_attr(attr)
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
        Ok(self.new_entry(self.child().mknod(caller, parent, name, mode, umask, rdev)?))
    }

    fn link(&self, caller: &Caller, ino: InodeId, parent: InodeId, name: &OsStr) -> Result<Entry> {
        self.shown_entry(self.child().link(caller, ino, parent, name)?)
    }

    fn open(&self, caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        let opened = self.child().open(caller, ino, Engine::asked(request))?;
        self.engine.opened(ino, opened, request, false)
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
        let asked = Engine::asked(request);
        let (entry, opened) = self.child().create(caller, parent, name, mode, umask, exclusive, asked)?;
        let entry = if exclusive { self.new_entry(entry) } else { entry };
        let done = self.engine.opened(entry.attr.ino, opened, request, exclusive);
        let done = done.inspect_err(|_| self.child().forget(entry.attr.ino, 1))?;
        match self.shown_entry(entry) {
            Ok(entry) => Ok((entry, done)),
            Err(error) => {
                self.engine.release(done.handle)?;
                Err(error)
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
        let (entry, opened) = self.child().tmpfile(caller, parent, mode, umask, Engine::asked(request))?;
        let entry = self.new_entry(entry);
        let opened = self.engine.opened(entry.attr.ino, opened, request, true);
        Ok((entry, opened.inspect_err(|_| self.child().forget(entry.attr.ino, 1))?))
    }

    fn read(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        buf: &mut [u8],
        _direct: bool,
    ) -> Result<usize> {
        self.engine.read(caller, handle, offset, buf)
    }

    fn write(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        self.engine.write(caller, handle, offset, data, flags)
    }

    fn release(&self, handle: HandleId) -> Result<()> {
        self.engine.release(handle)
    }

    fn fsync(&self, caller: &Caller, handle: HandleId, data_only: bool) -> Result<()> {
        self.engine.fsync(caller, handle, data_only)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        self.engine.fallocate(caller, handle, offset, len, mode)
    }

    fn seek(&self, caller: &Caller, handle: HandleId, offset: u64, target: SeekTarget) -> Result<u64> {
        self.engine.seek(caller, handle, offset, target)
    }

    /// Bytes of frames can't be copied as they are; the kernel copies.
    fn copy_range(
        &self,
        _caller: &Caller,
        _from: HandleId,
        _from_offset: u64,
        _to: HandleId,
        _to_offset: u64,
        _len: u64,
    ) -> Result<u64> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn read_dir(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: i64,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        self.child().read_dir(caller, handle, offset, plus, &mut Showing { layer: self, sink })
    }

    fn getxattr(&self, caller: &Caller, ino: InodeId, name: &OsStr) -> Result<Vec<u8>> {
        if is_ours(name.as_bytes()) {
            return Err(Errno::ENODATA.into());
        }
        self.child().getxattr(caller, ino, name)
    }

    fn listxattr(&self, caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        let names = self.child().listxattr(caller, ino)?;
        Ok(visible(&names, is_ours))
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if is_ours(name.as_bytes()) {
            return Err(Errno::EPERM.into());
        }
        self.child().setxattr(caller, ino, name, value, mode)
    }

    fn removexattr(&self, caller: &Caller, ino: InodeId, name: &OsStr) -> Result<()> {
        if is_ours(name.as_bytes()) {
            return Err(Errno::ENODATA.into());
        }
        self.child().removexattr(caller, ino, name)
    }
}

impl Drop for Framed {
    fn drop(&mut self) {
        // The thread ends first.
        if self.stop_settling() {
            self.end();
        }
    }
}
