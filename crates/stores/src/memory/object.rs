//! One object of a memory store: a memory file, and its accounting.

use super::account::Account;
use super::pages::{PAGE, Pages, covered, touched};
use braid_contract::{Errno, Error, ObjectStat, Result, Timestamp};
use braid_sys::DataFile;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// An object. Its memory is given back when the last user is done with it.
#[derive(Debug)]
pub(super) struct Object {
    file: DataFile,
    account: Arc<Account>,
    /// Held shared by operations that neither take nor return pages, and
    /// exclusively by others.
    space: RwLock<Space>,
    atime: Mutex<Option<Timestamp>>,
}

/// The memory of an object.
#[derive(Debug, Default)]
struct Space {
    /// Bytes counted for it.
    charged: u64,
    /// Pages that can be written without taking more.
    present: Pages,
}

impl Object {
    /// An empty object. Its memory file can't be executed.
    pub(super) fn new(account: Arc<Account>) -> Result<Self> {
        let fd = match memory_file(MemfdFlags::NOEXEC_SEAL) {
            // Before Linux 6.3.
            Err(rustix::io::Errno::INVAL) => memory_file(MemfdFlags::ALLOW_SEALING),
            result => result,
        };
        let fd = fd.map_err(|error| match error {
            // An object needs a descriptor: another tier may have room.
            rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOMEM => {
                Error::new(Errno::ENOSPC, format!("the memory store can't make another object: {error}"))
            }
            error => error.into(),
        })?;
        Ok(Self { file: DataFile::new(fd), account, space: RwLock::default(), atime: Mutex::default() })
    }

    fn fd(&self) -> Arc<OwnedFd> {
        self.file.fd()
    }

    pub(super) fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        Ok(self.file.read_at(offset, bufs, false)?)
    }

    pub(super) fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<usize> {
        let end = end_of(offset, bufs.iter().map(|buf| buf.len() as u64).sum())?;
        let write = || self.file.write_at(offset, bufs, false);
        {
            let space = self.space.read().unwrap_or_else(PoisonError::into_inner);
            if space.present.missing(touched(offset, end)) == 0 {
                return Ok(write()?);
            }
        }
        let done = self.take(offset, end, || write().map(|done| done as u64))?;
        Ok(done as usize)
    }

    pub(super) fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let end = end_of(offset, len)?;
        let flags = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        self.take(offset, end, || rustix::fs::fallocate(self.fd(), flags, offset, len).map(|()| len))?;
        Ok(())
    }

    pub(super) fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let end = end_of(offset, len)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.give_back(|space| {
            rustix::fs::fallocate(self.fd(), flags, offset, len)?;
            space.present.remove(covered(offset, end));
            Ok(())
        })
    }

    pub(super) fn truncate(&self, size: u64) -> Result<()> {
        self.give_back(|space| {
            let before = rustix::fs::fstat(self.fd())?.st_size.cast_unsigned();
            rustix::fs::ftruncate(self.fd(), size)?;
            if size < before {
                space.present.remove(covered(size, u64::MAX));
            }
            Ok(())
        })
    }

    pub(super) fn stat(&self) -> Result<ObjectStat> {
        let stat = rustix::fs::fstat(self.fd())?;
        Ok(ObjectStat {
            size: stat.st_size.cast_unsigned(),
            allocated: stat.st_blocks.cast_unsigned() * 512,
            mtime: Timestamp { secs: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 },
            atime: *self.atime.lock().unwrap_or_else(PoisonError::into_inner),
        })
    }

    pub(super) fn set_access_time(&self, time: Timestamp) {
        *self.atime.lock().unwrap_or_else(PoisonError::into_inner) = Some(time);
    }

    pub(super) fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let start = match rustix::fs::seek(self.fd(), SeekFrom::Data(offset)) {
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            result => result?,
        };
        Ok(Some((start, rustix::fs::seek(self.fd(), SeekFrom::Hole(start))?)))
    }

    /// Runs `change`, which makes the pages of a range present, after reserving
    /// them. It answers the bytes it handled.
    fn take(&self, offset: u64, end: u64, change: impl FnOnce() -> rustix::io::Result<u64>) -> Result<u64> {
        let mut space = self.space.write().unwrap_or_else(PoisonError::into_inner);
        let reserved = space.present.missing(touched(offset, end)) * PAGE;
        self.account.reserve(reserved)?;
        let result = change();
        if let Ok(done) = result {
            space.present.insert(touched(offset, offset + done));
        }
        self.settle(&mut space, reserved);
        Ok(result?)
    }

    /// Runs `change`, which may return pages.
    fn give_back(&self, change: impl FnOnce(&mut Space) -> rustix::io::Result<()>) -> Result<()> {
        let mut space = self.space.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut space);
        self.settle(&mut space, 0);
        Ok(result?)
    }

    /// Takes over the kernel's figure for the object, in place of its count and
    /// of the bytes `reserved` for it.
    fn settle(&self, space: &mut Space, reserved: u64) {
        let before = space.charged + reserved;
        space.charged = self.stat().map_or(before, |stat| stat.allocated);
        self.account.settle(before, space.charged);
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let space = self.space.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.account.settle(space.charged, 0);
    }
}

/// The end of `len` bytes at `offset`; `EFBIG` beyond the longest file.
fn end_of(offset: u64, len: u64) -> Result<u64> {
    let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
    end.ok_or_else(|| Errno::EFBIG.into())
}

fn memory_file(flags: MemfdFlags) -> rustix::io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("braid-object", flags | MemfdFlags::CLOEXEC)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SEAL)?;
    Ok(fd)
}
