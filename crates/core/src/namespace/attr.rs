//! Attributes: those of the home inode, corrected by those that are ahead of
//! it.

use crate::core::Core;
use crate::failpoint::Failpoint;
use crate::file::collective::{BLOCK, ask_tiers, other_tiers};
use crate::file::open::file_of;
use crate::live::{AtRest, File, Inode};
use braid_contract::{Attr, Fd, FileKind, HandleId, InodeId, Result, Timestamp};
use braid_home::Identity;
use std::sync::Arc;

/// The attributes of an inode; those of an open file where `handle` is one.
pub fn get_attr(core: &Core, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
    match handle.and_then(|handle| core.handles.file(handle).ok()) {
        Some(open) => attr_of_file(core, &open.file.inode, &open.file),
        None => {
            let inode = core.inode(ino)?;
            attr_now(core, &inode, || core.inodes.path(&core.home, &inode))
        }
    }
}

/// Attributes of an inode as they are now, by the descriptor that `path` gives
/// if it is not in use.
pub(crate) fn attr_now(core: &Core, inode: &Arc<Inode>, path: impl FnOnce() -> Result<Fd>) -> Result<Attr> {
    // An open file answers even when its last name is gone.
    let live = inode.file.lock().upgrade();
    match live {
        Some(file) => attr_of_file(core, inode, &file),
        None if inode.may_be_spread() => {
            let path = path()?;
            let identity = core.home.identify(&*path)?;
            attr_at_rest(core, inode, || Ok(path), &identity)
        }
        None => Ok(Attr { ino: inode.ino, ..core.home.attr(&*path()?)? }),
    }
}

/// Attributes of an inode that was just looked at; `path` gives a descriptor of it if that is needed.
pub(crate) fn attr_from(
    core: &Core,
    inode: &Arc<Inode>,
    path: impl FnOnce() -> Result<Fd>,
    identity: &Identity,
) -> Result<Attr> {
    let live = inode.file.lock().upgrade();
    match live.filter(|_| inode.kind == FileKind::Regular) {
        Some(file) => attr_of_file(core, inode, &file),
        None => attr_at_rest(core, inode, path, identity),
    }
}

/// Attributes of a file that is not in use.
fn attr_at_rest(
    core: &Core,
    inode: &Arc<Inode>,
    path: impl FnOnce() -> Result<Fd>,
    identity: &Identity,
) -> Result<Attr> {
    let attr = Attr { ino: inode.ino, ..identity.attr };
    // Without a name, its data is being removed.
    if !inode.may_be_spread() || attr.nlink == 0 {
        return Ok(attr);
    }
    if let Some(rest) = known_at_rest(core, inode) {
        return Ok(combined(core, attr, (rest.size, None, rest.atime()), Some(rest.blocks)));
    }
    // Asking for the attribute is cheaper than opening the file.
    match core.home.id_attr(&*path()?, identity)? {
        None => {
            inode.seems_plain();
            Ok(attr)
        }
        Some(_) => attr_of_file(core, inode, &*file_of(core, inode)?),
    }
}

/// The facts known from a file's last use, if they hold for the present tiers.
fn known_at_rest(core: &Core, inode: &Inode) -> Option<AtRest> {
    let rest = inode.file.lock().at_rest()?;
    (rest.tiers == other_tiers(core)).then_some(rest)
}

/// Attributes of the home inode, corrected by those that are ahead of it, and
/// with the space that the file takes on other tiers.
fn attr_of_file(core: &Core, inode: &Inode, file: &File) -> Result<Attr> {
    // Read first: a file that becomes plain brings them to the home inode
    // before.
    let ahead = file.ahead();
    let tiers = ahead.as_ref().map(|ahead| ask_tiers(core, file, ahead));
    let attr = Attr { ino: inode.ino, ..file.data().stat()?.attr };
    Ok(match (ahead, tiers) {
        (Some(ahead), Some((blocks, atime))) => {
            combined(core, attr, (ahead.size, ahead.mtime, atime.flatten()), blocks)
        }
        _ => attr,
    })
}

/// Attributes of a home inode, with the size, the times and the blocks on other
/// tiers that it may not have.
fn combined(
    core: &Core,
    mut attr: Attr,
    (size, mtime, atime): (u64, Option<Timestamp>, Option<Timestamp>),
    blocks: Option<u64>,
) -> Attr {
    attr.size = size;
    attr.atime = atime.map_or(attr.atime, |atime| attr.atime.max(atime));
    attr.mtime = mtime.unwrap_or(attr.mtime);
    attr.ctime = mtime.map_or(attr.ctime, |mtime| attr.ctime.max(mtime));
    attr.blocks = match blocks {
        Some(blocks) => attr.blocks + blocks,
        // Programs take a file without blocks for one without data.
        None => attr.blocks.max(size.div_ceil(BLOCK)),
    };
    if core.fails_at(Failpoint::LinksAreForgotten) {
        attr.nlink = 1;
    }
    attr
}
