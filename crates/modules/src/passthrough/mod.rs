//! The empty module: hands every operation to its child as it came.
//!
//! It proves that a stack is composition, measures what a layer costs (one
//! virtual call), and is the template for a new module: copy the folder, keep
//! the methods that need no change.

use braid_contract::{
    Attr, Caller, DirSink, Entry, FallocateMode, FileSystem, FileSystemCapabilities, HandleId, InodeId,
    OpenFlags, OpenRequest, Opened, RenameMode, Result, SeekTarget, SetAttr, StatFs, WriteFlags, XattrMode,
};
use std::ffi::OsStr;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The key that names this module in a stack file.
pub const NAME: &str = "passthrough";

/// A file system that is its child.
pub struct Passthrough {
    child: Arc<dyn FileSystem>,
}

impl Passthrough {
    /// Wraps `child`.
    #[must_use]
    pub fn new(child: Arc<dyn FileSystem>) -> Self {
        Self { child }
    }
}

impl FileSystem for Passthrough {
    fn capabilities(&self) -> FileSystemCapabilities {
        self.child.capabilities()
    }

    fn lookup(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<Entry> {
        self.child.lookup(caller, parent, name)
    }

    fn forget(&self, ino: InodeId, count: u64) {
        self.child.forget(ino, count);
    }

    fn getattr(&self, caller: &Caller, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
        self.child.getattr(caller, ino, handle)
    }

    fn setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        self.child.setattr(caller, ino, handle, changes)
    }

    fn readlink(&self, caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        self.child.readlink(caller, ino)
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
        self.child.mknod(caller, parent, name, mode, umask, rdev)
    }

    fn mkdir(&self, caller: &Caller, parent: InodeId, name: &OsStr, mode: u32, umask: u32) -> Result<Entry> {
        self.child.mkdir(caller, parent, name, mode, umask)
    }

    fn symlink(&self, caller: &Caller, parent: InodeId, name: &OsStr, target: &OsStr) -> Result<Entry> {
        self.child.symlink(caller, parent, name, target)
    }

    fn link(&self, caller: &Caller, ino: InodeId, parent: InodeId, name: &OsStr) -> Result<Entry> {
        self.child.link(caller, ino, parent, name)
    }

    fn unlink(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        self.child.unlink(caller, parent, name)
    }

    fn rmdir(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        self.child.rmdir(caller, parent, name)
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
        self.child.rename(caller, parent, name, new_parent, new_name, mode)
    }

    fn open(&self, caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        self.child.open(caller, ino, request)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &OsStr,
        mode: u32,
        umask: u32,
        exclusive: bool,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        self.child.create(caller, parent, name, mode, umask, exclusive, flags)
    }

    fn read(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        buf: &mut [u8],
        direct: bool,
    ) -> Result<usize> {
        self.child.read(caller, handle, offset, buf, direct)
    }

    fn write(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        self.child.write(caller, handle, offset, data, flags)
    }

    fn flush(&self, caller: &Caller, handle: HandleId) -> Result<()> {
        self.child.flush(caller, handle)
    }

    fn release(&self, handle: HandleId) -> Result<()> {
        self.child.release(handle)
    }

    fn fsync(&self, caller: &Caller, handle: HandleId, data_only: bool) -> Result<()> {
        self.child.fsync(caller, handle, data_only)
    }

    fn fallocate(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        self.child.fallocate(caller, handle, offset, len, mode)
    }

    fn seek(&self, caller: &Caller, handle: HandleId, offset: u64, target: SeekTarget) -> Result<u64> {
        self.child.seek(caller, handle, offset, target)
    }

    fn copy_range(
        &self,
        caller: &Caller,
        from: HandleId,
        from_offset: u64,
        to: HandleId,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.child.copy_range(caller, from, from_offset, to, to_offset, len)
    }

    fn open_dir(&self, caller: &Caller, ino: InodeId) -> Result<HandleId> {
        self.child.open_dir(caller, ino)
    }

    fn read_dir(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: i64,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        self.child.read_dir(caller, handle, offset, plus, sink)
    }

    fn release_dir(&self, handle: HandleId) -> Result<()> {
        self.child.release_dir(handle)
    }

    fn sync_dir(&self, caller: &Caller, handle: HandleId) -> Result<()> {
        self.child.sync_dir(caller, handle)
    }

    fn statfs(&self, caller: &Caller) -> Result<StatFs> {
        self.child.statfs(caller)
    }

    fn getxattr(&self, caller: &Caller, ino: InodeId, name: &OsStr) -> Result<Vec<u8>> {
        self.child.getxattr(caller, ino, name)
    }

    fn listxattr(&self, caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        self.child.listxattr(caller, ino)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.child.setxattr(caller, ino, name, value, mode)
    }

    fn removexattr(&self, caller: &Caller, ino: InodeId, name: &OsStr) -> Result<()> {
        self.child.removexattr(caller, ino, name)
    }

    fn sync(&self) -> Result<()> {
        self.child.sync()
    }
}
