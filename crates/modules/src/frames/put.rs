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
    /// As it was, without damage.
    trio: Trio,
    sequence: u64,
    content: Vec<u8>,
}

/// A sealed frame.
struct Sealed {
    frame: u64,
    side: Side,
    trio: Trio,
    bytes: Vec<u8>,
    /// Bytes that the slot had before.
    before: u64,
}

impl Access<'_> {
    /// A frame with new contents, and their slot.
    fn prepared(&self, frame: u64, content: Vec<u8>) -> Result<Piece> {
        let mut trio = self.trio(frame)?;
        let side = self.free_side(frame, &trio)?;
        for slot in &mut trio.0 {
            if *slot == Slot::Damaged {
                *slot = Slot::Absent;
            }
        }
        let highest = trio.newest().map_or(0, |(_, header)| header.sequence);
        let sequence = self.shared.sequence.next(self.door.child, highest)?;
        Ok(Piece { frame, side, trio, sequence, content })
    }

    /// The slot that has neither the current version nor the last durable one.
    pub(crate) fn free_side(&self, frame: u64, trio: &Trio) -> Result<Side> {
        let current = match self.current(frame, trio)? {
            Current::At(side, ..) => Some(side),
            Current::Hole | Current::Lost => None,
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
        free.copied().ok_or_else(|| Error::new(Errno::EIO, "no slot is free"))
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
        let Piece { frame, side, mut trio, sequence, content } = piece;
        let stamp = Stamp { frame, sequence, instance: self.shared.sequence.tag() };
        let (header, bytes) = self.format.seal.seal(stamp, &content, self.shared.pipeline.codec)?;
        self.shared.counts.data.add(content.len() as u64);
        self.shared.counts.stored.add(bytes.len() as u64);
        let before = trio.at(side).header().map_or(0, |header| u64::from(header.stored));
        *trio.at_mut(side) = Slot::Held(header);
        Ok(Sealed { frame, side, trio, bytes, before })
    }

    /// Notes the remaining work, and gives back space that the slot had beyond.
    fn was_put(&self, state: &mut State, piece: &Sealed) {
        let Some(header) = piece.trio.at(piece.side).header() else { return };
        state.last = state.last.max(header.sequence);
        let is_alone = piece.trio.0.iter().filter(|slot| **slot != Slot::Absent).count() == 1;
        if !is_alone || header.len == 0 {
            state.untidy.insert(piece.frame);
        }
        state.has_holes |= header.len == 0;
        let [used, had] = [u64::from(header.stored), piece.before].map(in_blocks);
        if had > used {
            // If that fails, there is only less room.
            let _ = self.door.punch(self.geometry().slot_at(piece.frame, piece.side) + used, had - used);
        }
    }

    /// Changes frames of one group, which are in order; one without any bytes is a hole.
    pub(crate) fn replace(&self, state: &mut State, frames: Vec<(u64, Vec<u8>)>) -> Result<()> {
        let prepared = frames.into_iter().map(|(frame, content)| self.prepared(frame, content));
        self.put(state, prepared.collect::<Result<_>>()?)
    }
}
