//! Common parts of devices that are driven through the kernel: their limits, as the
//! kernel reports them, and reads and writes that bypass its cache.

use crate::native::device_dir;
use braid_contract::{Errno, Error, Result, Shown, ZoneKind, ZonedGeometry};
use rustix::fs::{Mode, OFlags};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The least block: the alignment of all direct I/O here.
const BLOCK_MIN: u64 = 4096;
/// The kernel makes requests of at most so many pages, whatever the device takes.
const PAGES_MAX: u64 = 256;

/// Limits of a zoned device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) geometry: ZonedGeometry,
    /// Bytes that become one request. The parts of a longer write to a zone could
    /// overtake each other on the way, unless the kernel keeps them in order, which
    /// depends on its version and on the device's scheduler.
    pub(super) piece: usize,
}

impl Limits {
    /// Those of the block device of this number, which has so many zones.
    pub(super) fn of(device: u64, zones: u32) -> Self {
        let queue = device_dir(device).join("queue");
        let figure = |name: &str| std::fs::read_to_string(queue.join(name)).ok()?.trim().parse().ok();
        Self::from_figures(zones, &figure)
    }

    /// By the figures of a device's queue, by their names.
    fn from_figures(zones: u32, figure: &dyn Fn(&str) -> Option<u64>) -> Self {
        let of = |name| figure(name).filter(|figure| *figure > 0);
        let some = |name| of(name).and_then(|most| u32::try_from(most).ok());
        let granules = [of("logical_block_size"), of("zone_write_granularity"), Some(BLOCK_MIN)];
        let block = granules.into_iter().flatten().max().unwrap_or(BLOCK_MIN);
        let pages = of("max_segments").unwrap_or(1).min(PAGES_MAX);
        let longest = of("max_sectors_kb").map_or(block, |kib| kib << 10).min(pages * BLOCK_MIN);
        let piece = (longest / block * block).max(block) as usize;
        let (open_max, active_max) = (some("max_open_zones"), some("max_active_zones"));
        Self { geometry: ZonedGeometry { block, zones, open_max, active_max }, piece }
    }
}

/// Opens a block device for this process alone, past the kernel's cache.
pub(super) fn open_exclusively(path: &Path) -> Result<OwnedFd> {
    let shown = path.shown();
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        rustix::io::Errno::BUSY => {
            Error::new(Errno::EBUSY, format!("{shown}: the device is in use, by a mount or otherwise"))
        }
        error => Error::from(error).context(shown.to_string()),
    })
}

/// A number that the system gave, as those of zoned devices: a device that has too
/// many zones open or active, and one that is gone.
pub(super) fn told(error: impl Into<Error>, zone: u32) -> Error {
    /// `ETOOMANYREFS`: too many zones are open.
    const TOO_MANY_OPEN: Errno = Errno(109);
    let error: Error = error.into();
    match error.errno() {
        TOO_MANY_OPEN => Error::new(Errno::EOVERFLOW, format!("zone {zone}: too many are open")),
        Errno::ENXIO => Error::new(Errno::ENODEV, format!("zone {zone}: the device is gone")),
        _ => error.context(format!("zone {zone}")),
    }
}

/// Refuses bytes that a zone does not have.
pub(super) fn within(zone: u32, (offset, len): (u64, u64), limit: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= limit => Ok(()),
        _ => Err(Error::new(Errno::EIO, format!("zone {zone}: {len} bytes at {offset} are beyond {limit}"))),
    }
}

/// Fills all of `buf`.
pub(super) fn read_all(fd: impl AsFd, offset: u64, buf: &mut [u8]) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(&fd, &mut buf[done..], offset + done as u64) {
            Ok(0) => return Err(rustix::io::Errno::IO),
            Ok(read) => done += read,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `bufs` in pieces of at most so many bytes, one after the other.
/// `wrote` gets the number of bytes written so far.
pub(super) fn write_all(
    fd: impl AsFd,
    offset: u64,
    bufs: &[IoSlice<'_>],
    piece: usize,
    wrote: &mut dyn FnMut(u64),
) -> rustix::io::Result<()> {
    let mut total = 0;
    for mut rest in bufs.iter().map(|buf| &buf[..]) {
        while !rest.is_empty() {
            let next = &rest[..rest.len().min(piece)];
            match rustix::io::pwrite(&fd, next, offset + total) {
                Ok(0) => return Err(rustix::io::Errno::IO),
                Ok(done) => {
                    total += done as u64;
                    rest = &rest[done..];
                    wrote(total);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Bytes of a zone that may be read.
pub(super) fn readable(kind: ZoneKind, written: u64, capacity: u64) -> u64 {
    if kind == ZoneKind::Conventional { capacity } else { written }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn limits(figures: &[(&str, u64)]) -> Limits {
        let figures: BTreeMap<&str, u64> = figures.iter().copied().collect();
        Limits::from_figures(9, &|name| figures.get(name).copied())
    }

    #[test]
    fn limits_are_those_of_the_queue() {
        let found = limits(&[
            ("logical_block_size", 512),
            ("zone_write_granularity", 4096),
            ("max_segments", 128),
            ("max_sectors_kb", 1280),
            ("max_open_zones", 14),
            ("max_active_zones", 0),
        ]);
        let geometry = ZonedGeometry { block: 4096, zones: 9, open_max: Some(14), active_max: None };
        assert_eq!((found.geometry, found.piece), (geometry, 512 << 10));
        let large = limits(&[
            ("logical_block_size", 512),
            ("zone_write_granularity", 16384),
            ("max_segments", 3),
            ("max_sectors_kb", 64),
        ]);
        assert_eq!((large.geometry.block, large.piece), (16384, 16384));
        let unknown = limits(&[]);
        assert_eq!((unknown.geometry.block, unknown.piece, unknown.geometry.open_max), (4096, 4096, None));
    }

    #[test]
    fn numbers_of_the_kernel_become_those_of_zoned_devices() {
        for (given, expected) in [(109, Errno::EOVERFLOW), (6, Errno::ENODEV), (5, Errno::EIO)] {
            assert_eq!(told(Errno(given), 3).errno(), expected);
        }
        assert!(within(1, (4096, 4096), 8192).is_ok());
        for beyond in [(4096, 8192), (u64::MAX, 1)] {
            assert_eq!(within(1, beyond, 8192).unwrap_err().errno(), Errno::EIO);
        }
    }

    #[test]
    fn bytes_are_written_in_pieces_and_read_back() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let data: Vec<u8> = (0..20_000u32).map(|at| (at % 251) as u8).collect();
        let mut told = Vec::new();
        let bufs = [IoSlice::new(&data[..9000]), IoSlice::new(&data[9000..])];
        write_all(&file, 7, &bufs, 4096, &mut |done| told.push(done)).unwrap();
        assert_eq!(told, [4096, 8192, 9000, 13_096, 17_192, 20_000]);
        let mut found = vec![0; data.len()];
        read_all(&file, 7, &mut found).unwrap();
        assert_eq!(found, data);
        assert_eq!(read_all(&file, 20_000, &mut found[..8]), Err(rustix::io::Errno::IO));
    }
}
