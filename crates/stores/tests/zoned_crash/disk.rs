//! A block device without zones: the conventional zones of a simulated device, one
//! after the other.

use braid_contract::{Errno, Error, Result, ZonedDevice};
use braid_stores::zoned::RawDisk;
use braid_sys::AlignedBuf;
use braid_testkit::sim::SimZoned;
use std::io::IoSlice;
use std::sync::Arc;

/// Bytes before the first unit. The first zone has those of them that are not zero.
const HEAD_ROOM: u64 = 1 << 20;
/// What is of no use any more becomes this.
const FORGOTTEN: u8 = 0xee;

/// Such a device.
#[derive(Debug)]
pub(crate) struct SimDisk {
    zones: Arc<SimZoned>,
    /// Bytes of each zone.
    capacity: u64,
}

impl SimDisk {
    pub(crate) fn new(zones: Arc<SimZoned>, capacity: u64) -> Self {
        Self { zones, capacity }
    }

    /// The zone at a place, and the place there; nothing crosses its end.
    fn place(&self, at: u64, len: u64) -> Result<(u32, u64)> {
        let (zone, offset) = match at.checked_sub(HEAD_ROOM) {
            None => (0, at),
            Some(behind) => (1 + (behind / self.capacity) as u32, behind % self.capacity),
        };
        match offset + len <= self.capacity {
            true => Ok((zone, offset)),
            false => Err(Error::new(Errno::EINVAL, format!("{len} bytes at {at} are in two units"))),
        }
    }
}

impl RawDisk for SimDisk {
    fn size(&self) -> u64 {
        HEAD_ROOM + u64::from(self.zones.geometry().zones - 1) * self.capacity
    }

    fn block(&self) -> u64 {
        self.zones.geometry().block
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        if at > 0 && at < HEAD_ROOM {
            buf.fill(0);
            return Ok(());
        }
        let (zone, offset) = self.place(at, buf.len() as u64)?;
        self.zones.read(zone, offset, buf)
    }

    fn write(
        &self,
        at: u64,
        bufs: &[IoSlice<'_>],
        _placement: Option<u16>,
        wrote: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let (zone, offset) = self.place(at, len)?;
        self.zones.write(zone, offset, bufs)?;
        wrote(len);
        Ok(())
    }

    fn discard(&self, at: u64, len: u64) {
        let mut buf = AlignedBuf::new();
        let bytes = buf.bytes(len as usize);
        bytes.fill(FORGOTTEN);
        // The device need not heed it.
        _ = self
            .place(at, len)
            .and_then(|(zone, offset)| self.zones.write(zone, offset, &[IoSlice::new(bytes)]));
    }

    fn flush(&self) -> Result<()> {
        self.zones.flush()
    }

    fn device(&self) -> u64 {
        self.zones.device()
    }
}
