//! The rights that a request needs.

use super::rules::{Place, Right, Settings, Who};
use crate::Names;
use braid_contract::{
    Caller, Errno, FileKind, FileSystem, HandleId, InodeId, RenameMode, Request, Result, SetAttr,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Judges the requests of one caller.
pub(super) struct Judge<'a> {
    pub(super) rules: &'a Settings,
    pub(super) who: Who<'a>,
    pub(super) names: &'a Names,
    pub(super) child: &'a dyn FileSystem,
    /// Whether a handle was opened for writing.
    pub(super) writes: &'a dyn Fn(HandleId) -> bool,
}

/// The caller of a request that needs rights.
pub(super) fn caller<'a>(request: &Request<'a>) -> Option<&'a Caller> {
    match request {
        Request::Open { caller, .. }
        | Request::Create { caller, .. }
        | Request::Tmpfile { caller, .. }
        | Request::OpenDir { caller, .. }
        | Request::Getxattr { caller, .. }
        | Request::Setxattr { caller, .. }
        | Request::Removexattr { caller, .. }
        | Request::Setattr { caller, .. }
        | Request::Mknod { caller, .. }
        | Request::Mkdir { caller, .. }
        | Request::Symlink { caller, .. }
        | Request::Link { caller, .. }
        | Request::Unlink { caller, .. }
        | Request::Rmdir { caller, .. }
        | Request::Rename { caller, .. } => Some(caller),
        _ => None,
    }
}

impl Judge<'_> {
    /// Whether the request may go on.
    pub(super) fn judge(&self, request: &Request<'_>) -> Result<bool> {
        match request {
            Request::Open { ino, request, .. } => {
                // Without either, it is open for operations that need `read`.
                let reads = request.flags.read || !request.flags.write;
                Ok((!reads || self.inode(Right::Read, *ino)?)
                    && (!request.flags.write || self.inode(Right::Write, *ino)?))
            }
            Request::Create { parent, name, request, .. } => Ok(self.name(Right::Write, *parent, name)?
                && (!request.flags.read || self.name(Right::Read, *parent, name)?)),
            // It gets its name later; until then, it is in the directory.
            Request::Tmpfile { parent, .. } => self.name(Right::Write, *parent, OsStr::new("")),
            Request::OpenDir { ino, .. } => self.inode(Right::List, *ino),
            Request::Getxattr { ino, name, .. } => {
                Ok(is_for_the_kernel(name) || self.inode(Right::Read, *ino)?)
            }
            Request::Setxattr { ino, .. } | Request::Removexattr { ino, .. } => {
                self.inode(Right::Write, *ino)
            }
            Request::Setattr { ino, handle, changes, .. } => {
                Ok(self.is_part_of_writing(*handle, changes) || self.inode(Right::Write, *ino)?)
            }
            Request::Mknod { parent, name, .. }
            | Request::Mkdir { parent, name, .. }
            | Request::Symlink { parent, name, .. }
            | Request::Unlink { parent, name, .. }
            | Request::Rmdir { parent, name, .. } => self.name(Right::Write, *parent, name),
            Request::Link { ino, parent, name, .. } => self.link(*ino, (*parent, name)),
            Request::Rename { caller, parent, name, new_parent, new_name, mode } => {
                self.rename(caller, (*parent, name), (*new_parent, new_name), *mode)
            }
            // An open file may be used as it was opened.
            Request::Write { .. } | Request::Fallocate { .. } | Request::CopyRange { .. } => Ok(true),
            newer if newer.operation().changes() => Err(Errno::EOPNOTSUPP.into()),
            _ => Ok(true),
        }
    }

    fn grants(&self, right: Right, place: Place<'_>) -> bool {
        self.rules.grant(self.who, right, place)
    }

    /// Whether the right is granted for a name in a directory.
    fn name(&self, right: Right, parent: InodeId, name: &OsStr) -> Result<bool> {
        if !self.rules.depends_on_path(self.who, right) {
            return Ok(self.grants(right, Place::Anywhere));
        }
        Ok(self.grants(right, Place::At(&self.path(parent, name)?)))
    }

    fn path(&self, parent: InodeId, name: &OsStr) -> Result<PathBuf> {
        Ok(self.child.path(parent)?.join(name))
    }

    /// Whether the right is granted for all names of an inode.
    fn inode(&self, right: Right, ino: InodeId) -> Result<bool> {
        if !self.rules.depends_on_path(self.who, right) {
            return Ok(self.grants(right, Place::Anywhere));
        }
        Ok(match self.paths(ino)? {
            Some(paths) => paths.iter().all(|path| self.grants(right, Place::At(path))),
            None => self.grants(right, Place::Anywhere),
        })
    }

    /// The known paths of an inode, or that of its last name; `None` if there is none.
    fn paths(&self, ino: InodeId) -> Result<Option<Vec<PathBuf>>> {
        match self.names.paths(ino, self.child) {
            Ok(paths) if paths.is_empty() => Ok(self.names.last_path(ino, self.child).map(|last| vec![last])),
            Ok(paths) => Ok(Some(paths)),
            Err(error) if error.errno() == Errno::ESTALE => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// A further name is one more way to the file: its maker needs the rights that it gives.
    fn link(&self, ino: InodeId, to: (InodeId, &OsStr)) -> Result<bool> {
        let new = self.path(to.0, to.1)?;
        if !self.grants(Right::Write, Place::At(&new)) {
            return Ok(false);
        }
        Ok(match self.paths(ino)? {
            Some(paths) => paths.iter().all(|old| self.moves(old, &new, false)),
            None => Right::ALL.iter().all(|right| self.grants(*right, Place::Anywhere)),
        })
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (InodeId, &OsStr),
        to: (InodeId, &OsStr),
        mode: RenameMode,
    ) -> Result<bool> {
        let (old, new) = (self.path(from.0, from.1)?, self.path(to.0, to.1)?);
        let way = |at: (InodeId, &OsStr), old: &Path, new: &Path| -> Result<bool> {
            Ok(self.grants(Right::Write, Place::At(new)) && self.moves(old, new, self.is_dir(caller, at)?))
        };
        Ok(way(from, &old, &new)? && (mode != RenameMode::Exchange || way(to, &new, &old)?))
    }

    fn is_dir(&self, caller: &Caller, (parent, name): (InodeId, &OsStr)) -> Result<bool> {
        let found = self.child.lookup(caller, parent, name)?.attr;
        self.child.forget(found.ino, 1);
        Ok(found.kind == FileKind::Directory)
    }

    /// Whether something may be moved from the old path. If other rules hold at the new
    /// one, the caller must have all rights before: else a move would give rights, to
    /// the caller or others. A directory takes all files below along.
    fn moves(&self, old: &Path, new: &Path, is_dir: bool) -> bool {
        if !self.grants(Right::Write, Place::At(old)) {
            return false;
        }
        let all = |place: Place<'_>| Right::ALL.iter().all(|right| self.grants(*right, place));
        self.rules.treat_alike(old, new, is_dir)
            || all(Place::At(old))
                && (!is_dir || all(Place::Below(old)) && self.grants(Right::Write, Place::Below(new)))
    }

    /// Sizes and times that come with writing to an open file, which may be the kernel's
    /// own; and the clearing of set-id bits, which is always for the better.
    fn is_part_of_writing(&self, handle: Option<HandleId>, changes: &SetAttr) -> bool {
        let only_clears = *changes == SetAttr { kill_set_id: true, ..SetAttr::default() };
        only_clears || !changes.changes_access() && handle.is_some_and(self.writes)
    }
}

/// Attributes that the kernel asks for in the name of a program, to check its permissions.
fn is_for_the_kernel(attribute: &OsStr) -> bool {
    let name = attribute.as_bytes();
    name.starts_with(b"system.posix_acl_") || name.starts_with(b"security.")
}
