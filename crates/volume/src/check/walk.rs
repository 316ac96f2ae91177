//! The way through the namespace, for a check: what can't be looked at is
//! told, and what goes meanwhile is passed over.

use super::is_missing;
use super::tree::look;
use crate::namespace::{BRAID_DIR, Home, Identity, names_in};
use braid_contract::{Access, Errno, Error, Fd, FileKind, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What the walk comes by.
pub(super) enum Seen<'a> {
    /// A regular file: its path below the root, a descriptor to look at it, and
    /// what it is.
    File(&'a Path, &'a Fd, &'a Identity),
    /// Something that can't be looked at.
    Failed(&'a Path, Error),
}

/// Calls `visit` for every regular file at or below `starts`; the whole
/// namespace if there are none.
pub(super) fn walk(
    home: &Home,
    starts: &[PathBuf],
    visit: &mut dyn FnMut(Seen<'_>) -> Result<()>,
) -> Result<()> {
    let mut pending = Vec::new();
    if starts.is_empty() {
        pending.push(PathBuf::new());
    }
    for start in starts {
        let parent = start.parent().unwrap_or(Path::new(""));
        match (start.file_name(), open_dir(home, parent)) {
            (None, _) => pending.push(PathBuf::new()),
            (Some(name), Ok(dir)) => match dir.open_at(name, Access::Path) {
                Ok(_) => one(home, &dir, parent, name, &mut pending, visit)?,
                Err(error) => visit(Seen::Failed(start, error))?,
            },
            (_, Err(error)) => visit(Seen::Failed(start, error))?,
        }
    }
    while let Some(path) = pending.pop() {
        let names = open_dir(home, &path).and_then(|dir| Ok((names_in(&*dir)?, dir)));
        match names {
            Ok((names, dir)) => {
                for name in names {
                    if !(path.as_os_str().is_empty() && name == BRAID_DIR) {
                        one(home, &dir, &path, &name, &mut pending, visit)?;
                    }
                }
            }
            Err(error) if is_missing(&error) => {}
            Err(error) => visit(Seen::Failed(&path, error))?,
        }
    }
    Ok(())
}

fn one(
    home: &Home,
    dir: &Fd,
    parent: &Path,
    name: &OsStr,
    pending: &mut Vec<PathBuf>,
    visit: &mut dyn FnMut(Seen<'_>) -> Result<()>,
) -> Result<()> {
    let path = parent.join(name);
    let found = look(&**dir, name).and_then(|found| match found {
        Some((fd, _)) => home.identify(&*fd).map(|identity| Some((fd, identity))),
        None => Ok(None),
    });
    match found {
        Ok(Some((fd, identity))) => match identity.kind() {
            FileKind::Directory => pending.push(path),
            FileKind::Regular => visit(Seen::File(&path, &fd, &identity))?,
            _ => {}
        },
        Ok(None) => {}
        // Something is mounted inside the home tier.
        Err(error) if error.errno() == Errno::EXDEV => {}
        Err(error) if is_missing(&error) => {}
        Err(error) => visit(Seen::Failed(&path, error))?,
    }
    Ok(())
}

fn open_dir(home: &Home, path: &Path) -> Result<Fd> {
    let shown = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    home.root().open_at(shown.as_os_str(), Access::Directory)
}
