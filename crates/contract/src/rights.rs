//! What permission bits allow a caller, where no kernel has looked.

use crate::{Attr, Caller};

/// The right to read.
pub const READ: u16 = 0o4;
/// The right to write.
pub const WRITE: u16 = 0o2;
/// The right to search a directory.
pub const SEARCH: u16 = 0o1;
/// The extended attribute that holds the ACL of an inode.
pub const ACL: &str = "system.posix_acl_access";
/// The bit of a directory in which names belong to the owners of their files.
const STICKY: u16 = 0o1000;

/// Whether a caller belongs to a group, as far as its groups are known.
#[must_use]
pub fn is_in_group(caller: &Caller, gid: u32) -> bool {
    caller.gid == gid || caller.groups.as_ref().is_some_and(|groups| groups.contains(&gid))
}

/// What decides about rights to an inode.
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

    /// Whether a caller may take the name of `file` out of this directory, as far as its
    /// sticky bit is concerned.
    #[must_use]
    pub fn lets_remove(&self, caller: &Caller, file: &Self) -> bool {
        self.mode & STICKY == 0 || [0, self.uid, file.uid].contains(&caller.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
