//! A zoned device that is watched for flushes that fail, and for write pointers that
//! go back. Data written before such a flush may be lost, whatever a later flush
//! answers.

use braid_contract::{Errno, Error, Result, StreamId, ZoneReport, ZonedDevice, ZonedGeometry};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device, and how many of its flushes failed.
#[derive(Debug)]
pub(super) struct Watched {
    device: Arc<dyn ZonedDevice>,
    failures: AtomicU64,
    /// How often a zone was found to have lost something.
    losses: AtomicU64,
    /// Held while it is flushed: a flush that follows one that failed finds it counted.
    flushing: Mutex<()>,
}

impl Watched {
    pub(super) fn new(device: Arc<dyn ZonedDevice>) -> Self {
        Self { device, failures: AtomicU64::new(0), losses: AtomicU64::new(0), flushing: Mutex::default() }
    }

    /// Flushes that failed so far.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// A zone has lost something.
    pub(super) fn has_lost(&self) {
        self.losses.fetch_add(1, Ordering::Release);
    }

    /// How often a zone was found to have lost something.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// How often there was a reason to believe that something is lost.
    pub(super) fn doubts(&self) -> u64 {
        self.failures() + self.losses()
    }

    /// Flushes the device, so that all data is durable that was written after so many
    /// failures.
    pub(super) fn flush_since(&self, failures: u64) -> Result<()> {
        self.flush().and_then(|()| self.check_since(failures))
    }

    /// Fails with `EIO` if another flush failed since there were so many failures:
    /// data written meanwhile may be lost.
    pub(super) fn check_since(&self, failures: u64) -> Result<()> {
        match self.failures() == failures {
            true => Ok(()),
            false => Err(Error::new(Errno::EIO, "another flush of the device failed meanwhile")),
        }
    }
}

impl ZonedDevice for Watched {
    fn geometry(&self) -> ZonedGeometry {
        self.device.geometry()
    }

    fn report(&self, zone: u32) -> Result<ZoneReport> {
        self.device.report(zone)
    }

    fn read(&self, zone: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read(zone, offset, buf)
    }

    fn write(&self, zone: u32, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.device.write(zone, offset, bufs)
    }

    fn reset(&self, zone: u32) -> Result<()> {
        self.device.reset(zone)
    }

    fn finish(&self, zone: u32) -> Result<()> {
        self.device.finish(zone)
    }

    fn flush(&self) -> Result<()> {
        let _flushing = self.flushing.lock();
        self.device.flush().inspect_err(|_| _ = self.failures.fetch_add(1, Ordering::Release))
    }

    fn device(&self) -> u64 {
        self.device.device()
    }

    fn keeps_write_pointers(&self) -> bool {
        self.device.keeps_write_pointers()
    }

    fn set_write_pointer(&self, zone: u32, end: u64) {
        self.device.set_write_pointer(zone, end);
    }

    fn assign(&self, zone: u32, stream: Option<StreamId>) {
        self.device.assign(zone, stream);
    }

    fn placement(&self, stream: Option<StreamId>) -> Option<u16> {
        self.device.placement(stream)
    }
}
