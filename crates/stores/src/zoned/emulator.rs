//! An emulated zoned device: a directory with a file for each zone, and the rules
//! of zoned devices. For trying things out, and for tests; it is as durable as the
//! file system that it is on, and as fast.

use super::zone_files::{DIRS, ZoneFile, path_of};
use braid_contract::{Errno, Error, Fd, Result, ZoneKind, ZoneReport, ZoneState, ZonedDevice, ZonedGeometry};
use std::ffi::OsStr;
use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The smallest write, in bytes.
const BLOCK: u64 = 4096;
/// Holds the shape of the device.
const SHAPE_FILE: &str = ".braid-zones";
const SHAPE_MAX: usize = 4096;
/// The shape of an emulated device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EmulatedZones {
    /// Zones in all.
    pub zones: u32,
    /// The first ones of them, which can be written anywhere.
    pub conventional: u32,
    /// Bytes that can be written to each, a multiple of 4096.
    pub capacity: u64,
    /// Most sequential zones that are open at a time, at least 1.
    pub open_max: u32,
    /// Most that are begun and not full, at least as many.
    pub active_max: u32,
}

/// An emulated zoned device.
#[derive(Debug)]
pub struct ZoneEmulator {
    shape: EmulatedZones,
    /// Keeps it locked.
    root: Fd,
    zones: Vec<Mutex<Zone>>,
    /// The open zones, the one that was written last at the end.
    open: Mutex<Vec<u32>>,
    active: Mutex<u32>,
}

#[derive(Debug)]
struct Zone {
    file: ZoneFile,
    state: ZoneState,
    write_pointer: u64,
    /// Written to since the last flush.
    dirty: bool,
}

impl EmulatedZones {
    /// As a text, of a line for each figure.
    fn encode(&self) -> String {
        let Self { zones, conventional, capacity, open_max, active_max } = self;
        format!(
            "braid emulated zones 1\nzones {zones}\nconventional {conventional}\ncapacity {capacity}\nopen {open_max}\nactive {active_max}\n"
        )
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != "braid emulated zones 1" {
            return None;
        }
        let mut figure = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        let mut small = |name: &str| u32::try_from(figure(name)?).ok();
        let (zones, conventional) = (small("zones")?, small("conventional")?);
        let capacity: u64 = figure("capacity")?;
        let mut small = |name: &str| u32::try_from(figure(name)?).ok();
        let (open_max, active_max) = (small("open")?, small("active")?);
        Some(Self { zones, conventional, capacity, open_max, active_max })
    }

    /// Whether the figures fit each other.
    fn is_valid(&self) -> bool {
        self.conventional <= self.zones
            && self.capacity > 0
            && self.capacity.is_multiple_of(BLOCK)
            && self.open_max > 0
            && self.active_max >= self.open_max
    }

    fn each(&self) -> impl Iterator<Item = (ZoneKind, u32)> {
        let conventional = (0..self.conventional).map(|number| (ZoneKind::Conventional, number));
        conventional.chain((0..self.zones - self.conventional).map(|number| (ZoneKind::Sequential, number)))
    }
}

impl ZoneEmulator {
    /// Makes the files of an emulated device in an empty directory.
    ///
    /// # Errors
    /// `EINVAL` for a shape that no device has, `EEXIST` if there is a device,
    /// `ENOTEMPTY` if something else is there; those of the file system.
    pub fn make(root: &Fd, shape: EmulatedZones) -> Result<()> {
        if !shape.is_valid() {
            return Err(Error::new(Errno::EINVAL, format!("no zoned device is like this: {shape:?}")));
        }
        if root.read_small(SHAPE_FILE, SHAPE_MAX)?.is_some() {
            return Err(Error::new(Errno::EEXIST, "there is an emulated device already"));
        }
        let mut is_empty = true;
        root.read_dir(0, &mut |entry| {
            is_empty &= [".", "..", "lost+found"].iter().any(|name| entry.name == *name);
            Ok(is_empty)
        })?;
        if !is_empty {
            return Err(Error::new(Errno::ENOTEMPTY, "something is there"));
        }
        for (_, dir) in DIRS {
            root.ensure_dir_at(dir)?;
        }
        for (kind, number) in shape.each() {
            let file = root.create_at(OsStr::new(&path_of(kind, number)), 0o600)?;
            if kind == ZoneKind::Conventional {
                file.truncate(shape.capacity)?;
            }
        }
        // The last one, so that a device is whole or not there.
        root.replace_small(SHAPE_FILE, shape.encode().as_bytes())
    }

    /// The shape of the device in a directory; `None` if there is none.
    ///
    /// # Errors
    /// `EUCLEAN` if its description is damaged; those of the file system.
    pub fn shape_in(root: &Fd) -> Result<Option<EmulatedZones>> {
        let Some(text) = root.read_small(SHAPE_FILE, SHAPE_MAX)? else { return Ok(None) };
        let shape =
            std::str::from_utf8(&text).ok().and_then(EmulatedZones::decode).filter(EmulatedZones::is_valid);
        let damaged = || Error::new(Errno::EUCLEAN, format!("{SHAPE_FILE}: not the shape of emulated zones"));
        shape.map(Some).ok_or_else(damaged)
    }

    /// Opens the device in a directory.
    ///
    /// # Errors
    /// `ENOENT` if there is none, `EUCLEAN` if its description is damaged.
    pub fn open(root: Fd) -> Result<Self> {
        let missing = || Error::new(Errno::ENOENT, "there is no emulated zoned device");
        let shape = Self::shape_in(&root)?.ok_or_else(missing)?;
        let mut active = 0;
        let mut zone = |(kind, number)| {
            let file = ZoneFile::open(&root, kind, number)?;
            let ZoneReport { state, write_pointer, .. } = file.report(shape.capacity)?;
            active += u32::from(state == ZoneState::Closed);
            Ok(Mutex::new(Zone { file, state, write_pointer, dirty: false }))
        };
        let zones = shape.each().map(&mut zone).collect::<Result<_>>()?;
        Ok(Self { shape, root, zones, open: Mutex::default(), active: Mutex::new(active) })
    }

    fn zone(&self, zone: u32) -> Result<MutexGuard<'_, Zone>> {
        let zone = self.zones.get(zone as usize).ok_or(Errno::EINVAL)?;
        Ok(zone.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes to a zone that its caller holds.
    fn write_locked(&self, number: u32, zone: &mut Zone, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum::<u64>();
        let refuse = |what: &str| Error::new(Errno::EIO, format!("zone {number}: {what}"));
        if !(offset.is_multiple_of(BLOCK) && bufs.iter().all(|buf| (buf.len() as u64).is_multiple_of(BLOCK)))
        {
            return Err(Error::new(Errno::EINVAL, format!("zone {number}: not in whole blocks")));
        }
        if !zone.state.is_usable() {
            return Err(refuse("it can't be written any more"));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.shape.capacity) {
            return Err(refuse("that is beyond its capacity"));
        }
        if zone.file.kind == ZoneKind::Sequential {
            if offset != zone.write_pointer {
                return Err(refuse(&format!(
                    "written at {offset}, its write pointer is {}",
                    zone.write_pointer
                )));
            }
            self.activate(number, zone)?;
        }
        zone.dirty = true;
        let done = zone.file.write(offset, bufs);
        if zone.file.kind == ZoneKind::Sequential {
            zone.write_pointer = match done {
                Ok(()) => offset + len,
                Err(_) => self.torn(zone, offset)?,
            };
            if zone.write_pointer == self.shape.capacity {
                self.deactivate(number, zone, ZoneState::Full);
            }
        }
        done
    }

    /// The write pointer after a write failed: whole blocks count.
    fn torn(&self, zone: &Zone, before: u64) -> Result<u64> {
        let reached = zone.file.report(self.shape.capacity)?.write_pointer;
        let whole = (reached / BLOCK * BLOCK).max(before);
        zone.file.set_write_pointer(whole)?;
        Ok(whole)
    }

    /// Opens a zone; the one that was written longest ago is closed for it.
    fn activate(&self, number: u32, zone: &mut Zone) -> Result<()> {
        if zone.state == ZoneState::Open {
            return Ok(());
        }
        if zone.state == ZoneState::Full {
            return Err(Error::new(Errno::EIO, format!("zone {number}: it is full")));
        }
        let mut active = lock(&self.active);
        if zone.state == ZoneState::Empty {
            if *active == self.shape.active_max {
                return Err(Error::new(
                    Errno::EOVERFLOW,
                    format!("zone {number}: {active} zones are active already"),
                ));
            }
            *active += 1;
        }
        drop(active);
        let mut open = lock(&self.open);
        if open.len() == self.shape.open_max as usize {
            // Its state follows when it is looked at.
            open.remove(0);
        }
        open.push(number);
        zone.state = ZoneState::Open;
        Ok(())
    }

    /// A zone is not begun any more, or not open.
    fn deactivate(&self, number: u32, zone: &mut Zone, state: ZoneState) {
        if matches!(zone.state, ZoneState::Open | ZoneState::Closed) && state != ZoneState::Closed {
            *lock(&self.active) -= 1;
        }
        lock(&self.open).retain(|open| *open != number);
        zone.state = state;
    }

    /// A zone that others pushed out is closed.
    fn state_of(&self, number: u32, zone: &Zone) -> ZoneState {
        match zone.state {
            ZoneState::Open if !lock(&self.open).contains(&number) => ZoneState::Closed,
            state => state,
        }
    }

    fn sequential(&self, number: u32) -> Result<MutexGuard<'_, Zone>> {
        let zone = self.zone(number)?;
        if zone.file.kind != ZoneKind::Sequential || !zone.state.is_usable() {
            return Err(Error::new(
                Errno::EIO,
                format!("zone {number}: {:?}, {:?}", zone.file.kind, zone.state),
            ));
        }
        Ok(zone)
    }
}

impl ZonedDevice for ZoneEmulator {
    fn geometry(&self) -> ZonedGeometry {
        let EmulatedZones { zones, open_max, active_max, .. } = self.shape;
        ZonedGeometry { block: BLOCK, zones, open_max: Some(open_max), active_max: Some(active_max) }
    }

    fn report(&self, zone: u32) -> Result<ZoneReport> {
        let found = self.zone(zone)?;
        // Changes of the file by others.
        let seen = found.file.report(self.shape.capacity)?;
        if !seen.state.is_usable() {
            return Ok(ZoneReport { write_pointer: found.write_pointer, ..seen });
        }
        Ok(ZoneReport { state: self.state_of(zone, &found), write_pointer: found.write_pointer, ..seen })
    }

    fn read(&self, zone: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        let found = self.zone(zone)?;
        let end = offset.checked_add(buf.len() as u64).ok_or(Errno::EINVAL)?;
        let limit =
            if found.file.kind == ZoneKind::Sequential { found.write_pointer } else { self.shape.capacity };
        if found.state == ZoneState::Offline || end > limit {
            return Err(Error::new(Errno::EIO, format!("zone {zone}: nothing at {offset} to {end}")));
        }
        found.file.read(offset, buf)?;
        Ok(())
    }

    fn write(&self, zone: u32, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let mut found = self.zone(zone)?;
        found.state = self.state_of(zone, &found);
        self.write_locked(zone, &mut found, offset, bufs)
    }

    fn reset(&self, zone: u32) -> Result<()> {
        let mut found = self.sequential(zone)?;
        found.file.set_write_pointer(0)?;
        // Old data must not come back after the reset.
        found.file.sync()?;
        (found.write_pointer, found.dirty) = (0, false);
        self.deactivate(zone, &mut found, ZoneState::Empty);
        Ok(())
    }

    fn finish(&self, zone: u32) -> Result<()> {
        let mut found = self.sequential(zone)?;
        found.file.set_write_pointer(self.shape.capacity)?;
        (found.write_pointer, found.dirty) = (self.shape.capacity, true);
        self.deactivate(zone, &mut found, ZoneState::Full);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        for zone in &self.zones {
            let mut zone = lock(zone);
            if zone.dirty {
                zone.file.sync()?;
                zone.dirty = false;
            }
        }
        Ok(())
    }

    fn device(&self) -> u64 {
        self.root.stat().map_or(0, |stat| stat.device)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
