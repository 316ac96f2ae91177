//! Emptying zones, so that they can be written anew: those of which nothing is of
//! use need only a reset; of others, what is of use is moved to zones of the same
//! stream. It is put off until a zone is needed.

use super::extents::{LOST, Place};
use super::index::Index;
use super::object::Object;
use super::table::{Resident, Stream, ToEmpty, Written};
use super::zones::Claim;
use braid_contract::{Errno, Error, Result};
use braid_sys::AlignedBuf;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes that are moved at a time.
const MOVE_MAX: u64 = 1 << 20;

/// Why a zone is not emptied.
enum Stuck {
    /// What is there can't be read.
    Source(Error),
    /// Anything else.
    Elsewhere(Error),
}

impl From<Error> for Stuck {
    fn from(error: Error) -> Self {
        Self::Elsewhere(error)
    }
}

/// What came of emptying a zone.
enum Emptied {
    Done,
    /// Something in it is still of use: another one may be emptied.
    Stays,
    /// What is there has nowhere to go.
    NoRoom,
}

/// Empties zones, one at a time.
#[derive(Default)]
pub(super) struct Collector {
    /// Held while a zone is emptied.
    collecting: Mutex<()>,
}

impl Collector {
    /// Keeps zones from being emptied.
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        self.collecting.lock()
    }

    /// Makes a zone free, unless there is one; answers whether there is one then.
    /// The caller holds no object.
    pub(super) fn make_room(&self, index: &Index) -> Result<bool> {
        let _collecting = self.collecting.lock();
        let mut tried = BTreeSet::new();
        loop {
            if index.shared.zones.free_zones() > 0 {
                return Ok(true);
            }
            match index.shared.zones.next_to_empty(&tried) {
                Some(zone) => match self.empty(index, &zone)? {
                    Emptied::Done => {}
                    Emptied::Stays => _ = tried.insert(zone.zone),
                    Emptied::NoRoom => return Ok(false),
                },
                None if index.shared.zones.finish_one() => {}
                None => return Ok(false),
            }
        }
    }

    /// Moves what is of use out of a zone, and resets it.
    fn empty(&self, index: &Index, emptied: &ToEmpty) -> Result<Emptied> {
        let (zone, stream) = (emptied.zone, emptied.stream);
        // What is moved before a read fails takes room and frees none: once one has failed,
        // all is read before any is moved.
        let read = match index.shared.zones.are_unread() {
            true => each(emptied, |resident| self.read_resident(index, zone, resident)),
            false => Ok(()),
        };
        let move_it = |resident| self.move_resident(index, (zone, stream), resident);
        match read.and_then(|()| each(emptied, move_it)) {
            Ok(()) => {}
            // The device is there, and may read it another time.
            Err(Stuck::Source(error)) if index.shared.device.report(zone).is_ok() => {
                tracing::warn!(zone, %error, "a zone can't be emptied now");
                index.shared.zones.is_unread(zone);
                return Ok(Emptied::Stays);
            }
            Err(Stuck::Source(error) | Stuck::Elsewhere(error)) => {
                index.shared.zones.stays(zone);
                let is_full = error.errno() == Errno::EAGAIN;
                return if is_full { Ok(Emptied::NoRoom) } else { Err(error) };
            }
        }
        // Asked before the commit: what goes after it is not durable.
        if !index.shared.zones.is_empty(zone) {
            index.shared.zones.stays(zone);
            return Ok(Emptied::Stays);
        }
        // The index that leads elsewhere is durable before what was here goes.
        if let Err(error) = index.commit() {
            index.shared.zones.stays(zone);
            return Err(error);
        }
        index.shared.zones.reset(zone)?;
        Ok(Emptied::Done)
    }

    /// Reads what an object has in a zone, for whether that can be done.
    fn read_resident(&self, index: &Index, zone: u32, resident: Resident) -> std::result::Result<(), Stuck> {
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

    fn move_resident(
        &self,
        index: &Index,
        from: (u32, Stream),
        resident: Resident,
    ) -> std::result::Result<(), Stuck> {
        // It may be gone, or be elsewhere, meanwhile.
        let Ok(object) = index.object(resident.object) else { return Ok(()) };
        let mut at = resident.first;
        let end = resident.first + u64::from(resident.blocks);
        while at < end {
            let next = (at + MOVE_MAX / index.shared.block).min(end);
            self.move_blocks(index, &object, from, at..next)?;
            at = next;
        }
        Ok(())
    }

    fn move_blocks(
        &self,
        index: &Index,
        object: &Object,
        (zone, stream): (u32, Stream),
        blocks: Range<u64>,
    ) -> std::result::Result<(), Stuck> {
        let mut state = object.state.write();
        let there: Vec<(u64, Place)> =
            state.extents.within(blocks).filter(|(_, place)| place.zone == zone).collect();
        let mut buf = AlignedBuf::new();
        for (first, mut place) in there {
            // What the device has lost stays so when the zone is written anew.
            if let Some(gone) = index.shared.zones.lost_from(zone).map(|from| place.split_off(from)) {
                let skipped = place.blocks;
                let lost = Place { zone: LOST, at: 0, blocks: gone };
                if gone > 0 {
                    object.is_at(
                        &index.shared,
                        &mut state,
                        (first + u64::from(skipped), lost),
                        Written::Promised,
                    );
                }
                if skipped == 0 {
                    continue;
                }
            }
            let bytes = buf.bytes((u64::from(place.blocks) * index.shared.block) as usize);
            let from = u64::from(place.at) * index.shared.block;
            index.shared.device.read(zone, from, bytes).map_err(Stuck::Source)?;
            // What was there before must not come back as part of the object.
            let base = first * index.shared.block;
            for gap in state.placed.gaps_within(base..base + bytes.len() as u64) {
                bytes[(gap.start - base) as usize..(gap.end - base) as usize].fill(0);
            }
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
        Ok(())
    }
}

fn each(
    emptied: &ToEmpty,
    visit: impl FnMut(Resident) -> std::result::Result<(), Stuck>,
) -> std::result::Result<(), Stuck> {
    emptied.residents.iter().copied().try_for_each(visit)
}
