//! Operations on any directory.

use braid_contract::{Access, Errno, Fd, NativeFd, Result};
use std::ffi::OsString;

/// The names in a directory, without `.` and `..`.
pub fn names_in(dir: &dyn NativeFd) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    dir.read_dir(0, &mut |entry| {
        if entry.name != "." && entry.name != ".." {
            names.push(entry.name.to_owned());
        }
        Ok(true)
    })?;
    Ok(names)
}

/// Removes everything in a directory but the names in `kept`.
pub fn empty_dir(dir: &dyn NativeFd, kept: &[&str]) -> Result<()> {
    // Depth first; `way` holds the directories from the top.
    let mut way: Vec<Fd> = vec![dir.reopen(Access::Directory)?];
    let mut names: Vec<Vec<OsString>> = vec![names_in(dir)?];
    names[0].retain(|name| !kept.iter().any(|kept| name == kept));
    let mut entered: Vec<OsString> = Vec::new();
    while let (Some(at), Some(left)) = (way.last(), names.last_mut()) {
        let Some(name) = left.pop() else {
            way.pop();
            names.pop();
            if let (Some(name), Some(parent)) = (entered.pop(), way.last()) {
                parent.remove_at(&name, true)?;
            }
            continue;
        };
        match at.remove_at(&name, false) {
            Err(error) if matches!(error.errno(), Errno::EISDIR | Errno::EPERM) => {
                let inner = at.open_at(&name, Access::Directory)?;
                names.push(names_in(&*inner)?);
                way.push(inner);
                entered.push(name);
            }
            Err(error) if error.errno() == Errno::ENOENT => {}
            result => result?,
        }
    }
    Ok(())
}
