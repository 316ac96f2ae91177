//! Putting new versions of frames into slots. A version goes into a slot that has neither the
//! current nor the durable one, so that nothing is lost wherever a write ends.

use super::access::{Access, Current};
use super::codec::{Stamp, in_blocks};
use super::file::State;
use super::geometry::Side;
use super::header::{Slot, Trio};
use braid_contract::{Errno, Error, Result};
use rayon::prelude::*;

/// Number of frames from which on several threads seal them.
const PARALLEL_FROM: usize = 4;

/// A frame that is about to be written.
struct Piece {
    frame: u64,
    side: Side,
    /// As it was found.
    before: Trio,
    /// Without what is damaged or torn.
    trio: Trio,
    sequence: u64,
    content: Vec<u8>,
}

/// A sealed frame.
struct Sealed {
    frame: u64,
    side: Side,
    before: Trio,
    trio: Trio,
    bytes: Vec<u8>,
}

impl Access<'_> {
    /// A frame with new contents, and their slot.
    fn prepared(&self, frame: u64, content: Vec<u8>) -> Result<Piece> {
        let before = self.trio(frame)?;
        let (side, mut trio) = self.free_side(frame, &before)?;
        for slot in &mut trio.0 {
            if *slot == Slot::Damaged {
                *slot = Slot::Absent;
            }
        }
        let highest = before.newest().map_or(0, |(_, header)| header.sequence);
        let sequence = self.shared.sequence.next(self.door.child, highest)?;
        Ok(Piece { frame, side, before, trio, sequence, content })
    }

    /// The slot that has neither the current version nor the last durable one, and the slots of the
    /// frame. The torn ones of these are damaged ones: no version may be taken for the durable one
    /// that is not there.
    pub(crate) fn free_side(&self, frame: u64, trio: &Trio) -> Result<(Side, Trio)> {
        let found = self.current(frame, trio)?;
        let (current, trio) = match found {
            Current::At(side, header, _) => (Some(side), trio.without_newer(header.sequence)),
            Current::Hole => (None, trio.without_newer(0)),
            Current::Lost => (None, *trio),
        };
        let mut durable = trio.newest_first().filter(|(_, header)| self.is_durable(header));
        let durable = match current.and_then(|side| trio.at(side).header()) {
            Some(header) if self.is_durable(header) => current,
            Some(_) => durable.next().map(|(side, _)| side),
            None => None,
        };
        let is_free = |side: &&Side| Some(**side) != current && Some(**side) != durable;
        let age = |side: &&Side| match trio.at(**side) {
            // Their space exists, and its contents are not needed.
            Slot::Damaged => 0,
            Slot::Held(header) => header.sequence,
            Slot::Absent => u64::MAX,
        };
        let free = Side::ALL.iter().filter(is_free).min_by_key(age);
        let free = free.copied().ok_or_else(|| Error::new(Errno::EIO, "no slot is free"))?;
        Ok((free, trio))
    }

    /// Puts frames of one group, which are in order, into their slots.
    fn put(&self, state: &mut State, pieces: Vec<Piece>) -> Result<()> {
        let sealed: Vec<Sealed> = if pieces.len() < PARALLEL_FROM || !self.shared.pipeline.takes_time() {
            pieces.into_iter().map(|piece| self.sealed(piece)).collect::<Result<_>>()?
        } else {
            pieces.into_par_iter().map(|piece| self.sealed(piece)).collect::<Result<_>>()?
        };
        for piece in &sealed {
            self.door.write_at(self.geometry().slot_at(piece.frame, piece.side), &piece.bytes)?;
        }
        let trios: Vec<(u64, Trio)> = sealed.iter().map(|piece| (piece.frame, piece.trio)).collect();
        self.store_trios(&trios)?;
        sealed.iter().for_each(|piece| self.was_put(state, piece));
        Ok(())
    }

    fn sealed(&self, piece: Piece) -> Result<Sealed> {
        let Piece { frame, side, before, mut trio, sequence, content } = piece;
        let stamp = Stamp { frame, sequence, instance: self.shared.sequence.tag() };
        let (header, bytes) = self.format.seal.seal(stamp, &content, self.shared.pipeline.codec)?;
        self.shared.counts.data.add(content.len() as u64);
        self.shared.counts.stored.add(bytes.len() as u64);
        *trio.at_mut(side) = Slot::Held(header);
        Ok(Sealed { frame, side, before, trio, bytes })
    }

    /// Notes the remaining work, and gives back space that the slot had beyond, and torn ones had.
    fn was_put(&self, state: &mut State, piece: &Sealed) {
        let Some(header) = piece.trio.at(piece.side).header() else { return };
        state.last = state.last.max(header.sequence);
        let is_alone = piece.trio.0.iter().filter(|slot| **slot != Slot::Absent).count() == 1;
        if !is_alone || header.len == 0 {
            state.untidy.insert(piece.frame, 0);
        }
        state.has_holes |= header.len == 0;
        // If that fails, there is only less room.
        let _ = self.punch_gone(piece.frame, &piece.before, &piece.trio);
        let before = piece.before.at(piece.side).header().map_or(0, |header| header.stored);
        let [used, had] = [header.stored, before].map(|bytes| in_blocks(u64::from(bytes)));
        if had > used {
            let _ = self.door.punch(self.geometry().slot_at(piece.frame, piece.side) + used, had - used);
        }
    }

    /// Changes frames of one group, which are in order; one without any bytes is a hole.
    pub(crate) fn replace(&self, state: &mut State, frames: Vec<(u64, Vec<u8>)>) -> Result<()> {
        let prepared = frames.into_iter().map(|(frame, content)| self.prepared(frame, content));
        self.put(state, prepared.collect::<Result<_>>()?)
    }
}
