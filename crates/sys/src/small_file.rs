//! Small files that are read and replaced as a whole.

use rustix::fs::{AtFlags, Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Reads the file `name` in `dir`, at most `limit` bytes of it; `None` if there
/// is no such file.
///
/// # Errors
/// Those of `open(2)` and `read(2)`.
pub fn read_small_file(dir: impl AsFd, name: &str, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let fd = match rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = vec![0; limit];
    let mut len = 0;
    while len < limit {
        match rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut bytes[len..], len as u64))? {
            0 => break,
            done => len += done,
        }
    }
    bytes.truncate(len);
    Ok(Some(bytes))
}

/// Replaces the file `name` in `dir` by `bytes`, durably: after a crash at any
/// moment there is the old file or the new one.
///
/// # Errors
/// Those of `open(2)`, `write(2)`, `fsync(2)` and `rename(2)`; the old file is
/// then as it was.
pub fn replace_small_file(dir: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let write = || -> rustix::io::Result<()> {
        let fd = rustix::fs::openat(dir, &new, flags, Mode::from_raw_mode(0o600))?;
        let mut written = 0;
        while written < bytes.len() {
            written += rustix::io::pwrite(&fd, &bytes[written..], written as u64)?;
        }
        rustix::fs::fsync(&fd)?;
        rustix::fs::renameat(dir, &new, dir, name)?;
        rustix::fs::fsync(dir)
    };
    write().map_err(|error| {
        // What remains is a stray temporary file; the next replacement reuses it.
        let _ = rustix::fs::unlinkat(dir, &new, AtFlags::empty());
        error.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_as_a_whole() {
        let path = tempfile::tempdir().unwrap();
        let dir: OwnedFd = std::fs::File::open(path.path()).unwrap().into();
        assert_eq!(read_small_file(&dir, "f", 10).unwrap(), None);
        replace_small_file(&dir, "f", b"longer").unwrap();
        replace_small_file(&dir, "f", b"new").unwrap();
        assert_eq!(read_small_file(&dir, "f", 10).unwrap().unwrap(), b"new");
        assert_eq!(read_small_file(&dir, "f", 2).unwrap().unwrap(), b"ne");
        assert_eq!(std::fs::read_dir(path.path()).unwrap().count(), 1);
    }
}
