//! The bytes of one native file: read and written at offsets, through the page
//! cache or bypassing it.

use crate::aligned::{AlignedBuf, DIRECT_ALIGNMENT, is_aligned};
use crate::write_life::set_write_life;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

thread_local! {
    /// Buffer for direct I/O when the caller's memory is not aligned.
    static BOUNCE: RefCell<AlignedBuf> = const { RefCell::new(AlignedBuf::new()) };
}

/// Most buffers of one system call (`IOV_MAX`).
const VECTOR_MAX: usize = 1024;

/// An open native file and, after a request for direct I/O, a second descriptor
/// that bypasses the page cache.
#[derive(Debug)]
pub struct DataFile {
    cached: Arc<OwnedFd>,
    /// Empty until first needed; `None` if the file system refuses it.
    direct: OnceLock<Option<OwnedFd>>,
    /// The write-life hint that the kernel was given; 0 if none was.
    life: AtomicU8,
}

impl AsFd for DataFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.cached.as_fd()
    }
}

impl DataFile {
    /// Takes over an open file.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self::shared(Arc::new(fd))
    }

    /// Uses an open file that others use too.
    #[must_use]
    pub fn shared(fd: Arc<OwnedFd>) -> Self {
        Self { cached: fd, direct: OnceLock::new(), life: AtomicU8::new(0) }
    }

    /// The descriptor, shared.
    #[must_use]
    pub fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.cached)
    }

    /// Sets the expected life of written data, as the kernel's `RWH_WRITE_LIFE_…`, unless it is set
    /// already. A file system that refuses it is asked once.
    pub fn expect_life(&self, level: u8) {
        if self.life.load(Ordering::Relaxed) != level {
            let _ = set_write_life(&self.cached, level.into());
            self.life.store(level, Ordering::Relaxed);
        }
    }

    /// Fills `bufs` from `offset` on, short only at the end of the file.
    ///
    /// # Errors
    /// Those of `preadv(2)`.
    pub fn read_at(
        &self,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
        direct: bool,
    ) -> rustix::io::Result<usize> {
        if direct
            && let [buf] = bufs
            && let Some(fd) = self.direct_for(offset, buf.len())
        {
            let done = match read_direct(fd, offset, buf) {
                // The device needs a larger alignment.
                Err(Errno::INVAL) => 0,
                result => result?,
            };
            // Most often the file ends here; otherwise the rest is not aligned.
            return Ok(done + read_full(&self.cached, offset + done as u64, &mut buf[done..])?);
        }
        let mut at_once = match bufs.len() {
            2..=VECTOR_MAX => rustix::io::retry_on_intr(|| rustix::io::preadv(&self.cached, bufs, offset))?,
            _ => 0,
        };
        let mut total = 0;
        for buf in bufs {
            let before = at_once.min(buf.len());
            at_once -= before;
            let rest = &mut buf[before..];
            let done = before + read_full(&self.cached, offset + (total + before) as u64, rest)?;
            total += done;
            if done < buf.len() {
                break;
            }
        }
        Ok(total)
    }

    /// Writes `bufs` at `offset`. After a short count, the error that caused it
    /// is answered when the rest is written.
    ///
    /// # Errors
    /// Those of `pwritev(2)`.
    pub fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>], direct: bool) -> rustix::io::Result<usize> {
        if direct
            && let [buf] = bufs
            && let Some(fd) = self.direct_for(offset, buf.len())
        {
            match write_direct(fd, offset, buf) {
                // The device needs a larger alignment.
                Err(Errno::INVAL) => {}
                result => return result,
            }
        }
        let mut at_once = match bufs.len() {
            2..=VECTOR_MAX => rustix::io::retry_on_intr(|| rustix::io::pwritev(&self.cached, bufs, offset))?,
            _ => 0,
        };
        let mut total = 0;
        for buf in bufs {
            let before = at_once.min(buf.len());
            at_once -= before;
            total += before;
            let rest = &buf[before..];
            match write_full(&self.cached, offset + total as u64, rest) {
                Ok(done) if done < rest.len() => return Ok(total + done),
                Ok(done) => total += done,
                Err(_) if total > 0 => return Ok(total),
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    /// The direct descriptor, if this piece of the file can use it.
    fn direct_for(&self, offset: u64, len: usize) -> Option<&OwnedFd> {
        let aligned = offset.is_multiple_of(DIRECT_ALIGNMENT as u64) && len.is_multiple_of(DIRECT_ALIGNMENT);
        if !aligned || len == 0 {
            return None;
        }
        if self.direct.get().is_none() {
            let opened = match self.open_direct() {
                Ok(fd) => Some(fd),
                // The file system has no direct I/O.
                Err(Errno::INVAL) => None,
                // A descriptor may be available next time.
                Err(_) => return None,
            };
            return self.direct.get_or_init(|| opened).as_ref();
        }
        self.direct.get()?.as_ref()
    }

    fn open_direct(&self) -> rustix::io::Result<OwnedFd> {
        let access = rustix::fs::fcntl_getfl(&self.cached)? & (OFlags::RWMODE | OFlags::NOATIME);
        let path = format!("/proc/self/fd/{}", self.cached.as_raw_fd());
        rustix::fs::open(path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
    }
}

fn read_full(fd: impl AsFd, offset: u64, mut buf: &mut [u8]) -> rustix::io::Result<usize> {
    let mut total = 0;
    while !buf.is_empty() {
        match rustix::io::pread(&fd, &mut *buf, offset + total as u64) {
            Ok(0) => break,
            Ok(done) => {
                total += done;
                buf = &mut buf[done..];
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

fn write_full(fd: impl AsFd, offset: u64, buf: &[u8]) -> rustix::io::Result<usize> {
    let mut total = 0;
    while total < buf.len() {
        match rustix::io::pwrite(&fd, &buf[total..], offset + total as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(done) => total += done,
            Err(Errno::INTR) => {}
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// One direct read, which may end early.
fn read_direct(fd: &OwnedFd, offset: u64, buf: &mut [u8]) -> rustix::io::Result<usize> {
    if is_aligned(buf) {
        return rustix::io::retry_on_intr(|| rustix::io::pread(fd, &mut *buf, offset));
    }
    BOUNCE.with_borrow_mut(|bounce| {
        let bytes = bounce.bytes(buf.len());
        let done = rustix::io::retry_on_intr(|| rustix::io::pread(fd, &mut *bytes, offset))?;
        buf[..done].copy_from_slice(&bytes[..done]);
        Ok(done)
    })
}

fn write_direct(fd: &OwnedFd, offset: u64, buf: &[u8]) -> rustix::io::Result<usize> {
    if is_aligned(buf) {
        return write_full(fd, offset, buf);
    }
    BOUNCE.with_borrow_mut(|bounce| {
        let bytes = bounce.bytes(buf.len());
        bytes.copy_from_slice(buf);
        write_full(fd, offset, bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> DataFile {
        DataFile::new(tempfile::tempfile_in("/var/tmp").unwrap().into())
    }

    #[test]
    fn direct_and_cached_access_agree_whatever_the_alignment() {
        let file = file();
        let data: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
        for (offset, len, direct) in [(0, 8192, true), (8192, 100, true), (8292, 11_000, false)] {
            let part = &data[offset..offset + len];
            assert_eq!(file.write_at(offset as u64, &[IoSlice::new(part)], direct), Ok(len));
        }
        for (offset, len, direct) in
            [(0, 4096, true), (1, 4095, true), (4096, 12_288, true), (0, 19_292, false)]
        {
            let mut buf = vec![0; len + 1];
            // The slice begins at an odd address, so direct reads must bounce.
            let done = file.read_at(offset as u64, &mut [IoSliceMut::new(&mut buf[1..])], direct).unwrap();
            assert_eq!(done, len.min(19_292 - offset));
            assert_eq!(buf[1..=done], data[offset..offset + done], "{offset} {len}");
        }
    }

    #[test]
    fn more_buffers_than_one_call_takes_are_read_and_written() {
        let file = file();
        let data: Vec<u8> = (0..9000u32).map(|i| (i % 251) as u8).collect();
        for count in [VECTOR_MAX, VECTOR_MAX + 1] {
            let bufs: Vec<IoSlice<'_>> = data.chunks(data.len().div_ceil(count)).map(IoSlice::new).collect();
            assert_eq!(file.write_at(3, &bufs, false), Ok(data.len()));
            let mut found = vec![0; data.len() + 5];
            let mut bufs: Vec<IoSliceMut<'_>> = found.chunks_mut(8).map(IoSliceMut::new).collect();
            assert_eq!(file.read_at(3, &mut bufs, false), Ok(data.len()));
            assert_eq!(found[..data.len()], data);
        }
    }

    #[test]
    fn reading_past_the_end_is_short() {
        let file = file();
        file.write_at(0, &[IoSlice::new(b"abc"), IoSlice::new(b"de")], false).unwrap();
        let mut buf = [0; 10];
        assert_eq!(file.read_at(3, &mut [IoSliceMut::new(&mut buf)], false), Ok(2));
        assert_eq!(file.read_at(9, &mut [IoSliceMut::new(&mut buf)], false), Ok(0));
    }
}
