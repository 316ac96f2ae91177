//! A simulated zoned device: it keeps to the rules, and at power loss forgets
//! unflushed effects, in any combination that a device allows (`docs/crash-model.md`).
//! Its zones are shared between all its states until they are written.

use super::choose::{AllLost, Chooser, Seeded};
use super::zone::{Outcome, Zone};
use braid_contract::{Errno, Error, Result, ZoneKind, ZoneReport, ZoneState, ZonedDevice, ZonedGeometry};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The block of a device, unless another one is asked for.
const BLOCK: u64 = 4096;

/// Effects that are recorded at a time: a caller that makes more does not come to an end.
const RECORDED_MAX: usize = 20_000;

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

/// A change of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZoneEffect {
    /// Bytes of a zone, at an offset.
    Write(u32, u64, u64),
    /// A zone is emptied.
    Reset(u32),
    /// A zone is made full.
    Finish(u32),
    /// All of it is made durable.
    Flush,
}

/// Learns of each change of a device before it happens.
pub type ZoneObserver = Arc<dyn Fn(&ZoneEffect) + Send + Sync>;

/// A simulated zoned device.
pub struct SimZoned {
    shape: SimZones,
    block: u64,
    inner: Mutex<Inner>,
    observer: Mutex<Option<ZoneObserver>>,
}

/// A device at one moment.
#[derive(Clone, Debug)]
pub struct ZonedMoment {
    shape: SimZones,
    block: u64,
    zones: Vec<Arc<Zone>>,
}

#[derive(Debug)]
struct Inner {
    zones: Vec<Arc<Zone>>,
    /// Effects until the power goes; `None` if it stays.
    left: Option<u64>,
    /// Effects so far.
    effects: u64,
    /// The power went.
    off: bool,
    /// Zones that can't be reset, without reporting it.
    stuck: BTreeSet<u32>,
    /// Zones whose next write fails after so many blocks.
    torn: BTreeMap<u32, u64>,
    /// The effect that fails, as a count, and how many blocks it writes.
    failing: Option<(u64, u64)>,
    /// The moments before each effect, if they are recorded.
    moments: Option<Vec<(ZoneEffect, ZonedMoment)>>,
    /// Operations of its user that no device takes.
    broken: Vec<String>,
    /// Zones whose next reads fail, and how many of them.
    unread: BTreeMap<u32, u64>,
    /// Zones whose next reset is done, and answers an error.
    unheard: BTreeSet<u32>,
    /// The effect from which on a flush fails and loses data that was not durable,
    /// as a count, and the seed that decides on the loss.
    losing: Option<(u64, Option<u64>)>,
}

impl fmt::Display for ZoneEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(zone, offset, len) => write!(f, "write of {len} bytes to zone {zone}, at {offset}"),
            Self::Reset(zone) => write!(f, "reset of zone {zone}"),
            Self::Finish(zone) => write!(f, "finish of zone {zone}"),
            Self::Flush => f.write_str("flush"),
        }
    }
}

impl fmt::Debug for SimZoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimZoned").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl SimZoned {
    /// An empty device with blocks of 4 KiB.
    #[must_use]
    pub fn new(shape: SimZones) -> Self {
        Self::with_block(shape, BLOCK)
    }

    /// An empty device with blocks of so many bytes.
    #[must_use]
    pub fn with_block(shape: SimZones, block: u64) -> Self {
        let zone = |number: u32| {
            let is_conventional = number < shape.conventional;
            let kind = if is_conventional { ZoneKind::Conventional } else { ZoneKind::Sequential };
            Arc::new(Zone::new(kind, shape.capacity, block))
        };
        let zones = (0..shape.zones).map(zone).collect();
        Self { shape, block, inner: Mutex::new(Inner::new(zones)), observer: Mutex::default() }
    }

    /// Has each change reported before it happens, or not any more.
    pub fn set_observer(&self, observer: Option<ZoneObserver>) {
        *self.observer.lock().unwrap_or_else(PoisonError::into_inner) = observer;
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

    /// Records the moments before each effect from now on.
    ///
    /// # Panics
    /// An effect does, where too many were recorded and not taken.
    pub fn record(&self) {
        self.inner().moments = Some(Vec::new());
    }

    /// The effects recorded since the last call; recording goes on.
    pub fn recorded(&self) -> Vec<(ZoneEffect, ZonedMoment)> {
        self.inner().moments.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The device as it is now.
    pub fn moment(&self) -> ZonedMoment {
        ZonedMoment { shape: self.shape, block: self.block, zones: self.inner().zones.clone() }
    }

    /// The device after the power was lost and came back.
    pub fn after_power_loss(&self, chooser: &mut dyn Chooser) -> Self {
        self.moment().after_power_loss(chooser)
    }

    /// Operations of its user that no device takes, each an error by itself: writes
    /// elsewhere than at a write pointer, more active zones than there may be, reads
    /// beyond the written part.
    pub fn broken_rules(&self) -> Vec<String> {
        self.inner().broken.clone()
    }

    /// The next write to a zone fails after so many blocks of it.
    pub fn tear_next_write(&self, zone: u32, blocks: u64) {
        self.inner().torn.insert(zone, blocks);
    }

    /// The effect after so many more fails, whatever it is; a write after so many
    /// blocks of it.
    pub fn fail_after(&self, effects: u64, blocks: u64) {
        let mut inner = self.inner();
        inner.failing = Some((inner.effects + effects, blocks));
    }

    /// The first flush after so many more effects fails, and data that was not durable
    /// is as after a power loss, which a seed decides on; without one, all of it is
    /// lost.
    pub fn lose_with_flush(&self, effects: u64, seed: Option<u64>) {
        let mut inner = self.inner();
        inner.losing = Some((inner.effects + effects, seed));
    }

    /// So many of the next reads of a zone fail.
    pub fn fail_reads(&self, zone: u32, reads: u64) {
        self.inner().unread.insert(zone, reads);
    }

    /// The next reset of a zone is done, and answers an error all the same.
    pub fn fail_after_next_reset(&self, zone: u32) {
        self.inner().unheard.insert(zone);
    }

    /// A zone can't be reset from now on.
    pub fn keep_from_reset(&self, zone: u32) {
        self.inner().stuck.insert(zone);
    }

    /// A zone fails: it is read-only or offline from now on.
    pub fn fail_zone(&self, zone: u32, state: ZoneState) {
        self.change(zone, |zone| zone.failed = Some(state));
    }

    /// Loses the end of a zone, also flushed data, from this offset on.
    pub fn lose_from(&self, zone: u32, offset: u64) {
        self.change(zone, |zone| zone.lose_from(offset));
    }

    /// Has the write pointer of a zone go ahead by so many bytes, with zeros there.
    pub fn advance(&self, zone: u32, bytes: u64) {
        self.change(zone, |zone| {
            let zeros = vec![0; bytes.min(zone.capacity - zone.written()) as usize];
            zone.put(zone.written(), &zeros);
            zone.flush();
        });
    }

    /// A conventional zone ends after so many bytes, without reporting it.
    pub fn shorten(&self, zone: u32, bytes: u64) {
        self.change(zone, |zone| zone.lose_from(bytes));
    }

    /// Overwrites a block with other bytes, as a device that fails does.
    pub fn damage(&self, zone: u32, offset: u64) {
        let block = self.block as usize;
        self.change(zone, |zone| zone.damage(offset as usize, block));
    }

    fn change(&self, zone: u32, how: impl FnOnce(&mut Zone)) {
        if let Some(zone) = self.inner().zones.get_mut(zone as usize) {
            how(Arc::make_mut(zone));
        }
    }

    /// Counts an effect; the power may go before it. Answers after how many blocks it
    /// fails, if it does.
    fn effect<'a>(&'a self, effect: ZoneEffect) -> Result<(MutexGuard<'a, Inner>, Option<u64>)> {
        let observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(observer) = observer {
            observer(&effect);
        }
        let mut inner = self.inner();
        match &mut inner.left {
            Some(0) => inner.off = true,
            Some(left) => *left -= 1,
            None => {}
        }
        inner.check_power()?;
        if let Some(moments) = &inner.moments {
            assert!(moments.len() < RECORDED_MAX, "{RECORDED_MAX} effects, and no end");
            let moment = ZonedMoment { shape: self.shape, block: self.block, zones: inner.zones.clone() };
            inner.moments.as_mut().into_iter().for_each(|moments| moments.push((effect, moment.clone())));
        }
        let now = inner.effects;
        inner.effects += 1;
        let failing = inner.failing.take_if(|(at, _)| *at == now).map(|(_, blocks)| blocks);
        Ok((inner, failing))
    }
}

impl ZonedMoment {
    /// The device after the power was lost at this moment and came back.
    #[must_use]
    pub fn after_power_loss(&self, chooser: &mut dyn Chooser) -> SimZoned {
        self.with(what_is_left(&self.zones, self.shape.active_max, chooser))
    }

    /// The device at this moment, of which nothing is lost.
    #[must_use]
    pub fn resume(&self) -> SimZoned {
        self.with(self.zones.clone())
    }

    /// Whether power loss leaves it as it is.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.zones.iter().all(|zone| zone.is_durable())
    }

    /// Whether the device is as it was at another moment.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.zones.iter().zip(&other.zones).all(|(zone, other)| Arc::ptr_eq(zone, other))
    }

    fn with(&self, zones: Vec<Arc<Zone>>) -> SimZoned {
        let inner = Mutex::new(Inner::new(zones));
        SimZoned { shape: self.shape, block: self.block, inner, observer: Mutex::default() }
    }
}

impl Inner {
    fn new(zones: Vec<Arc<Zone>>) -> Self {
        Self {
            zones,
            left: None,
            effects: 0,
            off: false,
            stuck: BTreeSet::new(),
            torn: BTreeMap::new(),
            failing: None,
            moments: None,
            broken: Vec::new(),
            unread: BTreeMap::new(),
            unheard: BTreeSet::new(),
            losing: None,
        }
    }

    fn check_power(&self) -> Result<()> {
        if self.off { Err(Error::new(Errno::ENODEV, "the power is off")) } else { Ok(()) }
    }

    fn zone(&self, zone: u32) -> Result<&Arc<Zone>> {
        self.zones.get(zone as usize).ok_or_else(|| Errno::EINVAL.into())
    }

    fn zone_mut(&mut self, zone: u32) -> Result<&mut Zone> {
        self.zones.get_mut(zone as usize).map(Arc::make_mut).ok_or_else(|| Errno::EINVAL.into())
    }

    /// Its user broke a rule.
    fn refuse(&mut self, errno: Errno, zone: u32, what: &str) -> Error {
        let what = format!("zone {zone}: {what}");
        self.broken.push(what.clone());
        Error::new(errno, what)
    }

    /// Whether a zone takes a write there.
    fn check_write(&mut self, number: u32, (offset, len): (u64, u64), limits: (u64, u32)) -> Result<()> {
        let (block, active_max) = limits;
        let zone = Arc::clone(self.zone(number)?);
        if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(self.refuse(Errno::EINVAL, number, "not in whole blocks"));
        }
        if zone.failed.is_some() {
            return Err(Error::new(Errno::EIO, format!("zone {number}: it can't be written any more")));
        }
        if offset + len > zone.capacity {
            return Err(self.refuse(Errno::EIO, number, "that is beyond its capacity"));
        }
        if zone.kind == ZoneKind::Conventional && offset + len > zone.written() {
            return Err(Error::new(Errno::EIO, format!("zone {number}: it is shorter")));
        }
        if zone.kind == ZoneKind::Sequential {
            if offset != zone.write_pointer() {
                let what = format!("written at {offset}, its write pointer is {}", zone.write_pointer());
                return Err(self.refuse(Errno::EIO, number, &what));
            }
            if zone.write_pointer() == 0 && active(&self.zones) >= active_max {
                return Err(self.refuse(Errno::EOVERFLOW, number, "too many zones are active"));
            }
        }
        Ok(())
    }
}

/// The zones after the power was lost.
fn what_is_left(zones: &[Arc<Zone>], active_max: u32, chooser: &mut dyn Chooser) -> Vec<Arc<Zone>> {
    let mut left = |outcome| -> Vec<Arc<Zone>> {
        zones.iter().map(|zone| Zone::after_power_loss(zone, chooser, outcome)).collect()
    };
    match left(Outcome::Any) {
        // No device has so many: the effects that freed others have happened
        // then.
        found if active(&found) > active_max => left(Outcome::InOrder),
        found => found,
    }
}

/// How many zones are begun and not full.
fn active(zones: &[Arc<Zone>]) -> u32 {
    zones.iter().filter(|zone| zone.state() == ZoneState::Closed).count() as u32
}

fn failed(zone: u32, what: &str) -> Error {
    Error::new(Errno::EIO, format!("zone {zone}: {what}"))
}

impl ZonedDevice for SimZoned {
    fn geometry(&self) -> ZonedGeometry {
        let active_max = Some(self.shape.active_max);
        ZonedGeometry { block: self.block, zones: self.shape.zones, open_max: active_max, active_max }
    }

    fn report(&self, zone: u32) -> Result<ZoneReport> {
        let inner = self.inner();
        inner.check_power()?;
        let zone = inner.zone(zone)?;
        let (kind, state, capacity) = (zone.kind, zone.state(), zone.capacity);
        Ok(ZoneReport { kind, state, capacity, write_pointer: zone.write_pointer() })
    }

    fn read(&self, zone: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut inner = self.inner();
        inner.check_power()?;
        if let Some(reads) = inner.unread.get_mut(&zone).filter(|reads| **reads > 0) {
            *reads -= 1;
            return Err(Error::new(Errno::EIO, format!("zone {zone}: the read failed")));
        }
        let found = inner.zone(zone)?;
        if found.failed == Some(ZoneState::Offline) {
            return Err(failed(zone, "it is offline"));
        }
        if !found.read(offset, buf) {
            let what = format!("nothing at {offset} to {}", offset + buf.len() as u64);
            return Err(inner.refuse(Errno::EIO, zone, &what));
        }
        Ok(())
    }

    fn write(&self, zone: u32, offset: u64, bufs: &[IoSlice<'_>]) -> Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        let (mut inner, failing) = self.effect(ZoneEffect::Write(zone, offset, len))?;
        inner.check_write(zone, (offset, len), (self.block, self.shape.active_max))?;
        let torn = inner.torn.remove(&zone).or(failing).map(|blocks| (blocks * self.block).min(len));
        let (mut left, mut at) = (torn.unwrap_or(len), offset);
        let found = inner.zone_mut(zone)?;
        for buf in bufs {
            let part = left.min(buf.len() as u64);
            found.put(at, &buf[..part as usize]);
            (left, at) = (left - part, at + part);
        }
        match torn {
            Some(_) => Err(failed(zone, "the write failed")),
            None => Ok(()),
        }
    }

    fn reset(&self, zone: u32) -> Result<()> {
        let (mut inner, failing) = self.effect(ZoneEffect::Reset(zone))?;
        let (is_stuck, is_unheard) = (inner.stuck.contains(&zone), inner.unheard.remove(&zone));
        let found = inner.zone_mut(zone)?;
        if found.kind != ZoneKind::Sequential || found.failed.is_some() || is_stuck || failing.is_some() {
            return Err(failed(zone, "it can't be reset"));
        }
        found.reset();
        if is_unheard {
            return Err(failed(zone, "the reset timed out"));
        }
        Ok(())
    }

    fn finish(&self, zone: u32) -> Result<()> {
        let (mut inner, failing) = self.effect(ZoneEffect::Finish(zone))?;
        let found = inner.zone_mut(zone)?;
        if found.kind != ZoneKind::Sequential || found.failed.is_some() || failing.is_some() {
            return Err(failed(zone, "it can't be finished"));
        }
        found.finish();
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let (mut inner, failing) = self.effect(ZoneEffect::Flush)?;
        if failing.is_some() {
            return Err(Error::new(Errno::EIO, "the flush failed"));
        }
        let now = inner.effects;
        if let Some((_, seed)) = inner.losing.take_if(|(from, _)| *from < now) {
            let mut chooser: Box<dyn Chooser> = match seed {
                Some(seed) => Box::new(Seeded::new(seed)),
                None => Box::new(AllLost),
            };
            inner.zones = what_is_left(&inner.zones, self.shape.active_max, &mut *chooser);
            return Err(Error::new(Errno::EIO, "the flush failed, and data was lost"));
        }
        for zone in inner.zones.iter_mut().filter(|zone| !zone.is_durable()) {
            Arc::make_mut(zone).flush();
        }
        Ok(())
    }

    fn device(&self) -> u64 {
        77
    }
}
