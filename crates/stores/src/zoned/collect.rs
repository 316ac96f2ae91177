//! Emptying zones, so that they can be written anew: those of which nothing is of
//! use need only a reset; of others, what is of use is moved to zones of the same
//! stream. It is put off until a zone is needed.

use super::extents::Place;
use super::object::Object;
use super::store::ZonedStore;
use super::zones::{Claim, Resident, Stream};
use braid_contract::{Errno, Result};
use braid_sys::AlignedBuf;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Bytes that are moved at a time.
const MOVE_MAX: u64 = 1 << 20;

impl ZonedStore {
    /// Makes a zone free, unless there is one; answers whether there is one then.
    /// The caller holds no object.
    pub(super) fn make_room(&self) -> Result<bool> {
        let _collecting = self.collecting.lock();
        loop {
            if self.shared.zones.free_zones() > 0 {
                return Ok(true);
            }
            match self.shared.zones.to_empty() {
                Some((zone, stream, residents)) => {
                    if !self.empty(zone, stream, &residents)? {
                        return Ok(false);
                    }
                }
                None if self.shared.zones.finish_one() => {}
                None => return Ok(false),
            }
        }
    }

    /// Moves what is of use out of a zone, and resets it. Answers whether that is
    /// done.
    fn empty(&self, zone: u32, stream: Stream, residents: &[(u32, Resident)]) -> Result<bool> {
        let moved =
            residents.iter().try_for_each(|(_, resident)| self.move_resident(zone, stream, *resident));
        if let Err(error) = moved {
            if error.errno() == Errno::EAGAIN {
                self.shared.zones.stays(zone);
                return Ok(false);
            }
            tracing::warn!(zone, %error, "a zone can't be emptied");
            self.shared.zones.cant_be_emptied(zone);
            return Ok(true);
        }
        // The index that leads elsewhere is durable before what was here goes.
        if let Err(error) = self.commit() {
            self.shared.zones.stays(zone);
            return Err(error);
        }
        match self.shared.zones.is_empty(zone) {
            true => self.shared.zones.reset(zone)?,
            false => self.shared.zones.stays(zone),
        }
        Ok(true)
    }

    fn move_resident(&self, zone: u32, stream: Stream, resident: Resident) -> Result<()> {
        // It may be gone, or be elsewhere, meanwhile.
        let Ok(object) = self.object(resident.object) else { return Ok(()) };
        let mut at = resident.first;
        let end = resident.first + u64::from(resident.blocks);
        while at < end {
            let next = (at + MOVE_MAX / self.shared.block).min(end);
            self.move_blocks(&object, zone, stream, at..next)?;
            at = next;
        }
        Ok(())
    }

    fn move_blocks(&self, object: &Object, zone: u32, stream: Stream, blocks: Range<u64>) -> Result<()> {
        let mut state = object.state.write();
        let there: Vec<(u64, Place)> =
            state.extents.within(blocks).filter(|(_, place)| place.zone == zone).collect();
        let mut buf = AlignedBuf::new();
        for (first, place) in there {
            let bytes = buf.bytes((u64::from(place.blocks) * self.shared.block) as usize);
            self.shared.device.read(zone, u64::from(place.at) * self.shared.block, bytes)?;
            // What was there before must not come back as part of the object.
            let base = first * self.shared.block;
            for gap in state.placed.gaps_within(base..base + bytes.len() as u64) {
                bytes[(gap.start - base) as usize..(gap.end - base) as usize].fill(0);
            }
            let mut done = 0;
            while done < bytes.len() {
                let at = first + done as u64 / self.shared.block;
                let mut opened = |zone| self.shared.opened(zone, stream);
                let places = self.shared.zones.write(
                    stream,
                    Claim::Moved,
                    (object.id, at),
                    &bytes[done..],
                    &mut opened,
                )?;
                let mut at = at;
                for place in places {
                    object.is_at(&self.shared, &mut state, at, place);
                    at += u64::from(place.blocks);
                    done += (u64::from(place.blocks) * self.shared.block) as usize;
                }
            }
            self.moved.fetch_add(done as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}
