//! The listening socket for metrics: bound before anything is mounted.

use super::address::Address;
use crate::refusal::{Located, Refusal};
use rustix::fs::{Mode, OFlags, chmod, open};
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A listening socket; [`Server`](super::Server) answers on it.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix { listener: UnixListener, path: PathBuf, inode: u64 },
}

impl Listener {
    /// Listens at an address of a stack file or a flag.
    ///
    /// # Errors
    /// If it can't be had, as others are listening there.
    pub(crate) fn at(Located { value: address, place }: &Located<Address>) -> Result<Self, Refusal> {
        Self::bind(address).map_err(|error| {
            let found = format!("can't listen at {address}: {error}");
            place.refuse(found, "end the program that listens there, or name another port or socket")
        })
    }

    /// Listens at `address`. A socket that a dead daemon left is replaced.
    pub(super) fn bind(address: &Address) -> io::Result<Self> {
        let path = match address {
            Address::Tcp(address) => return Ok(Self::Tcp(TcpListener::bind(address)?)),
            Address::Unix(path) => path,
        };
        remove_dead(path)?;
        let listener = UnixListener::bind(path)?;
        // The same mode as the control socket, which reveals as much.
        let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
        let inode = set_mode_of_socket(path, Mode::from_raw_mode(mode))?;
        Ok(Self::Unix { listener, path: path.clone(), inode })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another daemon may have put its own socket there meanwhile.
        if let Self::Unix { path, inode, .. } = self
            && std::fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == *inode)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Sets the mode of the socket at `path`, but not of a file that others may
/// have put there meanwhile; returns its inode number.
fn set_mode_of_socket(path: &Path, mode: Mode) -> io::Result<u64> {
    let found =
        std::fs::File::from(open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?);
    let meta = found.metadata()?;
    if !meta.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else was put there"));
    }
    chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), mode)?;
    Ok(meta.ino())
}

/// Removes a socket without a listener.
fn remove_dead(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        },
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is not a socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_the_dead_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let held = Listener::bind(&Address::Unix(path.clone())).unwrap();
        let error = Listener::bind(&Address::Unix(path.clone())).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(held);
        std::fs::write(&path, "mine").unwrap();
        let error = Listener::bind(&Address::Unix(path.clone())).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
