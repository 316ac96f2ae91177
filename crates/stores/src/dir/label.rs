//! Small files that are replaced as a whole, durably: labels.

use braid_contract::{Context, Result};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};

/// Reads the file `name` in `dir`, at most `limit` bytes; `None` if there is none.
pub(super) fn read(dir: impl AsFd, name: &str, limit: usize) -> Result<Option<Vec<u8>>> {
    let fd = match rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("opening {name}")),
    };
    let mut bytes = vec![0; limit];
    let mut len = 0;
    while len < limit {
        match rustix::io::pread(&fd, &mut bytes[len..], len as u64).with_context(|| format!("reading {name}"))? {
            0 => break,
            done => len += done,
        }
    }
    bytes.truncate(len);
    Ok(Some(bytes))
}

/// Replaces the file `name` in `dir` by `bytes`: after a crash there is the
/// old file or the new one.
pub(super) fn replace(dir: &OwnedFd, name: &str, bytes: &[u8]) -> Result<()> {
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
    write().inspect_err(|_| drop(rustix::fs::unlinkat(dir, &new, AtFlags::empty()))).with_context(|| format!("writing {name}"))
}
