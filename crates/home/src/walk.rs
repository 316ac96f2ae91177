//! The walk through the namespace, or a part of it, for recovery, checks and
//! lists of files. Names that disappear meanwhile, as in a volume in use, are
//! skipped; unreadable ones are reported.

use crate::dirs::names_in;
use crate::home::Home;
use crate::identity::Identity;
use braid_contract::{Access, Context, Errno, Error, Fd, FileKind, Result, Shown};
use braid_format::BRAID_DIR;
use std::path::{Path, PathBuf};

/// A visit of the walk.
pub enum Seen<'a> {
    /// A regular file: its path below the root, a descriptor to look at it, and
    /// its identity.
    File(&'a Path, &'a Fd, &'a Identity),
    /// An entry that can't be read.
    Failed(&'a Path, Error),
}

impl Home {
    /// Calls `visit` for every regular file at or below `starts`, which are
    /// paths below the root; the whole namespace if there are none.
    pub fn walk_below(
        &self,
        starts: &[PathBuf],
        visit: &mut dyn FnMut(Seen<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut pending = Vec::new();
        if starts.is_empty() {
            pending.push(PathBuf::new());
        }
        for start in starts {
            let parent = start.parent().unwrap_or(Path::new(""));
            match (start.file_name(), self.open_dir(parent)) {
                (None, _) => pending.push(PathBuf::new()),
                (Some(name), Ok(dir)) => match dir.open_at(name, Access::Path) {
                    Ok(fd) => self.pass(start, Ok(fd), &mut pending, visit)?,
                    Err(error) => visit(Seen::Failed(start, error))?,
                },
                (_, Err(error)) => visit(Seen::Failed(start, error))?,
            }
        }
        while let Some(path) = pending.pop() {
            let names = self.open_dir(&path).and_then(|dir| Ok((names_in(&*dir)?, dir)));
            match names {
                Ok((names, dir)) => {
                    for name in names {
                        if !(path.as_os_str().is_empty() && name == BRAID_DIR) {
                            let opened = dir.open_at(&name, Access::Path);
                            self.pass(&path.join(name), opened, &mut pending, visit)?;
                        }
                    }
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => visit(Seen::Failed(&path, error))?,
            }
        }
        Ok(())
    }

    /// Calls `visit` with path (below the root), descriptor (for looking) and
    /// identity of every regular file of the namespace; ends at the first that
    /// can't be read.
    pub fn walk(&self, visit: &mut dyn FnMut(&Path, &Fd, &Identity) -> Result<()>) -> Result<()> {
        self.walk_below(&[], &mut |seen| match seen {
            Seen::File(path, fd, identity) => visit(path, fd, identity),
            Seen::Failed(path, error) => Err(error).with_context(|| path.shown().to_string()),
        })
    }

    /// Visits one name.
    fn pass(
        &self,
        path: &Path,
        opened: Result<Fd>,
        pending: &mut Vec<PathBuf>,
        visit: &mut dyn FnMut(Seen<'_>) -> Result<()>,
    ) -> Result<()> {
        match opened.and_then(|fd| Ok((self.identify(&*fd)?, fd))) {
            Ok((identity, fd)) => match identity.kind() {
                FileKind::Directory => pending.push(path.to_owned()),
                FileKind::Regular => visit(Seen::File(path, &fd, &identity))?,
                _ => {}
            },
            // Something is mounted inside the home tier.
            Err(error) if error.errno() == Errno::EXDEV => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => visit(Seen::Failed(path, error))?,
        }
        Ok(())
    }

    /// Opens a directory of the namespace.
    pub fn open_dir(&self, path: &Path) -> Result<Fd> {
        let shown = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.root().open_at(shown.as_os_str(), Access::Directory)
    }
}

/// The entry was removed since its name was read, or replaced, perhaps by a
/// link, which is not followed.
fn is_gone(error: &Error) -> bool {
    matches!(error.errno(), Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ESTALE)
}
