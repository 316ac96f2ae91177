//! The zones of a device for data: chooses the zone of a stream, and handles
//! failed ones.
//!
//! Data of a stream goes to the zone that is open for it. One that has none gets a
//! free one, up to the device's limits; after that it shares the zone that was
//! written longest ago, until that is full. Some zones are kept back for moving data.

use super::extents::Place;
use super::table::{RESERVE, Resident, Space, Stream, Table, ToEmpty, Use, Written};
use super::watched::Watched;
use braid_contract::{Context, Errno, Error, ObjectId, Result, ZoneKind, ZoneState, ZoneStatus, ZonedDevice};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Zones that a write tries before it gives up.
const ATTEMPTS: usize = 3;

/// The zones for data.
pub(super) struct Zones {
    device: Arc<Watched>,
    block: u64,
    /// Most zones that are open for data.
    open_max: usize,
    table: Mutex<Table>,
    /// Held while a zone is written, finished or reset.
    writers: Vec<Mutex<()>>,
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

/// The outcome of a write to a zone.
enum Outcome {
    Written(Place),
    /// It is not open any more.
    Closed,
    /// It did not take it.
    Refused(Error),
}

impl Claim {
    fn why(self) -> Written {
        match self {
            Self::New | Self::Squeezed => Written::Promised,
            Self::Moved => Written::Moved,
        }
    }
}

impl Zones {
    /// The zones `numbers` of a device, of which `open_max` may be open at a time.
    pub(super) fn new(device: Arc<Watched>, numbers: Range<u32>, open_max: usize) -> Result<Self> {
        let block = device.geometry().block;
        let mut table = Table::default();
        for number in 0..numbers.end {
            if !numbers.contains(&number) {
                table.add(Use::None, 0, 0);
                continue;
            }
            let found = device.report(number).with_context(|| format!("zone {number}"))?;
            let state = match (found.kind, found.state) {
                (ZoneKind::Conventional, _) => Use::None,
                (_, ZoneState::Offline) => Use::Offline,
                (_, ZoneState::ReadOnly) => Use::ReadOnly,
                (_, ZoneState::Empty) => Use::Free,
                (_, ZoneState::Open | ZoneState::Closed | ZoneState::Full) => Use::Full,
            };
            table.add(state, (found.capacity / block) as u32, (found.write_pointer / block) as u32);
        }
        let writers = (0..numbers.end).map(|_| Mutex::default()).collect();
        Ok(Self { device, block, open_max: open_max.max(1), table: Mutex::new(table), writers })
    }

    /// The block behind the last one of a zone that was written. Of one whose data is
    /// lost, the last block: reading shows that.
    pub(super) fn write_pointer(&self, zone: u32) -> Option<u32> {
        self.table.lock().write_pointer(zone)
    }

    /// Promises so many blocks to data that is to be written later.
    pub(super) fn promise(&self, blocks: u64) -> Result<()> {
        match self.table.lock().promise(blocks) {
            true => Ok(()),
            false => Err(Error::new(Errno::ENOSPC, "the zones have no room")),
        }
    }

    /// At recovery: so many blocks were promised before.
    pub(super) fn has_promised(&self, blocks: u64) {
        self.table.lock().has_promised(blocks);
    }

    /// So many blocks that were promised are not needed.
    pub(super) fn keep_promise(&self, blocks: u64) {
        self.table.lock().keep_promise(blocks);
    }

    /// Writes blocks that begin with `first` of an object, to zones of a stream, and
    /// answers where they are; fewer of them if the rest failed. `EAGAIN` if a zone
    /// has to be emptied first.
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
            let written = self.zone_for(stream, claim, opened).and_then(|zone| {
                let _writing = self.writers[zone as usize].lock();
                let resident = Resident { object, first: first + done as u64 / self.block, blocks: 0 };
                let outcome = self.write_to(zone, (stream, claim), resident, &data[done..])?;
                if let Outcome::Refused(error) = &outcome {
                    self.give_up(zone, error)?;
                }
                Ok(outcome)
            });
            match written {
                Ok(Outcome::Written(place)) => {
                    done += (u64::from(place.blocks) * self.block) as usize;
                    places.push(place);
                }
                Ok(Outcome::Closed) => {}
                // Too many zones are begun: another one would be refused too.
                Ok(Outcome::Refused(error)) if done == 0 && error.errno() == Errno::EOVERFLOW => {
                    return Err(error);
                }
                Ok(Outcome::Refused(_)) if failed + 1 < ATTEMPTS => failed += 1,
                Ok(Outcome::Refused(_)) | Err(_) if done > 0 => break,
                Ok(Outcome::Refused(error)) | Err(error) => return Err(error),
            }
        }
        Ok(places)
    }

    /// Writes as much as a zone has room for. Its writer's lock is held.
    fn write_to(
        &self,
        zone: u32,
        (stream, claim): (Stream, Claim),
        resident: Resident,
        data: &[u8],
    ) -> Result<Outcome> {
        if self.table.lock().is_unsure(zone) {
            self.ask(zone)?;
        }
        let Some((at, room)) = self.table.lock().room_in(zone) else { return Ok(Outcome::Closed) };
        let blocks = ((data.len() as u64 / self.block) as u32).min(room);
        let data = &data[..(u64::from(blocks) * self.block) as usize];
        // The write pointer of a full zone does not show losses. So all of it is
        // durable before it is full, or before the index can lead there.
        let fills = blocks == room;
        let failures = self.device.failures();
        if fills {
            self.device.flush()?;
        }
        if let Err(error) = self.device.write(zone, u64::from(at) * self.block, &[IoSlice::new(data)]) {
            return Ok(Outcome::Refused(error));
        }
        if fills && let Err(error) = self.device.flush_since(failures) {
            self.table.lock().is_written_to(zone, at + blocks);
            return Err(error);
        }
        let place = Place { zone, at, blocks };
        self.table.lock().wrote(stream, claim.why(), place, Resident { blocks, ..resident });
        Ok(Outcome::Written(place))
    }

    /// The zone that a stream's data goes to.
    fn zone_for(&self, stream: Stream, claim: Claim, opened: &mut dyn FnMut(u32)) -> Result<u32> {
        let mut table = self.table.lock();
        if let Some(zone) = table.open_for(stream) {
            return Ok(zone);
        }
        let kept_back = if claim == Claim::Moved { 0 } else { RESERVE };
        let may_open = table.may_open(self.open_max);
        if may_open && let Some(zone) = table.open(stream, kept_back) {
            self.device.assign(zone, stream);
            opened(zone);
            return Ok(zone);
        }
        if may_open && claim == Claim::New {
            return Err(Error::new(Errno::EAGAIN, "a zone has to be emptied first"));
        }
        table.share(stream).ok_or_else(|| Error::new(Errno::EAGAIN, "no zone has room"))
    }

    /// Asks the device how far a zone was written, and whether it still can be; answers
    /// its state.
    fn ask(&self, zone: u32) -> Result<ZoneState> {
        let found = self.device.report(zone).with_context(|| format!("zone {zone}"))?;
        let (state, at) = (found.state, found.write_pointer);
        let mut table = self.table.lock();
        // One that is full was closed by its write pointer; one that is offline has none.
        let is_lost = match state {
            ZoneState::Offline => table.fails(zone, Use::Offline),
            _ => table.is_written_to(zone, (at / self.block) as u32),
        };
        if state == ZoneState::ReadOnly {
            table.fails(zone, Use::ReadOnly);
        }
        if is_lost {
            // Before objects learn of it.
            self.device.has_lost();
            tracing::error!(zone, ?state, at, "the device has lost data of this zone; reading it fails");
        }
        Ok(state)
    }

    /// Asks how far zones were written. Those that were finished and are so no more are
    /// finished again; so are open ones, if there are too many with those that can't be.
    pub(super) fn ask_all(&self) -> Result<()> {
        let begun = self.table.lock().begun();
        for zone in begun {
            let _writing = self.writers[zone as usize].lock();
            if !self.table.lock().is_begun(zone) {
                continue;
            }
            let state = self.ask(zone)?;
            if matches!(state, ZoneState::Open | ZoneState::Closed) && self.table.lock().is_closed(zone) {
                self.finish(zone);
            }
        }
        loop {
            let Some(zone) = self.table.lock().close_excess(self.open_max) else { return Ok(()) };
            let _writing = self.writers[zone as usize].lock();
            self.finish(zone);
        }
    }

    /// Zones that were found to have lost data since the last call, with the
    /// residents concerned.
    pub(super) fn take_lost(&self) -> Vec<(u32, Vec<Resident>)> {
        self.table.lock().take_lost()
    }

    /// A zone took no write: nothing more goes there. It goes on if the device does
    /// not answer either: the device is absent, and may come back. The zone's writer's
    /// lock is held.
    fn give_up(&self, zone: u32, error: &Error) -> Result<()> {
        tracing::warn!(zone, %error, "a zone can't be written");
        let state = self.ask(zone).inspect_err(|_| self.table.lock().set_unsure(zone))?;
        let mut table = self.table.lock();
        if table.room_in(zone).is_some() {
            table.close(zone);
        }
        // The write pointer of a finished zone does not show losses.
        let is_lost = table.lost_from(zone).is_some();
        drop(table);
        if !is_lost && state.is_usable() {
            self.finish(zone);
        }
        Ok(())
    }

    /// The index has a zone's losses durably: it is as any other one that is full.
    pub(super) fn loss_is_known(&self, zone: u32) {
        let _writing = self.writers[zone as usize].lock();
        if self.table.lock().loss_is_known(zone) {
            self.finish(zone);
        }
    }

    /// How often a zone was to be reset.
    pub(super) fn resets(&self, zone: u32) -> u64 {
        self.table.lock().resets(zone)
    }

    /// An object has its blocks in a place again that it had left, if the zone was not
    /// to be reset since. Answers whether it has.
    pub(super) fn take_back(&self, place: Place, resident: Resident, resets: u64) -> bool {
        let Some(writer) = self.writers.get(place.zone as usize) else { return false };
        let _writing = writer.lock();
        let mut table = self.table.lock();
        let is_there = table.has(place, resets);
        if is_there {
            table.found(place, resident);
        }
        is_there
    }

    /// Blocks that an object has had in this place are not its any more: they were
    /// moved, or replaced or removed.
    pub(super) fn free(&self, why: Written, place: Place) {
        self.table.lock().free(why, place);
    }

    /// At recovery: an object has these blocks in this place.
    pub(super) fn found(&self, place: Place, resident: Resident) {
        self.table.lock().found(place, resident);
    }

    /// At recovery: a zone is for data of a stream.
    pub(super) fn is_for(&self, zone: u32, stream: Stream) {
        self.table.lock().is_for(zone, stream);
    }

    /// At recovery: zones that were begun go on, as far as the limits allow. Answers
    /// the others, which are to be [finished](Self::finish): they hold resources of
    /// the device.
    pub(super) fn resume(&self) -> Vec<u32> {
        let mut table = self.table.lock();
        let unfinished = table.resume(self.open_max);
        table.open_zones().for_each(|(zone, stream)| self.device.assign(zone, stream));
        // Units of a device without zones hold nothing.
        if self.device.keeps_write_pointers() { unfinished } else { Vec::new() }
    }

    /// Finishes a zone to which nothing more goes.
    pub(super) fn finish(&self, zone: u32) {
        // Unflushed data might be lost, and would not be missed. Then another zone may
        // be begun in its place.
        let finished = self.device.flush().and_then(|()| {
            // A flush before this one may have failed.
            let state = self.ask(zone)?;
            match self.lost_from(zone) {
                // It holds nothing.
                _ if !state.is_usable() => Ok(()),
                Some(_) => Err(Error::new(Errno::EIO, "it has lost data")),
                None => self.device.finish(zone),
            }
        });
        let finished = finished.and_then(|()| self.device.flush());
        self.table.lock().set_unfinished(zone, finished.is_err());
        if let Err(error) = finished {
            tracing::debug!(zone, %error, "a zone is not finished");
        }
    }

    /// The zone that is emptied with least effort, if that gains anything. Nothing else
    /// is to be written to it. Those in `tried` are left out.
    pub(super) fn next_to_empty(&self, tried: &BTreeSet<u32>) -> Option<ToEmpty> {
        self.table.lock().next_to_empty(tried)
    }

    /// A zone without live data, to which nothing else is to be written.
    pub(super) fn next_dead(&self) -> Option<u32> {
        let (full, open) = {
            let mut table = self.table.lock();
            (table.next_dead(), table.dead_open())
        };
        // Writes under way to an open one are not in the table yet.
        full.or_else(|| {
            open.into_iter().find(|zone| {
                let writing = self.writers[*zone as usize].try_lock();
                writing.is_some() && self.table.lock().take_dead_open(*zone)
            })
        })
    }

    /// How many zones are missing before nothing has to be moved.
    pub(super) fn short_of(&self) -> u32 {
        self.table.lock().short_of()
    }

    /// How many zones need only a reset to be free, or are being reset.
    pub(super) fn to_be_reset(&self) -> u32 {
        self.table.lock().to_be_reset()
    }

    /// Of a zone that lost data, the first block that is gone.
    pub(super) fn lost_from(&self, zone: u32) -> Option<u32> {
        self.table.lock().lost_from(zone)
    }

    /// Whether a zone that is being emptied has no live data.
    pub(super) fn is_empty(&self, zone: u32) -> bool {
        self.table.lock().is_empty(zone)
    }

    /// A zone is not emptied after all.
    pub(super) fn stays(&self, zone: u32) {
        self.table.lock().stays(zone);
    }

    /// Resets a zone without live data, durably. One that can't be reset has failed,
    /// which is no error; nor is it an error that data there is live
    /// [again](Self::take_back): the zone stays.
    ///
    /// # Errors
    /// If the device does not answer: the zone stays as it is.
    pub(super) fn reset(&self, zone: u32) -> Result<()> {
        let _writing = self.writers[zone as usize].lock();
        {
            let mut table = self.table.lock();
            if !table.is_empty(zone) {
                table.stays(zone);
                return Ok(());
            }
            table.is_to_be_reset(zone);
        }
        let failures = self.device.failures();
        if let Err(error) = self.device.reset(zone) {
            let found = self.device.report(zone);
            let mut table = self.table.lock();
            match found.map(|found| found.state) {
                Err(_) => {
                    table.stays(zone);
                    return Err(error);
                }
                // It was reset before that went wrong.
                Ok(ZoneState::Empty) => {}
                Ok(state) => {
                    let is_offline = state == ZoneState::Offline;
                    table.fails(zone, if is_offline { Use::Offline } else { Use::ReadOnly });
                    table.set_unfinished(zone, matches!(state, ZoneState::Open | ZoneState::Closed));
                    tracing::warn!(zone, %error, "a zone can't be reset");
                    return Ok(());
                }
            }
        }
        // If that were undone, the old data would be taken for data that is written
        // next.
        let flushed = self.device.flush_since(failures);
        let mut table = self.table.lock();
        match flushed {
            Ok(()) => table.is_reset(zone),
            Err(_) => table.stays(zone),
        }
        flushed
    }

    /// Resets all zones that hold anything; none of it is live.
    pub(super) fn reset_all(&self) -> Result<()> {
        let used = self.table.lock().used();
        for zone in used {
            self.table.lock().close(zone);
            self.reset(zone)?;
        }
        Ok(())
    }

    /// Whether a zone could not be emptied, and was not since.
    pub(super) fn are_unread(&self) -> bool {
        self.table.lock().are_unread()
    }

    /// The live data of a zone can't be read now: it stays, and is tried again when no
    /// other zone can be emptied.
    pub(super) fn is_unread(&self, zone: u32) {
        let mut table = self.table.lock();
        table.is_unread(zone);
        table.stays(zone);
    }

    /// Finishes the open zone with most dead data, so that it can be emptied.
    /// Answers whether there was one.
    pub(super) fn finish_one(&self) -> bool {
        let mut table = self.table.lock();
        let Some(zone) = table.most_dead() else { return false };
        table.close(zone);
        drop(table);
        let _writing = self.writers[zone as usize].lock();
        self.finish(zone);
        true
    }

    /// Zones that are free for data that is not moved.
    pub(super) fn free_zones(&self) -> u32 {
        self.table.lock().free_zones()
    }

    pub(super) fn space(&self) -> Space {
        self.table.lock().space()
    }

    pub(super) fn status(&self) -> ZoneStatus {
        self.table.lock().status(self.block)
    }

    /// Whether a zone that can be written is not free.
    pub(super) fn are_used(&self) -> bool {
        let counts = self.status();
        counts.free + counts.failed < counts.zones
    }

    /// The streams of the zones that are not free, for the index.
    pub(super) fn streams(&self) -> Vec<(u32, Stream)> {
        self.table.lock().streams()
    }
}
