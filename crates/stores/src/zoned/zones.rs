//! The zones of a device: which are free, which is open for which stream, how many
//! blocks of each are of use.
//!
//! Data of a stream goes to the zone that is open for it. One that has none gets a
//! free one, up to the device's limits; after that it shares the zone that was
//! written longest ago, until that is full. Some zones are kept back for moving data.

use super::extents::Place;
use braid_contract::{Context, Errno, Error, ObjectId, Result, StreamId, ZoneKind, ZoneState, ZonedDevice};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Zones that only data that is moved may take, so that there is always a way to
/// empty another one.
pub(super) const RESERVE: u32 = 2;
/// Zones that a write tries before it gives up.
const ATTEMPTS: usize = 3;

/// The stream of a zone's data; data without one is a stream too.
pub(super) type Stream = Option<StreamId>;

/// The zones for data.
pub(super) struct Zones {
    device: Arc<dyn ZonedDevice>,
    block: u64,
    /// Most zones that are open for data.
    open_max: usize,
    /// The zones for data, in order.
    numbers: Range<u32>,
    table: Mutex<Table>,
    /// Held while a zone is written.
    writers: Vec<Mutex<()>>,
}

struct Table {
    zones: Vec<Zone>,
    free: VecDeque<u32>,
    /// The zones that are open, the one that was written last at the end.
    open: Vec<u32>,
    /// The open zones that streams share which have none.
    shared: BTreeMap<Stream, u32>,
    /// Blocks that were promised to data in memory.
    promised: u64,
    /// Blocks that objects use, of all zones.
    valid: u64,
    /// Blocks of the zones that can be written, at least after a reset.
    room: u64,
    /// Blocks of the largest zone.
    largest: u64,
    /// The zones that can't.
    failed: Vec<u32>,
}

#[derive(Debug, Default)]
struct Zone {
    state: Use,
    /// Blocks that can be written.
    capacity: u32,
    write_pointer: u32,
    /// Blocks that objects use.
    valid: u32,
    stream: Stream,
    /// All whose data is there.
    streams: BTreeSet<Stream>,
    /// What lies where.
    residents: BTreeMap<u32, Resident>,
}

/// What is done with a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Use {
    /// It is not for data.
    #[default]
    None,
    Free,
    /// Its stream's data goes there.
    Open,
    /// Nothing more goes there until it is emptied.
    Full,
    /// It is being emptied.
    Emptied,
    /// It can't be written any more.
    ReadOnly,
    /// Its data is lost.
    Offline,
}

/// Which zones data may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// An open zone of its stream, or a free one.
    New,
    /// The rest of any open zone: none can be emptied.
    Squeezed,
    /// Those that are kept back too: it is moved, so that a zone can be emptied.
    Moved,
}

/// Blocks of an object in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Resident {
    pub(super) object: ObjectId,
    pub(super) first: u64,
    pub(super) blocks: u32,
}

/// A zone that is to be emptied, with what lies there.
pub(super) struct ToEmpty {
    pub(super) zone: u32,
    pub(super) stream: Stream,
    pub(super) residents: Vec<Resident>,
}

/// Blocks in all zones for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Space {
    /// Blocks that objects use, or are promised.
    pub(super) used: u64,
    /// Blocks for data besides the reserve.
    pub(super) usable: u64,
}

/// Counts of zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneCounts {
    /// For data.
    pub zones: u32,
    /// Without data.
    pub free: u32,
    /// Open for a stream.
    pub open: u32,
    /// With data of more than one stream.
    pub mixed: u32,
    /// That failed.
    pub failed: u32,
}

impl Zones {
    /// The zones `numbers` of a device, of which `open_max` may be open at a time.
    pub(super) fn new(device: Arc<dyn ZonedDevice>, numbers: Range<u32>, open_max: usize) -> Result<Self> {
        let block = device.geometry().block;
        let mut table = Table {
            zones: Vec::new(),
            free: VecDeque::new(),
            open: Vec::new(),
            shared: BTreeMap::new(),
            promised: 0,
            valid: 0,
            room: 0,
            largest: 0,
            failed: Vec::new(),
        };
        for number in 0..numbers.end {
            let mut zone = Zone::default();
            if numbers.contains(&number) {
                let found = device.report(number).with_context(|| format!("zone {number}"))?;
                zone.capacity = (found.capacity / block) as u32;
                zone.write_pointer = (found.write_pointer / block) as u32;
                zone.state = match (found.kind, found.state) {
                    (ZoneKind::Conventional, _) => Use::None,
                    (_, ZoneState::Offline) => Use::Offline,
                    (_, ZoneState::ReadOnly) => Use::ReadOnly,
                    (_, ZoneState::Empty) => Use::Free,
                    (_, ZoneState::Open | ZoneState::Closed | ZoneState::Full) => Use::Full,
                };
                table.largest = table.largest.max(zone.capacity.into());
                match zone.state {
                    Use::ReadOnly | Use::Offline => table.failed.push(number),
                    Use::None => {}
                    _ => table.room += u64::from(zone.capacity),
                }
                if zone.state == Use::Free {
                    table.free.push_back(number);
                }
            }
            table.zones.push(zone);
        }
        let writers = (0..numbers.end).map(|_| Mutex::default()).collect();
        Ok(Self { device, block, open_max: open_max.max(1), numbers, table: Mutex::new(table), writers })
    }

    /// The block behind the last one of a zone that was written. Of one whose data is
    /// lost, the last block: reading it tells.
    pub(super) fn write_pointer(&self, zone: u32) -> Option<u32> {
        let table = self.table.lock();
        let zone = table.zones.get(zone as usize).filter(|zone| zone.state != Use::None)?;
        Some(if zone.state == Use::Offline { zone.capacity } else { zone.write_pointer })
    }

    /// Promises so many blocks to data that is to be written later.
    pub(super) fn promise(&self, blocks: u64) -> Result<()> {
        let mut table = self.table.lock();
        let space = table.space();
        if blocks > 0 && space.used + blocks > space.usable {
            return Err(Error::new(Errno::ENOSPC, "the zones have no room"));
        }
        table.promised += blocks;
        Ok(())
    }

    /// So many blocks that were promised were written, or are not needed.
    pub(super) fn keep_promise(&self, blocks: u64) {
        let mut table = self.table.lock();
        table.promised = table.promised.saturating_sub(blocks);
    }

    /// Writes blocks that begin with `first` of an object, to zones of a stream, and
    /// answers where they are; fewer of them if what follows failed. `EAGAIN` if a
    /// zone has to be emptied first.
    pub(super) fn write(
        &self,
        stream: Stream,
        claim: Claim,
        (object, first): (ObjectId, u64),
        data: &[u8],
        opened: &mut dyn FnMut(u32),
    ) -> Result<Vec<Place>> {
        let (mut places, mut done, mut failed) = (Vec::new(), 0, 0);
        while done < data.len() {
            let zone = match self.zone_for(stream, claim, opened) {
                Err(_) if done > 0 => break,
                zone => zone?,
            };
            let _writing = self.writers[zone as usize].lock();
            let Some((at, room)) = self.table.lock().room_in(zone) else { continue };
            let len = (data.len() - done).min(room as usize * self.block as usize);
            match self.device.write(
                zone,
                u64::from(at) * self.block,
                &[IoSlice::new(&data[done..done + len])],
            ) {
                Ok(()) => {
                    let place = Place { zone, at, blocks: (len as u64 / self.block) as u32 };
                    let first = first + done as u64 / self.block;
                    let resident = Resident { object, first, blocks: place.blocks };
                    let is_full = self.table.lock().wrote(stream, place, resident);
                    places.push(place);
                    done += len;
                    // The write pointer of a full zone does not tell what was lost. If
                    // this fails, the next commit does too.
                    if is_full && let Err(error) = self.device.flush() {
                        tracing::warn!(zone, %error, "a full zone is not flushed");
                    }
                }
                Err(error) => {
                    failed += 1;
                    self.give_up(zone, &error);
                    match failed == ATTEMPTS {
                        true if done > 0 => break,
                        true => return Err(error),
                        false => {}
                    }
                }
            }
        }
        Ok(places)
    }

    /// The zone that a stream's data goes to.
    fn zone_for(&self, stream: Stream, claim: Claim, opened: &mut dyn FnMut(u32)) -> Result<u32> {
        let mut table = self.table.lock();
        if let Some(at) = table.open_for(stream) {
            return Ok(table.used_last(at));
        }
        let kept_back = if claim == Claim::Moved { 0 } else { RESERVE as usize };
        let is_free = table.free.len() > kept_back;
        if is_free && table.open.len() < self.open_max {
            let zone = table.free.pop_front().ok_or(Errno::EAGAIN)?;
            table.open.push(zone);
            let opening = &mut table.zones[zone as usize];
            (opening.state, opening.stream) = (Use::Open, stream);
            opened(zone);
            return Ok(zone);
        }
        match claim {
            Claim::New if !is_free => Err(Error::new(Errno::EAGAIN, "a zone has to be emptied first")),
            _ if table.open.is_empty() => Err(Error::new(Errno::EAGAIN, "no zone has room")),
            _ => {
                let zone = table.used_last(0);
                table.shared.insert(stream, zone);
                Ok(zone)
            }
        }
    }

    /// A zone took no write: nothing more goes there.
    fn give_up(&self, zone: u32, error: &Error) {
        tracing::warn!(zone, %error, "a zone can't be written");
        let found = self.device.report(zone);
        let mut table = self.table.lock();
        table.open.retain(|open| *open != zone);
        let given_up = &mut table.zones[zone as usize];
        if let Ok(found) = &found {
            given_up.write_pointer = (found.write_pointer / self.block) as u32;
        }
        match found.map(|found| found.state) {
            Ok(ZoneState::Offline) => table.fails(zone, Use::Offline),
            Ok(ZoneState::ReadOnly) | Err(_) => table.fails(zone, Use::ReadOnly),
            Ok(_) => given_up.state = Use::Full,
        }
        drop(table);
        self.finish(zone);
    }

    /// Blocks that an object has had in this place are not its any more.
    pub(super) fn free(&self, place: Place) {
        self.table.lock().free(place);
    }

    /// At recovery: an object has these blocks in this place.
    pub(super) fn found(&self, place: Place, resident: Resident) {
        let mut table = self.table.lock();
        if let Some(zone) = table.zones.get_mut(place.zone as usize) {
            zone.valid += place.blocks;
            zone.residents.insert(place.at, resident);
            table.valid += u64::from(place.blocks);
        }
    }

    /// At recovery: a zone is for data of a stream.
    pub(super) fn is_for(&self, zone: u32, stream: Stream) {
        let mut table = self.table.lock();
        if let Some(zone) = table.zones.get_mut(zone as usize) {
            zone.stream = stream;
            zone.streams.insert(stream);
        }
    }

    /// At recovery: zones that were begun go on, as far as the limits allow. Answers
    /// the others, which are to be [finished](Self::finish): they hold resources of
    /// the device.
    pub(super) fn resume(&self) -> Vec<u32> {
        let mut table = self.table.lock();
        let begun = |zone: &Zone| zone.state == Use::Full && (1..zone.capacity).contains(&zone.write_pointer);
        let mut unfinished = Vec::new();
        for number in self.numbers.clone() {
            let zone = &table.zones[number as usize];
            if !begun(zone) {
                continue;
            }
            let taken = table.open.iter().any(|open| table.zones[*open as usize].stream == zone.stream);
            if zone.valid > 0 && !taken && table.open.len() < self.open_max {
                table.zones[number as usize].state = Use::Open;
                table.open.push(number);
            } else {
                unfinished.push(number);
            }
        }
        unfinished
    }

    /// Finishes a zone to which nothing more goes.
    pub(super) fn finish(&self, zone: u32) {
        // What was not flushed might be lost, and would not be missed.
        if let Err(error) = self.device.flush().and_then(|()| self.device.finish(zone)) {
            tracing::debug!(zone, %error, "a zone is not finished");
        }
    }

    /// The zone that is emptied with least effort, if that gains anything. Nothing else
    /// is to be written to it.
    pub(super) fn to_empty(&self) -> Option<ToEmpty> {
        let mut table = self.table.lock();
        let settled =
            |zone: &Zone| zone.residents.values().map(|resident| resident.blocks).sum::<u32>() == zone.valid;
        let full = |zone: &&u32| {
            let zone = &table.zones[**zone as usize];
            zone.state == Use::Full && settled(zone)
        };
        let all: Vec<u32> = self.numbers.clone().collect();
        let least = all.iter().filter(full).min_by_key(|zone| table.zones[**zone as usize].valid).copied()?;
        let zone = &mut table.zones[least as usize];
        if zone.valid >= zone.capacity {
            return None;
        }
        zone.state = Use::Emptied;
        let residents = zone.residents.values().copied().collect();
        Some(ToEmpty { zone: least, stream: zone.stream, residents })
    }

    /// Whether nothing of use is in a zone that is being emptied.
    pub(super) fn is_empty(&self, zone: u32) -> bool {
        self.table.lock().zones[zone as usize].valid == 0
    }

    /// A zone is not emptied after all.
    pub(super) fn stays(&self, zone: u32) {
        self.table.lock().zones[zone as usize].state = Use::Full;
    }

    /// Resets a zone of which nothing is of use any more, durably.
    pub(super) fn reset(&self, zone: u32) -> Result<()> {
        let result = self.device.reset(zone);
        let mut table = self.table.lock();
        let emptied = &mut table.zones[zone as usize];
        match &result {
            Ok(()) => {
                (emptied.state, emptied.write_pointer, emptied.stream) = (Use::Free, 0, None);
                emptied.streams.clear();
                table.free.push_back(zone);
            }
            // It is of no use any more.
            Err(error) => {
                tracing::warn!(zone, %error, "a zone can't be reset");
                table.fails(zone, Use::ReadOnly);
            }
        }
        result
    }

    /// Resets all zones that hold anything; nothing in them is of use.
    pub(super) fn reset_all(&self) -> Result<()> {
        for zone in self.numbers.clone() {
            let mut table = self.table.lock();
            let used = matches!(table.zones[zone as usize].state, Use::Open | Use::Full);
            table.open.retain(|open| *open != zone || !used);
            drop(table);
            if used {
                let _writing = self.writers[zone as usize].lock();
                self.reset(zone)?;
            }
        }
        Ok(())
    }

    /// What is of use in a zone can't be moved: it stays there, for good.
    pub(super) fn cant_be_emptied(&self, zone: u32) {
        self.table.lock().fails(zone, Use::ReadOnly);
    }

    /// Finishes the open zone with most that is of no use, so that it can be
    /// emptied. Answers whether there was one.
    pub(super) fn finish_one(&self) -> bool {
        let mut table = self.table.lock();
        let dead = |zone: &Zone| zone.write_pointer - zone.valid;
        let most = table.open.iter().copied().max_by_key(|zone| dead(&table.zones[*zone as usize]));
        let Some(zone) = most.filter(|zone| dead(&table.zones[*zone as usize]) > 0) else { return false };
        table.open.retain(|open| *open != zone);
        table.zones[zone as usize].state = Use::Full;
        drop(table);
        let _writing = self.writers[zone as usize].lock();
        self.finish(zone);
        true
    }

    /// Zones that are free for data that is not moved.
    pub(super) fn free_zones(&self) -> u32 {
        (self.table.lock().free.len() as u32).saturating_sub(RESERVE)
    }

    pub(super) fn space(&self) -> Space {
        self.table.lock().space()
    }

    pub(super) fn counts(&self) -> ZoneCounts {
        let table = self.table.lock();
        let count = |wanted: &dyn Fn(&Zone) -> bool| {
            self.numbers.clone().filter(|zone| wanted(&table.zones[*zone as usize])).count() as u32
        };
        ZoneCounts {
            zones: count(&|zone| zone.state != Use::None),
            free: count(&|zone| zone.state == Use::Free),
            open: count(&|zone| zone.state == Use::Open),
            mixed: count(&|zone| zone.streams.len() > 1),
            failed: count(&|zone| matches!(zone.state, Use::ReadOnly | Use::Offline)),
        }
    }

    /// Whether a zone that can be written is not free.
    pub(super) fn are_used(&self) -> bool {
        let counts = self.counts();
        counts.free + counts.failed < counts.zones
    }

    /// The streams of the zones that are not free, for the index.
    pub(super) fn streams(&self) -> Vec<(u32, Stream)> {
        let table = self.table.lock();
        let used = |zone: &u32| !table.zones[*zone as usize].streams.is_empty();
        self.numbers.clone().filter(used).map(|zone| (zone, table.zones[zone as usize].stream)).collect()
    }
}

impl Table {
    /// The position of the open zone that a stream's data goes to, if it has one.
    fn open_for(&self, stream: Stream) -> Option<usize> {
        let own = |zone: &u32| self.zones[*zone as usize].stream == stream;
        let shared = self.shared.get(&stream);
        let at = self.open.iter().position(own);
        at.or_else(|| self.open.iter().position(|zone| shared == Some(zone)))
    }

    /// The open zone at this position was used last.
    fn used_last(&mut self, at: usize) -> u32 {
        let zone = self.open.remove(at);
        self.open.push(zone);
        zone
    }

    /// The next block of an open zone, and how many follow; `None` if it is not
    /// open any more.
    fn room_in(&self, zone: u32) -> Option<(u32, u32)> {
        let zone = &self.zones[zone as usize];
        let room = zone.capacity - zone.write_pointer;
        (zone.state == Use::Open && room > 0).then_some((zone.write_pointer, room))
    }

    /// Answers whether the zone is full then.
    fn wrote(&mut self, stream: Stream, place: Place, resident: Resident) -> bool {
        let zone = &mut self.zones[place.zone as usize];
        zone.write_pointer += place.blocks;
        zone.valid += place.blocks;
        zone.residents.insert(place.at, resident);
        zone.streams.insert(stream);
        self.valid += u64::from(place.blocks);
        let is_full = zone.write_pointer == zone.capacity;
        if is_full {
            zone.state = Use::Full;
            self.open.retain(|open| *open != place.zone);
        }
        is_full
    }

    /// Takes blocks out of a zone's residents.
    fn free(&mut self, place: Place) {
        let Some(zone) = self.zones.get_mut(place.zone as usize) else { return };
        let freed = zone.valid.min(place.blocks);
        zone.valid -= freed;
        self.valid -= u64::from(freed);
        let end = place.at + place.blocks;
        while let Some((at, resident)) =
            zone.residents.range(..end).next_back().map(|(at, found)| (*at, *found))
            && at + resident.blocks > place.at
        {
            zone.residents.remove(&at);
            let until = at + resident.blocks;
            if until > end {
                let first = resident.first + u64::from(end - at);
                zone.residents.insert(end, Resident { first, blocks: until - end, ..resident });
            }
            if at < place.at {
                zone.residents.insert(at, Resident { blocks: place.at - at, ..resident });
            }
        }
    }

    /// A zone can't be written any more, whatever is done.
    fn fails(&mut self, zone: u32, state: Use) {
        if !self.failed.contains(&zone) {
            self.room -= u64::from(self.zones[zone as usize].capacity);
            self.failed.push(zone);
        }
        self.zones[zone as usize].state = state;
    }

    fn space(&self) -> Space {
        // What failed holds no more than it does.
        let held: u64 = self.failed.iter().map(|zone| u64::from(self.zones[*zone as usize].valid)).sum();
        let usable = (self.room + held).saturating_sub(u64::from(RESERVE) * self.largest);
        Space { used: self.valid + self.promised, usable }
    }
}
