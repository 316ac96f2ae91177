//! A block device or a regular file as a device, through the kernel's page cache.

use crate::device::Device;
use braid_contract::{Errno, Error, Result, Shown};
use rustix::fs::FallocateFlags;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Pieces of memory that the kernel takes at a time (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// The way in which the kernel discards bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Discard {
    /// Of a block device.
    Blocks,
    /// Of a regular file, which gets a hole.
    Hole,
}

/// A block device or a regular file.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
    pub(crate) file: OwnedFd,
    pub(crate) discard: Discard,
}

impl Kernel {
    /// An error at a place; one that this file system would take for a lack of its own
    /// room is the device's.
    pub(crate) fn error(&self, what: &str, offset: u64, error: rustix::io::Errno) -> Error {
        let path = self.path.shown();
        let text = format!("{path}: {what} at byte {offset}");
        match error {
            rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => {
                Error::new(Errno::EIO, format!("{text}: there is no room beneath the file"))
            }
            error => Error::from(error).context(text),
        }
    }
}

impl Device for Kernel {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match rustix::io::pread(&self.file, &mut buf[done..], at) {
                Ok(0) => return Err(self.error("reading", at, rustix::io::Errno::IO)),
                Ok(read) => done += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.error("reading", at, error)),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let mut pieces: Vec<&[u8]> = bufs.iter().map(|buf| &buf[..]).filter(|buf| !buf.is_empty()).collect();
        let mut at = offset;
        while !pieces.is_empty() {
            let next: Vec<IoSlice<'_>> =
                pieces.iter().take(PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
            let mut done = match rustix::io::pwritev(&self.file, &next, at) {
                Ok(0) => return Err(self.error("writing", at, rustix::io::Errno::IO)),
                Ok(done) => done,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(self.error("writing", at, error)),
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

    fn flush(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.file).map_err(|error| self.error("flushing", 0, error))
    }

    fn discard(&self, offset: u64, len: u64) {
        // It need not heed it.
        match self.discard {
            Discard::Blocks => _ = braid_sys::discard(&self.file, offset, len),
            Discard::Hole => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(&self.file, flags, offset, len);
            }
        }
    }
}
