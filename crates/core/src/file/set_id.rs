//! Set-id bits and file capabilities. A change of the contents takes them away,
//! unless the caller may keep them.

use crate::live::{CAPABILITY, File, Inode, is_without};
use braid_contract::{Attr, Caller, Errno, NativeFd, Result};
use std::ffi::OsStr;

const SET_USER_ID: u32 = 0o4000;

const SET_GROUP_ID: u32 = 0o2000;

const GROUP_MAY_EXECUTE: u32 = 0o0010;

/// Takes away the bits and capabilities that may not outlast a change of the
/// contents by this caller, as the kernel does natively. With `keeps_set_id`,
/// the caller has `CAP_FSETID`.
pub fn clear_set_id(file: &File, caller: &Caller, keeps_set_id: bool) -> Result<()> {
    let Some(as_of) = file.set_id.due() else { return Ok(()) };
    file.inode_will_change()?;
    let cleared = {
        let _change = file.set_id.rights_change();
        clear(&**file.data(), caller, keeps_set_id)?
    };
    if cleared.changed {
        file.inode_is_set(false)?;
    }
    if cleared.nothing_left {
        file.set_id.nothing(as_of);
    }
    Ok(())
}

/// Takes away capabilities only.
pub(super) fn clear_capability(file: &File) -> Result<()> {
    let Some(as_of) = file.set_id.capability_due() else { return Ok(()) };
    file.inode_will_change()?;
    let removed = {
        let _change = file.set_id.rights_change();
        remove_capability(&**file.data())?
    };
    file.set_id.no_capability(as_of);
    if removed { file.inode_is_set(false) } else { Ok(()) }
}

/// Changes capabilities of an inode while the daemon changes nothing of its
/// contents, which would put them back. `change` takes no lock.
pub(crate) fn change_rights<T>(inode: &Inode, change: impl FnOnce() -> T) -> T {
    let slot = inode.file.lock();
    // Held, so that no mover takes the file into use meanwhile.
    let Some(file) = slot.upgrade() else { return change() };
    drop(slot);
    let _change = file.set_id.rights_change();
    file.set_id.capability_changes();
    change()
}

/// Reads capabilities of an inode while they are there. `read` takes no lock, and answers
/// whether there are any.
pub(crate) fn read_rights<T>(inode: &Inode, read: impl FnOnce() -> Result<T>) -> Result<T> {
    let slot = inode.file.lock();
    let Some(file) = slot.upgrade() else { return read() };
    drop(slot);
    let _stay = file.set_id.rights_stay();
    // The kernel asks before the first write to each file.
    let Some(as_of) = file.set_id.capability_due() else { return Err(Errno::ENODATA.into()) };
    read().inspect_err(|error| {
        if error.errno() == Errno::ENODATA {
            file.set_id.no_capability(as_of);
        }
    })
}

/// Lists attributes of an inode while its capabilities are there. `list` takes no lock.
pub(crate) fn list_rights<T>(inode: &Inode, list: impl FnOnce() -> T) -> T {
    let live = inode.file.lock().upgrade();
    let Some(file) = live else { return list() };
    let _stay = file.set_id.rights_stay();
    list()
}

/// Takes away the bits and capabilities that the inode behind `fd` may not keep
/// when the caller changes it.
pub(crate) fn take_set_id(fd: &dyn NativeFd, caller: &Caller) -> Result<()> {
    clear(fd, caller, false).map(drop)
}

/// Whether the caller may set the set-group-id bit of an inode of this group.
pub(crate) fn may_set_group_id(caller: &Caller, gid: u32) -> bool {
    let is_one = || match &caller.groups {
        Some(groups) => groups.contains(&gid),
        // A caller that can't be asked is in no other group.
        None => braid_sys::groups_of(caller.tid).is_some_and(|groups| groups.contains(&gid)),
    };
    caller.keeps_set_id_bits() || caller.gid == gid || is_one()
}

/// The result of [`clear`].
struct Cleared {
    changed: bool,
    nothing_left: bool,
}

fn clear(fd: &dyn NativeFd, caller: &Caller, keeps_set_id: bool) -> Result<Cleared> {
    let attr = fd.stat()?.attr;
    let mode = u32::from(attr.mode) & 0o7777;
    let kept = if keeps_set_id { mode } else { without_set_id(&attr, caller) };
    if kept != mode {
        fd.set_mode(kept)?;
    }
    let had_capability = remove_capability(fd)?;
    let nothing_left = kept & (SET_USER_ID | SET_GROUP_ID) == 0;
    Ok(Cleared { changed: kept != mode || had_capability, nothing_left })
}

/// The mode that a change of the contents leaves.
fn without_set_id(attr: &Attr, caller: &Caller) -> u32 {
    let mode = u32::from(attr.mode) & 0o7777;
    // Without the execute bit, it once meant mandatory locking, and stays where
    // the caller could set it.
    let stays =
        mode & SET_GROUP_ID != 0 && mode & GROUP_MAY_EXECUTE == 0 && may_set_group_id(caller, attr.gid);
    mode & !(SET_USER_ID | if stays { 0 } else { SET_GROUP_ID })
}

/// Whether there was one.
fn remove_capability(fd: &dyn NativeFd) -> Result<bool> {
    if !has_capability(fd)? {
        return Ok(false);
    }
    match fd.remove_xattr(OsStr::new(CAPABILITY)) {
        Err(error) if is_without(&error) => Ok(false),
        result => result.map(|()| true),
    }
}

fn has_capability(fd: &dyn NativeFd) -> Result<bool> {
    match fd.get_xattr(OsStr::new(CAPABILITY), &mut []) {
        Err(error) if is_without(&error) => Ok(false),
        result => result.map(|_| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::{FileKind, InodeId, Timestamp};
    use std::sync::Arc;

    fn attr(mode: u16) -> Attr {
        Attr {
            ino: InodeId(2),
            size: 0,
            blocks: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            btime: None,
            kind: FileKind::Regular,
            mode,
            nlink: 1,
            uid: 0,
            gid: 20,
            rdev: 0,
            block_size: 4096,
        }
    }

    #[test]
    fn the_bits_go_and_nothing_else() {
        let outside = Caller { uid: 7, gid: 7, groups: Some(Arc::new([8])), pid: 1, tid: 1, of_stack: false };
        let inside = Caller { gid: 20, ..outside.clone() };
        let also_inside = Caller { groups: Some(Arc::new([8, 20])), ..outside.clone() };
        for (mode, others, members) in [
            (0o6755, 0o755, 0o755),
            (0o7711, 0o1711, 0o1711),
            (0o6644, 0o644, 0o2644),
            (0o2767, 0o767, 0o2767),
            (0o644, 0o644, 0o644),
        ] {
            assert_eq!(without_set_id(&attr(mode), &outside), others, "{mode:o}");
            assert_eq!(without_set_id(&attr(mode), &inside), members, "{mode:o}");
            assert_eq!(without_set_id(&attr(mode), &also_inside), members, "{mode:o}");
        }
    }
}
