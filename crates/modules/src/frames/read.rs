//! Reading frames.

use super::access::{Access, Current, has_data};
use super::file::State;
use super::geometry::{FRAMES, group_of};
use super::header::Coding;
use braid_contract::{Errno, Result, SeekTarget};

impl Access<'_> {
    /// Reads from `offset` on; short only at the end of the file.
    pub(crate) fn read(&self, state: &State, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = state.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut left = &mut buf[..len];
        let mut at = offset;
        while !left.is_empty() {
            let frame = self.geometry().frame_of(at);
            let within = (at - self.geometry().start_of(frame)) as usize;
            let count = left.len().min(self.geometry().frame() as usize - within);
            let (part, rest) = left.split_at_mut(count);
            self.read_part(frame, within, part)?;
            left = rest;
            at += count as u64;
        }
        Ok(len)
    }

    fn read_part(&self, frame: u64, within: usize, part: &mut [u8]) -> Result<()> {
        let current = self.current(frame, &self.trio(frame)?)?;
        let content = self.content(frame, current)?;
        let held = content.get(within..).unwrap_or_default();
        let held = &held[..held.len().min(part.len())];
        part[..held.len()].copy_from_slice(held);
        part[held.len()..].fill(0);
        Ok(())
    }

    /// The next data or hole, by whole frames.
    pub(crate) fn seek(&self, state: &State, offset: u64, target: SeekTarget) -> Result<u64> {
        if offset >= state.size {
            return Err(Errno::ENXIO.into());
        }
        let end = self.geometry().frame_of(state.size - 1) + 1;
        let mut frame = self.geometry().frame_of(offset);
        while frame < end {
            let is_data = self.is_data(frame)?;
            if is_data == (target == SeekTarget::Data) {
                return Ok(self.geometry().start_of(frame).max(offset));
            }
            frame = match self.is_in_empty_group(frame)? {
                true => match self.next_used_group(group_of(frame) + 1, state.size)? {
                    Some(group) => group * FRAMES,
                    None => break,
                },
                false => frame + 1,
            };
        }
        match target {
            SeekTarget::Data => Err(Errno::ENXIO.into()),
            SeekTarget::Hole => Ok(state.size),
        }
    }

    fn is_data(&self, frame: u64) -> Result<bool> {
        let trio = self.trio(frame)?;
        match has_data(&trio) {
            // It may be a torn one.
            true => Ok(match self.current(frame, &trio)? {
                Current::Hole => false,
                Current::At(_, header, _) => header.coding != Coding::Hole,
                Current::Lost => true,
            }),
            false => Ok(false),
        }
    }

    fn is_in_empty_group(&self, frame: u64) -> Result<bool> {
        Ok(self.group(group_of(frame))?.iter().all(|trio| !has_data(trio)))
    }
}
