//! Access checks for inodes: the rules that the kernel applies before it asks a file system.
//! Requests of a session don't pass the kernel, so they are applied here. POSIX ACLs count too.

use braid_contract::rights::{Guard, lets};
use braid_contract::{Attr, Caller, Errno, FileSystem, Result};

pub(crate) use braid_contract::rights::{READ, SEARCH, WRITE, is_in_group};

/// Checks that the caller has all rights of `want` to the inode.
///
/// # Errors
/// `EACCES` if not; those of reading its ACL.
pub(crate) fn check(fs: &dyn FileSystem, caller: &Caller, attr: &Attr, want: u16) -> Result<()> {
    if lets(fs, caller, attr, want)? { Ok(()) } else { Err(Errno::EACCES.into()) }
}

/// Whether the caller may take this name out of the directory, as far as its sticky bit goes.
///
/// # Errors
/// `EPERM` if not.
pub(crate) fn check_sticky(caller: &Caller, dir: &Attr, file: &Attr) -> Result<()> {
    if Guard::from(dir).lets_remove(caller, &Guard::from(file)) { Ok(()) } else { Err(Errno::EPERM.into()) }
}

/// Whether the caller is the owner, or root.
///
/// # Errors
/// `EPERM` if not.
pub(crate) fn check_owner(caller: &Caller, attr: &Attr) -> Result<()> {
    if [0, attr.uid].contains(&caller.uid) { Ok(()) } else { Err(Errno::EPERM.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::FileKind;
    use std::sync::Arc;

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: Some(Arc::from(groups)), pid: 0, tid: 0, of_stack: false }
    }

    fn braid_testkit_attr() -> Attr {
        Attr {
            ino: braid_contract::InodeId(2),
            size: 0,
            blocks: 0,
            atime: Default::default(),
            mtime: Default::default(),
            ctime: Default::default(),
            btime: None,
            kind: FileKind::Regular,
            mode: 0o751,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            block_size: 4096,
        }
    }

    #[test]
    fn the_sticky_bit_keeps_names_of_others() {
        let dir = Attr { mode: 0o1777, uid: 1, ..braid_testkit_attr() };
        let file = Attr { uid: 2, ..braid_testkit_attr() };
        for (uid, fine) in [(0, true), (1, true), (2, true), (3, false)] {
            assert_eq!(check_sticky(&caller(uid, 0, &[]), &dir, &file).is_ok(), fine, "user {uid}");
        }
        assert!(check_sticky(&caller(3, 0, &[]), &Attr { mode: 0o777, ..dir }, &file).is_ok());
    }
}
