//! Bringing in everything in a tier's directory, during a walk.

use super::adopt::Adopter;
use super::walk::{Visitor, WalkEntry, walk};
use braid_contract::{Access, Attr, Errno, Error, Fd, FileKind, Result, SetTime};
use braid_core::Core;
use braid_core::namespace::give_attributes;
use braid_core::recover::discard_unnamed;
use std::path::{Path, PathBuf};

/// Brings in the inodes of the walk.
struct Bringer<'a, 'r> {
    adopter: Adopter<'a>,
    root: &'r Fd,
    home: Fd,
    /// Created directories, and the times that they are to get.
    made: Vec<(PathBuf, Attr)>,
    /// Directories that may be empty in the end, inner ones first.
    left: Vec<PathBuf>,
}

impl Visitor for Bringer<'_, '_> {
    fn leaf(&mut self, met: &WalkEntry<'_>) -> Result<()> {
        match met.attr.kind {
            FileKind::Regular => self.adopter.file(met),
            _ => self.adopter.other(met),
        }
    }

    fn enter(&mut self, met: &WalkEntry<'_>) -> Result<bool> {
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
                self.adopter.importer.names_came(&self.home, [met.path]);
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

pub(super) fn bring_in(core: &Core, root: &Fd, adopter: Adopter<'_>) -> Result<()> {
    let home = core.home.root();
    let mut bringer = Bringer { adopter, root, home, made: Vec::new(), left: Vec::new() };
    let walked = walk(core, root, &mut bringer);
    bringer.adopter.flush()?;
    // Emptied directories are removed; others keep their remaining entries.
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
    discard_unnamed(core)?;
    walked
}
