//! Giving back the space of slots that do not count any more.

use super::access::{Access, Current};
use super::codec::in_blocks;
use super::file::State;
use super::geometry::Side;
use super::header::{Coding, Header, Slot, Trio};
use braid_contract::{Result, SetAttr, SetTime};

impl Access<'_> {
    /// Frees all slots but the newest of each frame where that is durable. The times stay. The passes
    /// up to `synced` are durable.
    pub(crate) fn tidy(&self, state: &mut State, synced: u64) -> Result<()> {
        state.passes += 1;
        let frames: Vec<(u64, u64)> = state.untidy.iter().map(|(frame, pass)| (*frame, *pass)).collect();
        let before = self.door.child.getattr(self.door.caller, self.file.ino, Some(self.door.handle))?;
        let mut is_changed = false;
        for (frame, pass) in frames {
            let trio = self.trio(frame)?;
            if let Some(tidied) = self.tidied(frame, &trio, pass <= synced)? {
                state.untidy.insert(frame, state.passes);
                self.free(frame, &trio, &tidied)?;
                is_changed = true;
            }
            let trio = self.trio(frame)?;
            if is_tidy(&trio) || trio.is_damaged() || self.is_doubted(&trio) {
                state.untidy.remove(&frame);
            }
        }
        state.has_holes &= !state.untidy.is_empty();
        if is_changed {
            let mtime = Some(SetTime::At(before.mtime));
            let changes = SetAttr { mtime, ..SetAttr::default() };
            self.door.child.setattr(self.door.caller, self.file.ino, Some(self.door.handle), &changes)?;
        }
        Ok(())
    }

    /// The headers of a frame after the next step, if one can be done. `is_synced`: the last one is
    /// durable.
    fn tidied(&self, frame: u64, trio: &Trio, is_synced: bool) -> Result<Option<Trio>> {
        let (side, header) = match self.current(frame, trio)? {
            Current::At(side, header, _) if self.is_durable(&header) => (side, header),
            _ => return Ok(None),
        };
        let mut tidied = Trio::default();
        let is_alone = Side::ALL.iter().all(|other| *other == side || *trio.at(*other) == Slot::Absent);
        // A hole's header goes last, when the others are durably gone: they would count again.
        if !is_alone || !is_synced || header.coding != Coding::Hole {
            *tidied.at_mut(side) = *trio.at(side);
        }
        Ok((tidied != *trio).then_some(tidied))
    }

    /// Whether the newest version has to be written again before older ones can go.
    fn is_doubted(&self, trio: &Trio) -> bool {
        let is_doubted = |header: &Header| self.shared.sequence.is_doubted(header);
        trio.newest().is_some_and(|(_, header)| is_doubted(&header) && !self.is_durable(&header))
    }

    fn free(&self, frame: u64, before: &Trio, after: &Trio) -> Result<()> {
        self.punch_gone(frame, before, after)?;
        self.store_trios(&[(frame, *after)])
    }

    /// Gives back the space of slots that have no header any more.
    pub(crate) fn punch_gone(&self, frame: u64, before: &Trio, after: &Trio) -> Result<()> {
        for side in Side::ALL {
            if let (Slot::Held(header), Slot::Absent) = (before.at(side), after.at(side)) {
                let len = in_blocks(u64::from(header.stored));
                self.door.punch(self.geometry().slot_at(frame, side), len)?;
            }
        }
        Ok(())
    }
}

/// Whether there is no space to give back.
fn is_tidy(trio: &Trio) -> bool {
    let mut held = trio.newest_first();
    let first = held.next();
    held.next().is_none() && first.is_none_or(|(_, header)| header.coding != Coding::Hole)
}
