//! The device of a file system, by what its path leads to: a block device or a regular file, [through
//! the kernel's page cache](crate::kernel) or [past it](crate::direct); a file in [persistent
//! memory](crate::persistent); or an [NVMe namespace](crate::namespace), by commands.

use crate::device::{BLOCK, Device};
use crate::direct::Direct;
use crate::kernel::{Discard, Kernel};
use crate::known::is_log;
use crate::namespace::Namespace;
use crate::persistent::Persistent;
use braid_contract::{Errno, Error, Result, Shown};
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The purpose of opening a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// To be looked at: nothing is written.
    Read,
    /// To be used.
    Write,
}

/// The way to a block device or a regular file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Driver {
    /// Through the kernel's page cache, or by the mapping of persistent memory.
    #[default]
    Auto,
    /// By direct I/O through io_uring.
    IoUring,
}

/// A device. No other process can open it this way meanwhile.
#[derive(Debug)]
pub struct Disk {
    device: Box<dyn Device>,
    driver: &'static str,
    lock: Lock,
}

/// The lock that keeps other processes out, which goes with an open file.
#[derive(Debug)]
struct Lock {
    file: OwnedFd,
    /// Another process has the open file as well, or may get it: the lock is left to it.
    is_shared: AtomicBool,
}

impl Drop for Lock {
    /// Unlocks it for a process that was forked meanwhile, and has the descriptor too.
    fn drop(&mut self) {
        if !*self.is_shared.get_mut() {
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl Disk {
    /// Opens a device or a file for this process alone.
    ///
    /// # Errors
    /// `EBUSY` if it is in use, `ENODEV` if it is something else, those of `open(2)`.
    pub fn open(path: &Path, usage: Use) -> Result<Self> {
        Self::open_by(Driver::Auto, path, usage)
    }

    /// As [`open`](Self::open), by this driver.
    ///
    /// # Errors
    /// Those, and `EINVAL` if the device has no such driver.
    pub fn open_by(driver: Driver, path: &Path, usage: Use) -> Result<Self> {
        let told = |error: rustix::io::Errno| Error::from(error).context(path.shown().to_string());
        let access = if usage == Use::Read { OFlags::RDONLY } else { OFlags::RDWR };
        // Looked at first: opening a pipe would wait.
        let kind = FileType::from_raw_mode(rustix::fs::stat(path).map_err(told)?.st_mode);
        let exclusive = match kind {
            FileType::RegularFile | FileType::CharacterDevice => OFlags::empty(),
            FileType::BlockDevice => OFlags::EXCL,
            _ => {
                let what = "it is no block device, no NVMe namespace, and no regular file";
                return Err(Error::new(Errno::ENODEV, format!("{}: {what}", path.shown())));
            }
        };
        let fd =
            rustix::fs::open(path, access | exclusive | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
        let busy = rustix::io::Errno::BUSY;
        let fd = fd.map_err(|error| if error == busy { in_use(path) } else { told(error) })?;
        Self::of(fd, path, (usage, driver), false)
    }

    /// Goes on with the device of another process, by its [descriptor](Self::descriptor), and under
    /// its lock. That stays when this is dropped, until it is [kept alone](Self::keep_alone).
    ///
    /// # Errors
    /// `EBUSY` if the lock was given up and is another's now; those of looking at it.
    pub fn received(driver: Driver, fd: OwnedFd, path: &Path) -> Result<Self> {
        Self::of(fd, path, (Use::Write, driver), true)
    }

    fn of(fd: OwnedFd, path: &Path, (usage, driver): (Use, Driver), is_shared: bool) -> Result<Self> {
        let told = |error: rustix::io::Errno| Error::from(error).context(path.shown().to_string());
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use(path)),
            locked => locked.map_err(told)?,
        }
        let file = fd.try_clone().map_err(|error| Error::from(error).context(path.shown().to_string()))?;
        let lock = Lock { file, is_shared: AtomicBool::new(is_shared) };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd).map_err(told)?.st_mode);
        let is_direct = driver == Driver::IoUring;
        if kind == FileType::CharacterDevice {
            if is_direct {
                let what = "an NVMe namespace gets commands: name its block device for this driver";
                return Err(Error::new(Errno::EINVAL, format!("{}: {what}", path.shown())));
            }
            return Ok(Self { device: Box::new(Namespace::new(fd, path)?), driver: "nvme", lock });
        }
        let path = path.to_owned();
        let size = rustix::fs::seek(&fd, SeekFrom::End(0)).map_err(told)? / BLOCK * BLOCK;
        let (file, discard) = match kind {
            FileType::BlockDevice => (fd, Discard::Blocks),
            _ if usage == Use::Read || is_direct => (fd, Discard::Hole),
            _ => match Persistent::of(fd, size, path.clone()).map_err(told)? {
                Ok(mapped) => return Ok(Self { device: Box::new(mapped), driver: "dax", lock }),
                Err(file) => (file, Discard::Hole),
            },
        };
        let kernel = Kernel { path, size, file, discard };
        Ok(match driver {
            Driver::Auto => Self { device: Box::new(kernel), driver: "kernel", lock },
            Driver::IoUring => Self { device: Box::new(Direct::new(kernel)?), driver: "io_uring", lock },
        })
    }

    /// The descriptor, for a guard: another process can [go on](Self::received) with it if this one
    /// ends before it is dropped.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn try_clone_descriptor(&self) -> io::Result<OwnedFd> {
        self.lock.file.try_clone()
    }

    /// A descriptor for the process that [goes on](Self::received) with it: from now on, the lock
    /// stays when this is dropped.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        let file = self.try_clone_descriptor()?;
        self.lock.is_shared.store(true, Ordering::Release);
        Ok(file)
    }

    /// The lock ends with this: no other process has the descriptor any more.
    pub fn keep_alone(&self) {
        self.lock.is_shared.store(false, Ordering::Release);
    }

    /// The name of the driver: `kernel`, `io_uring`, `dax` or `nvme`.
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

fn in_use(path: &Path) -> Error {
    Error::new(Errno::EBUSY, format!("{}: it is in use, by a mount or another program", path.shown()))
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
    is_log(&Kernel { path: path.to_owned(), size, file: fd, discard: Discard::Hole }).unwrap_or(false)
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
