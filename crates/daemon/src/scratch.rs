//! Scratch files on a tier for its measurement. They have no names that last:
//! the kernel frees their space, however the program ends. `calibrate` and `speed` use them.

use braid_contract::SplitMix;
use braid_sys::{AlignedBuf, DIRECT_ALIGNMENT};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Bytes per write while a file is filled.
const FILL: usize = 1 << 20;

/// A file of a fixed size for direct I/O, all of it written.
pub(crate) struct ScratchFile {
    fd: OwnedFd,
    pub(crate) size: u64,
}

impl AsFd for ScratchFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Creates `count` files of `size` bytes each below `dir`. `EINVAL` where the
/// file system has no direct I/O.
pub(crate) fn make(dir: &Path, count: usize, size: u64) -> io::Result<Vec<ScratchFile>> {
    let mut buf = AlignedBuf::new();
    let files = open(dir, count)?.into_iter().map(|fd| {
        fill(&fd, size, &mut buf)?;
        Ok(ScratchFile { fd, size })
    });
    files.collect()
}

/// Creates `count` empty files below `dir` for direct I/O. `EINVAL` where the
/// file system has none.
pub(crate) fn open(dir: &Path, count: usize) -> io::Result<Vec<OwnedFd>> {
    let fds = unnamed(dir, count).or_else(|error| match error {
        // The file system can't create a file without a name.
        Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL => unlinked(dir, count),
        error => Err(error),
    })?;
    for fd in &fds {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT)?;
    }
    Ok(fds)
}

fn unnamed(dir: &Path, count: usize) -> Result<Vec<OwnedFd>, Errno> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let open = |_| rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR);
    (0..count).map(open).collect()
}

/// The same with names that are removed at once.
fn unlinked(dir: &Path, count: usize) -> Result<Vec<OwnedFd>, Errno> {
    // Not in a directory of their own: a network file system may keep a file
    // that is open under another name beside it until it is closed.
    let open = |number| {
        let name = dir.join(format!(".braid-scratch-{}-{number}", std::process::id()));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&name, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::unlink(&name)?;
        Ok(fd)
    };
    (0..count).map(open).collect()
}

/// Writes all of a file, so that reads find data and writes find their blocks.
fn fill(fd: &OwnedFd, size: u64, buf: &mut AlignedBuf) -> Result<(), Errno> {
    let bytes = buf.bytes(FILL);
    // Random data, so that no file system or device can compress it.
    SplitMix::new(size).fill(bytes);
    let mut offset = 0;
    while offset < size {
        let len = (size - offset).min(FILL as u64) as usize;
        match rustix::io::pwrite(fd, &bytes[..len], offset) {
            Ok(done) => offset += (done / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT) as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::fs::fdatasync(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_filled_and_nothing_of_them_can_be_seen() {
        for make_fds in [unnamed, unlinked] {
            let dir = tempfile::tempdir_in("/var/tmp").unwrap();
            let Ok(fds) = make_fds(dir.path(), 2) else { continue };
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            let mut buf = AlignedBuf::new();
            for fd in &fds {
                fill(fd, 12_288, &mut buf).unwrap();
                let stat = rustix::fs::fstat(fd).unwrap();
                assert_eq!((stat.st_size, stat.st_blocks >= 24), (12_288, true));
            }
        }
    }
}
