//! The paths of inodes, for modules that go by them.

use crate::core::Core;
use crate::inode::{Content, Inode};
use crate::record::Name;
use braid_contract::{Errno, InodeId, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The path of an inode below the root.
///
/// # Errors
/// `ESTALE` if there is none, `ENOENT` if it has no name, `EOPNOTSUPP` if it has some, but not
/// where it was made or moved to.
pub(crate) fn path(core: &Core, ino: InodeId) -> Result<PathBuf> {
    let mut names: Vec<Name> = Vec::new();
    let mut inode = core.inode(ino)?;
    while inode.ino != InodeId::ROOT.0 {
        let (parent, has_names) = {
            let state = inode.state.read();
            (state.parent, state.is_live() && state.nlink > 0)
        };
        if !has_names {
            return Err(Errno::ENOENT.into());
        }
        let parent = core.inode(InodeId(parent)).map_err(|_| Errno::ENOENT)?;
        names.push(name_in(&parent, &inode).ok_or(Errno::EOPNOTSUPP)?);
        inode = parent;
    }
    Ok(names.iter().rev().map(|name| OsString::from_vec(name.to_vec())).collect())
}

/// The name that an inode has in a directory. The one that it had when it was last asked for
/// is looked at first, since the directory has no index by inodes.
fn name_in(dir: &Inode, inode: &Inode) -> Option<Name> {
    let state = dir.state.read();
    let Content::Names(entries) = &state.content else { return None };
    let mut known = inode.last_name.lock();
    let leads_there = |name: &&Name| entries.find(name).is_some_and(|named| named.ino == inode.ino);
    if let Some(name) = known.as_ref().filter(leads_there) {
        return Some(name.clone());
    }
    let found = entries.after(0).find(|(_, named)| named.ino == inode.ino);
    *known = found.map(|(_, named)| named.name.clone());
    known.clone()
}
