//! The device of a file system: a block device or a regular file, through the kernel's page cache;
//! a file in persistent memory, mapped; or an [NVMe namespace](crate::namespace), by commands.

use crate::device::{BLOCK, Device};
use crate::known::is_log;
use crate::namespace::Namespace;
use braid_contract::{Errno, Error, Result, Shown};
use braid_sys::PersistentMap;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxAttributes, StatxFlags,
};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Pieces of memory that the kernel takes at a time (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// The purpose of opening a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// To be looked at: nothing is written.
    Read,
    /// To be used.
    Write,
}

/// A device. No other process can open it this way meanwhile.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    size: u64,
    way: Way,
}

/// The way to its bytes.
#[derive(Debug)]
enum Way {
    /// The kernel's page cache, of a block device.
    Block(OwnedFd),
    /// That of a regular file.
    File(OwnedFd),
    /// A mapping of a regular file in persistent memory.
    Persistent { map: PersistentMap, lock: OwnedFd },
    /// Commands.
    Namespace(Box<Namespace>),
}

impl Disk {
    /// Opens a device or a file for this process alone.
    ///
    /// # Errors
    /// `EBUSY` if it is in use, `ENODEV` if it is something else, those of `open(2)`.
    pub fn open(path: &Path, usage: Use) -> Result<Self> {
        let shown = path.shown();
        let told = |error: rustix::io::Errno| Error::from(error).context(shown.to_string());
        let in_use =
            || Error::new(Errno::EBUSY, format!("{shown}: it is in use, by a mount or another program"));
        let access = if usage == Use::Read { OFlags::RDONLY } else { OFlags::RDWR };
        // Looked at first: opening a pipe would wait.
        let kind = FileType::from_raw_mode(rustix::fs::stat(path).map_err(told)?.st_mode);
        let exclusive = match kind {
            FileType::RegularFile | FileType::CharacterDevice => OFlags::empty(),
            FileType::BlockDevice => OFlags::EXCL,
            _ => {
                let what = "it is no block device, no NVMe namespace, and no regular file";
                return Err(Error::new(Errno::ENODEV, format!("{shown}: {what}")));
            }
        };
        let fd =
            rustix::fs::open(path, access | exclusive | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
        let fd = fd.map_err(|error| if error == rustix::io::Errno::BUSY { in_use() } else { told(error) })?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use()),
            locked => locked.map_err(told)?,
        }
        let (way, size) = match kind {
            FileType::CharacterDevice => {
                let namespace = Namespace::new(fd, path)?;
                let size = namespace.size();
                (Way::Namespace(Box::new(namespace)), size)
            }
            _ => {
                let size = rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(told)? / BLOCK * BLOCK;
                let way = match kind {
                    FileType::BlockDevice => Way::Block(fd),
                    _ if usage == Use::Write => file_or_map(fd, size).map_err(told)?,
                    _ => Way::File(fd),
                };
                (way, size)
            }
        };
        Ok(Self { path: path.to_owned(), size, way })
    }

    /// The name of the driver: `kernel`, `dax` or `nvme`.
    #[must_use]
    pub fn driver(&self) -> &'static str {
        match self.way {
            Way::Block(_) | Way::File(_) => "kernel",
            Way::Persistent { .. } => "dax",
            Way::Namespace(_) => "nvme",
        }
    }

    /// An error of persistent memory.
    fn of_memory(&self, what: &str, offset: u64, error: io::Error) -> Error {
        Error::from(error).context(format!("{}: {what} at byte {offset}", self.path.shown()))
    }

    /// An error at a place; one that this file system would take for a lack of its own
    /// room is the device's.
    fn told(&self, what: &str, offset: u64, error: rustix::io::Errno) -> Error {
        let path = self.path.shown();
        let text = format!("{path}: {what} at byte {offset}");
        match error {
            rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => {
                Error::new(Errno::EIO, format!("{text}: there is no room beneath the file"))
            }
            error => Error::from(error).context(text),
        }
    }

    fn read_fd(&self, fd: &OwnedFd, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match rustix::io::pread(fd, &mut buf[done..], at) {
                Ok(0) => return Err(self.told("reading", at, rustix::io::Errno::IO)),
                Ok(read) => done += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.told("reading", at, error)),
            }
        }
        Ok(())
    }

    fn write_fd(&self, fd: &OwnedFd, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let mut pieces: Vec<&[u8]> = bufs.iter().map(|buf| &buf[..]).filter(|buf| !buf.is_empty()).collect();
        let mut at = offset;
        while !pieces.is_empty() {
            let next: Vec<IoSlice<'_>> =
                pieces.iter().take(PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
            let mut done = match rustix::io::pwritev(fd, &next, at) {
                Ok(0) => return Err(self.told("writing", at, rustix::io::Errno::IO)),
                Ok(done) => done,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(self.told("writing", at, error)),
            };
            at += done as u64;
            while let Some(first) = pieces.first_mut()
                && done > 0
            {
                let some = done.min(first.len());
                *first = &first[some..];
                done -= some;
                if first.is_empty() {
                    pieces.remove(0);
                }
            }
        }
        Ok(())
    }
}

impl Device for Disk {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match &self.way {
            Way::Block(fd) | Way::File(fd) => self.read_fd(fd, offset, buf),
            Way::Persistent { map, .. } => {
                map.read(offset as usize, buf).map_err(|error| self.of_memory("reading", offset, error))
            }
            Way::Namespace(namespace) => namespace.read_at(offset, buf),
        }
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        match &self.way {
            Way::Block(fd) | Way::File(fd) => self.write_fd(fd, offset, bufs),
            Way::Persistent { map, .. } => {
                map.write(offset as usize, bufs).map_err(|error| self.of_memory("writing", offset, error))
            }
            Way::Namespace(namespace) => namespace.write_at(offset, bufs),
        }
    }

    fn flush(&self) -> Result<()> {
        match &self.way {
            Way::Block(fd) | Way::File(fd) => {
                rustix::fs::fdatasync(fd).map_err(|error| self.told("flushing", 0, error))
            }
            // What was written is durable.
            Way::Persistent { .. } => Ok(()),
            Way::Namespace(namespace) => namespace.flush(),
        }
    }

    fn discard(&self, offset: u64, len: u64) {
        // It need not heed it.
        match &self.way {
            Way::Block(fd) => _ = braid_sys::discard(fd, offset, len),
            Way::File(fd) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(fd, flags, offset, len);
            }
            // A block that is not there could not be written to where the space is gone.
            Way::Persistent { .. } => {}
            Way::Namespace(namespace) => namespace.discard(offset, len),
        }
    }
}

impl Drop for Disk {
    /// Unlocks it for a process that was forked meanwhile, and has the descriptor too.
    fn drop(&mut self) {
        let (Way::Block(fd) | Way::File(fd) | Way::Persistent { lock: fd, .. }) = &self.way else { return };
        let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
    }
}

/// The way to a regular file of this size: mapped, if it is in persistent memory, and has all of its
/// blocks or can get them.
fn file_or_map(fd: OwnedFd, size: u64) -> rustix::io::Result<Way> {
    let found = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    let len = usize::try_from(size).ok().filter(|len| *len > 0);
    let Some(len) = len.filter(|_| found.stx_attributes.contains(StatxAttributes::DAX)) else {
        return Ok(Way::File(fd));
    };
    let map = PersistentMap::new(&fd, len);
    let reserved = rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size);
    match (map, reserved) {
        (Ok(map), Ok(())) => Ok(Way::Persistent { map, lock: fd }),
        (map, reserved) => {
            tracing::info!(?map, ?reserved, "persistent memory is used by system calls");
            Ok(Way::File(fd))
        }
    }
}

/// Whether a log file system is on a block device or in a regular file, sound or not, in use or
/// not; `false` if it can't be read.
#[must_use]
pub fn is_log_at(path: &Path) -> bool {
    let kind = rustix::fs::stat(path).map(|found| FileType::from_raw_mode(found.st_mode));
    // Opening a pipe would wait.
    if !matches!(kind, Ok(FileType::RegularFile | FileType::BlockDevice)) {
        return false;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(fd) = rustix::fs::open(path, flags, Mode::empty()) else { return false };
    let Ok(size) = rustix::fs::seek(&fd, SeekFrom::End(0)) else { return false };
    let disk = Disk { path: path.to_owned(), size, way: Way::File(fd) };
    is_log(&disk).unwrap_or(false)
}

/// Makes a regular file of this size, with its space reserved where that can be.
///
/// # Errors
/// `EEXIST`, `ENOSPC`, and other errors of the file system; there is no file then.
pub fn make_file(path: &Path, size: u64) -> Result<()> {
    let told = |error: rustix::io::Errno| Error::from(error).context(path.shown().to_string());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(told)?;
    let made = match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size) {
        Err(rustix::io::Errno::OPNOTSUPP) => rustix::fs::ftruncate(&fd, size),
        made => made,
    };
    made.map_err(|error| {
        let _ = rustix::fs::unlink(path);
        told(error)
    })
}
