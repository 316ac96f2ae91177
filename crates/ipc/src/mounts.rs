//! The kernel's mount table, `/proc/self/mountinfo`. It is parsed here because
//! the crate `procfs` (0.18) refuses a table with a path that is not UTF-8, and
//! leaves octal escapes in paths.

use rustix::fs::makedev;
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The type of a Braid file system in the mount table.
pub const FS_TYPE: &str = "fuse.braid";

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Device number, as `st_dev` of the files below.
    pub dev: u64,
    /// The mounted directory of the file system: `/` unless it is a bind mount
    /// or a sub-volume.
    pub root: PathBuf,
    /// Its mount point.
    pub point: PathBuf,
    /// Type of the file system.
    pub fs_type: String,
    /// Its source.
    pub source: String,
    /// The file system's own options.
    pub options: String,
}

impl Mount {
    /// Whether this is a Braid file system.
    #[must_use]
    pub fn is_braid(&self) -> bool {
        self.fs_type == FS_TYPE
    }

    /// The user whose daemon serves a FUSE mount.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        self.options.split(',').find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
    }

    /// Whether the daemon behind a FUSE mount is gone. Sends a request, and
    /// waits for the answer of a live daemon: the kernel may still answer
    /// attributes from its cache for a dead one.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        // The request is aborted if the daemon dies meanwhile, and canceled
        // until the kernel has dropped its rings.
        let dead = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
        rustix::fs::statfs(&self.point).is_err_and(|error| dead.contains(&error))
    }

    /// The path of `path`, which is below this mount, within the file system.
    #[must_use]
    pub fn path_within(&self, path: &Path) -> Option<PathBuf> {
        Some(self.root.join(path.strip_prefix(&self.point).ok()?))
    }
}

/// All mounts of this process's namespace, in mounting order.
///
/// # Errors
/// If the table can't be read.
pub fn list() -> io::Result<Vec<Mount>> {
    list_of(Path::new("/proc/self/mountinfo"))
}

/// The mounts in a file like `/proc/self/mountinfo`.
///
/// # Errors
/// If it can't be read.
pub fn list_of(table: &Path) -> io::Result<Vec<Mount>> {
    let table = std::fs::read(table)?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse_line).collect())
}

/// The mount that `path`, absolute and without symbolic links, is on.
#[must_use]
pub fn containing<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let longest = mounts.iter().filter(|mount| path.starts_with(&mount.point)).map(|mount| &mount.point);
    let longest = longest.max_by_key(|point| point.components().count())?;
    at(mounts, longest)
}

/// The topmost mount whose mount point is `path`.
#[must_use]
pub fn at<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.point == path)
}

/// `path` absolute and without symbolic links, without access to a mount there:
/// works even if the daemon behind a mount point is dead or refuses this user.
///
/// # Errors
/// If the directory that `path` is in can't be reached.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Ok(resolved) => Ok(resolved),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(error) => {
            // Normalises "mnt/." and the like, which have no last name of
            // their own.
            let path = std::path::absolute(path)?;
            let path: PathBuf = path.components().collect();
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(error) };
            Ok(std::fs::canonicalize(parent)?.join(name))
        }
    }
}

/// One line: ids, `major:minor`, root, mount point, options, optional fields
/// up to `-`, type, source, options of the file system.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let dev = makedev(major.parse().ok()?, minor.parse().ok()?);
    let root = OsString::from_vec(unescape(fields.next()?)).into();
    let point = OsString::from_vec(unescape(fields.next()?)).into();
    fields.find(|field| *field == b"-")?;
    let mut text = || Some(String::from_utf8_lossy(&unescape(fields.next()?)).into_owned());
    Some(Mount { dev, root, point, fs_type: text()?, source: text()?, options: text()? })
}

/// Undoes the octal escapes of blank, tab, newline and backslash that mount
/// tables have.
#[must_use]
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = (first == b'\\').then(|| tail.get(..3)).flatten();
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:45 / /mnt/my\\040volume rw,nosuid - fuse.braid fast+slow rw,user_id=1000,group_id=1000
31 22 8:1 /srv/data /mnt/bind rw master:1 propagate_from:2 - ext4 /dev/sda1 rw
32 30 0:46 / /mnt/my\\040volume rw - tmpfs tmpfs rw
";

    fn table() -> Vec<Mount> {
        TABLE.as_bytes().split(|byte| *byte == b'\n').filter_map(parse_line).collect()
    }

    #[test]
    fn lines_are_understood() {
        let mounts = table();
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[1].point, Path::new("/mnt/my volume"));
        assert_eq!((mounts[1].is_braid(), mounts[1].owner()), (true, Some(1000)));
        assert_eq!(mounts[1].dev, makedev(0, 45));
        assert_eq!((mounts[0].is_braid(), mounts[0].owner()), (false, None));
        assert_eq!(mounts[2].path_within(Path::new("/mnt/bind/a/b")), Some("/srv/data/a/b".into()));
        assert_eq!(mounts[2].path_within(Path::new("/mnt/bind")), Some("/srv/data/".into()));
    }

    #[test]
    fn the_topmost_and_innermost_mount_is_found() {
        let mounts = table();
        assert_eq!(containing(&mounts, Path::new("/mnt/my volume/x")).unwrap().fs_type, "tmpfs");
        assert_eq!(containing(&mounts, Path::new("/mnt/my volumes")).unwrap().point, Path::new("/"));
        assert_eq!(at(&mounts, Path::new("/mnt/bind")).unwrap().root, Path::new("/srv/data"));
        assert!(at(&mounts, Path::new("/mnt")).is_none());
    }

    #[test]
    fn odd_lines_are_passed_over() {
        for line in ["", "1 2 3", "1 2 x:y / / rw - t s o", "22 1 8:1 / / rw", "22 1 8:1 / / rw - ext4"] {
            assert_eq!(parse_line(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!(unescape(b"a\\134b\\9z\\"), b"a\\b\\9z\\");
    }

    #[test]
    fn this_machine_has_a_root_mount() {
        let mounts = list().unwrap();
        assert!(containing(&mounts, Path::new("/proc/self/x")).is_some());
        assert_eq!(resolve(Path::new("/proc/.")).unwrap(), Path::new("/proc"));
    }
}
