//! Inodes that are looked up, and the rights to them.

use braid_contract::rights::{SEARCH, lets};
use braid_contract::{Attr, Caller, Errno, Error, FileKind, FileSystem, InodeId, Result};
use std::ffi::OsStr;
use std::path::{Component, Path};
use std::sync::Arc;

/// An inode that counts as looked up as long as this lives.
pub struct Held {
    fs: Arc<dyn FileSystem>,
    /// Its attributes, as they were when it was looked up.
    pub attr: Attr,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held").field(&self.attr.ino).finish()
    }
}

impl Held {
    pub(crate) fn look_up(fs: &Arc<dyn FileSystem>, parent: InodeId, name: &OsStr) -> Result<Self> {
        let entry = fs.lookup(&Caller::stack(), parent, name)?;
        Ok(Self { fs: Arc::clone(fs), attr: entry.attr })
    }

    /// A directory that its owner keeps looked up meanwhile.
    ///
    /// # Errors
    /// `ENOTDIR`, those of the file system.
    pub fn directory(fs: &Arc<dyn FileSystem>, dir: InodeId) -> Result<Self> {
        let found = Self::look_up(fs, dir, OsStr::new("."))?;
        if found.attr.kind == FileKind::Directory { Ok(found) } else { Err(Errno::ENOTDIR.into()) }
    }

    /// An inode that was looked up by another operation.
    pub(crate) fn of(fs: &Arc<dyn FileSystem>, attr: Attr) -> Self {
        Self { fs: Arc::clone(fs), attr }
    }

    /// Its number.
    #[must_use]
    pub fn ino(&self) -> InodeId {
        self.attr.ino
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.fs.forget(self.attr.ino, 1);
    }
}

/// Refuses a caller that lacks a right to an inode.
pub(crate) fn check(fs: &dyn FileSystem, caller: &Caller, attr: &Attr, wanted: u16) -> Result<()> {
    if lets(fs, caller, attr, wanted)? { Ok(()) } else { Err(Errno::EACCES.into()) }
}

/// The directory of a path below the root, if the caller may get there. Symbolic links are
/// not followed.
///
/// # Errors
/// `EACCES` without the right to search one of the directories, `ENOENT`, `ENOTDIR`,
/// `EINVAL` for a path with `..`.
pub fn resolve(fs: &Arc<dyn FileSystem>, caller: &Caller, path: &Path) -> Result<Held> {
    let mut dir = Held::look_up(fs, InodeId::ROOT, OsStr::new("."))?;
    for component in path.components() {
        let name = match component {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => name,
            _ => return Err(Error::new(Errno::EINVAL, "a path with '..'")),
        };
        check(&**fs, caller, &dir.attr, SEARCH)?;
        dir = Held::look_up(fs, dir.ino(), name)?;
        if dir.attr.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
    }
    Ok(dir)
}
