//! The state of each zone, and of all together: which are free, open or failed, and
//! how many blocks of each are live. Only [zones](super::zones) changes it.

use super::extents::Place;
use braid_contract::{ObjectId, StreamId, ZoneStatus, ZoneStream};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Zones that only data that is moved may take, so that there is always a way to
/// empty another one.
pub(super) const RESERVE: u32 = 2;

/// Zones that are to be free besides: one for so many, within these bounds. More would
/// leave less room for unused data in others, and so have more moved.
const ZONES_PER_SPARE: u32 = 32;
const SPARE: [u32; 2] = [1, 4];

/// The stream of a zone's data; data without one is a stream too.
pub(super) type Stream = Option<StreamId>;

/// All zones of a device, by their number.
#[derive(Debug, Default)]
pub(super) struct Table {
    zones: Vec<Zone>,
    /// How many of them are for data.
    for_data: u32,
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
    /// Zones that were found to have lost something, which objects do not know yet.
    lost: Vec<u32>,
    /// Blocks that were written, new and [moved](Written::Moved).
    written: [u64; 2],
}

#[derive(Debug, Default)]
struct Zone {
    state: Use,
    /// Blocks that can be written.
    capacity: u32,
    write_pointer: u32,
    /// A write failed, and the device has not reported how far it came.
    unsure: bool,
    /// It could not be finished: it holds resources of the device.
    unfinished: bool,
    /// The write pointer went back: data behind it is lost, and nothing may be
    /// written there before the index says so.
    lost: bool,
    /// How often it was to be reset.
    resets: u64,
    /// It could not be emptied, for its data could not be read: it is tried last.
    unread: bool,
    /// Blocks that objects use.
    valid: u32,
    stream: Stream,
    /// All whose data is there.
    streams: BTreeSet<Stream>,
    /// The residents, by place.
    residents: BTreeMap<u32, Resident>,
}

/// The use of a zone.
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

/// Blocks of an object in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Resident {
    pub(super) object: ObjectId,
    pub(super) first: u64,
    pub(super) blocks: u32,
}

/// A zone that is to be emptied, with its residents.
pub(super) struct ToEmpty {
    pub(super) zone: u32,
    pub(super) stream: Stream,
    /// Blocks that can be written, and those that objects use.
    pub(super) capacity: u32,
    pub(super) valid: u32,
    /// In descending order.
    pub(super) residents: Vec<Resident>,
}

impl Resident {
    /// Takes so many blocks off the beginning, or as many as there are.
    pub(super) fn take(&mut self, most: u64) -> Self {
        let blocks = u64::from(self.blocks).min(most) as u32;
        let taken = Self { blocks, ..*self };
        self.first += u64::from(blocks);
        self.blocks -= blocks;
        taken
    }
}

/// Why blocks are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    /// They are new, and were promised.
    Promised,
    /// They were elsewhere before.
    Moved,
}

/// Blocks in all zones for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Space {
    /// Blocks that objects use, or are promised.
    pub(super) used: u64,
    /// Blocks for data besides the reserve.
    pub(super) usable: u64,
}

impl Table {
    /// Adds the next zone.
    pub(super) fn add(&mut self, state: Use, capacity: u32, write_pointer: u32) {
        let number = self.zones.len() as u32;
        // One without room is of no use for data.
        let state = if capacity == 0 { Use::None } else { state };
        match state {
            Use::None => {}
            Use::ReadOnly | Use::Offline => self.failed.push(number),
            _ => self.room += u64::from(capacity),
        }
        if state != Use::None {
            self.for_data += 1;
            self.largest = self.largest.max(capacity.into());
        }
        if state == Use::Free {
            self.free.push_back(number);
        }
        self.zones.push(Zone { state, capacity, write_pointer, ..Zone::default() });
    }

    /// The block behind the last one of a zone that was written. Of one whose data is
    /// lost, the last block: reading shows that.
    pub(super) fn write_pointer(&self, zone: u32) -> Option<u32> {
        let zone = self.zones.get(zone as usize).filter(|zone| zone.state != Use::None)?;
        Some(if zone.state == Use::Offline { zone.capacity } else { zone.write_pointer })
    }

    /// Promises so many blocks to data that is to be written later. Answers whether
    /// there are as many.
    pub(super) fn promise(&mut self, blocks: u64) -> bool {
        let space = self.space();
        let fits = blocks == 0 || space.used.saturating_add(blocks) <= space.usable;
        if fits {
            self.promised += blocks;
        }
        fits
    }

    /// At recovery: so many blocks were promised before.
    pub(super) fn has_promised(&mut self, blocks: u64) {
        self.promised = self.promised.saturating_add(blocks);
    }

    /// So many blocks that were promised are not needed.
    pub(super) fn keep_promise(&mut self, blocks: u64) {
        self.promised = self.promised.saturating_sub(blocks);
    }

    /// The open zone that a stream's data goes to, if it has one.
    pub(super) fn open_for(&mut self, stream: Stream) -> Option<u32> {
        let own = |zone: &u32| self.zones[*zone as usize].stream == stream;
        let shared = self.shared.get(&stream);
        let at = self.open.iter().position(own);
        let at = at.or_else(|| self.open.iter().position(|zone| shared == Some(zone)));
        at.map(|at| self.used_last(at))
    }

    /// The open zone at this position was used last.
    fn used_last(&mut self, at: usize) -> u32 {
        let zone = self.open.remove(at);
        self.open.push(zone);
        zone
    }

    /// Whether one more zone may be open, of so many that may be.
    pub(super) fn may_open(&self, open_max: usize) -> bool {
        self.open.is_empty() || self.open.len() + self.unfinished() < open_max
    }

    pub(super) fn set_unfinished(&mut self, zone: u32, unfinished: bool) {
        self.zones[zone as usize].unfinished = unfinished;
    }

    /// Zones that are free for data that is not moved.
    pub(super) fn free_zones(&self) -> u32 {
        (self.free.len() as u32).saturating_sub(RESERVE)
    }

    /// Opens a free zone for a stream; `None` if none is free, but for so many that are
    /// kept back.
    pub(super) fn open(&mut self, stream: Stream, kept_back: u32) -> Option<u32> {
        if self.free.len() <= kept_back as usize {
            return None;
        }
        let zone = self.free.pop_front()?;
        self.open.push(zone);
        let opened = &mut self.zones[zone as usize];
        (opened.state, opened.stream) = (Use::Open, stream);
        opened.streams.insert(stream);
        Some(zone)
    }

    /// A stream shares the open zone that was written longest ago; `None` if none is
    /// open.
    pub(super) fn share(&mut self, stream: Stream) -> Option<u32> {
        (!self.open.is_empty()).then(|| {
            let zone = self.used_last(0);
            self.shared.insert(stream, zone);
            zone
        })
    }

    /// Nothing more goes to a zone.
    pub(super) fn close(&mut self, zone: u32) {
        self.open.retain(|open| *open != zone);
        self.shared.retain(|_, shared| *shared != zone);
        self.zones[zone as usize].state = Use::Full;
    }

    /// The next block of an open zone, and how many follow; `None` if it is not
    /// open any more.
    pub(super) fn room_in(&self, zone: u32) -> Option<(u32, u32)> {
        let zone = &self.zones[zone as usize];
        let room = zone.capacity - zone.write_pointer;
        (zone.state == Use::Open && room > 0).then_some((zone.write_pointer, room))
    }

    /// Whether it is not known how far a write to a zone came.
    pub(super) fn is_unsure(&self, zone: u32) -> bool {
        self.zones[zone as usize].unsure
    }

    pub(super) fn set_unsure(&mut self, zone: u32) {
        self.zones[zone as usize].unsure = true;
    }

    /// A zone was written up to this block, as the device says. If objects have blocks
    /// beyond it, they are lost: nothing more goes there until the zone is emptied.
    /// Answers whether that is so. Nor does anything where they had some before: a log
    /// that was torn may still say so.
    pub(super) fn is_written_to(&mut self, zone: u32, write_pointer: u32) -> bool {
        let written = &mut self.zones[zone as usize];
        let before = std::mem::replace(&mut written.write_pointer, write_pointer.min(written.capacity));
        written.unsure = false;
        let last = written.residents.last_key_value();
        let end = last.map_or(0, |(at, resident)| at.saturating_add(resident.blocks));
        let (is_lost, went_back) = (end > written.write_pointer, before > written.write_pointer);
        let (is_open, is_full) = (written.state == Use::Open, written.write_pointer == written.capacity);
        if is_lost || went_back {
            self.has_lost(zone);
        }
        if is_open && (is_lost || went_back || is_full) {
            self.close(zone);
        }
        is_lost
    }

    /// A zone has lost something, which objects or the log do not know yet.
    fn has_lost(&mut self, zone: u32) {
        self.zones[zone as usize].lost = true;
        if !self.lost.contains(&zone) {
            self.lost.push(zone);
        }
    }

    /// Zones that were found to have lost data since the last call, with the
    /// residents concerned.
    pub(super) fn take_lost(&mut self) -> Vec<(u32, Vec<Resident>)> {
        let zones = std::mem::take(&mut self.lost);
        let lost = |zone: u32| {
            let Zone { write_pointer, residents, .. } = &self.zones[zone as usize];
            let is_lost = |(at, resident): &(&u32, &Resident)| *at + resident.blocks > *write_pointer;
            (zone, residents.iter().filter(is_lost).map(|(_, resident)| *resident).collect())
        };
        zones.into_iter().map(lost).collect()
    }

    /// The index has a zone's losses durably. Answers whether the zone is to be
    /// finished.
    pub(super) fn loss_is_known(&mut self, zone: u32) -> bool {
        let known = &mut self.zones[zone as usize];
        // It may have lost more since, or be none for data any more.
        if self.lost.contains(&zone) || known.state != Use::Full {
            return false;
        }
        known.lost = false;
        (1..known.capacity).contains(&known.write_pointer)
    }

    /// The zones that were begun and can be reset.
    pub(super) fn begun(&self) -> Vec<u32> {
        (0..self.zones.len() as u32).filter(|zone| self.is_begun(*zone)).collect()
    }

    /// Whether a zone was begun and can be reset.
    pub(super) fn is_begun(&self, zone: u32) -> bool {
        matches!(self.zones[zone as usize].state, Use::Open | Use::Full | Use::Emptied)
    }

    /// Whether nothing more goes to a zone, and all of its data is there.
    pub(super) fn is_closed(&self, zone: u32) -> bool {
        let zone = &self.zones[zone as usize];
        zone.state == Use::Full && !zone.lost
    }

    /// Closes the zone that was written longest ago, if more than so many are open,
    /// with those that could not be finished, or must not.
    pub(super) fn close_excess(&mut self, open_max: usize) -> Option<u32> {
        let is_excess = self.open.len() + self.unfinished() > open_max;
        let zone = *self.open.first().filter(|_| is_excess)?;
        self.close(zone);
        Some(zone)
    }

    /// Zones that could not be finished, or must not: they count as open.
    fn unfinished(&self) -> usize {
        let has_failed = |zone: &Zone| matches!(zone.state, Use::ReadOnly | Use::Offline);
        let is_unfinished = |zone: &&Zone| zone.unfinished || (zone.lost && !has_failed(zone));
        self.zones.iter().filter(is_unfinished).count()
    }

    /// How often a zone was to be reset.
    pub(super) fn resets(&self, zone: u32) -> u64 {
        self.zones.get(zone as usize).map_or(0, |zone| zone.resets)
    }

    /// Whether a place still has the blocks that were written there after so many resets.
    pub(super) fn has(&self, place: Place, resets: u64) -> bool {
        self.zones.get(place.zone as usize).is_some_and(|zone| {
            let is_there = !matches!(zone.state, Use::None | Use::Offline);
            is_there && zone.resets == resets && place.at + place.blocks <= zone.write_pointer
        })
    }

    /// A zone is about to be reset: nothing there can become live again.
    pub(super) fn is_to_be_reset(&mut self, zone: u32) {
        self.zones[zone as usize].resets += 1;
    }

    /// Of a zone that lost data, the first block that is gone.
    pub(super) fn lost_from(&self, zone: u32) -> Option<u32> {
        let zone = self.zones.get(zone as usize)?;
        zone.lost.then_some(zone.write_pointer)
    }

    /// Blocks were written to an open zone.
    pub(super) fn wrote(&mut self, stream: Stream, why: Written, place: Place, resident: Resident) {
        let zone = &mut self.zones[place.zone as usize];
        zone.write_pointer += place.blocks;
        zone.valid += place.blocks;
        zone.residents.insert(place.at, resident);
        zone.streams.insert(stream);
        let is_full = zone.write_pointer == zone.capacity;
        self.written[usize::from(why == Written::Moved)] += u64::from(place.blocks);
        if why == Written::Promised {
            self.valid += u64::from(place.blocks);
            self.keep_promise(place.blocks.into());
        }
        if is_full {
            self.close(place.zone);
        }
    }

    /// An object does not use these blocks any more: it has others for them, which
    /// were written as [moved](Written::Moved), or else none.
    pub(super) fn free(&mut self, why: Written, place: Place) {
        let Some(zone) = self.zones.get_mut(place.zone as usize) else { return };
        let freed = zone.valid.min(place.blocks);
        zone.valid -= freed;
        if why == Written::Promised {
            self.valid -= u64::from(freed);
        }
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

    /// At recovery: an object has these blocks in this place.
    pub(super) fn found(&mut self, place: Place, resident: Resident) {
        if let Some(zone) = self.zones.get_mut(place.zone as usize) {
            // Only a damaged index has more there than the zone holds.
            let before = zone.valid;
            zone.valid = before.saturating_add(place.blocks);
            zone.residents.insert(place.at, resident);
            self.valid += u64::from(zone.valid - before);
        }
    }

    /// At recovery: a zone is for data of a stream, if it was not reset since.
    pub(super) fn is_for(&mut self, zone: u32, stream: Stream) {
        let is_used = |zone: &&mut Zone| !matches!(zone.state, Use::None | Use::Free);
        if let Some(zone) = self.zones.get_mut(zone as usize).filter(is_used) {
            zone.stream = stream;
            zone.streams.insert(stream);
        }
    }

    /// At recovery: zones that were begun go on, up to so many. Answers the others,
    /// which hold resources of the device.
    pub(super) fn resume(&mut self, open_max: usize) -> Vec<u32> {
        let is_begun = |(_, zone): &(usize, &Zone)| {
            zone.state == Use::Full && (1..zone.capacity).contains(&zone.write_pointer)
        };
        let mut begun: Vec<u32> =
            self.zones.iter().enumerate().filter(is_begun).map(|(number, _)| number as u32).collect();
        // The one with most room first.
        begun.sort_by_key(|number| self.zones[*number as usize].write_pointer);
        let mut unfinished = Vec::new();
        for number in begun {
            let zone = &mut self.zones[number as usize];
            // One for each stream.
            let taken = self.shared.contains_key(&zone.stream);
            if zone.valid > 0 && !taken && self.open.len() < open_max {
                zone.state = Use::Open;
                self.open.push(number);
                self.shared.insert(zone.stream, number);
            } else {
                unfinished.push(number);
            }
        }
        self.shared.clear();
        unfinished
    }

    /// The open zones, and the streams that they are for.
    pub(super) fn open_zones(&self) -> impl Iterator<Item = (u32, Stream)> {
        self.open.iter().map(|zone| (*zone, self.zones[*zone as usize].stream))
    }

    /// The zone that is emptied with least effort, if that gains anything. Nothing else
    /// is to be written to it. Those in `tried` are left out.
    pub(super) fn next_to_empty(&mut self, tried: &BTreeSet<u32>) -> Option<ToEmpty> {
        // Where more blocks are live than lie there, an index was damaged.
        let settled = |zone: &Zone| {
            let blocks = zone.residents.values().map(|resident| u64::from(resident.blocks));
            blocks.sum::<u64>() == u64::from(zone.valid)
        };
        let gains = |(number, zone): &(usize, &Zone)| {
            zone.state == Use::Full && zone.valid < zone.capacity && !tried.contains(&(*number as u32))
        };
        let mut full: Vec<(bool, u32, u32)> = (self.zones.iter().enumerate().filter(gains))
            .map(|(number, zone)| (zone.unread, zone.valid, number as u32))
            .collect();
        full.sort_unstable();
        let (.., number) = full.into_iter().find(|(.., zone)| settled(&self.zones[*zone as usize]))?;
        let zone = &mut self.zones[number as usize];
        zone.state = Use::Emptied;
        let residents = zone.residents.values().rev().copied().collect();
        let (stream, capacity, valid) = (zone.stream, zone.capacity, zone.valid);
        Some(ToEmpty { zone: number, stream, capacity, valid, residents })
    }

    /// A full zone without live data, to which nothing else is to be written.
    pub(super) fn next_dead(&mut self) -> Option<u32> {
        let is_dead = |zone: &Zone| zone.state == Use::Full && zone.valid == 0;
        let number = self.zones.iter().position(is_dead)?;
        self.zones[number].state = Use::Emptied;
        Some(number as u32)
    }

    /// The open zones that were begun and have no live data.
    pub(super) fn dead_open(&self) -> Vec<u32> {
        self.open.iter().copied().filter(|zone| self.is_dead_open(*zone)).collect()
    }

    /// Has nothing else written to an open zone without live data; answers whether
    /// it is one. No write to it is under way.
    pub(super) fn take_dead_open(&mut self, zone: u32) -> bool {
        let is_dead = self.is_dead_open(zone);
        if is_dead {
            self.close(zone);
            self.zones[zone as usize].state = Use::Emptied;
        }
        is_dead
    }

    fn is_dead_open(&self, zone: u32) -> bool {
        let zone = &self.zones[zone as usize];
        zone.state == Use::Open && zone.valid == 0 && zone.write_pointer > 0 && !zone.unsure
    }

    /// How many zones are missing before nothing has to be moved: so many more than are
    /// kept back should be free, as far as there are any.
    pub(super) fn short_of(&self) -> u32 {
        let [least, most] = SPARE;
        (RESERVE + (self.for_data / ZONES_PER_SPARE).clamp(least, most))
            .saturating_sub(self.free.len() as u32)
    }

    /// How many zones need only a reset to be free, or are being reset.
    pub(super) fn to_be_reset(&self) -> u32 {
        let is_dead = |zone: &&Zone| matches!(zone.state, Use::Full | Use::Emptied) && zone.valid == 0;
        self.zones.iter().filter(is_dead).count() as u32
    }

    /// The open zone with most dead data; `None` if there is no such data.
    pub(super) fn most_dead(&self) -> Option<u32> {
        let dead = |zone: &u32| {
            let zone = &self.zones[*zone as usize];
            zone.write_pointer.saturating_sub(zone.valid)
        };
        self.open.iter().copied().max_by_key(dead).filter(|zone| dead(zone) > 0)
    }

    /// Whether a zone has no live data.
    pub(super) fn is_empty(&self, zone: u32) -> bool {
        self.zones[zone as usize].valid == 0
    }

    /// A zone is not emptied after all, unless it has failed meanwhile.
    pub(super) fn stays(&mut self, zone: u32) {
        if !self.failed.contains(&zone) {
            self.zones[zone as usize].state = Use::Full;
        }
    }

    /// Whether the live data of a zone could not be read.
    pub(super) fn are_unread(&self) -> bool {
        self.zones.iter().any(|zone| zone.unread)
    }

    /// The live data of a zone can't be read now.
    pub(super) fn is_unread(&mut self, zone: u32) {
        self.zones[zone as usize].unread = true;
    }

    /// A zone was reset.
    pub(super) fn is_reset(&mut self, zone: u32) {
        let reset = &mut self.zones[zone as usize];
        self.valid -= u64::from(reset.valid);
        *reset = Zone { state: Use::Free, capacity: reset.capacity, resets: reset.resets, ..Zone::default() };
        self.free.push_back(zone);
    }

    /// A zone can't be written any more, whatever is done. Answers whether data of objects
    /// is lost with it.
    pub(super) fn fails(&mut self, zone: u32, state: Use) -> bool {
        self.close(zone);
        let failed = &mut self.zones[zone as usize];
        (failed.state, failed.unread, failed.unfinished) = (state, false, false);
        let is_lost = state == Use::Offline && !failed.residents.is_empty();
        if is_lost {
            failed.write_pointer = 0;
        }
        if !self.failed.contains(&zone) {
            self.room -= u64::from(failed.capacity);
            self.failed.push(zone);
        }
        if is_lost {
            self.has_lost(zone);
        }
        is_lost
    }

    /// The zones that hold anything and can be reset.
    pub(super) fn used(&self) -> Vec<u32> {
        let is_used = |(_, zone): &(usize, &Zone)| matches!(zone.state, Use::Open | Use::Full);
        self.zones.iter().enumerate().filter(is_used).map(|(number, _)| number as u32).collect()
    }

    /// The streams of the zones that are not free.
    pub(super) fn streams(&self) -> Vec<(u32, Stream)> {
        let used = self.zones.iter().enumerate().filter(|(_, zone)| !zone.streams.is_empty());
        used.map(|(number, zone)| (number as u32, zone.stream)).collect()
    }

    pub(super) fn space(&self) -> Space {
        // A failed zone has no room beyond its data.
        let held: u64 = self.failed.iter().map(|zone| u64::from(self.zones[*zone as usize].valid)).sum();
        let usable = (self.room + held).saturating_sub(u64::from(RESERVE) * self.largest);
        Space { used: self.valid.saturating_add(self.promised), usable }
    }

    /// The zones, and the data of each stream.
    pub(super) fn status(&self, block: u64) -> ZoneStatus {
        let count = |wanted: fn(&Zone) -> bool| self.zones.iter().filter(|zone| wanted(zone)).count() as u32;
        let mut streams: BTreeMap<Stream, ZoneStream> = BTreeMap::new();
        for zone in self.zones.iter().filter(|zone| !zone.streams.is_empty()) {
            let id = zone.stream.map(|stream| stream.0);
            let told = streams.entry(zone.stream).or_insert(ZoneStream { id, ..ZoneStream::default() });
            (told.zones, told.bytes) = (told.zones + 1, told.bytes + u64::from(zone.valid) * block);
        }
        ZoneStatus {
            zones: self.for_data,
            free: count(|zone| zone.state == Use::Free),
            open: count(|zone| zone.state == Use::Open),
            mixed: count(|zone| zone.streams.len() > 1),
            failed: count(|zone| matches!(zone.state, Use::ReadOnly | Use::Offline)),
            data_bytes: self.written[0] * block,
            moved_bytes: self.written[1] * block,
            streams: streams.into_values().collect(),
            ..ZoneStatus::default()
        }
    }
}
