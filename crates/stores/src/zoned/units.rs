//! A block device without zones, cut into units of equal size that are written from
//! their beginning to their end, as zones are: so that a device that places data by
//! streams, or empties large units of flash, has little to move by itself.
//!
//! The rules of zones are enforced here, in memory. When the device is opened, no write
//! pointer is known, and the index has the live data of each unit.

use super::disk::{BlockDisk, RawDisk};
use super::fdp::Fdp;
use super::kernel::{read_all, told, within};
use super::placements::Placements;
use super::table::Stream;
use braid_contract::{
    Context, Errno, Error, Result, Shown, StreamId, ZoneKind, ZoneReport, ZoneState, ZonedDevice,
    ZonedGeometry,
};
use braid_format::{FormatError, UNIT_HEAD_LEN, UNIT_HEAD_ROOM, UnitHead};
use braid_sys::AlignedBuf;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The units for the index, which are conventional zones.
const INDEX_UNITS: u32 = 2;
/// Fewest units for data: two are kept back, and one more should be free.
const DATA_UNITS_MIN: u64 = 6;
/// Each unit for the index is as long as one in so many of all units.
const UNITS_PER_INDEX: u64 = 256;
/// Bytes of each unit for the index that have to be zeros where something else may be.
const LOOKED_AT: u64 = 64 << 20;
/// A multiple of any block's size, in bytes.
const BLOCK_MAX: usize = 64 << 10;
/// Bytes that are examined at a time.
const LOOK_MAX: u64 = 1 << 20;

/// A block device without zones that is cut into units.
#[derive(Debug)]
pub struct UnitDevice {
    disk: Arc<dyn RawDisk>,
    head: UnitHead,
    /// It is not on the device yet.
    is_new: Mutex<bool>,
    units: Vec<Mutex<Unit>>,
    /// Units with data that is not durable yet.
    dirty: Mutex<BTreeSet<u32>>,
    /// Flushes that failed so far.
    failures: AtomicU64,
    placements: Mutex<Placements>,
}

/// A unit for data.
#[derive(Clone, Copy, Debug)]
struct Unit {
    /// Bytes that were written, and those of them that are durable.
    written: u64,
    durable: u64,
    /// It may hold older data.
    stale: bool,
    /// How often its data was removed.
    emptied: u64,
    /// It was not asked for since that was last known without asking the device.
    is_known: bool,
    stream: Stream,
}

/// The facts about a block device without zones before it is opened as a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitsAt {
    /// It is cut into units.
    Cut,
    /// It places data by streams, and reports the size of its units.
    Placing,
    /// Neither: the size of units has to be given.
    Unknown,
}

impl UnitDevice {
    /// Smallest and largest unit, in bytes.
    const UNITS: [u64; 2] = [1 << 20, 64 << 30];

    /// Whether a unit may have so many bytes.
    #[must_use]
    pub fn is_unit(bytes: u64) -> bool {
        let [least, most] = Self::UNITS;
        (least..=most).contains(&bytes) && bytes.is_multiple_of(UNIT_HEAD_LEN as u64)
    }

    /// The facts about the block device at a path, which is only examined.
    #[must_use]
    pub fn look_at(path: &Path) -> UnitsAt {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let Ok(fd) = rustix::fs::open(path, flags, Mode::empty()) else { return UnitsAt::Unknown };
        let mut buf = AlignedBuf::new();
        // As much as any device reads at least.
        let bytes = buf.bytes(BLOCK_MAX);
        let is_read = read_all(&fd, 0, bytes).is_ok();
        // A newer version's is one too.
        if is_read && !matches!(UnitHead::decode(bytes), Err(FormatError::Damaged(_))) {
            return UnitsAt::Cut;
        }
        let number = rustix::fs::fstat(&fd).map_or(0, |found| found.st_rdev);
        if Fdp::of(&fd, number).is_some() { UnitsAt::Placing } else { UnitsAt::Unknown }
    }

    /// Opens the block device at a path, for this process alone. One that is not cut yet
    /// is to have units of `unit` bytes, or as the device itself has them.
    ///
    /// # Errors
    /// `EBUSY` if it is in use; those of [`open`](Self::open).
    pub fn open_at(path: &Path, unit: Option<u64>) -> Result<Self> {
        Self::open(Arc::new(BlockDisk::open(path)?), unit).with_context(|| path.shown().to_string())
    }

    /// Opens a device. One that is not cut yet is to have units of `unit` bytes, or as
    /// the device itself has them; nothing is written before a zone is.
    ///
    /// # Errors
    /// `EINVAL` if it is cut into other units, or can't be cut like that, `ENOTEMPTY` if
    /// something else is on it, `EUCLEAN` if it is of a newer version; those of the device.
    pub fn open(disk: Arc<dyn RawDisk>, unit: Option<u64>) -> Result<Self> {
        // The writes of an earlier process are read below, and count.
        disk.flush().context("flushing the device")?;
        let block = disk.block().max(UNIT_HEAD_LEN as u64);
        let mut buf = AlignedBuf::new();
        let bytes = buf.bytes(block as usize);
        disk.read(0, bytes)?;
        let (head, is_new) = match UnitHead::decode(bytes) {
            Ok(head) => (fitting(&*disk, head, unit)?, false),
            Err(error @ FormatError::Newer(_)) => {
                return Err(Error::new(Errno::EUCLEAN, format!("how it is cut into units: {error}")));
            }
            // The power may have gone when it was written first.
            Err(FormatError::Damaged(_)) => {
                let head = cut(&*disk, unit.or_else(|| disk.reclaim_unit()))?;
                let is_begun = UnitHead::is_begun(bytes) || bytes.iter().all(|byte| *byte == 0);
                if !is_begun || !is_empty(&*disk, &head, block)? {
                    return Err(not_empty(&head));
                }
                (head, true)
            }
        };
        let unit = Unit {
            written: head.unit,
            durable: head.unit,
            stale: true,
            emptied: 0,
            is_known: true,
            stream: None,
        };
        let units = (0..head.units).map(|_| Mutex::new(unit)).collect();
        let placements = Mutex::new(Placements::new(disk.placements()));
        let (is_new, dirty, failures) = (Mutex::new(is_new), Mutex::default(), AtomicU64::new(0));
        Ok(Self { disk, head, is_new, units, dirty, failures, placements })
    }

    /// Bytes of a unit.
    #[must_use]
    pub fn unit(&self) -> u64 {
        self.head.unit
    }

    /// Where a zone begins on the device, and its length.
    fn place_of(&self, zone: u32) -> Result<(u64, u64)> {
        let UnitHead { unit, index, units, .. } = self.head;
        match zone.checked_sub(INDEX_UNITS) {
            None => Ok((UNIT_HEAD_ROOM + u64::from(zone) * index, index)),
            Some(number) if number < units => {
                Ok((UNIT_HEAD_ROOM + u64::from(INDEX_UNITS) * index + u64::from(number) * unit, unit))
            }
            Some(_) => Err(Errno::EINVAL.into()),
        }
    }

    /// The unit of a zone for data; `None` of one for the index.
    fn unit_of(&self, zone: u32) -> Option<&Mutex<Unit>> {
        self.units.get(zone.checked_sub(INDEX_UNITS)? as usize)
    }

    fn data_unit(&self, zone: u32) -> Result<&Mutex<Unit>> {
        self.unit_of(zone).ok_or_else(|| Error::new(Errno::EIO, format!("zone {zone} is conventional")))
    }

    /// Fails if the device does not answer: an absent one must not lose its zones.
    fn probe(&self) -> Result<()> {
        self.disk.read(0, AlignedBuf::new().bytes(self.head.block as usize))
    }

    /// Before anything else is written: how the device is cut, durably.
    fn put_head(&self) -> Result<()> {
        let mut is_new = self.is_new.lock();
        if *is_new {
            let mut buf = AlignedBuf::new();
            let bytes = buf.bytes(self.head.block as usize);
            bytes.fill(0);
            bytes[..UNIT_HEAD_LEN].copy_from_slice(&self.head.encode());
            let index = self.placements.lock().of_index();
            self.disk.write(0, &[IoSlice::new(bytes)], index, &mut |_| {})?;
            self.disk.flush()?;
            *is_new = false;
        }
        Ok(())
    }

    /// Writes to a unit at its write pointer.
    fn append(&self, zone: u32, unit: &Mutex<Unit>, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let (at, len) = self.place_of(zone)?;
        let before = *unit.lock();
        if offset != before.written {
            let what = format!("zone {zone}: written at {offset}, its write pointer is {}", before.written);
            return Err(Error::new(Errno::EIO, what));
        }
        if offset == 0 && before.stale {
            self.disk.discard(at, len);
            unit.lock().stale = false;
        }
        let placement = self.placements.lock().used(before.stream);
        let failures = self.failures.load(Ordering::Acquire);
        let mut done = 0;
        let written = self.disk.write(at + offset, bufs, placement, &mut |so_far| done = so_far);
        let mut now = unit.lock();
        // Before failures are looked at: a flush that fails later takes this back.
        self.dirty.lock().insert(zone);
        if now.emptied != before.emptied || self.failures.load(Ordering::Acquire) != failures {
            return Err(Error::new(Errno::EIO, format!("zone {zone}: a flush failed meanwhile")));
        }
        now.written = offset + done / u64::from(self.head.block) * u64::from(self.head.block);
        written.map_err(|error| told(error, zone))
    }

    /// A flush failed: data that was not durable before may be lost, and counts as
    /// lost.
    fn roll_back(&self, zones: BTreeSet<u32>) {
        for unit in zones.into_iter().filter_map(|zone| self.unit_of(zone)) {
            let mut unit = unit.lock();
            unit.written = unit.durable;
            unit.emptied += 1;
        }
    }
}

/// A head that is on a device, if that can be used as it says.
fn fitting(disk: &dyn RawDisk, head: UnitHead, unit: Option<u64>) -> Result<UnitHead> {
    let refuse = |what: String| Err(Error::new(Errno::EINVAL, what));
    if let Some(unit) = unit.filter(|unit| *unit != head.unit) {
        let (has, asked) = (head.unit, unit);
        return refuse(format!("it is cut into units of {has} bytes, and not of {asked}"));
    }
    if head.device_len().is_none_or(|len| len > disk.size()) {
        return refuse(format!("it is shorter than its units, with {} bytes", disk.size()));
    }
    if !u64::from(head.block).is_multiple_of(disk.block()) {
        return refuse(format!(
            "it takes {} bytes at least, and its units have blocks of {}",
            disk.block(),
            head.block
        ));
    }
    Ok(head)
}

/// How a device is to be cut.
fn cut(disk: &dyn RawDisk, unit: Option<u64>) -> Result<UnitHead> {
    let refuse = |what: String| Error::new(Errno::EINVAL, what);
    let unit =
        unit.ok_or_else(|| refuse("it has no zones, and nothing says how large units are to be".to_owned()))?;
    let block = u32::try_from(disk.block().max(UNIT_HEAD_LEN as u64)).map_err(|_| Errno::EINVAL)?;
    let unit = unit / u64::from(block) * u64::from(block);
    let all = disk.size().saturating_sub(UNIT_HEAD_ROOM).checked_div(unit).unwrap_or(0);
    let for_index = (all / UNITS_PER_INDEX).max(1);
    let units = all.saturating_sub(u64::from(INDEX_UNITS) * for_index);
    if units < DATA_UNITS_MIN {
        let least = DATA_UNITS_MIN + u64::from(INDEX_UNITS);
        return Err(refuse(format!(
            "with {} bytes, it has {all} units of {unit} bytes: at least {least} are needed",
            disk.size()
        )));
    }
    let units = u32::try_from(units).unwrap_or(u32::MAX - INDEX_UNITS);
    Ok(UnitHead { unit, index: for_index * unit, units, block })
}

/// Whether there are zeros where the index is to be, and before it.
fn is_empty(disk: &dyn RawDisk, head: &UnitHead, from: u64) -> Result<bool> {
    let looked_at = head.index.min(LOOKED_AT);
    let second = UNIT_HEAD_ROOM + head.index;
    let mut buf = AlignedBuf::new();
    for part in [from..UNIT_HEAD_ROOM, UNIT_HEAD_ROOM..UNIT_HEAD_ROOM + looked_at, second..second + looked_at]
    {
        let mut at = part.start;
        while at < part.end {
            let bytes = buf.bytes((part.end - at).min(LOOK_MAX) as usize);
            disk.read(at, bytes)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
    }
    Ok(true)
}

fn not_empty(head: &UnitHead) -> Error {
    let bytes = UNIT_HEAD_ROOM + u64::from(INDEX_UNITS) * head.index;
    let what = format!("the device holds data that is not Braid's: its first {bytes} bytes are not all zero");
    Error::new(Errno::ENOTEMPTY, what)
}

impl ZonedDevice for UnitDevice {
    fn geometry(&self) -> ZonedGeometry {
        let UnitHead { block, units, .. } = self.head;
        let (open_max, active_max) = (None, None);
        ZonedGeometry { block: block.into(), zones: units + INDEX_UNITS, open_max, active_max }
    }

    fn report(&self, zone: u32) -> Result<ZoneReport> {
        let (_, capacity) = self.place_of(zone)?;
        let is_known = |unit: &Mutex<Unit>| std::mem::take(&mut unit.lock().is_known);
        if !self.unit_of(zone).is_some_and(is_known) {
            self.probe().map_err(|error| told(error, zone))?;
        }
        let Some(unit) = self.unit_of(zone) else {
            let (kind, state) = (ZoneKind::Conventional, ZoneState::Full);
            return Ok(ZoneReport { kind, state, capacity, write_pointer: capacity });
        };
        let write_pointer = unit.lock().written;
        let state = match write_pointer {
            0 => ZoneState::Empty,
            written if written == capacity => ZoneState::Full,
            _ => ZoneState::Closed,
        };
        Ok(ZoneReport { kind: ZoneKind::Sequential, state, capacity, write_pointer })
    }

    fn read(&self, zone: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (at, capacity) = self.place_of(zone)?;
        let limit = self.unit_of(zone).map_or(capacity, |unit| unit.lock().written);
        within(zone, (offset, buf.len() as u64), limit)?;
        self.disk.read(at + offset, buf).map_err(|error| told(error, zone))
    }

    fn write(&self, zone: u32, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let (at, capacity) = self.place_of(zone)?;
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        // Behind it is the next one.
        within(zone, (offset, len), capacity)?;
        self.put_head().context("writing how the device is cut")?;
        match self.unit_of(zone) {
            Some(unit) => self.append(zone, unit, offset, bufs),
            None => {
                let index = self.placements.lock().of_index();
                self.disk.write(at + offset, bufs, index, &mut |_| {}).map_err(|error| told(error, zone))
            }
        }
    }

    fn reset(&self, zone: u32) -> Result<()> {
        let (at, len) = self.place_of(zone)?;
        {
            // Readers find it changed no later than the device.
            let mut unit = self.data_unit(zone)?.lock();
            let emptied = unit.emptied + 1;
            *unit = Unit { written: 0, durable: 0, stale: false, emptied, is_known: false, stream: None };
        }
        self.disk.discard(at, len);
        Ok(())
    }

    fn finish(&self, zone: u32) -> Result<()> {
        let mut unit = self.data_unit(zone)?.lock();
        (unit.written, unit.durable) = (self.head.unit, self.head.unit);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut dirty = std::mem::take(&mut *self.dirty.lock());
        let state = |zone: &u32| self.unit_of(*zone).map(|unit| *unit.lock());
        let before: Vec<_> = dirty.iter().filter_map(|zone| Some((*zone, state(zone)?))).collect();
        if let Err(error) = self.disk.flush() {
            // Data written meanwhile may have gone with it, also of writes under way.
            self.failures.fetch_add(1, Ordering::AcqRel);
            dirty.append(&mut self.dirty.lock());
            self.roll_back(dirty);
            return Err(error);
        }
        for (zone, before) in before {
            let Some(unit) = self.unit_of(zone) else { continue };
            let mut unit = unit.lock();
            if unit.emptied == before.emptied {
                unit.durable = unit.durable.max(before.written);
            }
        }
        Ok(())
    }

    fn device(&self) -> u64 {
        self.disk.device()
    }

    fn keeps_write_pointers(&self) -> bool {
        false
    }

    fn set_write_pointer(&self, zone: u32, end: u64) {
        if let Some(unit) = self.unit_of(zone) {
            let mut unit = unit.lock();
            let end = end.min(self.head.unit);
            (unit.written, unit.durable, unit.is_known) = (end, end, true);
        }
    }

    fn assign(&self, zone: u32, stream: Option<StreamId>) {
        if let Some(unit) = self.unit_of(zone) {
            unit.lock().stream = stream;
        }
    }

    fn placement(&self, stream: Option<StreamId>) -> Option<u16> {
        self.placements.lock().of(stream)
    }
}
