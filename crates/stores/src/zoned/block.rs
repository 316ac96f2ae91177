//! A zoned block device, driven through the kernel's calls for zones. It is opened
//! exclusively, so that nothing that is mounted or otherwise in use is written.

use super::kernel::{Limits, open_exclusively, read_all, readable, told, within, write_all};
use braid_contract::{
    Errno, Error, Result, Shown, ZoneKind, ZoneReport, ZoneState, ZonedDevice, ZonedGeometry,
};
use braid_sys::{KernelZone, ZoneCall, change_zone, report_zones, zones_of};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kernel's unit of places on a device.
const SECTOR: u64 = 512;
/// Its type of a zone that is written anywhere.
const CONVENTIONAL: u8 = 1;

/// A zoned block device.
#[derive(Debug)]
pub struct ZonedBlockDevice {
    fd: OwnedFd,
    number: u64,
    limits: Limits,
    /// Bytes from one zone to the next.
    stride: u64,
    zones: Vec<Zone>,
}

#[derive(Debug)]
struct Zone {
    kind: ZoneKind,
    /// Bytes to the next zone: the last one of a device may be shorter.
    len: u64,
    capacity: u64,
    /// Bytes that were written, as far as is known here.
    written: AtomicU64,
    /// The reports from when the device was opened, until they are used: reading all
    /// at once is a matter of milliseconds, one by one of minutes on a disk.
    found: Mutex<Option<ZoneReport>>,
}

impl ZonedBlockDevice {
    /// Opens a device, for this process alone.
    ///
    /// # Errors
    /// `EBUSY` if it is in use, `EINVAL` if it has no zones; those of the device.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.shown();
        let fd = open_exclusively(path)?;
        let without = || Error::new(Errno::EINVAL, format!("{shown} has no zones"));
        let (sectors, count) = zones_of(&fd).ok().flatten().ok_or_else(without)?;
        let number = rustix::fs::fstat(&fd)?.st_rdev;
        let limits = Limits::of(number, count);
        let mut zones = Vec::with_capacity(count as usize);
        while zones.len() < count as usize {
            let from = zones.len() as u64 * u64::from(sectors);
            let found = report_zones(&fd, from, count - zones.len() as u32)
                .map_err(|error| Error::from(error).context(format!("{shown}: asking for its zones")))?;
            if found.is_empty() {
                let what = format!("{shown}: it reports {} of {count} zones", zones.len());
                return Err(Error::new(Errno::EIO, what));
            }
            zones.extend(found.iter().map(|zone| Zone::new(zone, limits.geometry.block)));
        }
        Ok(Self { fd, number, limits, stride: u64::from(sectors) * SECTOR, zones })
    }

    /// Whether a path leads to a block device with zones.
    #[must_use]
    pub fn is_at(path: &Path) -> bool {
        let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        opened.is_ok_and(|fd| zones_of(fd).is_ok_and(|zones| zones.is_some()))
    }

    fn zone(&self, zone: u32) -> Result<&Zone> {
        self.zones.get(zone as usize).ok_or_else(|| Errno::EINVAL.into())
    }

    fn ask(&self, number: u32) -> Result<ZoneReport> {
        let zone = self.zone(number)?;
        let sector = u64::from(number) * self.stride / SECTOR;
        let found = report_zones(&self.fd, sector, 1).map_err(|error| told(error, number))?;
        let missing = || Error::new(Errno::EIO, format!("zone {number}: the device does not report it"));
        let found = found.first().filter(|found| found.start == sector).ok_or_else(missing)?;
        let report = report_of(found, self.limits.geometry.block);
        Ok(match report.state {
            ZoneState::ReadOnly | ZoneState::Offline => {
                ZoneReport { write_pointer: zone.written.load(Ordering::Acquire), ..report }
            }
            _ => report,
        })
    }

    fn change(&self, number: u32, call: ZoneCall) -> Result<()> {
        let zone = self.zone(number)?;
        zone.forget();
        // Readers find it changed no later than the device.
        if call == ZoneCall::Reset {
            zone.written.store(0, Ordering::Release);
        }
        let sector = u64::from(number) * self.stride / SECTOR;
        let done = change_zone(&self.fd, call, sector, zone.len / SECTOR);
        match (done, call) {
            (Ok(()), ZoneCall::Finish) => zone.written.store(zone.capacity, Ordering::Release),
            (Ok(()), ZoneCall::Reset) => {}
            (Err(error), _) => {
                self.remember(number);
                return Err(told(error, number));
            }
        }
        Ok(())
    }

    /// After an error: how far a zone is written now.
    fn remember(&self, number: u32) {
        if let (Ok(report), Ok(zone)) = (self.ask(number), self.zone(number))
            && report.state.is_usable()
        {
            zone.written.store(report.write_pointer, Ordering::Release);
        }
    }
}

impl Zone {
    fn new(found: &KernelZone, block: u64) -> Self {
        let report = report_of(found, block);
        let ZoneReport { kind, capacity, write_pointer, .. } = report;
        let (len, written) = (found.len.saturating_mul(SECTOR), AtomicU64::new(write_pointer));
        Self { kind, len, capacity, written, found: Mutex::new(Some(report)) }
    }

    /// The reports from when the device was opened do not hold any more.
    fn forget(&self) {
        *self.found.lock() = None;
    }

    fn is_written_to(&self, end: u64) {
        if self.kind == ZoneKind::Sequential {
            self.written.store(end, Ordering::Release);
        }
    }
}

/// Decodes the kernel's report of a zone. A zone that can't be written any more has
/// no write pointer: its whole capacity counts as written, and reading shows. A write
/// pointer may be within a block, where nothing can be written.
fn report_of(zone: &KernelZone, block: u64) -> ZoneReport {
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR);
    let kind = if zone.kind == CONVENTIONAL { ZoneKind::Conventional } else { ZoneKind::Sequential };
    let capacity = bytes(zone.capacity.min(zone.len)) / block * block;
    // `enum blk_zone_cond`.
    let state = match (kind, zone.condition) {
        (_, 0xd) => ZoneState::ReadOnly,
        (_, 0xf) => ZoneState::Offline,
        (ZoneKind::Conventional, _) | (_, 0 | 0xe) => ZoneState::Full,
        (_, 1) => ZoneState::Empty,
        (_, 2 | 3) => ZoneState::Open,
        (_, 4) => ZoneState::Closed,
        // A state of newer kernels: nothing is written there.
        _ => ZoneState::ReadOnly,
    };
    let write_pointer = match state {
        ZoneState::Empty => 0,
        ZoneState::Open | ZoneState::Closed => bytes(zone.write_pointer.saturating_sub(zone.start)),
        ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => capacity,
    };
    ZoneReport { kind, state, capacity, write_pointer: write_pointer.min(capacity) }
}

impl ZonedDevice for ZonedBlockDevice {
    fn geometry(&self) -> ZonedGeometry {
        self.limits.geometry
    }

    fn report(&self, zone: u32) -> Result<ZoneReport> {
        let mut found = self.zone(zone)?.found.lock();
        match found.take() {
            Some(found) => Ok(found),
            None => self.ask(zone),
        }
    }

    fn read(&self, zone: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Zone { kind, capacity, written, .. } = self.zone(zone)?;
        let limit = readable(*kind, written.load(Ordering::Acquire), *capacity);
        within(zone, (offset, buf.len() as u64), limit)?;
        let at = u64::from(zone) * self.stride + offset;
        read_all(&self.fd, at, buf).map_err(|error| told(error, zone))
    }

    fn write(&self, zone: u32, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let found = self.zone(zone)?;
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        // Behind it is the next one.
        within(zone, (offset, len), found.capacity)?;
        found.forget();
        let at = u64::from(zone) * self.stride + offset;
        let mut wrote = |done| found.is_written_to(offset + done);
        write_all(&self.fd, at, bufs, self.limits.piece, &mut wrote).map_err(|error| {
            self.remember(zone);
            told(error, zone)
        })
    }

    fn reset(&self, zone: u32) -> Result<()> {
        self.change(zone, ZoneCall::Reset)
    }

    fn finish(&self, zone: u32) -> Result<()> {
        self.change(zone, ZoneCall::Finish)
    }

    fn flush(&self) -> Result<()> {
        Ok(rustix::fs::fdatasync(&self.fd)?)
    }

    fn device(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(kind: u8, condition: u8, write_pointer: u64) -> KernelZone {
        let mut zone = KernelZone::default();
        (zone.start, zone.len, zone.capacity) = (1024, 1024, 768);
        (zone.kind, zone.condition, zone.write_pointer) = (kind, condition, write_pointer);
        zone
    }

    #[test]
    fn what_the_kernel_reports_of_a_zone_is_understood() {
        let full = 768 * SECTOR;
        for (condition, write_pointer, state, written) in [
            (1, 1024, ZoneState::Empty, 0),
            (2, 1032, ZoneState::Open, 4096),
            // As a write leaves it that was torn on a device with shorter blocks.
            (3, 1047, ZoneState::Open, 23 * SECTOR),
            (4, 1040, ZoneState::Closed, 8192),
            // The write pointers of these mean nothing.
            (0xe, u64::MAX, ZoneState::Full, full),
            (0xd, u64::MAX, ZoneState::ReadOnly, full),
            (0xf, 0, ZoneState::Offline, full),
            (0x5, 1032, ZoneState::ReadOnly, full),
            // Damaged ones lead to nothing that is not there.
            (2, 0, ZoneState::Open, 0),
            (2, u64::MAX, ZoneState::Open, full),
        ] {
            let report = report_of(&zone(2, condition, write_pointer), 4096);
            let found = (report.kind, report.state, report.capacity, report.write_pointer);
            assert_eq!(found, (ZoneKind::Sequential, state, full, written), "{condition:#x}");
        }
        let conventional = report_of(&zone(CONVENTIONAL, 0, u64::MAX), 4096);
        let found = (conventional.kind, conventional.state, conventional.write_pointer);
        assert_eq!(found, (ZoneKind::Conventional, ZoneState::Full, full));
        let mut runt = zone(2, 1, 1024);
        runt.len = 500;
        assert_eq!(report_of(&runt, 4096).capacity, 500 * SECTOR / 4096 * 4096);
        assert_eq!(Zone::new(&runt, 4096).len, 500 * SECTOR);
    }

    #[test]
    fn what_has_no_zones_is_refused() {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        assert!(!ZonedBlockDevice::is_at(file.path()));
        let refused = ZonedBlockDevice::open(file.path()).unwrap_err();
        assert_eq!(refused.errno(), Errno::EINVAL, "{refused}");
        assert!(!ZonedBlockDevice::is_at(Path::new("/nowhere/at/all")));
        assert_eq!(ZonedBlockDevice::open(Path::new("/nowhere/at/all")).unwrap_err().errno(), Errno::ENOENT);
    }
}
