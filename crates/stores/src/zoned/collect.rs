//! Emptying zones, so that they can be written anew: those of which nothing is of
//! use need only a reset; of others, what is of use is moved to zones of the same
//! stream. It is put off until a zone is needed.

use super::extents::Place;
use super::index::Index;
use super::object::Object;
use super::table::{Resident, Stream, ToEmpty, Written};
use super::zones::Claim;
use braid_contract::{Errno, Error, Result};
use braid_sys::AlignedBuf;
use parking_lot::{Mutex, MutexGuard};
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
        loop {
            if index.shared.zones.free_zones() > 0 {
                return Ok(true);
            }
            match index.shared.zones.next_to_empty() {
                Some(zone) => {
                    if !self.empty(index, &zone)? {
                        return Ok(false);
                    }
                }
                None if index.shared.zones.finish_one() => {}
                None => return Ok(false),
            }
        }
    }

    /// Moves what is of use out of a zone, and resets it. Answers whether that is
    /// done.
    fn empty(&self, index: &Index, emptied: &ToEmpty) -> Result<bool> {
        let (zone, stream) = (emptied.zone, emptied.stream);
        let moved = emptied
            .residents
            .iter()
            .try_for_each(|resident| self.move_resident(index, (zone, stream), *resident));
        match moved {
            Ok(()) => {}
            // The device is there, so that it is for good.
            Err(Stuck::Source(error)) if index.shared.device.report(zone).is_ok() => {
                tracing::warn!(zone, %error, "a zone can't be emptied");
                index.shared.zones.cant_be_emptied(zone);
                return Ok(true);
            }
            Err(Stuck::Source(error) | Stuck::Elsewhere(error)) => {
                index.shared.zones.stays(zone);
                return if error.errno() == Errno::EAGAIN { Ok(false) } else { Err(error) };
            }
        }
        // Asked before the commit: what goes after it is not durable.
        if !index.shared.zones.is_empty(zone) {
            index.shared.zones.stays(zone);
            return Ok(false);
        }
        // The index that leads elsewhere is durable before what was here goes.
        if let Err(error) = index.commit() {
            index.shared.zones.stays(zone);
            return Err(error);
        }
        index.shared.zones.reset(zone)?;
        Ok(true)
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
        for (first, place) in there {
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
