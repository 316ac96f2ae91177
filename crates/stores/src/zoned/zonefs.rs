//! A zoned device on which zonefs is mounted: a file for each zone, which the kernel
//! lets be written at its end only, past its cache, and truncated to nothing or to
//! all. A file is open for writing as long as its zone is begun, which is how zonefs
//! counts open zones if it is mounted with `explicit-open`.

use super::kernel::{Limits, read_all, readable, told, within, write_all};
use super::zone_files::{DIRS, path_of, report_of};
use crate::native::{KernelFd, open_tier_dir};
use braid_contract::{
    Context, Errno, Error, Fd, Result, Shown, ZoneKind, ZoneReport, ZonedDevice, ZonedGeometry,
};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The type of the file system.
const ZONEFS_MAGIC: i64 = 0x5a4f_4653;
/// The unit of a file's blocks, which are the capacity of its zone.
const SECTOR: u64 = 512;

/// A mounted zonefs.
#[derive(Debug)]
pub struct Zonefs {
    /// Keeps it locked.
    root: Fd,
    limits: Limits,
    device: u64,
    zones: Vec<Zone>,
    /// The zone that was written last, whose file can be synced.
    written_last: AtomicU32,
}

#[derive(Debug)]
struct Zone {
    kind: ZoneKind,
    /// Below the root.
    path: String,
    capacity: u64,
    /// Bytes that were written, as far as is known here.
    written: AtomicU64,
    reader: Mutex<Option<Arc<OwnedFd>>>,
    writer: Mutex<Option<Arc<OwnedFd>>>,
}

impl Zonefs {
    /// Whether a directory is on a zonefs.
    #[must_use]
    pub fn is_at(dir: &Path) -> bool {
        rustix::fs::statfs(dir).is_ok_and(|fs| fs.f_type == ZONEFS_MAGIC)
    }

    /// Opens the zonefs that is mounted at a directory, and locks it.
    ///
    /// # Errors
    /// `EBUSY` if another process has it, `EINVAL` if it is none or not the root of
    /// one; those of the file system.
    pub fn open(dir: &Path) -> Result<Self> {
        if !Self::is_at(dir) {
            return Err(Error::new(Errno::EINVAL, format!("{}: it is no zonefs", dir.shown())));
        }
        Self::over(open_tier_dir(dir)?).with_context(|| dir.shown().to_string())
    }

    /// The same for any file system that looks like one.
    fn over(root: Fd) -> Result<Self> {
        let device = root.stat()?.device;
        let mut zones = Vec::new();
        for (kind, dir) in DIRS {
            for number in 0..files_in(&root, dir)? {
                zones.push(Zone::find(&root, kind, path_of(kind, number))?);
            }
        }
        if zones.is_empty() {
            let what = "no zones are here; name the directory where zonefs is mounted";
            return Err(Error::new(Errno::EINVAL, what));
        }
        let count = u32::try_from(zones.len()).map_err(|_| Errno::EINVAL)?;
        let mut limits = Limits::of(device, count);
        let own = rustix::fs::fstatfs(KernelFd::of(root.as_native())?)?.f_bsize as u64;
        limits.geometry.block = limits.geometry.block.max(own);
        let unit = limits.geometry.block as usize;
        limits.piece = (limits.piece / unit * unit).max(unit);
        Ok(Self { root, limits, device, zones, written_last: AtomicU32::new(0) })
    }

    fn zone(&self, zone: u32) -> Result<&Zone> {
        self.zones.get(zone as usize).ok_or_else(|| Errno::EINVAL.into())
    }

    fn open_file(&self, path: &str, access: OFlags) -> Result<OwnedFd> {
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = KernelFd::of(self.root.as_native())?;
        Ok(rustix::fs::openat(root, path, flags, Mode::empty())?)
    }

    /// The file of a zone, opened once for each access.
    fn file(&self, place: &Mutex<Option<Arc<OwnedFd>>>, path: &str, access: OFlags) -> Result<Arc<OwnedFd>> {
        let mut place = place.lock();
        if let Some(fd) = &*place {
            return Ok(Arc::clone(fd));
        }
        let fd = Arc::new(self.open_file(path, access)?);
        *place = Some(Arc::clone(&fd));
        Ok(fd)
    }

    /// Resets a zone, by the size 0, or finishes it, by its capacity.
    fn resize(&self, number: u32, size: u64) -> Result<()> {
        let zone = self.zone(number)?;
        if zone.kind != ZoneKind::Sequential {
            return Err(Error::new(Errno::EIO, format!("zone {number}: it is conventional")));
        }
        // An open zone stays open otherwise.
        *zone.writer.lock() = None;
        let before = zone.written.load(Ordering::Acquire);
        zone.written.store(before.min(size), Ordering::Release);
        let root = KernelFd::of(self.root.as_native())?.as_fd().as_raw_fd();
        match braid_sys::set_size(format!("/proc/self/fd/{root}/{}", zone.path), size) {
            Ok(()) => {
                zone.written.store(size, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                self.remember(number);
                Err(failed(error, number))
            }
        }
    }

    /// After an error: how far a zone is written now.
    fn remember(&self, number: u32) {
        if let (Ok(report), Ok(zone)) = (self.report(number), self.zone(number))
            && report.state.is_usable()
        {
            zone.written.store(report.write_pointer, Ordering::Release);
        }
    }

    /// Flushes the device through the file of a zone.
    fn flush_through(&self, number: u32) -> Result<()> {
        let zone = self.zone(number)?;
        let fd = self.file(&zone.reader, &zone.path, OFlags::RDONLY)?;
        Ok(rustix::fs::fsync(&*fd)?)
    }
}

impl Zone {
    fn find(root: &Fd, kind: ZoneKind, path: String) -> Result<Self> {
        let found = rustix::fs::statat(KernelFd::of(root.as_native())?, &*path, AtFlags::SYMLINK_NOFOLLOW)
            .with_context(|| format!("zone {path}"))?;
        let capacity = found.st_blocks as u64 * SECTOR;
        let written = AtomicU64::new((found.st_size as u64).min(capacity));
        Ok(Self { kind, path, capacity, written, reader: Mutex::default(), writer: Mutex::default() })
    }
}

/// How many files there are of zones, numbered from 0 on.
fn files_in(root: &Fd, dir: &str) -> Result<u32> {
    let dir = match root.open_at(std::ffi::OsStr::new(dir), braid_contract::Access::Directory) {
        Err(error) if error.errno() == Errno::ENOENT => return Ok(0),
        dir => dir?,
    };
    let mut count = 0;
    dir.read_dir(0, &mut |entry| {
        let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        count += u32::from(entry.name.to_str().is_some_and(is_number));
        Ok(true)
    })?;
    Ok(count)
}

/// As those of zoned devices: zonefs refuses where the zone refuses.
fn failed(error: impl Into<Error>, zone: u32) -> Error {
    let error: Error = error.into();
    match error.errno() {
        Errno::EPERM | Errno::EACCES | Errno::EINVAL | Errno::EFBIG => {
            Error::new(Errno::EIO, format!("zone {zone}: zonefs refuses it: {error}"))
        }
        // With `explicit-open`.
        Errno::EBUSY => Error::new(Errno::EOVERFLOW, format!("zone {zone}: too many are open")),
        _ => told(error, zone),
    }
}

impl ZonedDevice for Zonefs {
    fn geometry(&self) -> ZonedGeometry {
        self.limits.geometry
    }

    fn report(&self, zone: u32) -> Result<ZoneReport> {
        let Zone { kind, path, capacity, .. } = self.zone(zone)?;
        let root = KernelFd::of(self.root.as_native())?;
        let found =
            rustix::fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| told(error, zone))?;
        Ok(report_of(*kind, (found.st_size as u64, found.st_mode), *capacity))
    }

    fn read(&self, zone: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Zone { kind, path, capacity, written, reader, .. } = self.zone(zone)?;
        let limit = readable(*kind, written.load(Ordering::Acquire), *capacity);
        within(zone, (offset, buf.len() as u64), limit)?;
        let fd = self.file(reader, path, OFlags::RDONLY).map_err(|error| failed(error, zone))?;
        read_all(&*fd, offset, buf).map_err(|error| failed(error, zone))
    }

    fn write(&self, number: u32, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let zone = self.zone(number)?;
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        within(number, (offset, len), zone.capacity)?;
        self.written_last.store(number, Ordering::Release);
        let sequential = zone.kind == ZoneKind::Sequential;
        let mut wrote = |done| {
            if sequential {
                zone.written.store(offset + done, Ordering::Release);
            }
        };
        let done = self
            .file(&zone.writer, &zone.path, OFlags::WRONLY)
            .and_then(|fd| Ok(write_all(&*fd, offset, bufs, self.limits.piece, &mut wrote)?));
        if sequential && (done.is_err() || offset + len == zone.capacity) {
            *zone.writer.lock() = None;
        }
        done.map_err(|error| {
            self.remember(number);
            failed(error, number)
        })
    }

    fn reset(&self, zone: u32) -> Result<()> {
        self.resize(zone, 0)
    }

    fn finish(&self, zone: u32) -> Result<()> {
        self.resize(zone, self.zone(zone)?.capacity)
    }

    /// One file's sync flushes all of the device: nothing that was written is in the
    /// kernel's cache. The file of a zone that has failed can't be synced.
    fn flush(&self) -> Result<()> {
        let first = self.written_last.load(Ordering::Acquire);
        let failed = match self.flush_through(first) {
            Err(error) if matches!(error.errno(), Errno::EPERM | Errno::EACCES) => error,
            flushed => return flushed,
        };
        let count = self.zones.len() as u32;
        let mut others = (0..count).filter(|zone| *zone != first);
        others.find_map(|zone| self.flush_through(zone).ok()).ok_or(failed)
    }

    fn device(&self) -> u64 {
        self.device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_zonefs_is_refused() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        assert!(!Zonefs::is_at(dir.path()));
        assert_eq!(Zonefs::open(dir.path()).unwrap_err().errno(), Errno::EINVAL);
        let other = Zonefs::over(open_tier_dir(dir.path()).unwrap()).unwrap_err();
        assert!(other.to_string().contains("name the directory where zonefs is mounted"), "{other}");
    }

    #[test]
    fn files_are_zones_of_which_conventional_ones_come_first() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for (name, zones) in [("cnv", 1), ("seq", 11)] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            for number in 0..zones {
                let path = dir.path().join(name).join(number.to_string());
                std::fs::write(path, vec![7; 8192]).unwrap();
            }
        }
        let device = Zonefs::over(open_tier_dir(dir.path()).unwrap()).unwrap();
        let kind = |zone| device.report(zone).unwrap().kind;
        assert_eq!(device.geometry().zones, 12);
        assert_eq!(
            [0, 1, 11].map(kind),
            [ZoneKind::Conventional, ZoneKind::Sequential, ZoneKind::Sequential]
        );
        assert_eq!(device.zones[11].path, "seq/10");
        assert_eq!(device.report(12).unwrap_err().errno(), Errno::EINVAL);
        let mut buf = [0; 8192];
        assert_eq!(device.read(3, 4096, &mut buf).unwrap_err().errno(), Errno::EIO);
    }

    #[test]
    fn refusals_of_zonefs_are_those_of_zones() {
        for (given, expected) in
            [(Errno::EBUSY, Errno::EOVERFLOW), (Errno::EPERM, Errno::EIO), (Errno::ENODEV, Errno::ENODEV)]
        {
            assert_eq!(failed(given, 1).errno(), expected);
        }
    }
}
