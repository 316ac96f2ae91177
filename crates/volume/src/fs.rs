//! The volume as a [`FileSystem`]: each operation through the barrier, to where it
//! is carried out, and what it changed to the notes of whoever copies home.

use crate::Volume;
use crate::tiers::{Account, act_for};
use braid_contract::{
    Attr, Caller, DirSink, Entry, Errno, FallocateMode, FileSystem, FileSystemCapabilities, HandleId,
    InodeId, OpenFlags, OpenRequest, Opened, RenameMode, Result, SeekTarget, SetAttr, StatFs, WriteFlags,
    XattrMode,
};
use braid_placement::{Origin, TraceOpKind};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::time::Duration;

/// Nobody changes the tree but through the volume, so what was answered stays
/// true until an operation changes it.
const CACHE_TTL: Duration = Duration::from_secs(24 * 3600);

impl FileSystem for Volume {
    fn capabilities(&self) -> FileSystemCapabilities {
        FileSystemCapabilities {
            cache_ttl: CACHE_TTL,
            passthrough: true,
            rename_modes: true,
            posix_acl: true,
        }
    }

    fn lookup(&self, _caller: &Caller, parent: InodeId, name: &OsStr) -> Result<Entry> {
        let _entered = self.barrier.enter();
        self.look_up(parent, name)
    }

    fn forget(&self, ino: InodeId, count: u64) {
        let _entered = self.barrier.enter();
        self.inodes.forget(ino, count);
    }

    fn getattr(&self, _caller: &Caller, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
        let _entered = self.barrier.enter();
        self.get_attr(ino, handle)
    }

    fn setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let _entered = self.barrier.enter();
        let begun = changes.size.and_then(|_| self.trace_begin_unopened());
        let result = self.with_room(|| self.set_attr(caller, ino, handle, changes));
        self.note_set_attr(ino, changes);
        if let (Some(size), true) = (changes.size, result.is_ok()) {
            self.trace_truncate(begun, ino, caller, size);
        }
        result
    }

    fn readlink(&self, _caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        let _entered = self.barrier.enter();
        self.path_of(ino)?.read_link()
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
        let _entered = self.barrier.enter();
        let result = self.with_room(|| self.make_node(caller, parent, name, mode, umask, rdev));
        self.note_name(parent, name);
        result
    }

    fn mkdir(&self, caller: &Caller, parent: InodeId, name: &OsStr, mode: u32, umask: u32) -> Result<Entry> {
        let _entered = self.barrier.enter();
        let result = self.with_room(|| self.make_dir(caller, parent, name, mode, umask));
        self.note_name(parent, name);
        result
    }

    fn symlink(&self, caller: &Caller, parent: InodeId, name: &OsStr, target: &OsStr) -> Result<Entry> {
        let _entered = self.barrier.enter();
        let result = self.with_room(|| self.make_symlink(caller, parent, name, target));
        self.note_name(parent, name);
        result
    }

    fn link(&self, _caller: &Caller, ino: InodeId, parent: InodeId, name: &OsStr) -> Result<Entry> {
        let _entered = self.barrier.enter();
        let result = self.make_link(ino, parent, name);
        self.note_name(parent, name);
        result
    }

    fn unlink(&self, _caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        let _entered = self.barrier.enter();
        let doomed = self.trace_doomed(parent, name);
        let result = self.remove_name(parent, name);
        self.note_name(parent, name);
        self.trace_unnamed(doomed.filter(|_| result.is_ok()));
        result
    }

    fn rmdir(&self, _caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        let _entered = self.barrier.enter();
        let result = self.remove_dir(parent, name);
        self.note_name(parent, name);
        result
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
        let _entered = self.barrier.enter();
        let replaces = mode == RenameMode::Replace;
        let doomed = if replaces { self.trace_doomed(new_parent, new_name) } else { None };
        let result = self.rename_name((parent, name), (new_parent, new_name), mode);
        self.note_name(parent, name);
        self.note_name(new_parent, new_name);
        self.trace_unnamed(doomed.filter(|_| result.is_ok()));
        result
    }

    fn open(&self, caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        let _entered = self.barrier.enter();
        let begun = self.trace_begin_unopened();
        let opened = self.open_inode(ino, request)?;
        self.trace_open(begun, caller, &opened, request.flags, false);
        Ok(opened)
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
        let _entered = self.barrier.enter();
        let begun = self.trace_begin_unopened();
        let result = self.with_room(|| self.make_file(caller, parent, name, mode, umask, exclusive, flags));
        self.note_name(parent, name);
        if let Ok((_, opened)) = &result {
            self.trace_open(begun, caller, opened, flags, true);
        }
        result
    }

    fn read(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        buf: &mut [u8],
        direct: bool,
    ) -> Result<usize> {
        let _entered = self.barrier.enter();
        let _for = act_for(Account::Thread(caller.tid));
        let open = self.handles.file(handle)?;
        let begun = self.trace_begin(&open.file);
        let done = self.read_file(&open.file, offset, buf, direct)?;
        self.trace_read(begun, &open.file, caller, (offset, done), direct);
        Ok(done)
    }

    fn write(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        let _entered = self.barrier.enter();
        let _for = act_for(Account::Thread(caller.tid));
        let open = self.handles.file(handle)?;
        let begun = self.trace_begin(&open.file);
        let written = self.write_file(&open.file, offset, data, flags, caller);
        self.note_data(&open.file.inode, offset, data.len() as u64);
        let done = written?;
        if flags.sync && done > 0 {
            self.sync_open(&open, true)?;
        }
        self.trace_write(begun, &open.file, caller, (offset, done), flags);
        Ok(done)
    }

    fn flush(&self, _caller: &Caller, handle: HandleId) -> Result<()> {
        let _entered = self.barrier.enter();
        let open = self.handles.file(handle)?;
        // Times must not change later on their own.
        if !open.flags.write {
            return Ok(());
        }
        let result = self.update_home_inode(&open.file);
        self.note_inode(&open.file.inode);
        result
    }

    fn release(&self, handle: HandleId) -> Result<()> {
        let _entered = self.barrier.enter();
        let closing = self.trace_closing(handle);
        let result = self.close_file(handle);
        self.trace_closed(closing);
        result
    }

    fn fsync(&self, caller: &Caller, handle: HandleId, data_only: bool) -> Result<()> {
        let _entered = self.barrier.enter();
        let open = self.handles.file(handle)?;
        let begun = self.trace_begin(&open.file);
        let result = self.sync_open(&open, data_only);
        self.note_inode(&open.file.inode);
        let begun = begun.filter(|_| result.is_ok());
        self.trace_span(begun, TraceOpKind::Sync, &open.file, caller, (0, 0));
        result
    }

    fn fallocate(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        len: u64,
        mode: FallocateMode,
    ) -> Result<()> {
        let _entered = self.barrier.enter();
        let open = self.handles.file(handle)?;
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        self.clear_set_id(&open.file, caller, caller.keeps_set_id_bits())?;
        // What leaves the size alone is no growth to whoever simulates it.
        let keeps_size = !matches!(
            mode,
            FallocateMode::Allocate { keep_size: false } | FallocateMode::ZeroRange { keep_size: false }
        );
        let begun = self.trace_begin(&open.file).filter(|_| !keeps_size);
        let result = self
            .with_room(|| self.allocate_file(&open.file, offset, len, mode, Origin::of_reserving(caller)));
        self.note_data(&open.file.inode, offset, len);
        let begun = begun.filter(|_| result.is_ok());
        self.trace_span(begun, TraceOpKind::Allocate, &open.file, caller, (offset, len));
        result
    }

    fn seek(&self, _caller: &Caller, handle: HandleId, offset: u64, target: SeekTarget) -> Result<u64> {
        let _entered = self.barrier.enter();
        self.seek_file(&self.handles.file(handle)?.file, offset, target)
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
        let _entered = self.barrier.enter();
        let (from, to) = (self.handles.file(from)?, self.handles.file(to)?);
        self.clear_set_id(&to.file, caller, caller.keeps_set_id_bits())?;
        let begun = [self.trace_begin(&from.file), self.trace_begin(&to.file)];
        let result = self.copy_between(
            (&from.file, from_offset),
            (&to.file, to_offset),
            len,
            Origin::of_caller(caller),
        );
        self.note_data(&to.file.inode, to_offset, len);
        if let Ok(copied) = result {
            self.trace_span(begun[0], TraceOpKind::Read, &from.file, caller, (from_offset, copied));
            self.trace_span(begun[1], TraceOpKind::Write, &to.file, caller, (to_offset, copied));
        }
        result
    }

    fn open_dir(&self, _caller: &Caller, ino: InodeId) -> Result<HandleId> {
        let _entered = self.barrier.enter();
        self.open_directory(ino)
    }

    fn read_dir(
        &self,
        _caller: &Caller,
        handle: HandleId,
        offset: i64,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let _entered = self.barrier.enter();
        self.read_directory(handle, offset, plus, sink)
    }

    fn release_dir(&self, handle: HandleId) -> Result<()> {
        let _entered = self.barrier.enter();
        self.handles.remove_dir(handle)
    }

    fn sync_dir(&self, _caller: &Caller, handle: HandleId) -> Result<()> {
        let _entered = self.barrier.enter();
        // A removal that is durable must be found by recovery.
        self.index.sync_marks()?;
        self.handles.dir(handle)?.sync()
    }

    /// Space of all tiers together; one that two tiers share is counted once,
    /// and what is reserved on a tier is not available.
    fn statfs(&self, _caller: &Caller) -> Result<StatFs> {
        let _entered = self.barrier.enter();
        let native = self.home.root().usage()?;
        let mut sum = StatFs {
            files: native.files,
            files_free: native.files_free,
            block_size: 4096,
            name_max: native.name_max,
            ..StatFs::default()
        };
        let mut counted = HashSet::new();
        for tier in self.tiers.iter() {
            let usage = tier.last_usage();
            if counted.insert(usage.device) {
                sum.total += usage.total;
                sum.free += usage.free;
                if tier.takes_ranges() {
                    // What was placed since the tier was measured counts.
                    sum.available += tier.room();
                }
            }
        }
        Ok(sum)
    }

    fn getxattr(&self, _caller: &Caller, ino: InodeId, name: &OsStr) -> Result<Vec<u8>> {
        let _entered = self.barrier.enter();
        self.get_xattr(ino, name)
    }

    fn listxattr(&self, _caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        let _entered = self.barrier.enter();
        self.list_xattr(ino)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let _entered = self.barrier.enter();
        let result = self.with_room(|| self.set_xattr(caller, ino, name, value, mode));
        self.note_ino(ino);
        result
    }

    fn removexattr(&self, _caller: &Caller, ino: InodeId, name: &OsStr) -> Result<()> {
        let _entered = self.barrier.enter();
        let result = self.remove_xattr(ino, name);
        self.note_ino(ino);
        result
    }

    fn sync(&self) -> Result<()> {
        let _entered = self.barrier.enter();
        let mut result = Ok(());
        for open in self.handles.files() {
            // One that can't be synced does not keep the others from it.
            let synced = self.sync_file(&open.file, false);
            result = result.and(synced);
            self.note_inode(&open.file.inode);
        }
        let all = self.sync_all_tiers();
        result.and(all)
    }
}

impl Volume {
    fn note_set_attr(&self, ino: InodeId, changes: &SetAttr) {
        if let (Some(size), Ok(inode)) = (changes.size, self.inodes.get(ino)) {
            self.note_from(&inode, size);
        }
        self.note_ino(ino);
    }
}
