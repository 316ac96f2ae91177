//! Who may do what with an inode: the rules that the kernel applies before it asks a file
//! system. Requests of a session don't pass the kernel, so they are applied here. POSIX ACLs
//! count too.

use braid_contract::rights::{ACL, Guard};
use braid_contract::{Attr, Caller, Errno, FileKind, FileSystem, Result};
use std::ffi::OsStr;

pub(crate) use braid_contract::rights::{READ, SEARCH, WRITE, is_in_group};

const ACL_VERSION: u32 = 2;

/// Whether the caller may do all of `want` with the inode.
///
/// # Errors
/// `EACCES` if not; those of reading its ACL.
pub(crate) fn check(fs: &dyn FileSystem, caller: &Caller, attr: &Attr, want: u16) -> Result<()> {
    if may(fs, caller, attr, want)? { Ok(()) } else { Err(Errno::EACCES.into()) }
}

fn may(fs: &dyn FileSystem, caller: &Caller, attr: &Attr, want: u16) -> Result<bool> {
    if caller.uid == 0 {
        // As with CAP_DAC_OVERRIDE.
        let executable = attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
        return Ok(want & SEARCH == 0 || executable);
    }
    // With an ACL, the group's bits are its mask; without them it grants nothing.
    if caller.uid != attr.uid && attr.mode & 0o070 != 0 && fs.capabilities().posix_acl {
        match fs.getxattr(&Caller::root(), attr.ino, OsStr::new(ACL)) {
            Ok(acl) => return grants(&acl, caller, attr, want).ok_or_else(|| Errno::EIO.into()),
            Err(error) if [Errno::ENODATA, Errno::EOPNOTSUPP].contains(&error.errno()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Guard::from(attr).lets(caller, want))
}

/// Whether an ACL grants all of `want` to a caller who is not the owner. `None` if it is
/// none.
fn grants(acl: &[u8], caller: &Caller, attr: &Attr, want: u16) -> Option<bool> {
    const USER: u16 = 0x02;
    const GROUP_OBJ: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    const OTHER: u16 = 0x20;
    let (version, entries) = acl.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != ACL_VERSION || !rest.is_empty() {
        return None;
    }
    let parsed = entries.iter().map(|[tag, tag_high, perm, _, id @ ..]| {
        (u16::from_le_bytes([*tag, *tag_high]), u16::from(*perm) & 7, u32::from_le_bytes(*id))
    });
    let mask = parsed.clone().find(|(tag, ..)| *tag == MASK).map_or(7, |(_, perm, _)| perm);
    let grants = |perm: u16| perm & mask & want == want;
    let own = parsed.clone().find(|(tag, _, id)| *tag == USER && *id == caller.uid);
    if let Some((_, perm, _)) = own {
        return Some(grants(perm));
    }
    let mut in_a_group = false;
    for (tag, perm, id) in parsed.clone() {
        let gid = match tag {
            GROUP_OBJ => attr.gid,
            GROUP => id,
            _ => continue,
        };
        if is_in_group(caller, gid) {
            in_a_group = true;
            if grants(perm) {
                return Some(true);
            }
        }
    }
    if in_a_group {
        return Some(false);
    }
    Some(parsed.clone().find(|(tag, ..)| *tag == OTHER)?.1 & want == want)
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
    use std::sync::Arc;

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: Some(Arc::from(groups)), pid: 0, tid: 0 }
    }

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = ACL_VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(perm.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn an_acl_is_asked_in_its_order() {
        let attr = Attr { uid: 1, gid: 10, ..braid_testkit_attr() };
        // user::rwx user:5:r-- group::r-x group:20:rw- mask::r-x other::--x
        let list = acl(&[(1, 7, !0), (2, 4, 5), (4, 5, !0), (8, 6, 20), (16, 5, !0), (32, 1, !0)]);
        for (who, read, write, search) in [
            (caller(5, 10, &[]), true, false, false),
            (caller(6, 10, &[]), true, false, true),
            // The mask takes writing away.
            (caller(6, 20, &[]), true, false, false),
            (caller(6, 30, &[20]), true, false, false),
            (caller(6, 30, &[]), false, false, true),
        ] {
            let has = |want| grants(&list, &who, &attr, want).unwrap();
            assert_eq!((has(READ), has(WRITE), has(SEARCH)), (read, write, search), "{who:?}");
        }
        for bad in [&list[..3], &list[..list.len() - 1], &[1, 0, 0, 0]] {
            assert_eq!(grants(bad, &caller(9, 9, &[]), &attr, READ), None);
        }
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
