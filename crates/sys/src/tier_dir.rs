//! The lock on a tier's directory.

use rustix::fs::FlockOperation;
use std::io;
use std::os::fd::AsFd;

/// Locks an open directory, so that one process at a time uses it as a tier.
/// The lock ends with the descriptor.
///
/// # Errors
/// `EBUSY` if another process has the lock.
pub fn lock_dir(dir: impl AsFd) -> io::Result<()> {
    match rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(rustix::io::Errno::BUSY.into()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_directory_is_locked_once() {
        let dir = tempfile::tempdir().unwrap();
        let [held, other] = [(); 2].map(|()| File::open(dir.path()).unwrap());
        lock_dir(&held).unwrap();
        assert_eq!(lock_dir(&other).unwrap_err().raw_os_error(), Some(libc::EBUSY));
        drop(held);
        lock_dir(&other).unwrap();
    }
}
