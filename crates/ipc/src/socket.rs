//! The path of a daemon's control socket.
//!
//! A daemon of root: `/run/braid/<st_dev in hex>.sock`, open to all users
//! (without privilege, requests only read). A user's:
//! `$XDG_RUNTIME_DIR/braid/`. If that can't be used, `/tmp/braid-<uid>/`, which
//! is trusted only if it belongs to that user and no other can write there.

use crate::mounts::Mount;
use braid_contract::Shown;
use rustix::fs::{Mode, mkdir};
use rustix::process::geteuid;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Longest path that fits in a socket address, with the ending zero.
const SOCKET_PATH_MAX: usize = 107;

/// Possible sockets of the daemon of user `uid` for the file system `dev`, best
/// first.
#[must_use]
pub fn candidates(dev: u64, uid: u32) -> Vec<PathBuf> {
    directories(uid)
        .into_iter()
        .map(|dir| dir.join(format!("{dev:x}.sock")))
        .filter(|path| fits(path))
        .collect()
}

/// The possible sockets for `uid`, each with the file system and the owner by
/// its path: root's and its own; for root, all users'.
#[must_use]
pub fn all(uid: u32) -> Vec<(PathBuf, u64, u32)> {
    let mut owners = vec![0, uid];
    if uid == 0 {
        owners.extend(numbers("/run/user", ""));
        owners.extend(numbers("/tmp", "braid-"));
    }
    owners.sort_unstable();
    owners.dedup();
    let mut found = Vec::new();
    for owner in owners {
        for dir in directories(owner) {
            let names = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            found.extend(names.filter_map(|entry| {
                let name = entry.file_name();
                let dev = u64::from_str_radix(name.to_str()?.strip_suffix(".sock")?, 16).ok()?;
                Some((entry.path(), dev, owner))
            }));
        }
    }
    found
}

/// The numbers after `prefix` in the names of a directory's entries.
fn numbers(dir: &str, prefix: &str) -> Vec<u32> {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()).collect()
}

/// The path of this process's socket, whose directory is created if needed.
///
/// # Errors
/// The last candidate's, if none can be used.
pub fn prepare(dev: u64) -> io::Result<PathBuf> {
    let uid = geteuid().as_raw();
    let mut result = Err(io::Error::from(io::ErrorKind::NotFound));
    for path in candidates(dev, uid) {
        // A candidate has a directory, since it was joined to one.
        let directory = path.parent().unwrap_or(Path::new("/"));
        result = make_directory(directory, uid).map(|()| path.clone());
        if result.is_ok() {
            break;
        }
    }
    result
}

/// The socket for sessions of applications beside a control socket.
#[must_use]
pub fn for_sessions(control: &Path) -> PathBuf {
    control.with_extension("run")
}

/// The socket for sessions with a mount.
///
/// # Errors
/// `ENOENT` if its daemon lets no sessions begin, `EACCES` if others could put a socket there.
pub fn of_sessions(mount: &Mount) -> io::Result<PathBuf> {
    let owner = mount.owner().unwrap_or(0);
    let mut paths = candidates(mount.dev, owner).into_iter().map(|path| for_sessions(&path));
    let missing = "applications can't have sessions here; mount with --runtime";
    let path = paths.find(|path| path.exists());
    let path = path.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, missing))?;
    // A candidate has a directory, since it was joined to one.
    check_directory(path.parent().unwrap_or(Path::new("/")), owner)?;
    Ok(path)
}

/// Checks that only `uid` (or root) can put sockets into `directory`.
///
/// # Errors
/// If it is not, or can't be looked at.
pub fn check_directory(directory: &Path, uid: u32) -> io::Result<()> {
    let found = std::fs::symlink_metadata(directory)?;
    let ours = found.uid() == uid || found.uid() == 0;
    if found.is_dir() && ours && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let what = format!("{}: not a directory that only user {uid} can write", directory.shown());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

fn directories(uid: u32) -> Vec<PathBuf> {
    let private = PathBuf::from(format!("/tmp/braid-{uid}"));
    if uid == 0 {
        return vec!["/run/braid".into(), private];
    }
    let own = (geteuid().as_raw() == uid).then(|| std::env::var_os("XDG_RUNTIME_DIR")).flatten();
    let own = own.map(PathBuf::from).filter(|dir| dir.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    let mut directories: Vec<PathBuf> = own.into_iter().map(|dir| dir.join("braid")).collect();
    let usual = usual.join("braid");
    if !directories.contains(&usual) {
        directories.push(usual);
    }
    directories.push(private);
    directories
}

fn fits(path: &Path) -> bool {
    path.as_os_str().as_bytes().len() <= SOCKET_PATH_MAX
}

fn make_directory(directory: &Path, uid: u32) -> io::Result<()> {
    let mode = if uid == 0 && directory.starts_with("/run") { 0o755 } else { 0o700 };
    match mkdir(directory, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => check_directory(directory, uid),
        Err(error) => Err(io::Error::new(
            io::Error::from(error).kind(),
            format!("{}: {}", directory.shown(), io::Error::from(error)),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn root_and_users_have_places_of_their_own() {
        assert_eq!(candidates(0x2f, 0), [Path::new("/run/braid/2f.sock"), Path::new("/tmp/braid-0/2f.sock")]);
        let user = candidates(0x100_0003, 54_321);
        assert!(user.ends_with(&[
            PathBuf::from("/run/user/54321/braid/1000003.sock"),
            PathBuf::from("/tmp/braid-54321/1000003.sock")
        ]));
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let uid = geteuid().as_raw();
        check_directory(dir.path(), uid).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(check_directory(dir.path(), uid).unwrap_err().kind(), io::ErrorKind::PermissionDenied);

        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/run", &link).unwrap();
        assert_eq!(check_directory(&link, uid).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
