//! Resolving names below a descriptor, and nowhere else. A path of several
//! names leads through directories; a user with write access to one of these
//! can replace it by a link at any moment, and the link may lead to files that
//! only root can reach.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// The directory that a name is in.
pub(super) enum Parent<'d> {
    Here(BorrowedFd<'d>),
    Below(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Here(dir) => *dir,
            Self::Below(dir) => dir.as_fd(),
        }
    }
}

/// The directory that the last name of a path is in, and that name.
pub(super) fn parent_of<'d, 'n>(dir: &'d impl AsFd, path: &'n OsStr) -> Result<(Parent<'d>, &'n OsStr)> {
    let bytes = path.as_bytes();
    let Some(slash) = bytes.iter().rposition(|byte| *byte == b'/') else {
        return Ok((Parent::Here(dir.as_fd()), path));
    };
    let parent = OsStr::from_bytes(&bytes[..slash]);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((Parent::Below(open_below(dir, parent, flags)?), OsStr::from_bytes(&bytes[slash + 1..])))
}

/// Opens a path. The last name may be a link only if the link itself is opened.
pub(super) fn open_below(dir: &impl AsFd, path: &OsStr, flags: OFlags) -> Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW;
    if !path.as_bytes().contains(&b'/') {
        return rustix::fs::openat(dir, path, flags, Mode::empty());
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
        // Linux before 5.6 does not know it, and some sandboxes forbid it.
        Err(Errno::NOSYS | Errno::PERM) => step_by_step(dir, path, flags),
        result => result,
    }
}

/// The same, name by name.
fn step_by_step(dir: &impl AsFd, path: &OsStr, flags: OFlags) -> Result<OwnedFd> {
    let mut names = Path::new(path).components().peekable();
    let mut at = Parent::Here(dir.as_fd());
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else { return Err(Errno::XDEV) };
        if names.peek().is_none() {
            return rustix::fs::openat(&at, name, flags, Mode::empty());
        }
        let onward = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = Parent::Below(rustix::fs::openat(&at, name, onward, Mode::empty())?);
    }
    Err(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn both_ways_open_the_same_and_follow_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "inside").unwrap();
        fs::write(dir.path().join("file"), "outside").unwrap();
        symlink("../..", root.join("a/up")).unwrap();
        symlink("b", root.join("a/beside")).unwrap();
        symlink("b/file", root.join("a/last")).unwrap();
        let absolute = dir.path().join("file");
        let root = fs::File::open(&root).unwrap();
        let read = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        for open in [open_below, step_by_step] {
            let opens = |path: &str, flags| open(&root, OsStr::new(path), flags).map(drop);
            opens("a/b/file", read).unwrap();
            opens("a/last", read | OFlags::PATH).unwrap();
            for path in ["a/up/file", "a/beside/file", "a/last", "../file", "a/../../file"] {
                opens(path, read).unwrap_err();
            }
            opens(absolute.to_str().unwrap(), read).unwrap_err();
        }
        assert!(parent_of(&root, OsStr::new("a/beside/new")).is_err());
        assert_eq!(parent_of(&root, OsStr::new("a/b/new")).unwrap().1, "new");
    }
}
