//! Checks each request of a session's user: against the rules of the kernel, and against the inodes
//! and files that the session knows.

use crate::access::{READ, SEARCH, WRITE, check, check_owner, check_sticky, is_in_group};
use crate::open::KnownFiles;
use braid_contract::{
    Attr, Caller, Errno, FileKind, FileSystem, HandleId, InodeId, OpenFlags, RenameMode, Request, Result,
    SetAttr, SetTime,
};
use std::ffi::OsStr;
use std::sync::Arc;

/// The bounds of a session: the files that it sees, and its rights.
pub(crate) struct Bounds {
    /// The top of the stack.
    pub(crate) top: Arc<dyn FileSystem>,
    /// The mount is read-only where the session came from.
    pub(crate) read_only: bool,
    /// It is the bottom of another mount, whose kernel makes some of the checks.
    pub(crate) for_others: bool,
    pub(crate) known: KnownFiles,
}

/// The inodes of names that go, or lead elsewhere afterwards.
pub(crate) type Renamed = [Option<InodeId>; 2];

impl Bounds {
    pub(crate) fn attr(&self, caller: &Caller, ino: InodeId) -> Result<Attr> {
        self.known.has(ino)?;
        self.top.getattr(caller, ino, None)
    }

    /// A directory in which the caller may look names up.
    pub(crate) fn dir(&self, caller: &Caller, ino: InodeId) -> Result<Attr> {
        let dir = self.attr(caller, ino)?;
        if dir.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        check(&*self.top, caller, &dir, SEARCH)?;
        Ok(dir)
    }

    /// A directory in which the caller may add and remove names.
    pub(crate) fn changing_dir(&self, caller: &Caller, ino: InodeId) -> Result<Attr> {
        self.writable()?;
        let dir = self.dir(caller, ino)?;
        check(&*self.top, caller, &dir, WRITE)?;
        Ok(dir)
    }

    /// Notes a lookup that the file system counted.
    pub(crate) fn learn(&self, ino: InodeId) -> Result<()> {
        self.known.learn(ino).inspect_err(|_| self.top.forget(ino, 1))
    }

    pub(crate) fn writable(&self) -> Result<()> {
        if self.read_only { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    /// The inode of a name, which does not stay known.
    pub(crate) fn found(&self, caller: &Caller, parent: InodeId, name: &OsStr) -> Result<Attr> {
        let entry = self.top.lookup(caller, parent, name)?;
        self.top.forget(entry.attr.ino, 1);
        Ok(entry.attr)
    }

    /// Refuses a request that the caller may not make; returns the inodes of names that go.
    pub(crate) fn admit(&self, request: &Request<'_>) -> Result<Renamed> {
        let mut renamed = Renamed::default();
        match *request {
            Request::Lookup { parent, name, .. } if name == "." => self.known.has(parent),
            Request::Lookup { caller, parent, .. } => self.dir(caller, parent).map(drop),
            Request::Forget { ino, .. } | Request::Readlink { ino, .. } => self.known.has(ino),
            Request::Getattr { ino, handle: None, .. } => self.known.has(ino),
            Request::Getattr { handle: Some(handle), .. } => self.known.open(handle).map(drop),
            Request::Setattr { caller, ino, handle, changes } => {
                self.admit_setattr(caller, ino, handle, changes)
            }
            Request::Mknod { caller, parent, mode, .. } => {
                let device =
                    matches!(FileKind::from_mode(mode), Some(FileKind::CharDevice | FileKind::BlockDevice));
                if device && caller.uid != 0 {
                    return Err(Errno::EPERM.into());
                }
                self.changing_dir(caller, parent).map(drop)
            }
            Request::Mkdir { caller, parent, .. }
            | Request::Symlink { caller, parent, .. }
            | Request::Create { caller, parent, .. }
            | Request::Tmpfile { caller, parent, .. } => self.changing_dir(caller, parent).map(drop),
            Request::Link { caller, ino, parent, .. } => self.admit_link(caller, ino, parent),
            Request::Unlink { caller, parent, name } | Request::Rmdir { caller, parent, name } => {
                let dir = self.changing_dir(caller, parent)?;
                let file = self.found(caller, parent, name)?;
                renamed[0] = Some(file.ino);
                check_sticky(caller, &dir, &file)
            }
            Request::Rename { caller, parent, name, new_parent, new_name, mode } => {
                renamed = self.admit_rename(caller, (parent, name), (new_parent, new_name), mode)?;
                Ok(())
            }
            Request::Open { caller, ino, request } => self.admit_open(caller, ino, request.flags),
            Request::Read { handle, .. } | Request::Seek { handle, .. } => self.readable(handle),
            Request::Write { handle, .. } | Request::Fallocate { handle, .. } => self.known.writable(handle),
            Request::Flush { handle, .. } | Request::Fsync { handle, .. } | Request::Release { handle } => {
                self.known.open(handle).map(drop)
            }
            Request::CopyRange { from, from_offset, to, to_offset, len, .. } => {
                self.readable(from)?;
                self.known.writable(to)?;
                let overlap = from_offset.abs_diff(to_offset) < len;
                let within_one = self.known.open(from)?.ino == self.known.open(to)?.ino;
                if overlap && within_one { Err(Errno::EINVAL.into()) } else { Ok(()) }
            }
            Request::OpenDir { caller, ino } => {
                let dir = self.attr(caller, ino)?;
                check(&*self.top, caller, &dir, READ)
            }
            Request::ReadDir { handle, .. }
            | Request::ReleaseDir { handle }
            | Request::SyncDir { handle, .. } => self.known.directory(handle).map(drop),
            Request::Statfs { .. } | Request::Sync {} => Ok(()),
            Request::Getxattr { caller, ino, name } => self.admit_xattr(caller, ino, name, READ),
            Request::Listxattr { ino, .. } => self.known.has(ino),
            Request::Setxattr { caller, ino, name, .. } | Request::Removexattr { caller, ino, name } => {
                self.writable()?;
                self.admit_xattr(caller, ino, name, WRITE)
            }
            Request::Path { ino } if self.for_others => self.known.has(ino),
            // It may name directories that the session may not see.
            Request::Path { .. } => Err(Errno::EOPNOTSUPP.into()),
        }?;
        Ok(renamed)
    }

    pub(crate) fn readable(&self, handle: HandleId) -> Result<()> {
        if self.known.open(handle)?.flags.read { Ok(()) } else { Err(Errno::EBADF.into()) }
    }

    fn admit_open(&self, caller: &Caller, ino: InodeId, flags: OpenFlags) -> Result<()> {
        let attr = self.attr(caller, ino)?;
        self.admit_open_of(caller, &attr, flags)
    }

    pub(crate) fn admit_open_of(&self, caller: &Caller, attr: &Attr, flags: OpenFlags) -> Result<()> {
        match attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::EISDIR.into()),
            FileKind::Symlink => return Err(Errno::ELOOP.into()),
            _ => return Err(Errno::ENXIO.into()),
        }
        if flags.write {
            self.writable()?;
        }
        // An open for neither needs both rights, as natively.
        let neither = !flags.read && !flags.write;
        let want =
            if flags.read || neither { READ } else { 0 } | if flags.write || neither { WRITE } else { 0 };
        check(&*self.top, caller, attr, want)
    }

    /// A file that was to be created and is there: where all may put files, it may be a trap.
    /// As with `fs.protected_regular`, which makes no exception for root.
    pub(crate) fn admit_found_for_create(
        &self,
        caller: &Caller,
        parent: InodeId,
        found: &Attr,
    ) -> Result<()> {
        let dir = self.attr(caller, parent)?;
        let of_others = found.uid != caller.uid && found.uid != dir.uid;
        if dir.mode & 0o1002 == 0o1002 && of_others { Err(Errno::EACCES.into()) } else { Ok(()) }
    }

    fn admit_setattr(
        &self,
        caller: &Caller,
        ino: InodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Result<()> {
        self.writable()?;
        let opened = handle.map(|handle| self.known.open(handle)).transpose()?;
        let ino = opened.as_ref().map_or(ino, |opened| opened.ino);
        let attr = match handle {
            Some(handle) => self.top.getattr(caller, ino, Some(handle))?,
            None => self.attr(caller, ino)?,
        };
        let root = caller.uid == 0;
        if changes.uid.is_some_and(|uid| !root && (uid != attr.uid || caller.uid != attr.uid)) {
            return Err(Errno::EPERM.into());
        }
        if let Some(gid) = changes.gid.filter(|_| !root) {
            check_owner(caller, &attr)?;
            if gid != attr.gid && !is_in_group(caller, gid) {
                return Err(Errno::EPERM.into());
            }
        }
        if let Some(mode) = changes.mode {
            check_owner(caller, &attr)?;
            if attr.kind == FileKind::Symlink {
                return Err(Errno::EOPNOTSUPP.into());
            }
            // It may get another owner at this moment, whose rights it would lend.
            let lends_rights = mode & 0o4000 != 0 || mode & 0o2010 == 0o2010;
            if !root && attr.kind == FileKind::Regular && lends_rights {
                return Err(Errno::EPERM.into());
            }
        }
        if changes.kill_set_id && !opened.as_ref().is_some_and(|opened| opened.flags.write) {
            self.admit_open_of(caller, &attr, OpenFlags { write: true, ..OpenFlags::default() })?;
        }
        if changes.size.is_some() {
            match &opened {
                Some(opened) if opened.flags.write => {}
                Some(_) => return Err(Errno::EINVAL.into()),
                None => {
                    self.admit_open_of(caller, &attr, OpenFlags { write: true, ..OpenFlags::default() })?
                }
            }
        }
        match (changes.atime, changes.mtime) {
            (None, None) => Ok(()),
            // A user who may write may only set both to the present.
            (Some(SetTime::Now), Some(SetTime::Now)) if check_owner(caller, &attr).is_err() => {
                check(&*self.top, caller, &attr, WRITE)
            }
            _ => check_owner(caller, &attr),
        }
    }

    fn admit_link(&self, caller: &Caller, ino: InodeId, parent: InodeId) -> Result<()> {
        self.changing_dir(caller, parent)?;
        let file = self.attr(caller, ino)?;
        if file.kind == FileKind::Directory {
            return Err(Errno::EPERM.into());
        }
        // As with `fs.protected_hardlinks`.
        let harmless = file.kind == FileKind::Regular
            && file.mode & 0o4000 == 0
            && file.mode & 0o2010 != 0o2010
            && check(&*self.top, caller, &file, READ | WRITE).is_ok();
        if harmless { Ok(()) } else { check_owner(caller, &file) }
    }

    fn admit_rename(
        &self,
        caller: &Caller,
        (parent, name): (InodeId, &OsStr),
        (new_parent, new_name): (InodeId, &OsStr),
        mode: RenameMode,
    ) -> Result<Renamed> {
        if mode == RenameMode::Whiteout && caller.uid != 0 {
            return Err(Errno::EPERM.into());
        }
        if mode != RenameMode::Replace && !self.top.capabilities().rename_modes {
            return Err(Errno::EINVAL.into());
        }
        let (dir, new_dir) = (self.changing_dir(caller, parent)?, self.changing_dir(caller, new_parent)?);
        let file = self.found(caller, parent, name)?;
        check_sticky(caller, &dir, &file)?;
        let moves = |attr: &Attr| {
            // Its entry `..` changes.
            let moved = attr.kind == FileKind::Directory && parent != new_parent;
            if moved { check(&*self.top, caller, attr, WRITE) } else { Ok(()) }
        };
        moves(&file)?;
        match self.found(caller, new_parent, new_name) {
            Ok(other) => {
                check_sticky(caller, &new_dir, &other)?;
                if mode == RenameMode::Exchange {
                    moves(&other)?;
                }
                Ok([Some(file.ino), Some(other.ino)])
            }
            Err(error) if error.errno() == Errno::ENOENT => Ok([Some(file.ino), None]),
            Err(error) => Err(error),
        }
    }

    fn admit_xattr(&self, caller: &Caller, ino: InodeId, name: &OsStr, want: u16) -> Result<()> {
        let attr = self.attr(caller, ino)?;
        let name = name.as_encoded_bytes();
        let of = |space: &[u8]| name.starts_with(space);
        if of(b"user.") {
            let holder = matches!(attr.kind, FileKind::Regular | FileKind::Directory);
            if !holder {
                return Err(if want == READ { Errno::ENODATA } else { Errno::EPERM }.into());
            }
            if want == WRITE && attr.kind == FileKind::Directory && attr.mode & 0o1000 != 0 {
                check_owner(caller, &attr)?;
            }
            return check(&*self.top, caller, &attr, want);
        }
        match want {
            READ if of(b"trusted.") => {
                if caller.uid == 0 {
                    Ok(())
                } else {
                    Err(Errno::ENODATA.into())
                }
            }
            READ if of(b"security.") || of(b"system.") => Ok(()),
            READ => check(&*self.top, caller, &attr, READ),
            // The kernel of the other mount has made the checks that follow.
            _ if self.for_others && of(b"system.posix_acl_") => check_owner(caller, &attr),
            // The mode would have to follow, as the kernel sees to.
            _ if of(b"system.") => Err(Errno::EOPNOTSUPP.into()),
            _ if caller.uid == 0 => Ok(()),
            _ => Err(Errno::EPERM.into()),
        }
    }
}
