//! Emptying zones, so that they can be written anew: those without live data need
//! only a reset; the live data of others is moved to zones of the same stream, a
//! piece at a time. [pace](super::pace) decides when.

use super::extents::Place;
use super::index::Index;
use super::table::{Resident, Stream, ToEmpty, Written};
use super::zones::Claim;
use braid_contract::{Errno, Error, Result, ZonedDevice};
use braid_sys::AlignedBuf;
use std::collections::BTreeSet;

/// Bytes that are moved at a time.
const MOVE_MAX: u64 = 1 << 20;

/// Why a zone is not emptied.
enum Stuck {
    /// Its data can't be read.
    Source(Error),
    /// Anything else.
    Elsewhere(Error),
}

impl From<Error> for Stuck {
    fn from(error: Error) -> Self {
        Self::Elsewhere(error)
    }
}

/// The outcome of a step.
pub(super) enum Step {
    /// So many blocks were moved. For each, `gain` blocks are gained once all are.
    Moved { blocks: u64, gain: f64 },
    /// A zone is free.
    Freed,
    /// A zone still has live data: another one may be emptied.
    Stays,
    /// No zone can be emptied, at least as things are.
    Nothing,
    /// Its data has nowhere to go.
    NoRoom,
}

/// A zone that is being emptied.
struct Work {
    zone: ToEmpty,
    /// The gain for each block that is moved.
    gain: f64,
}

/// Empties zones, one at a time and a piece at a time.
#[derive(Default)]
pub(super) struct Collector {
    work: Option<Work>,
    /// Zones that could not be emptied.
    tried: BTreeSet<u32>,
}

impl Collector {
    /// Makes a zone free, unless there is one; answers whether there is one then.
    /// The caller holds no object.
    pub(super) fn make_room(&mut self, index: &Index) -> Result<bool> {
        self.begin();
        while index.shared.zones.free_zones() == 0 {
            match self.step(index)? {
                Step::Moved { .. } | Step::Freed | Step::Stays => {}
                Step::Nothing if index.shared.zones.finish_one() => {}
                Step::Nothing | Step::NoRoom => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Zones that could not be emptied are tried anew.
    pub(super) fn begin(&mut self) {
        self.tried.clear();
    }

    /// Nothing is under way any more, for all zones are to be reset.
    pub(super) fn give_up(&mut self, index: &Index) {
        if let Some(work) = self.work.take() {
            index.shared.zones.stays(work.zone.zone);
        }
    }

    /// Resets a zone without live data, else moves a piece out of the one with least.
    /// The caller holds no object.
    pub(super) fn step(&mut self, index: &Index) -> Result<Step> {
        let zones = &index.shared.zones;
        if let Some(zone) = zones.next_dead() {
            return free(index, zone);
        }
        let Some(work) = &mut self.work else {
            let Some(zone) = zones.next_to_empty(&self.tried) else { return Ok(Step::Nothing) };
            let gain = f64::from(zone.capacity - zone.valid) / f64::from(zone.valid.max(1));
            self.work = Some(Work { zone, gain });
            // Data moved before a read fails takes room and frees none: once a read has
            // failed, all data is read before any is moved.
            let read = if zones.are_unread() { self.read_all(index) } else { Ok(()) };
            return self.outcome(index, read.map(|()| 0));
        };
        let zone = work.zone.zone;
        // Checked before the commit: later removals are not durable.
        if zones.is_empty(zone) {
            self.work = None;
            return free(index, zone);
        }
        let Some(resident) = work.zone.residents.last_mut() else {
            self.work = None;
            zones.stays(zone);
            self.tried.insert(zone);
            return Ok(Step::Stays);
        };
        let piece = resident.take(MOVE_MAX / index.shared.block);
        if resident.blocks == 0 {
            work.zone.residents.pop();
        }
        let moved = move_piece(index, (zone, work.zone.stream), piece);
        self.outcome(index, moved)
    }

    /// The outcome of moving something out of the zone that is being emptied.
    fn outcome(&mut self, index: &Index, moved: std::result::Result<u64, Stuck>) -> Result<Step> {
        let Some(work) = &self.work else { return Ok(Step::Nothing) };
        let (zone, gain) = (work.zone.zone, work.gain);
        match moved {
            Ok(blocks) => Ok(Step::Moved { blocks, gain }),
            // The device is there, and may read it another time.
            Err(Stuck::Source(error)) if index.shared.device.report(zone).is_ok() => {
                tracing::warn!(zone, %error, "a zone can't be emptied now");
                index.shared.zones.is_unread(zone);
                self.work = None;
                self.tried.insert(zone);
                Ok(Step::Stays)
            }
            Err(Stuck::Source(error) | Stuck::Elsewhere(error)) => {
                self.give_up(index);
                if error.errno() == Errno::EAGAIN { Ok(Step::NoRoom) } else { Err(error) }
            }
        }
    }

    /// Reads all live data in the zone that is being emptied.
    fn read_all(&self, index: &Index) -> std::result::Result<(), Stuck> {
        let Some(work) = &self.work else { return Ok(()) };
        let zone = work.zone.zone;
        work.zone.residents.iter().try_for_each(|resident| read_resident(index, zone, *resident))
    }
}

/// Resets a zone without live data.
fn free(index: &Index, zone: u32) -> Result<Step> {
    // The index that leads elsewhere is durable before the old data goes.
    if let Err(error) = index.commit() {
        index.shared.zones.stays(zone);
        return Err(error);
    }
    index.shared.zones.reset(zone)?;
    Ok(Step::Freed)
}

/// Reads an object's data in a zone, to see whether that works.
fn read_resident(index: &Index, zone: u32, resident: Resident) -> std::result::Result<(), Stuck> {
    let Ok(object) = index.object(resident.object) else { return Ok(()) };
    let state = object.state.read();
    let blocks = resident.first..resident.first + u64::from(resident.blocks);
    let mut buf = AlignedBuf::new();
    for (_, mut place) in state.extents.within(blocks).filter(|(_, place)| place.zone == zone) {
        if let Some(from) = index.shared.zones.lost_from(zone) {
            place.split_off(from);
        }
        let (block, len) = (index.shared.block, u64::from(place.blocks) * index.shared.block);
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(MOVE_MAX);
            let from = u64::from(place.at) * block + done;
            index.shared.device.read(zone, from, buf.bytes(piece as usize)).map_err(Stuck::Source)?;
            done += piece;
        }
    }
    Ok(())
}

/// Moves the object's blocks that are still in a zone, of these; answers how many.
fn move_piece(
    index: &Index,
    (zone, stream): (u32, Stream),
    piece: Resident,
) -> std::result::Result<u64, Stuck> {
    // It may be gone, or be elsewhere, meanwhile.
    let Ok(object) = index.object(piece.object) else { return Ok(0) };
    let blocks = piece.first..piece.first + u64::from(piece.blocks);
    let mut moved = 0;
    let mut state = object.state.write();
    // Data that the device has lost stays lost when the zone is written anew.
    object.lose_in(&index.shared, &mut state, zone, piece);
    let there: Vec<(u64, Place)> =
        state.extents.within(blocks).filter(|(_, place)| place.zone == zone).collect();
    let mut buf = AlignedBuf::new();
    for (first, place) in there {
        let bytes = buf.bytes((u64::from(place.blocks) * index.shared.block) as usize);
        let from = u64::from(place.at) * index.shared.block;
        index.shared.device.read(zone, from, bytes).map_err(Stuck::Source)?;
        // Older data there must not come back as part of the object.
        let base = first * index.shared.block;
        for gap in state.placed.gaps_within(base..base + bytes.len() as u64) {
            bytes[(gap.start - base) as usize..(gap.end - base) as usize].fill(0);
        }
        moved += u64::from(place.blocks);
        let mut done = 0;
        while done < bytes.len() {
            let at = first + done as u64 / index.shared.block;
            let mut opened = |zone| index.shared.opened(zone, stream);
            let places = index.shared.zones.write(
                stream,
                Claim::Moved,
                (object.id, at),
                &bytes[done..],
                &mut opened,
            )?;
            let mut at = at;
            for place in places {
                object.is_at(&index.shared, &mut state, (at, place), Written::Moved);
                at += u64::from(place.blocks);
                done += (u64::from(place.blocks) * index.shared.block) as usize;
            }
        }
    }
    Ok(moved)
}
