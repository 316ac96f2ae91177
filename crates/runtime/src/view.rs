//! The file system as a session sees it: below the directories that were shown to it by the
//! kernel, and with the rights of its user. The kernel's checks before it asks a file system are
//! made here, and data that it would hide is hidden; and the kernel's caches are brought up to
//! date.

mod effects;

use crate::access::is_in_group;
use crate::admit::Bounds;
use crate::form::check_form;
use crate::open::{Knowledge, KnownFiles};
use braid_contract::{
    Attr, Caller, DirEntry, DirSink, Entry, Errno, Error, FileKind, FileSystem, FileSystemCapabilities,
    FrontCache, HandleId, InodeId, OpenRequest, Opened, Reply, Request, Result, Service, SetAttr, dispatch,
};
use effects::{Affected, Effects};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::Arc;

/// Tries to create or open a file whose name comes and goes.
const CREATE_TRIES: usize = 16;
/// Bytes that one request copies, at most, so that no worker is away for long.
const COPY_MAX: u64 = 16 << 20;

/// The file system as a session sees it.
pub(crate) struct View {
    pub(crate) bounds: Bounds,
    kernel: Option<Arc<dyn FrontCache>>,
}

impl View {
    pub(crate) fn new(
        top: Arc<dyn FileSystem>,
        kernel: Option<Arc<dyn FrontCache>>,
        (read_only, for_others): (bool, bool),
        known: KnownFiles,
    ) -> Self {
        Self { bounds: Bounds { top, read_only, for_others, known }, kernel }
    }

    /// Shows a directory to the session. The kernel let its user open it.
    ///
    /// # Errors
    /// If it is not there any more, or the session knows too much already.
    pub(crate) fn show(&self, ino: InodeId) -> Result<Attr> {
        let entry = self.bounds.top.lookup(&Caller::root(), ino, OsStr::new("."))?;
        if entry.attr.kind != FileKind::Directory {
            self.bounds.top.forget(entry.attr.ino, 1);
            return Err(Errno::ENOTDIR.into());
        }
        self.bounds.learn(entry.attr.ino)?;
        Ok(entry.attr)
    }

    /// Closes all files but these, which the application knows.
    pub(crate) fn keep(&self, handles: &HashSet<HandleId>) {
        for handle in self.bounds.known.opened_but(handles) {
            // A request may have closed it meanwhile.
            if let Err(error) = self.release(handle) {
                tracing::debug!(%error, "a file that its application does not know");
            }
        }
    }

    /// The parts that a request has effects on.
    pub(crate) fn affected(&self) -> Affected<'_> {
        Affected { bounds: &self.bounds, kernel: self.kernel.as_deref() }
    }

    /// Creates a file, or opens that of the name: each as if the other could not happen.
    fn create_or_open(&self, create: &Creating<'_>, effects: &mut Effects) -> Result<(Entry, Opened)> {
        let Creating { caller, parent, name, mode, umask, exclusive, request } = *create;
        for _ in 0..CREATE_TRIES {
            let created = self.bounds.top.create(caller, parent, name, mode, umask, true, request);
            match created {
                Err(error) if error.errno() == Errno::EEXIST && !exclusive => {}
                created => return created,
            }
            let entry = match self.bounds.top.lookup(caller, parent, name) {
                Err(error) if error.errno() == Errno::ENOENT => continue,
                entry => entry?,
            };
            effects.without_names();
            let opened = self
                .bounds
                .admit_found_for_create(caller, parent, &entry.attr)
                .and_then(|()| self.bounds.admit_open_of(caller, &entry.attr, request.flags))
                .and_then(|()| self.write_back(entry.attr.ino))
                .and_then(|()| self.bounds.top.open(caller, entry.attr.ino, request));
            return match opened {
                Ok(opened) => Ok((entry, opened)),
                Err(error) => {
                    self.bounds.top.forget(entry.attr.ino, 1);
                    Err(error)
                }
            };
        }
        Err(Errno::EAGAIN.into())
    }

    /// The mode of a new inode. In a directory that hands its group on, only a member of that
    /// group makes a program that runs with its rights.
    fn mode_of_new(&self, caller: &Caller, parent: InodeId, mode: u32) -> Result<u32> {
        if mode & 0o2010 != 0o2010 || caller.uid == 0 {
            return Ok(mode);
        }
        let dir = self.bounds.attr(caller, parent)?;
        let strips = dir.mode & 0o2000 != 0 && !is_in_group(caller, dir.gid);
        Ok(if strips { mode & !0o2000 } else { mode })
    }

    /// The inode of an open file, whatever number comes with its handle.
    pub(crate) fn inode_of(&self, ino: InodeId, handle: Option<HandleId>) -> Result<InodeId> {
        handle.map_or(Ok(ino), |handle| self.bounds.known.open(handle).map(|opened| opened.ino))
    }

    fn forget(&self, ino: InodeId, count: u64) {
        if count > 0 {
            self.bounds.top.forget(ino, count);
        }
    }

    /// Keeps the inodes of a request from being forgotten while it is carried out: a check of one
    /// must not count for another that gets its number.
    fn hold(&self, request: &Request<'_>) -> HeldInodes<'_> {
        let hold = |ino: InodeId| self.bounds.known.hold(ino).then_some(ino);
        HeldInodes { view: self, inodes: inodes_of(request).map(|ino| ino.and_then(hold)) }
    }

    /// Refuses a request that was carried out before, but names an inode that the session does not
    /// know, or a directory that it may not search: its application may have written one request
    /// over another one.
    pub(crate) fn admit_done(&self, request: &Request<'_>) -> Result<()> {
        check_form(request)?;
        inodes_of(request).into_iter().flatten().try_for_each(|ino| self.bounds.known.has(ino))?;
        match *request {
            Request::Rename { caller, parent, new_parent, .. } => {
                self.bounds.dir(caller, parent)?;
                self.bounds.dir(caller, new_parent).map(drop)
            }
            Request::Mknod { caller, parent, .. }
            | Request::Mkdir { caller, parent, .. }
            | Request::Symlink { caller, parent, .. }
            | Request::Link { caller, parent, .. }
            | Request::Create { caller, parent, .. }
            | Request::Unlink { caller, parent, .. }
            | Request::Rmdir { caller, parent, .. } => self.bounds.dir(caller, parent).map(drop),
            _ => Ok(()),
        }
    }

    /// Has the kernel write back data of a file that only its cache has.
    fn write_back(&self, ino: InodeId) -> Result<()> {
        self.kernel.as_ref().map_or(Ok(()), |kernel| kernel.write_back(ino))
    }
}

/// Inodes that a request uses.
struct HeldInodes<'a> {
    view: &'a View,
    inodes: [Option<InodeId>; 2],
}

impl Drop for HeldInodes<'_> {
    fn drop(&mut self) {
        for ino in self.inodes.into_iter().flatten() {
            self.view.forget(ino, self.view.bounds.known.let_go(ino));
        }
    }
}

/// A request to create a file or to open it.
#[derive(Clone, Copy)]
struct Creating<'a> {
    caller: &'a Caller,
    parent: InodeId,
    name: &'a OsStr,
    mode: u32,
    umask: u32,
    exclusive: bool,
    request: OpenRequest,
}

impl Service for View {
    fn capabilities(&self) -> FileSystemCapabilities {
        // Descriptors don't come through a queue.
        FileSystemCapabilities { passthrough: false, ..self.bounds.top.capabilities() }
    }

    fn call(&self, request: Request<'_>) -> Reply {
        let operation = request.operation();
        let _held = self.hold(&request);
        let renamed = match check_form(&request).and_then(|()| self.bounds.admit(&request)) {
            Ok(renamed) => renamed,
            Err(error) => return operation.failed(error),
        };
        let mut effects = self.affected().effects(&request, renamed);
        let mut reply = match request {
            Request::Forget { ino, count } => {
                self.forget(ino, self.bounds.known.forget(ino, count));
                Reply::Forget(())
            }
            Request::Getattr { caller, ino, handle } => Reply::Getattr(
                self.inode_of(ino, handle).and_then(|ino| self.bounds.top.getattr(caller, ino, handle)),
            ),
            Request::Mknod { caller, parent, name, mode, umask, rdev } => {
                let mode = self.mode_of_new(caller, parent, mode);
                Reply::Mknod(
                    mode.and_then(|mode| self.bounds.top.mknod(caller, parent, name, mode, umask, rdev)),
                )
            }
            Request::Mkdir { caller, parent, name, mode, umask } => {
                Reply::Mkdir(self.bounds.top.mkdir(caller, parent, name, mode & 0o1777, umask))
            }
            Request::CopyRange { caller, from, from_offset, to, to_offset, len } => {
                let len = len.min(COPY_MAX);
                Reply::CopyRange(self.bounds.top.copy_range(caller, from, from_offset, to, to_offset, len))
            }
            Request::Lookup { caller, parent, name } if name == ".." => {
                Reply::Lookup(self.above(caller, parent))
            }
            Request::ReadDir { caller, handle, offset, plus, sink } => {
                Reply::ReadDir(self.read_dir(caller, handle, (offset, plus), sink))
            }
            Request::Release { handle } => Reply::Release(self.release(handle)),
            Request::ReleaseDir { handle } => Reply::ReleaseDir(self.release(handle)),
            Request::Open { caller, ino, request } => {
                let request = OpenRequest::from(request.flags);
                Reply::Open(self.write_back(ino).and_then(|()| self.bounds.top.open(caller, ino, request)))
            }
            Request::Create { caller, parent, name, mode, umask, exclusive, request } => {
                let request = OpenRequest::from(request.flags);
                let creating = |mode| Creating { caller, parent, name, mode, umask, exclusive, request };
                let created = self.mode_of_new(caller, parent, mode & 0o7777).map(creating);
                Reply::Create(created.and_then(|creating| self.create_or_open(&creating, &mut effects)))
            }
            Request::Tmpfile { caller, parent, mode, umask, request } => {
                let request = OpenRequest::from(request.flags);
                let mode = self.mode_of_new(caller, parent, mode & 0o7777);
                Reply::Tmpfile(
                    mode.and_then(|mode| self.bounds.top.tmpfile(caller, parent, mode, umask, request)),
                )
            }
            Request::Setattr { caller, ino, handle, changes } => {
                // As the kernel has it: a user who is not root takes set-id bits away.
                let kill = caller.uid != 0
                    && (changes.size.is_some() || changes.uid.is_some() || changes.gid.is_some());
                let mode = changes.mode.map(|mode| mode & 0o7777);
                let changes = SetAttr { mode, kill_set_id: changes.kill_set_id || kill, ..*changes };
                Reply::Setattr(self.setattr(caller, ino, handle, changes))
            }
            Request::Write { caller, handle, offset, data, mut flags } => {
                flags.kill_set_id |= caller.uid != 0;
                flags.write_back = false;
                Reply::Write(self.bounds.top.write(caller, handle, offset, data, flags))
            }
            Request::Sync {} => {
                // What the kernel can't write back is reported, and the rest is synced.
                let written = self.kernel.as_ref().map_or(Ok(()), |kernel| kernel.write_back_all());
                Reply::Sync(self.bounds.top.sync().and(written))
            }
            other => dispatch(&*self.bounds.top, other),
        };
        self.affected().apply(&effects, &mut reply);
        reply
    }
}

impl View {
    /// The directory above another one, if the session has been there: else it would get out of its
    /// bounds.
    fn above(&self, caller: &Caller, dir: InodeId) -> Result<Entry> {
        let entry = self.bounds.top.lookup(caller, dir, OsStr::new(".."))?;
        let known = self.bounds.known.has(entry.attr.ino);
        known
            .map_err(|_| Errno::EACCES.into())
            .inspect_err(|_: &Error| self.bounds.top.forget(entry.attr.ino, 1))?;
        Ok(entry)
    }

    /// Lists a directory; with the attributes of its names, if the session may look them up.
    fn read_dir(
        &self,
        caller: &Caller,
        handle: HandleId,
        (offset, plus): (i64, bool),
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let ino = self.bounds.known.directory(handle)?;
        // The kernel of another mount keeps what it learns from those who may not search.
        let plus = plus && (self.bounds.for_others || self.bounds.dir(caller, ino).is_ok());
        self.bounds.top.read_dir(
            caller,
            handle,
            offset,
            plus,
            &mut Learning { known: &self.bounds.known, sink },
        )
    }

    /// Closes a file or a directory. Of two that try, one succeeds.
    fn release(&self, handle: HandleId) -> Result<()> {
        match self.bounds.known.close(handle)? {
            true => self.bounds.top.release_dir(handle),
            false => self.bounds.top.release(handle),
        }
    }

    fn setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        mut changes: SetAttr,
    ) -> Result<Attr> {
        let ino = self.inode_of(ino, handle)?;
        if changes.size.is_some() {
            self.write_back(ino)?;
        }
        if let Some(mode) = changes.mode.filter(|_| caller.uid != 0) {
            let gid = self.bounds.top.getattr(caller, ino, handle)?.gid;
            // Only a member of the group can give its rights away.
            changes.mode = Some(if is_in_group(caller, gid) { mode } else { mode & !0o2000 });
        }
        self.bounds.top.setattr(caller, ino, handle, &changes)
    }
}

impl Drop for View {
    /// The session has ended: nothing of it is in use any more.
    fn drop(&mut self) {
        let Knowledge { inodes, handles } = self.bounds.known.take();
        for (handle, opened) in handles {
            let released = if opened.directory {
                self.bounds.top.release_dir(handle)
            } else {
                self.bounds.top.release(handle)
            };
            if let Err(error) = released {
                tracing::warn!(%error, "a file of a session that ended could not be closed");
            }
        }
        inodes
            .into_iter()
            .for_each(|(ino, count, uncounted)| self.forget(ino, count.saturating_sub(uncounted)));
    }
}

/// The inodes that a request is about, but for those of handles.
fn inodes_of(request: &Request<'_>) -> [Option<InodeId>; 2] {
    match *request {
        Request::Lookup { parent, .. }
        | Request::Mknod { parent, .. }
        | Request::Mkdir { parent, .. }
        | Request::Symlink { parent, .. }
        | Request::Create { parent, .. }
        | Request::Tmpfile { parent, .. }
        | Request::Unlink { parent, .. }
        | Request::Rmdir { parent, .. } => [Some(parent), None],
        Request::Link { ino, parent, .. } => [Some(ino), Some(parent)],
        Request::Rename { parent, new_parent, .. } => [Some(parent), Some(new_parent)],
        Request::Getattr { ino, .. }
        | Request::Setattr { ino, .. }
        | Request::Readlink { ino, .. }
        | Request::Open { ino, .. }
        | Request::OpenDir { ino, .. }
        | Request::Getxattr { ino, .. }
        | Request::Listxattr { ino, .. }
        | Request::Setxattr { ino, .. }
        | Request::Removexattr { ino, .. } => [Some(ino), None],
        // It takes lookups back, which is put off while other requests use the inode.
        Request::Forget { .. } => [None, None],
        // What it finds may be out of date at once, anyhow.
        Request::Path { .. } => [None, None],
        Request::Read { .. }
        | Request::Write { .. }
        | Request::Flush { .. }
        | Request::Release { .. }
        | Request::Fsync { .. }
        | Request::Fallocate { .. }
        | Request::Seek { .. }
        | Request::CopyRange { .. }
        | Request::ReadDir { .. }
        | Request::ReleaseDir { .. }
        | Request::SyncDir { .. }
        | Request::Statfs { .. }
        | Request::Sync {} => [None, None],
    }
}

/// Notes inodes that a session learns from the entries of a directory.
struct Learning<'a> {
    known: &'a KnownFiles,
    sink: &'a mut dyn DirSink,
}

impl DirSink for Learning<'_> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let Some(Entry { attr, .. }) = entry.entry else { return self.sink.add(entry) };
        if self.known.learn(attr.ino).is_err() {
            return false;
        }
        let took = self.sink.add(entry);
        if !took {
            // It was not counted.
            self.known.unlearn(attr.ino);
        }
        took
    }
}

#[cfg(test)]
mod tests;
