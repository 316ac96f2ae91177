//! Extended attributes: those of the home inode, without Braid's own.

use crate::core::Core;
use crate::file::set_id::{change_rights, list_rights, may_set_group_id, read_rights};
use crate::live::{CAPABILITY, Inode};
use crate::namespace::change::{inode_changed, inode_will_change};
use braid_contract::rights::ACL;
use braid_contract::{Caller, Errno, Fd, InodeId, NativeFd, Result, XattrMode};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Longest value, and longest list of names, that Linux allows.
const VALUE_MAX: usize = 64 << 10;

/// The value of an extended attribute.
pub fn get_xattr(core: &Core, ino: InodeId, name: &OsStr) -> Result<Vec<u8>> {
    if is_ours(name.as_bytes()) {
        return Err(Errno::ENODATA.into());
    }
    let inode = core.inode(ino)?;
    let fd = fd_of(core, &inode)?;
    let read = || read_value(|buf| fd.get_xattr(name, buf));
    if name == CAPABILITY { read_rights(&inode, read) } else { read() }
}

/// A descriptor for attributes: that of a file in use, which needs no other.
fn fd_of(core: &Core, inode: &Arc<Inode>) -> Result<Fd> {
    let live = inode.file.lock().upgrade();
    live.map_or_else(|| core.inodes.path(&core.home, inode), |file| Ok(Fd::clone(file.data())))
}

/// The names of all extended attributes, each ended by a zero byte.
pub fn list_xattr(core: &Core, ino: InodeId) -> Result<Vec<u8>> {
    let inode = core.inode(ino)?;
    let path = core.inodes.path(&core.home, &inode)?;
    let names = list_rights(&inode, || read_value(|buf| path.list_xattr(buf)))?;
    let kept = names.split_inclusive(|byte| *byte == 0).filter(|name| !is_ours(name));
    Ok(kept.flatten().copied().collect())
}

/// Sets an extended attribute.
pub fn set_xattr(
    core: &Core,
    caller: &Caller,
    ino: InodeId,
    name: &OsStr,
    value: &[u8],
    mode: XattrMode,
) -> Result<()> {
    if is_ours(name.as_bytes()) {
        return Err(Errno::EPERM.into());
    }
    let inode = core.inode(ino)?;
    let path = core.inodes.path(&core.home, &inode)?;
    inode_will_change(&inode)?;
    changing(&inode, name, || path.set_xattr(name, value, mode))?;
    if name == ACL {
        drop_set_group_id(&*path, caller)?;
        let live = inode.file.lock().upgrade();
        live.inspect(|file| file.set_id.changed());
    }
    inode_changed(core, &inode)
}

/// Removes an extended attribute.
pub fn remove_xattr(core: &Core, ino: InodeId, name: &OsStr) -> Result<()> {
    if is_ours(name.as_bytes()) {
        return Err(Errno::ENODATA.into());
    }
    let inode = core.inode(ino)?;
    inode_will_change(&inode)?;
    let path = core.inodes.path(&core.home, &inode)?;
    changing(&inode, name, || path.remove_xattr(name))?;
    inode_changed(core, &inode)
}

fn changing<T>(inode: &Inode, name: &OsStr, change: impl FnOnce() -> T) -> T {
    if name == CAPABILITY { change_rights(inode, change) } else { change() }
}

/// Reads a value into a small buffer, and into the largest if it is too small.
pub fn read_value(read: impl Fn(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut value = vec![0; 256];
    let len = match read(&mut value) {
        Err(error) if error.errno() == Errno::ERANGE => {
            value.resize(VALUE_MAX, 0);
            read(&mut value)?
        }
        result => result?,
    };
    value.truncate(len);
    Ok(value)
}

/// Takes the set-group-id bit away after a caller outside the inode's group set
/// its access list, as natively.
fn drop_set_group_id(path: &dyn NativeFd, caller: &Caller) -> Result<()> {
    let attr = path.stat()?.attr;
    if attr.mode & 0o2000 == 0 || may_set_group_id(caller, attr.gid) {
        return Ok(());
    }
    path.set_mode(u32::from(attr.mode) & 0o5777)
}

fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b"trusted.braid.") || name.starts_with(b"user.braid.")
}
