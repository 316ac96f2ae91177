//! The walk through a tier's directory, in parallel with home's.

use braid_contract::{Access, Attr, Errno, Error, Fd, FileKind, Result};
use braid_core::Core;
use braid_format::BRAID_DIR;
use braid_home::names_in;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Names that file systems, not users, create at their root.
const NATIVE_NAMES: [&str; 1] = ["lost+found"];

/// An entry of the walk.
pub(super) struct WalkEntry<'a> {
    pub(super) path: &'a Path,
    /// The entry, to look at.
    pub(super) fd: &'a Fd,
    pub(super) attr: &'a Attr,
    /// The kind of home's file of that name.
    pub(super) at_home: Option<FileKind>,
}

/// The handler of a walk's entries.
pub(super) trait Visitor {
    /// Anything but a directory.
    fn leaf(&mut self, met: &WalkEntry<'_>) -> Result<()>;
    /// A directory; answers whether to go in.
    fn enter(&mut self, met: &WalkEntry<'_>) -> Result<bool>;
    /// A directory after all its entries.
    fn leave(&mut self, path: &Path) -> Result<()>;
    /// An entry that can't be read.
    fn failed(&mut self, path: &Path, error: &Error) -> Result<()>;
}

/// A step of the walk. Directories are held by path: the descriptors of all on
/// the way would be too many.
enum DirStep {
    Enter(PathBuf),
    Leave(PathBuf),
}

pub(super) fn walk(core: &Core, root: &Fd, visitor: &mut dyn Visitor) -> Result<()> {
    let device = root.stat()?.device;
    let home = core.home.root();
    let mut steps = vec![DirStep::Enter(PathBuf::new())];
    while let Some(step) = steps.pop() {
        let path = match step {
            DirStep::Leave(path) => {
                visitor.leave(&path)?;
                continue;
            }
            DirStep::Enter(path) => path,
        };
        if !path.as_os_str().is_empty() {
            steps.push(DirStep::Leave(path.clone()));
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
                let met = WalkEntry { path: &path, fd: &fd, attr: &attr, at_home };
                match attr.kind {
                    FileKind::Directory if visitor.enter(&met)? => steps.push(DirStep::Enter(path.clone())),
                    FileKind::Directory => {}
                    _ => visitor.leaf(&met)?,
                }
                Ok(())
            });
            match done {
                // The entry was removed meanwhile.
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
    // This may be a part of the same file system, mounted there too.
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
