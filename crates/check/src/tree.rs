//! Access to directories and their files, for all passes.

use braid_contract::{Access, Context, Errno, Error, Fd, FileKind, NativeFd, NativeStat, RenameMode, Result};
use std::ffi::OsStr;

/// Whether an error says that nothing has that name.
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(error.errno(), Errno::ENOENT | Errno::ESTALE)
}

/// Opens a path below a directory; `None` if it does not exist.
pub(crate) fn open_if_there(dir: &dyn NativeFd, path: &str, access: Access) -> Result<Option<Fd>> {
    match dir.open_at(OsStr::new(path), access) {
        Err(error) if is_missing(&error) => Ok(None),
        result => result.map(Some).with_context(|| format!("opening {path}")),
    }
}

/// Opens a directory below another; `None` if the path does not exist, or leads
/// to something else.
pub(crate) fn dir_if_there(dir: &dyn NativeFd, path: &str) -> Result<Option<Fd>> {
    match open_if_there(dir, path, Access::Directory) {
        Err(error) if matches!(error.errno(), Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
        result => result,
    }
}

/// Examines a name in a directory; `None` if it is gone.
pub(crate) fn look(dir: &dyn NativeFd, name: &OsStr) -> Result<Option<(Fd, NativeStat)>> {
    let fd = match dir.open_at(name, Access::Path) {
        Err(error) if is_missing(&error) => return Ok(None),
        result => result?,
    };
    let stat = fd.stat()?;
    Ok(Some((fd, stat)))
}

/// Opens a regular file below a directory to read it; `None` if the path does
/// not exist, `EUCLEAN` if it leads to something else.
pub(crate) fn regular_if_there(dir: &dyn NativeFd, path: &str) -> Result<Option<Fd>> {
    let Some((_, stat)) = look(dir, OsStr::new(path))? else { return Ok(None) };
    if stat.attr.kind != FileKind::Regular {
        return Err(Error::new(Errno::EUCLEAN, "it is not a regular file"));
    }
    open_if_there(dir, path, Access::Read)
}

/// Moves a file between two shards of `dir`, durably, and never over another
/// file.
pub(crate) fn move_between(dir: &dyn NativeFd, from: &str, to: &str, name: &OsStr) -> Result<()> {
    dir.ensure_dir_at(to)?;
    let from = dir.open_at(OsStr::new(from), Access::Directory)?;
    let to = dir.open_at(OsStr::new(to), Access::Directory)?;
    from.rename_at(name, &*to, name, RenameMode::NoReplace)?;
    to.sync(false)?;
    from.sync(false)?;
    dir.sync(false)
}

/// Removes a file below a directory, if there is one.
pub(crate) fn remove_if_there(dir: &dyn NativeFd, path: &str) -> Result<()> {
    match dir.remove_at(OsStr::new(path), false) {
        Err(error) if !is_missing(&error) => Err(error),
        _ => Ok(()),
    }
}
