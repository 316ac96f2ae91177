//! A simulated zoned device: it keeps to the rules, and at power loss forgets any
//! end of what was written to a zone and not flushed.

use super::choose::Chooser;
use braid_contract::{Errno, Error, Result, ZoneKind, ZoneReport, ZoneState, ZonedDevice, ZonedGeometry};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};

const BLOCK: u64 = 4096;

/// The shape of a simulated zoned device.
#[derive(Clone, Copy, Debug)]
pub struct SimZones {
    /// Zones in all.
    pub zones: u32,
    /// The first ones of them, which can be written anywhere.
    pub conventional: u32,
    /// Bytes of each.
    pub capacity: u64,
    /// Most that are begun and not full.
    pub active_max: u32,
}

/// A simulated zoned device.
#[derive(Debug)]
pub struct SimZoned {
    shape: SimZones,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    zones: Vec<Zone>,
    /// Effects until the power goes; `None` if it stays.
    left: Option<u64>,
    /// Effects so far.
    effects: u64,
    /// The power went.
    off: bool,
    /// Zones that can't be reset, though they say nothing of it.
    stuck: BTreeSet<u32>,
    /// Zones whose next write fails after so many blocks.
    torn: BTreeMap<u32, u64>,
}

#[derive(Clone, Debug)]
struct Zone {
    kind: ZoneKind,
    data: Vec<u8>,
    write_pointer: u64,
    /// What is there for certain.
    durable: u64,
    /// Of a conventional zone: blocks that were written since the last flush, as
    /// they were before.
    before: BTreeMap<u64, Vec<u8>>,
    finished: bool,
    /// Set from outside: it failed.
    failed: Option<ZoneState>,
}

impl SimZoned {
    /// An empty device.
    #[must_use]
    pub fn new(shape: SimZones) -> Self {
        let zone = |number: u32| {
            let is_conventional = number < shape.conventional;
            let kind = if is_conventional { ZoneKind::Conventional } else { ZoneKind::Sequential };
            let data = if is_conventional { vec![0; shape.capacity as usize] } else { Vec::new() };
            let write_pointer = data.len() as u64;
            let before = BTreeMap::new();
            Zone { kind, data, write_pointer, durable: write_pointer, before, finished: false, failed: None }
        };
        let zones = (0..shape.zones).map(zone).collect();
        Self { shape, inner: Mutex::new(Inner::new(zones)) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power goes before the effect after so many more; until then it is on.
    pub fn cut_after(&self, effects: u64) {
        let mut inner = self.inner();
        (inner.left, inner.off) = (Some(effects), false);
    }

    /// Changes of the device so far.
    pub fn effects(&self) -> u64 {
        self.inner().effects
    }

    /// The device after the power was lost and came back.
    pub fn after_power_loss(&self, chooser: &mut dyn Chooser) -> Self {
        let mut inner = self.inner();
        let mut zones = std::mem::take(&mut inner.zones);
        for zone in &mut zones {
            if zone.kind == ZoneKind::Conventional {
                for (block, before) in std::mem::take(&mut zone.before) {
                    if chooser.choose(2) == 0 {
                        let at = (block * BLOCK) as usize;
                        zone.data[at..at + BLOCK as usize].copy_from_slice(&before);
                    }
                }
                continue;
            }
            // One that was full is not begun again.
            zone.finished |= zone.write_pointer == self.shape.capacity;
            let unsure = (zone.write_pointer - zone.durable) / BLOCK;
            if unsure > 0 {
                zone.write_pointer = zone.durable + chooser.choose(unsure as usize + 1) as u64 * BLOCK;
                zone.data.truncate(zone.write_pointer as usize);
            }
            zone.durable = zone.write_pointer;
        }
        Self { shape: self.shape, inner: Mutex::new(Inner::new(zones)) }
    }

    /// The next write to a zone fails after so many blocks of it.
    pub fn tear_next_write(&self, zone: u32, blocks: u64) {
        self.inner().torn.insert(zone, blocks);
    }

    /// A zone can't be reset from now on.
    pub fn keep_from_reset(&self, zone: u32) {
        self.inner().stuck.insert(zone);
    }

    /// A zone fails: it is read-only or offline from now on.
    pub fn fail_zone(&self, zone: u32, state: ZoneState) {
        self.inner().zones[zone as usize].failed = Some(state);
    }

    /// Loses the end of a zone, also what was flushed, from this offset on.
    pub fn lose_from(&self, zone: u32, offset: u64) {
        let zone = &mut self.inner().zones[zone as usize];
        zone.data.truncate(offset as usize);
        (zone.write_pointer, zone.durable) = (offset, offset);
    }

    /// Overwrites a block with others bytes, as a device that fails does.
    pub fn damage(&self, zone: u32, offset: u64) {
        let zone = &mut self.inner().zones[zone as usize];
        let end = (offset as usize + BLOCK as usize).min(zone.data.len());
        if let Some(block) = zone.data.get_mut(offset as usize..end) {
            block.iter_mut().for_each(|byte| *byte ^= 0x5a);
        }
    }
}

impl Inner {
    fn new(zones: Vec<Zone>) -> Self {
        Self { zones, left: None, effects: 0, off: false, stuck: BTreeSet::new(), torn: BTreeMap::new() }
    }

    fn check_power(&self) -> Result<()> {
        if self.off { Err(Error::new(Errno::ENODEV, "the power is off")) } else { Ok(()) }
    }

    /// Counts an effect; the power may go before it.
    fn effect(&mut self) -> Result<()> {
        match &mut self.left {
            Some(0) => self.off = true,
            Some(left) => *left -= 1,
            None => {}
        }
        self.check_power()?;
        self.effects += 1;
        Ok(())
    }

    fn zone(&mut self, zone: u32) -> Result<&mut Zone> {
        self.zones.get_mut(zone as usize).ok_or_else(|| Errno::EINVAL.into())
    }

    fn active(&self, capacity: u64) -> u32 {
        self.zones.iter().filter(|zone| zone.is_active(capacity)).count() as u32
    }
}

impl Zone {
    fn is_active(&self, capacity: u64) -> bool {
        self.kind == ZoneKind::Sequential && self.state(capacity) == ZoneState::Closed
    }

    fn state(&self, capacity: u64) -> ZoneState {
        match (self.failed, self.kind) {
            (Some(state), _) => state,
            (None, ZoneKind::Conventional) => ZoneState::Full,
            (None, _) if self.finished || self.write_pointer == capacity => ZoneState::Full,
            (None, _) if self.write_pointer == 0 => ZoneState::Empty,
            (None, _) => ZoneState::Closed,
        }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        if self.kind == ZoneKind::Sequential {
            self.data.extend_from_slice(bytes);
            self.write_pointer += bytes.len() as u64;
            return;
        }
        for (at, block) in bytes.chunks(BLOCK as usize).enumerate() {
            let number = offset / BLOCK + at as u64;
            let from = (number * BLOCK) as usize;
            let place = &mut self.data[from..from + block.len()];
            self.before.entry(number).or_insert_with(|| place.to_vec());
            place.copy_from_slice(block);
        }
    }
}

impl ZonedDevice for SimZoned {
    fn geometry(&self) -> ZonedGeometry {
        let active_max = Some(self.shape.active_max);
        ZonedGeometry { block: BLOCK, zones: self.shape.zones, open_max: active_max, active_max }
    }

    fn report(&self, zone: u32) -> Result<ZoneReport> {
        let capacity = self.shape.capacity;
        let mut inner = self.inner();
        inner.check_power()?;
        let zone = inner.zone(zone)?;
        let write_pointer = if zone.finished { capacity } else { zone.write_pointer };
        Ok(ZoneReport { kind: zone.kind, state: zone.state(capacity), capacity, write_pointer })
    }

    fn read(&self, zone: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut inner = self.inner();
        inner.check_power()?;
        let found = inner.zone(zone)?;
        let end = offset as usize + buf.len();
        match found.data.get(offset as usize..end) {
            Some(bytes) if found.failed != Some(ZoneState::Offline) => buf.copy_from_slice(bytes),
            _ => return Err(Error::new(Errno::EIO, format!("zone {zone}: nothing at {offset} to {end}"))),
        }
        Ok(())
    }

    fn write(&self, zone: u32, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let mut inner = self.inner();
        inner.effect()?;
        let capacity = self.shape.capacity;
        let (active, torn) = (inner.active(capacity), inner.torn.remove(&zone));
        let found = inner.zone(zone)?;
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let refuse = |what: &str| Err(Error::new(Errno::EIO, format!("zone {zone}: {what}")));
        if !offset.is_multiple_of(BLOCK) || !(bytes.len() as u64).is_multiple_of(BLOCK) {
            return Err(Errno::EINVAL.into());
        }
        if found.failed.is_some() || offset + bytes.len() as u64 > capacity {
            return refuse("it can't be written there");
        }
        if found.kind == ZoneKind::Sequential {
            if found.finished || offset != found.write_pointer {
                return refuse(&format!("written at {offset}, its write pointer is {}", found.write_pointer));
            }
            if found.write_pointer == 0 && active >= self.shape.active_max {
                return Err(Error::new(Errno::EOVERFLOW, format!("zone {zone}: {active} zones are active")));
            }
        }
        match torn {
            Some(blocks) => {
                found.put(offset, &bytes[..((blocks * BLOCK) as usize).min(bytes.len())]);
                refuse("the write failed")
            }
            None => {
                found.put(offset, &bytes);
                Ok(())
            }
        }
    }

    fn reset(&self, zone: u32) -> Result<()> {
        let mut inner = self.inner();
        inner.effect()?;
        let is_stuck = inner.stuck.contains(&zone);
        let found = inner.zone(zone)?;
        if found.kind != ZoneKind::Sequential || found.failed.is_some() || is_stuck {
            return Err(Error::new(Errno::EIO, format!("zone {zone}: it can't be reset")));
        }
        found.data.clear();
        (found.write_pointer, found.durable, found.finished) = (0, 0, false);
        Ok(())
    }

    fn finish(&self, zone: u32) -> Result<()> {
        let mut inner = self.inner();
        inner.effect()?;
        let found = inner.zone(zone)?;
        if found.kind != ZoneKind::Sequential || found.failed.is_some() {
            return Err(Error::new(Errno::EIO, format!("zone {zone}: it can't be finished")));
        }
        found.finished = true;
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut inner = self.inner();
        inner.effect()?;
        for zone in &mut inner.zones {
            zone.durable = zone.write_pointer;
            zone.before.clear();
        }
        Ok(())
    }

    fn device(&self) -> u64 {
        77
    }
}
