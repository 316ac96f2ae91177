//! The volume as a [`FileSystem`]: each operation passes the barrier, is
//! carried out by the core, and notes its changes for a replacement of home.

use crate::volume::Volume;
use braid_contract::{
    Attr, Caller, DirSink, Entry, Errno, Error, FallocateMode, FileSystem, FileSystemCapabilities, HandleId,
    InodeId, OpenRequest, Opened, RenameMode, Result, SeekTarget, SetAttr, StatFs, WriteFlags, XattrMode,
};
use braid_core::Core;
use braid_core::file::{
    allocate_file, clear_set_id, close_file, copy_between, open_inode, read_file, seek_file, sync_file,
    sync_open, update_home_inode, write_file,
};
use braid_core::namespace::{
    get_attr, get_xattr, list_xattr, look_up, make_dir, make_file, make_link, make_node, make_symlink,
    make_unnamed, open_directory, path_of, read_directory, remove_dir, remove_name, remove_xattr,
    rename_name, set_attr, set_xattr,
};
use braid_core::need::with_room;
use braid_placement::Origin;
use braid_tiers::{Account, act_for, present};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

/// The tree changes only through the volume, so an answer stays true until an
/// operation changes it.
const CACHE_TTL: Duration = Duration::from_secs(24 * 3600);

impl FileSystem for Volume {
    fn capabilities(&self) -> FileSystemCapabilities {
        FileSystemCapabilities {
            cache_ttl: CACHE_TTL,
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
        let _entered = self.core.barrier.enter();
        look_up(&self.core, parent, name)
    }

    fn forget(&self, ino: InodeId, count: u64) {
        let _entered = self.core.barrier.enter();
        if self.core.inodes.forget(ino, count) {
            self.core.freed.note_forgotten();
        }
    }

    fn getattr(&self, _caller: &Caller, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
        let _entered = self.core.barrier.enter();
        get_attr(&self.core, ino, handle)
    }

    fn setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<Attr> {
        let _entered = self.core.barrier.enter();
        let result = with_room(&self.core, || set_attr(&self.core, caller, ino, handle, changes));
        note_set_attr(&self.core, ino, changes);
        result
    }

    fn readlink(&self, _caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        let _entered = self.core.barrier.enter();
        path_of(&self.core, ino)?.read_link()
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
        let _entered = self.core.barrier.enter();
        let result = with_room(&self.core, || make_node(&self.core, caller, parent, name, mode, umask, rdev));
        note_name(&self.core, parent, name);
        result
    }

    fn mkdir(&self, caller: &Caller, parent: InodeId, name: &OsStr, mode: u32, umask: u32) -> Result<Entry> {
        let _entered = self.core.barrier.enter();
        let result = with_room(&self.core, || make_dir(&self.core, caller, parent, name, mode, umask));
        note_name(&self.core, parent, name);
        result
    }

    fn symlink(&self, caller: &Caller, parent: InodeId, name: &OsStr, target: &OsStr) -> Result<Entry> {
        let _entered = self.core.barrier.enter();
        let result = with_room(&self.core, || make_symlink(&self.core, caller, parent, name, target));
        note_name(&self.core, parent, name);
        result
    }

    fn link(&self, _caller: &Caller, ino: InodeId, parent: InodeId, name: &OsStr) -> Result<Entry> {
        let _entered = self.core.barrier.enter();
        let result = with_room(&self.core, || make_link(&self.core, ino, parent, name));
        note_name(&self.core, parent, name);
        result
    }

    fn unlink(&self, _caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let result = remove_name(&self.core, parent, name);
        note_name(&self.core, parent, name);
        result
    }

    fn rmdir(&self, _caller: &Caller, parent: InodeId, name: &OsStr) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let result = remove_dir(&self.core, parent, name);
        note_name(&self.core, parent, name);
        result
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
        let _entered = self.core.barrier.enter();
        let result = with_room(&self.core, || {
            rename_name(&self.core, caller, (parent, name), (new_parent, new_name), mode)
        });
        note_name(&self.core, parent, name);
        note_name(&self.core, new_parent, new_name);
        result
    }

    fn open(&self, caller: &Caller, ino: InodeId, request: OpenRequest) -> Result<Opened> {
        let _entered = self.core.barrier.enter();
        open_inode(&self.core, caller, ino, request)
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
        let _entered = self.core.barrier.enter();
        let result = with_room(&self.core, || {
            make_file(&self.core, caller, parent, name, mode, umask, exclusive, request)
        });
        note_name(&self.core, parent, name);
        result
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: InodeId,
        mode: u32,
        umask: u32,
        request: OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let _entered = self.core.barrier.enter();
        with_room(&self.core, || make_unnamed(&self.core, caller, parent, mode, umask, request))
    }

    fn read(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        buf: &mut [u8],
        direct: bool,
    ) -> Result<usize> {
        let _entered = self.core.barrier.enter();
        let _for = act_for(reader(caller));
        let open = self.core.handles.file(handle)?;
        read_file(&self.core, &open, offset, buf, direct)
    }

    fn write(
        &self,
        caller: &Caller,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize> {
        let _entered = self.core.barrier.enter();
        let open = self.core.handles.file(handle)?;
        let writer = if flags.write_back { open.opener.thread } else { caller.tid };
        let _for = act_for(Account::Thread(writer));
        let written = write_file(&self.core, &open, offset, data, flags, caller);
        self.core.observer.data_changed(&open.file.inode, offset..offset.saturating_add(data.len() as u64));
        let done = written?;
        if flags.sync && done > 0 {
            sync_open(&self.core, &open, true)?;
        }
        Ok(done)
    }

    fn flush(&self, _caller: &Caller, handle: HandleId) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let open = self.core.handles.file(handle)?;
        // Times must not change later without an operation.
        if !open.flags.write {
            return Ok(());
        }
        let result = update_home_inode(&open.file);
        self.core.observer.inode_changed(&open.file.inode);
        result
    }

    fn release(&self, handle: HandleId) -> Result<()> {
        let _entered = self.core.barrier.enter();
        close_file(&self.core, handle)
    }

    fn fsync(&self, _caller: &Caller, handle: HandleId, data_only: bool) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let open = self.core.handles.file(handle)?;
        let result = sync_open(&self.core, &open, data_only);
        self.core.observer.inode_changed(&open.file.inode);
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
        let _entered = self.core.barrier.enter();
        let open = self.core.handles.file(handle)?;
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        clear_set_id(&open.file, caller, caller.keeps_set_id_bits())?;
        let result = with_room(&self.core, || {
            allocate_file(&self.core, &open.file, offset, len, mode, Origin::of_reserving(caller))
        });
        self.core.observer.data_changed(&open.file.inode, offset..offset.saturating_add(len));
        result
    }

    fn seek(&self, _caller: &Caller, handle: HandleId, offset: u64, target: SeekTarget) -> Result<u64> {
        let _entered = self.core.barrier.enter();
        seek_file(&self.core, &self.core.handles.file(handle)?.file, offset, target)
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
        let _entered = self.core.barrier.enter();
        let (from, to) = (self.core.handles.file(from)?, self.core.handles.file(to)?);
        clear_set_id(&to.file, caller, caller.keeps_set_id_bits())?;
        let result = copy_between(
            &self.core,
            (&from.file, from_offset),
            (&to.file, to_offset),
            len,
            Origin::of_caller(caller),
        );
        self.core.observer.data_changed(&to.file.inode, to_offset..to_offset.saturating_add(len));
        result
    }

    fn open_dir(&self, _caller: &Caller, ino: InodeId) -> Result<HandleId> {
        let _entered = self.core.barrier.enter();
        open_directory(&self.core, ino)
    }

    fn read_dir(
        &self,
        _caller: &Caller,
        handle: HandleId,
        offset: i64,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let _entered = self.core.barrier.enter();
        read_directory(&self.core, handle, offset, plus, sink)
    }

    fn release_dir(&self, handle: HandleId) -> Result<()> {
        let _entered = self.core.barrier.enter();
        self.core.handles.remove_dir(handle)
    }

    fn sync_dir(&self, _caller: &Caller, handle: HandleId) -> Result<()> {
        let _entered = self.core.barrier.enter();
        // A removal that is durable must be found by recovery.
        self.core.index.sync_marks()?;
        self.core.handles.dir(handle)?.sync()
    }

    /// Space of all tiers together; space that two tiers share counts once, and
    /// a tier's reserve is not available.
    fn statfs(&self, _caller: &Caller) -> Result<StatFs> {
        let _entered = self.core.barrier.enter();
        let native = self.core.home.root().usage()?;
        let mut sum = StatFs {
            files: native.files,
            files_free: native.files_free,
            block_size: 4096,
            name_max: native.name_max,
            ..StatFs::default()
        };
        let mut counted = HashSet::new();
        for tier in self.core.tiers.iter() {
            let usage = tier.last_usage();
            if counted.insert(usage.device) {
                sum.total += usage.total;
                sum.free += usage.free;
                if tier.takes_ranges() {
                    // Space that was taken since the tier was measured counts.
                    sum.available += tier.room();
                }
            }
        }
        Ok(sum)
    }

    fn getxattr(&self, _caller: &Caller, ino: InodeId, name: &OsStr) -> Result<Vec<u8>> {
        let _entered = self.core.barrier.enter();
        get_xattr(&self.core, ino, name)
    }

    fn listxattr(&self, _caller: &Caller, ino: InodeId) -> Result<Vec<u8>> {
        let _entered = self.core.barrier.enter();
        list_xattr(&self.core, ino)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let result = with_room(&self.core, || set_xattr(&self.core, caller, ino, name, value, mode));
        note_ino(&self.core, ino);
        result
    }

    fn removexattr(&self, _caller: &Caller, ino: InodeId, name: &OsStr) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let result = remove_xattr(&self.core, ino, name);
        note_ino(&self.core, ino);
        result
    }

    fn sync(&self) -> Result<()> {
        let _entered = self.core.barrier.enter();
        let mut result = Ok(());
        for open in self.core.handles.files() {
            // A tier that can't be synced does not keep the others from it.
            let synced = sync_file(&self.core, &open.file, false);
            result = result.and(synced);
            self.core.observer.inode_changed(&open.file.inode);
        }
        let all = self.core.sync_all_tiers();
        result.and(all)
    }

    fn path(&self, ino: InodeId) -> Result<PathBuf> {
        let _entered = self.core.barrier.enter();
        let path = path_of(&self.core, ino)?.path()?;
        let root = self.core.home.root().path()?;
        // A file that was renamed out of home is not in the volume.
        Ok(path.strip_prefix(root).map_err(|_| Error::from(Errno::ENOENT))?.to_owned())
    }
}

/// Notes a change of an inode that the front end knows.
fn note_ino(core: &Core, ino: InodeId) {
    if core.observer.follows_changes()
        && let Ok(inode) = core.inodes.get(ino)
    {
        core.observer.inode_changed(&inode);
    }
}

/// Notes that a name came or went.
fn note_name(core: &Core, parent: InodeId, name: &OsStr) {
    if core.observer.follows_changes()
        && let Ok(dir) = core.inodes.get(parent)
    {
        core.observer.name_changed(&dir, name);
    }
}

/// The account of a read: the caller's, unless the thread reads through all modules for a job.
fn reader(caller: &Caller) -> Account {
    match present() {
        Account::Mover => Account::Mover,
        Account::Thread(_) => Account::Thread(caller.tid),
    }
}

fn note_set_attr(core: &Core, ino: InodeId, changes: &SetAttr) {
    if let (Some(size), Ok(inode)) = (changes.size, core.inodes.get(ino)) {
        core.observer.tail_changed(&inode, size);
    }
    note_ino(core, ino);
}
