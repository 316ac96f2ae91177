//! The names of sockets at which daemons listen. The kernel reuses the numbers of file systems, by
//! which they are named: another daemon may put its own there as soon as a mount has ended.

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, chmod, flock, open};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The name of a socket of this process.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl SocketFile {
    /// Listens at `path`, in the place of any other socket there, for all users or this one.
    ///
    /// # Errors
    /// If there can be no socket; then `path` is as it was.
    pub fn listen(path: &Path, open_to_all: bool) -> io::Result<(Self, UnixListener)> {
        let _placing = lock_directory(path)?;
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        let _ = std::fs::remove_file(&fresh);
        let listener = UnixListener::bind(&fresh)?;
        let mode = if open_to_all { 0o666 } else { 0o600 };
        let placed = chmod(&fresh, Mode::from_raw_mode(mode))
            .map_err(io::Error::from)
            .and_then(|()| std::fs::rename(&fresh, path))
            .and_then(|()| Self::of(path));
        let file = placed.inspect_err(|_| _ = std::fs::remove_file(&fresh))?;
        Ok((file, listener))
    }

    /// The name of a socket on which an earlier process listened.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), inode: std::fs::symlink_metadata(path)?.ino() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it, unless it is another daemon's now.
    pub fn remove(&self) {
        let Ok(_removing) = lock_directory(&self.path) else { return };
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Keeps other daemons from putting sockets into the directory of `path`, or removing theirs,
/// until the answer is dropped: by a file that no other user can open, and so lock.
fn lock_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = open(path.with_file_name(".lock"), flags, Mode::RUSR | Mode::WUSR)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_socket_of_another_daemon_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let (first, _first) = SocketFile::listen(&path, false).unwrap();
        let (second, listener) = SocketFile::listen(&path, true).unwrap();
        first.remove();
        assert!(UnixStream::connect(&path).is_ok() && listener.accept().is_ok());
        second.remove();
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), [".lock"]);
        let rights = std::fs::metadata(dir.path().join(".lock")).unwrap().mode();
        assert_eq!(rights & 0o077, 0, "others can't hold it");
        assert!(SocketFile::of(&path).is_err());
    }
}
