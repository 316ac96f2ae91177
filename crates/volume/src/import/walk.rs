//! The way through a tier's directory, beside that through home's.

use super::adopt::Adopter;
use super::{ImportSurvey, NAMED_MAX, NATIVE_NAMES};
use crate::Volume;
use braid_contract::{Access, Attr, Errno, Error, Fd, FileKind, Result, SetTime};
use braid_core::namespace::copied::copy_xattrs;
use braid_core::recover::unnamed::discard_unnamed;
use braid_format::BRAID_DIR;
use braid_home::names_in;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Something that is met on the way: where it is, and what.
pub(super) struct Met<'a> {
    pub(super) path: &'a Path,
    /// To look at.
    pub(super) fd: &'a Fd,
    pub(super) attr: &'a Attr,
    /// What home has of that name.
    pub(super) at_home: Option<FileKind>,
}

/// What a walk does with what it meets.
trait Visitor {
    /// Anything but a directory.
    fn leaf(&mut self, met: &Met<'_>) -> Result<()>;
    /// A directory; answers whether to go in.
    fn enter(&mut self, met: &Met<'_>) -> Result<bool>;
    /// A directory of which all was met.
    fn leave(&mut self, path: &Path) -> Result<()>;
    /// What can't be looked at.
    fn failed(&mut self, path: &Path, error: &Error) -> Result<()>;
}

/// A directory that is gone through, by its path: descriptors of all that are on
/// the way would be too many.
enum Step {
    Enter(PathBuf),
    Leave(PathBuf),
}

fn walk(volume: &Volume, root: &Fd, visitor: &mut dyn Visitor) -> Result<()> {
    let device = root.stat()?.device;
    let home = volume.core.home.root();
    let mut steps = vec![Step::Enter(PathBuf::new())];
    while let Some(step) = steps.pop() {
        let path = match step {
            Step::Leave(path) => {
                visitor.leave(&path)?;
                continue;
            }
            Step::Enter(path) => path,
        };
        if !path.as_os_str().is_empty() {
            steps.push(Step::Leave(path.clone()));
        }
        let names = root.open_below(&path).and_then(|dir| Ok((names_in(&*dir)?, dir)));
        let (names, dir) = match names {
            Ok(found) => found,
            Err(error) => {
                visitor.failed(&path, &error)?;
                continue;
            }
        };
        let beside = open_dir(&home, &path).ok();
        for name in names.into_iter().filter(|name| !is_native(&path, name)) {
            let path = path.join(&name);
            let met = look(&dir, &name, device, beside.as_ref());
            let done = met.and_then(|(fd, attr, at_home)| {
                let met = Met { path: &path, fd: &fd, attr: &attr, at_home };
                match attr.kind {
                    FileKind::Directory if visitor.enter(&met)? => steps.push(Step::Enter(path.clone())),
                    FileKind::Directory => {}
                    _ => visitor.leaf(&met)?,
                }
                Ok(())
            });
            match done {
                // It went meanwhile.
                Err(error) if error.errno() == Errno::ENOENT => {}
                Err(error) if error.errno() == Errno::ECANCELED => return Err(error),
                Err(error) => visitor.failed(&path, &error)?,
                Ok(()) => {}
            }
        }
    }
    Ok(())
}

fn look(dir: &Fd, name: &OsStr, device: u64, beside: Option<&Fd>) -> Result<(Fd, Attr, Option<FileKind>)> {
    let fd = dir.open_at(name, Access::Path)?;
    let stat = fd.stat()?;
    let mounted = || Error::new(Errno::EXDEV, "another file system is mounted there");
    if stat.device != device {
        return Err(mounted());
    }
    // It may be a part of the same file system, by another mount.
    if stat.attr.kind == FileKind::Directory
        && let Err(error) = dir.open_below(Path::new(name))
    {
        return Err(if error.errno() == Errno::EXDEV { mounted() } else { error });
    }
    let at_home = match beside.map(|home| home.open_at(name, Access::Path)) {
        Some(Ok(fd)) => Some(fd.stat()?.attr.kind),
        Some(Err(error)) if error.errno() == Errno::ENOENT => None,
        Some(Err(error)) => return Err(error),
        None => None,
    };
    Ok((fd, stat.attr, at_home))
}

fn is_native(dir: &Path, name: &OsStr) -> bool {
    dir.as_os_str().is_empty() && (name == BRAID_DIR || NATIVE_NAMES.iter().any(|native| name == *native))
}

pub(super) fn open_dir(root: &Fd, path: &Path) -> Result<Fd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    root.open_at(path.as_os_str(), Access::Directory)
}

/// Only looks.
struct Surveyor(ImportSurvey);

impl Surveyor {
    fn conflict(&mut self, path: &Path) {
        self.0.conflicts += 1;
        if self.0.named.len() < NAMED_MAX {
            self.0.named.push(path.to_owned());
        }
    }
}

impl Visitor for Surveyor {
    fn leaf(&mut self, met: &Met<'_>) -> Result<()> {
        match (met.at_home, met.attr.kind) {
            (Some(_), _) => self.conflict(met.path),
            (None, FileKind::Regular) => {
                self.0.files += 1;
                self.0.bytes += met.attr.size;
            }
            (None, _) => self.0.others += 1,
        }
        Ok(())
    }

    fn enter(&mut self, met: &Met<'_>) -> Result<bool> {
        let merges = met.at_home.is_none_or(|kind| kind == FileKind::Directory);
        if merges {
            self.0.dirs += 1;
        } else {
            self.conflict(met.path);
        }
        Ok(merges)
    }

    fn leave(&mut self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn failed(&mut self, path: &Path, error: &Error) -> Result<()> {
        self.0.failed.push((path.to_owned(), error.to_string()));
        Ok(())
    }
}

pub(super) fn survey(volume: &Volume, root: &Fd) -> Result<ImportSurvey> {
    let mut surveyor = Surveyor(ImportSurvey::default());
    walk(volume, root, &mut surveyor)?;
    Ok(surveyor.0)
}

/// Brings in what is met.
struct Bringer<'a, 'r> {
    adopter: Adopter<'a>,
    root: &'r Fd,
    home: Fd,
    /// Directories that were made, and the times that they are to have.
    made: Vec<(PathBuf, Attr)>,
    /// Directories that may be empty in the end, inner ones first.
    left: Vec<PathBuf>,
}

impl Visitor for Bringer<'_, '_> {
    fn leaf(&mut self, met: &Met<'_>) -> Result<()> {
        match met.attr.kind {
            FileKind::Regular => self.adopter.file(met),
            _ => self.adopter.other(met),
        }
    }

    fn enter(&mut self, met: &Met<'_>) -> Result<bool> {
        match met.at_home {
            Some(FileKind::Directory) => Ok(true),
            Some(_) => {
                self.adopter.observer.conflict(met.path);
                Ok(false)
            }
            None => {
                self.home.make_dir_at(met.path.as_os_str(), 0o700)?;
                let made = self.home.open_at(met.path.as_os_str(), Access::Path)?;
                give_attributes(&**met.fd, met.attr, &*made)?;
                self.adopter.volume.names_came(&self.home, [met.path]);
                self.made.push((met.path.to_owned(), *met.attr));
                Ok(true)
            }
        }
    }

    fn leave(&mut self, path: &Path) -> Result<()> {
        self.left.push(path.to_owned());
        Ok(())
    }

    fn failed(&mut self, path: &Path, error: &Error) -> Result<()> {
        self.adopter.observer.failed(path, error)
    }
}

pub(super) fn bring_in(volume: &Volume, root: &Fd, adopter: Adopter<'_>) -> Result<()> {
    let home = volume.core.home.root();
    let mut bringer = Bringer { adopter, root, home, made: Vec::new(), left: Vec::new() };
    let walked = walk(volume, root, &mut bringer);
    bringer.adopter.flush()?;
    // What was emptied goes; what is left in others keeps them.
    for path in &bringer.left {
        match bringer.root.remove_at(path.as_os_str(), true) {
            Err(error) if matches!(error.errno(), Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOENT) => {}
            result => result?,
        }
    }
    for (path, attr) in bringer.made.iter().rev() {
        let dir = bringer.home.open_at(path.as_os_str(), Access::Path)?;
        dir.set_times(Some(SetTime::At(attr.atime)), Some(SetTime::At(attr.mtime)))?;
    }
    discard_unnamed(&volume.core)?;
    walked
}

/// Owner, extended attributes, mode and times.
pub(crate) fn give_attributes(
    old: &dyn braid_contract::NativeFd,
    attr: &Attr,
    new: &dyn braid_contract::NativeFd,
) -> Result<()> {
    // A change of the owner clears set-id bits and capabilities.
    new.set_owner(Some(attr.uid), Some(attr.gid))?;
    copy_xattrs(old, new)?;
    if attr.kind != FileKind::Symlink {
        new.set_mode(u32::from(attr.mode) & 0o7777)?;
    }
    new.set_times(Some(SetTime::At(attr.atime)), Some(SetTime::At(attr.mtime)))
}
