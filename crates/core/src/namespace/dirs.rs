//! Reading directories.

use crate::core::Core;
use crate::live::DirHandle;
use crate::namespace::resolve::{enter_known, enter_name, identify_name};
use braid_contract::{
    Access, Attr, DirEntry, DirSink, Entry, Errno, FileKind, HandleId, InodeId, NativeDirEntry, NativeFd,
    Result,
};
use braid_format::BRAID_DIR;
use std::ffi::OsStr;

/// Opens a directory.
pub fn open_directory(core: &Core, ino: InodeId) -> Result<HandleId> {
    let inode = core.inode(ino)?;
    let fd = core.inodes.open(&core.home, &inode, Access::Directory)?;
    Ok(core.handles.add_dir(DirHandle::new(inode, fd)))
}

/// Hands entries after `offset` to the sink. Offsets are the home file
/// system's own cookies, which it keeps stable.
pub fn read_directory(
    core: &Core,
    handle: HandleId,
    offset: i64,
    plus: bool,
    sink: &mut dyn DirSink,
) -> Result<()> {
    let dir = core.handles.dir(handle)?;
    let at = dir.descriptor();
    dir.read_from(&core.home, offset, &mut |entry, ino| {
        if dir.inode().ino == InodeId::ROOT && entry.name == BRAID_DIR {
            return Ok(true);
        }
        list_entry(core, &*at, (entry, ino), plus, sink)
    })
}

/// Hands one entry to the sink; answers whether that took it.
fn list_entry(
    core: &Core,
    dir: &dyn NativeFd,
    (entry, ino): (&NativeDirEntry<'_>, InodeId),
    plus: bool,
    sink: &mut dyn DirSink,
) -> Result<bool> {
    let dots = entry.name == "." || entry.name == "..";
    let (looked_up, damaged) =
        if plus && !dots { entry_for_listing(core, dir, (entry.name, ino))? } else { (None, false) };
    let taken = sink.add(&DirEntry {
        ino: looked_up.map_or(ino, |entry| entry.attr.ino),
        next_offset: entry.next_offset,
        kind: FileKind::from_mode(entry.kind),
        name: entry.name,
        entry: looked_up,
        damaged,
    });
    if let Some(entry) = looked_up.filter(|_| !taken) {
        core.inodes.forget(entry.attr.ino, 1);
    }
    Ok(taken)
}

/// The entry of a name for `readdirplus`, and whether its file is damaged: then
/// the entry is that of the home inode, and looking it up reports why. A name
/// that went away meanwhile is listed without an entry. A lack of descriptors
/// or memory is answered as an error.
fn entry_for_listing(
    core: &Core,
    dir: &dyn NativeFd,
    (name, ino): (&OsStr, InodeId),
) -> Result<(Option<Entry>, bool)> {
    if let Some(entry) = enter_known(core, dir, name, ino) {
        return Ok((Some(entry), false));
    }
    match enter_name(core, dir, name) {
        Ok(entry) => Ok((Some(entry), false)),
        Err(error) if error.is_retryable() => Err(error),
        Err(error) if error.errno() == Errno::EUCLEAN => match identify_name(core, dir, name) {
            Ok((fd, identity)) => {
                let inode = core.inodes.enter(&core.home, &identity, fd);
                let attr = Attr { ino: inode.ino, ..identity.attr };
                Ok((Some(Entry { attr, generation: inode.generation }), true))
            }
            Err(_) => Ok((None, true)),
        },
        Err(_) => Ok((None, false)),
    }
}
