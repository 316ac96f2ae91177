//! A block device or a regular file as a device, by direct I/O through io_uring (LabStor §3.4, a
//! driver module): without the kernel's page cache, and with several transfers of a read or write
//! under way at a time.

use crate::blocks;
use crate::device::{BLOCK, Device};
use crate::kernel::{Discard, Kernel};
use crate::rings::Rings;
use braid_contract::{Errno, Error, Result, Shown};
use braid_sys::{FileRing, Transfer};
use rustix::fs::OFlags;
use std::io::{self, IoSlice};

/// Most bytes of a transfer.
const TRANSFER_MAX: usize = 128 << 10;
/// Transfers of one read or write that are under way at a time.
const DEPTH: u32 = 32;

/// A block device or a regular file.
#[derive(Debug)]
pub(crate) struct Direct {
    /// Open for direct I/O.
    kernel: Kernel,
    rings: Rings<FileRing>,
}

impl Direct {
    /// Has an open device do direct I/O from now on.
    ///
    /// # Errors
    /// `EINVAL` where there is no direct I/O; `ENOSYS`, `EPERM` where there is no io_uring.
    pub(crate) fn new(kernel: Kernel) -> Result<Self> {
        let shown = || kernel.path.shown().to_string();
        let refused = |what: &str| Error::new(Errno::EINVAL, format!("{}: {what}", shown()));
        if kernel.discard == Discard::Blocks {
            let unit = rustix::fs::ioctl_blksszget(&kernel.file);
            let unit = unit.map_err(|error| Error::from(error).context(shown()))?;
            if u64::from(unit) > BLOCK {
                return Err(refused("its logical blocks have more than 4096 bytes"));
            }
        }
        let flags =
            rustix::fs::fcntl_getfl(&kernel.file).map_err(|error| Error::from(error).context(shown()))?;
        // Without waiting, transfers would fail where the kernel has to.
        let flags = (flags | OFlags::DIRECT) - OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&kernel.file, flags)
            .map_err(|_| refused("its file system has no direct I/O, which io_uring needs here"))?;
        let rings = Rings::new(|| FileRing::new(DEPTH), FileRing::is_usable);
        let rings = rings.map_err(|error| {
            Error::from(error).context(format!("{}: an io_uring, for this driver", shown()))
        })?;
        Ok(Self { kernel, rings })
    }

    fn carry_out(&self, what: &str, offset: u64, transfers: Vec<(u64, Transfer<'_>)>) -> Result<()> {
        let told = |error: io::Error| {
            let errno = match rustix::io::Errno::from_io_error(&error) {
                // That of a transfer that was not carried out is the device's.
                None | Some(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => rustix::io::Errno::IO,
                Some(errno) => errno,
            };
            self.kernel.error(what, offset, errno)
        };
        self.rings.with(|ring| ring.carry_out(&self.kernel.file, transfers)).map_err(told)
    }
}

impl Device for Direct {
    fn size(&self) -> u64 {
        self.kernel.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.kernel.size) {
            return Err(self.kernel.error("reading", offset, rustix::io::Errno::IO));
        }
        blocks::read(BLOCK, offset, buf, |first, blocks| {
            let parts = (first..).step_by(TRANSFER_MAX).zip(blocks.chunks_mut(TRANSFER_MAX));
            self.carry_out("reading", first, parts.map(|(at, part)| (at, Transfer::Read(part))).collect())
        })
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        blocks::write(bufs, |data| {
            let parts = (offset..).step_by(TRANSFER_MAX).zip(data.chunks(TRANSFER_MAX));
            self.carry_out("writing", offset, parts.map(|(at, part)| (at, Transfer::Write(part))).collect())
        })
    }

    fn flush(&self) -> Result<()> {
        self.kernel.flush()
    }

    fn discard(&self, offset: u64, len: u64) {
        self.kernel.discard(offset, len);
    }
}
