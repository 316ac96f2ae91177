//! Space of files: holes, zeros, and reserved room.

use super::access::{Access, Current, has_data};
use super::file::State;
use super::geometry::{FRAMES, Side, group_of};
use braid_contract::{Errno, FallocateMode, Result};
use std::ops::Range;

impl Access<'_> {
    /// Reserves, frees or zeroes part of the file.
    pub(crate) fn fallocate(&self, state: &mut State, bytes: Range<u64>, mode: FallocateMode) -> Result<()> {
        let keeps_size = match mode {
            FallocateMode::PunchHole => true,
            FallocateMode::Allocate { keep_size } | FallocateMode::ZeroRange { keep_size } => keep_size,
        };
        if !keeps_size && bytes.end > state.size {
            self.grow(state, bytes.end)?;
        }
        match mode {
            FallocateMode::Allocate { .. } => self.reserve(bytes),
            FallocateMode::PunchHole | FallocateMode::ZeroRange { .. } => {
                self.zero(state, bytes.start..bytes.end.min(state.size))
            }
        }
    }

    /// Room for the next write of each frame. One that has been compressed takes less
    /// afterwards, and is given no room for a second one.
    fn reserve(&self, bytes: Range<u64>) -> Result<()> {
        self.geometry().stored_size(bytes.end).ok_or(Errno::EFBIG)?;
        for frame in self.geometry().frames_of(&bytes) {
            let trio = self.trio(frame)?;
            let side = if trio.is_absent() { Side::A } else { self.free_side(frame, &trio)?.0 };
            self.door.reserve(self.geometry().slot_at(frame, side), self.geometry().frame())?;
        }
        Ok(())
    }

    fn zero(&self, state: &mut State, bytes: Range<u64>) -> Result<()> {
        let frames = self.geometry().frames_of(&bytes);
        let mut from = group_of(frames.start);
        while let Some(group) = self.next_used_group(from, bytes.end)? {
            let of_group = group * FRAMES..(group + 1) * FRAMES;
            let here = of_group.start.max(frames.start)..of_group.end.min(frames.end);
            let mut changed = Vec::new();
            for frame in here {
                if let Some(content) = self.zeroed(frame, &bytes)? {
                    changed.push((frame, content));
                }
            }
            if !changed.is_empty() {
                self.replace(state, changed)?;
            }
            from = group + 1;
        }
        Ok(())
    }

    /// A frame with zeros for these bytes of the file, if that changes it.
    fn zeroed(&self, frame: u64, bytes: &Range<u64>) -> Result<Option<Vec<u8>>> {
        let trio = self.trio(frame)?;
        if !has_data(&trio) {
            return Ok(None);
        }
        let start = self.geometry().start_of(frame);
        let from = (bytes.start.max(start) - start) as usize;
        let to = (bytes.end - start).min(self.geometry().frame()) as usize;
        let current = self.current(frame, &trio)?;
        if matches!(current, Current::Lost) && from == 0 && to as u64 == self.geometry().frame() {
            return Ok(Some(Vec::new()));
        }
        let mut content = match current {
            Current::At(_, header, _) if from == 0 && to >= header.len as usize => {
                return Ok(Some(Vec::new()));
            }
            other => self.content(frame, other)?,
        };
        let to = to.min(content.len());
        if from >= to {
            return Ok(None);
        }
        content[from..to].fill(0);
        Ok(Some(content))
    }
}
