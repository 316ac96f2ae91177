//! The device of a file system, by what its path leads to: a block device or a regular file, [through
//! the kernel's page cache](crate::kernel); a file in [persistent memory](crate::persistent); or an
//! [NVMe namespace](crate::namespace), by commands.

use crate::device::{BLOCK, Device};
use crate::kernel::{Discard, Kernel, Locked};
use crate::known::is_log;
use crate::namespace::Namespace;
use crate::persistent::Persistent;
use braid_contract::{Errno, Error, Result, Shown};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, Stat};
use std::io::IoSlice;
use std::path::Path;

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
    device: Box<dyn Device>,
    driver: &'static str,
    id: DiskId,
}

/// The identity of what a path leads to, as long as the machine runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskId {
    /// The bits of its type.
    kind: u32,
    /// The number of a device; of a regular file, its file system and inode.
    numbers: (u64, u64),
}

impl DiskId {
    /// That of what `path` leads to.
    ///
    /// # Errors
    /// Those of `stat(2)`.
    pub fn at(path: &Path) -> Result<Self> {
        let told = |error| Error::from(error).context(path.shown().to_string());
        rustix::fs::stat(path).map(|found| Self::of(&found)).map_err(told)
    }

    fn of(found: &Stat) -> Self {
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_file = kind == FileType::RegularFile;
        let numbers = if is_file { (found.st_dev, found.st_ino) } else { (found.st_rdev, 0) };
        Self { kind: kind.as_raw_mode(), numbers }
    }
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
        let id = DiskId::of(&rustix::fs::fstat(&fd).map_err(told)?);
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use()),
            locked => locked.map_err(told)?,
        }
        if kind == FileType::CharacterDevice {
            return Ok(Self { device: Box::new(Namespace::new(fd, path)?), driver: "nvme", id });
        }
        let (file, path) = (Locked(fd), path.to_owned());
        let size = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(told)? / BLOCK * BLOCK;
        let (file, discard) = match kind {
            FileType::BlockDevice => (file, Discard::Blocks),
            _ if usage == Use::Read => (file, Discard::Hole),
            _ => match Persistent::of(file, size, path.clone()).map_err(told)? {
                Ok(mapped) => return Ok(Self { device: Box::new(mapped), driver: "dax", id }),
                Err(file) => (file, Discard::Hole),
            },
        };
        Ok(Self { device: Box::new(Kernel { path, size, file, discard }), driver: "kernel", id })
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> DiskId {
        self.id
    }

    /// The name of the driver: `kernel`, `dax` or `nvme`.
    #[must_use]
    pub fn driver(&self) -> &'static str {
        self.driver
    }
}

impl Device for Disk {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.device.write_at(offset, bufs)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) {
        self.device.discard(offset, len);
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
    // It has no lock, and dropping it takes none from others.
    let file = Locked(fd);
    is_log(&Kernel { path: path.to_owned(), size, file, discard: Discard::Hole }).unwrap_or(false)
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
