//! The rights that permission bits and ACLs give a caller, where no kernel has checked.

use crate::{Attr, Caller, Errno, FileKind, FileSystem, Result};
use std::ffi::OsStr;

/// The right to read.
pub const READ: u16 = 0o4;
/// The right to write.
pub const WRITE: u16 = 0o2;
/// The right to search a directory.
pub const SEARCH: u16 = 0o1;
/// The extended attribute that holds the ACL of an inode.
pub const ACL: &str = "system.posix_acl_access";
const ACL_VERSION: u32 = 2;
/// The bit of a directory in which names belong to the owners of their files.
const STICKY: u16 = 0o1000;

/// Whether a caller belongs to a group, as far as its groups are known.
#[must_use]
pub fn is_in_group(caller: &Caller, gid: u32) -> bool {
    caller.gid == gid || caller.groups.as_ref().is_some_and(|groups| groups.contains(&gid))
}

/// The attributes that decide about rights to an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guard {
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits (`0o7777`).
    pub mode: u16,
}

impl From<&Attr> for Guard {
    fn from(attr: &Attr) -> Self {
        Self { uid: attr.uid, gid: attr.gid, mode: attr.mode }
    }
}

impl Guard {
    /// Whether a caller has all `wanted` rights ([`READ`], [`WRITE`], [`SEARCH`]) by owner,
    /// group and others, as POSIX says; user 0 has all. A caller without known groups has
    /// only its first.
    #[must_use]
    pub fn lets(&self, caller: &Caller, wanted: u16) -> bool {
        if caller.uid == 0 {
            return true;
        }
        let shift = match () {
            () if caller.uid == self.uid => 6,
            () if is_in_group(caller, self.gid) => 3,
            () => 0,
        };
        self.mode >> shift & wanted == wanted
    }

    /// Whether an ACL, as the attribute [`ACL`] holds it, gives all `wanted` rights to a
    /// caller who is not the owner. `None` if it is none.
    #[must_use]
    pub fn lets_by_acl(&self, acl: &[u8], caller: &Caller, wanted: u16) -> Option<bool> {
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
        let grants = |perm: u16| perm & mask & wanted == wanted;
        let own = parsed.clone().find(|(tag, _, id)| *tag == USER && *id == caller.uid);
        if let Some((_, perm, _)) = own {
            return Some(grants(perm));
        }
        let mut in_a_group = false;
        for (tag, perm, id) in parsed.clone() {
            let gid = match tag {
                GROUP_OBJ => self.gid,
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
        Some(parsed.clone().find(|(tag, ..)| *tag == OTHER)?.1 & wanted == wanted)
    }

    /// Whether a caller may take the name of `file` out of this directory, as far as its
    /// sticky bit is concerned.
    #[must_use]
    pub fn lets_remove(&self, caller: &Caller, file: &Self) -> bool {
        self.mode & STICKY == 0 || [0, self.uid, file.uid].contains(&caller.uid)
    }
}

/// Whether a caller has all `wanted` rights to an inode, by its ACL if it has one, as the
/// kernel would decide. User 0 has all, except to execute a file that is not executable.
///
/// # Errors
/// Those of reading the ACL; `EIO` if it is none.
pub fn lets(fs: &dyn FileSystem, caller: &Caller, attr: &Attr, wanted: u16) -> Result<bool> {
    if caller.uid == 0 {
        // As with CAP_DAC_OVERRIDE.
        let executable = attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
        return Ok(wanted & SEARCH == 0 || executable);
    }
    let guard = Guard::from(attr);
    // With an ACL, the group's bits are its mask; without them, the kernel does not ask it.
    if caller.uid != attr.uid && attr.mode & 0o070 != 0 && fs.capabilities().posix_acl {
        match fs.getxattr(&Caller::root(), attr.ino, OsStr::new(ACL)) {
            Ok(acl) => return guard.lets_by_acl(&acl, caller, wanted).ok_or_else(|| Errno::EIO.into()),
            Err(error) if [Errno::ENODATA, Errno::EOPNOTSUPP].contains(&error.errno()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(guard.lets(caller, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let guard = Guard { uid: 1, gid: 10, mode: 0o751 };
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
            let has = |wanted| guard.lets_by_acl(&list, &who, wanted).unwrap();
            assert_eq!((has(READ), has(WRITE), has(SEARCH)), (read, write, search), "{who:?}");
        }
        for bad in [&list[..3], &list[..list.len() - 1], &[1, 0, 0, 0]] {
            assert_eq!(guard.lets_by_acl(bad, &caller(9, 9, &[]), READ), None);
        }
    }

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: Some(groups.into()), ..Caller::root() }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let guard = Guard { uid: 1, gid: 10, mode: 0o046 };
        let may = |caller: &Caller| [READ, WRITE, SEARCH].map(|right| guard.lets(caller, right));
        assert_eq!(may(&caller(1, 10, &[])), [false; 3]);
        assert_eq!(may(&caller(2, 10, &[])), [true, false, false]);
        assert_eq!(may(&caller(2, 9, &[8, 10])), [true, false, false]);
        assert_eq!(may(&caller(2, 9, &[])), [true, true, false]);
        assert_eq!(may(&Caller::root()), [true; 3]);
        assert!(!guard.lets(&caller(2, 10, &[]), READ | WRITE));
    }

    #[test]
    fn names_in_sticky_directories_belong_to_owners() {
        let (file, mut dir) = (Guard { uid: 2, gid: 0, mode: 0 }, Guard { uid: 1, gid: 0, mode: 0o1777 });
        let may = |dir: &Guard| [0, 1, 2, 3].map(|uid| dir.lets_remove(&caller(uid, 5, &[]), &file));
        assert_eq!(may(&dir), [true, true, true, false]);
        dir.mode = 0o777;
        assert_eq!(may(&dir), [true; 4]);
    }
}
