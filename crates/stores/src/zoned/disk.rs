//! A block device without zones, as raw bytes. It is opened exclusively, so that nothing
//! that is mounted or otherwise in use is written.

use super::fdp::Fdp;
use super::kernel::{Limits, open_exclusively, read_all, write_all};
use braid_contract::{Context, Errno, Error, Result, Shown};
use std::fmt;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that are handed to the kernel at a time.
const PIECE_MAX: usize = 1 << 30;

/// The bytes of a device that can be written anywhere. All offsets and lengths are
/// multiples of the block, and memory is aligned for direct I/O.
///
/// A write is durable after [`flush`](Self::flush); power loss leaves any of the blocks
/// that were written before, and not those of others.
pub trait RawDisk: Send + Sync + fmt::Debug {
    /// Bytes that it has.
    fn size(&self) -> u64;

    /// The unit of offsets and lengths, in bytes.
    fn block(&self) -> u64;

    /// Fills `buf` from `at` on.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `bufs` from `at` on, under one of its
    /// [placements](Self::placements). `wrote` learns how many bytes were written so far.
    fn write(
        &self,
        at: u64,
        bufs: &[IoSlice<'_>],
        placement: Option<u16>,
        wrote: &mut dyn FnMut(u64),
    ) -> Result<()>;

    /// The data there is of no use any more, and may be anything from then on. The
    /// device may ignore that.
    fn discard(&self, at: u64, len: u64);

    /// Makes everything durable that was written.
    fn flush(&self) -> Result<()>;

    /// A number that distinguishes the device from others.
    fn device(&self) -> u64;

    /// The numbers of its placements, under each of which it keeps writes together;
    /// empty if it has none.
    fn placements(&self) -> &[u16] {
        &[]
    }

    /// Bytes that it empties at a time, if it reports that.
    fn reclaim_unit(&self) -> Option<u64> {
        None
    }
}

/// A block device of the kernel's.
#[derive(Debug)]
pub(super) struct BlockDisk {
    fd: OwnedFd,
    number: u64,
    size: u64,
    limits: Limits,
    fdp: Option<Fdp>,
    /// It does not know of bytes that are of no use.
    keeps_all: AtomicBool,
}

impl BlockDisk {
    /// Opens a device, for this process alone.
    ///
    /// # Errors
    /// `EBUSY` if it is in use; those of the device.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let fd = open_exclusively(path)?;
        let number = rustix::fs::fstat(&fd)?.st_rdev;
        let size = rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0)).context("asking for its size")?;
        let fdp = Fdp::of(&fd, number);
        if let Some(fdp) = &fdp {
            tracing::info!(device = %path.shown(), handles = fdp.ids().len(), "the device places data (FDP)");
        }
        Ok(Self { fd, number, size, limits: Limits::of(number, 0), fdp, keeps_all: AtomicBool::new(false) })
    }
}

impl RawDisk for BlockDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn block(&self) -> u64 {
        self.limits.geometry.block
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        read_all(&self.fd, at, buf).map_err(|error| told(error.into()))
    }

    fn write(
        &self,
        at: u64,
        bufs: &[IoSlice<'_>],
        placement: Option<u16>,
        wrote: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let written = match (&self.fdp, placement) {
            (Some(fdp), Some(placement)) => {
                fdp.write(&self.fd, (at, placement), bufs, self.limits.piece, wrote)
            }
            _ => write_all(&self.fd, at, bufs, PIECE_MAX, wrote).map_err(Error::from),
        };
        written.map_err(told)
    }

    fn discard(&self, at: u64, len: u64) {
        if self.keeps_all.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = braid_sys::discard(&self.fd, at, len) {
            let error = Error::from(error);
            self.keeps_all.store(error.errno() == Errno::EOPNOTSUPP, Ordering::Relaxed);
            tracing::debug!(at, len, %error, "the device keeps what is of no use");
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(rustix::fs::fdatasync(&self.fd)?)
    }

    fn device(&self) -> u64 {
        self.number
    }

    fn placements(&self) -> &[u16] {
        self.fdp.as_ref().map_or(&[], Fdp::ids)
    }

    fn reclaim_unit(&self) -> Option<u64> {
        self.fdp.as_ref().map(Fdp::unit)
    }
}

/// An error of the system, as those of devices.
fn told(error: Error) -> Error {
    match error.errno() {
        Errno::ENXIO => Error::new(Errno::ENODEV, "the device is gone"),
        _ => error,
    }
}
