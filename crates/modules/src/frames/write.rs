//! Writing: parts of frames become frames.

use super::access::{Access, Current};
use super::file::State;
use super::geometry::{FRAMES, group_of};
use braid_contract::{Errno, Result};
use std::ops::Range;

impl Access<'_> {
    /// Writes `data` at `offset`. After an error, the file has its old size, or ends with the
    /// written data.
    pub(crate) fn write(&self, state: &mut State, offset: u64, data: &[u8]) -> Result<usize> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        let before = state.size;
        if end > before {
            self.grow(state, end)?;
        }
        let mut done = 0;
        let written = self.write_groups(state, offset..end, data, &mut done);
        let Err(error) = written else { return Ok(data.len()) };
        self.shrink_back(state, before.max(offset + done));
        // A write-back has to be written as a whole.
        if done > 0 && !self.door.flags.write_back { Ok(done as usize) } else { Err(error) }
    }

    fn write_groups(&self, state: &mut State, bytes: Range<u64>, data: &[u8], done: &mut u64) -> Result<()> {
        let mut frames = self.geometry().frames_of(&bytes);
        while !frames.is_empty() {
            let group = group_of(frames.start);
            let here = frames.start..frames.end.min((group + 1) * FRAMES);
            let contents = here.clone().map(|frame| Ok((frame, self.changed(frame, &bytes, data)?)));
            self.replace(state, contents.collect::<Result<_>>()?)?;
            frames.start = here.end;
            *done = (self.geometry().start_of(here.end) - bytes.start).min(data.len() as u64);
        }
        Ok(())
    }

    /// A frame with its part of the data.
    fn changed(&self, frame: u64, bytes: &Range<u64>, data: &[u8]) -> Result<Vec<u8>> {
        let start = self.geometry().start_of(frame);
        let from = bytes.start.max(start);
        let to = bytes.end.min(start + self.geometry().frame());
        let part = &data[(from - bytes.start) as usize..(to - bytes.start) as usize];
        self.changed_content(frame, (from - start) as usize, part)
    }

    /// A frame with other bytes from `within` on. Bytes behind them stay, also behind the size: a
    /// truncation that is not durable yet may be undone.
    fn changed_content(&self, frame: u64, within: usize, part: &[u8]) -> Result<Vec<u8>> {
        let trio = self.trio(frame)?;
        let current = self.current(frame, &trio)?;
        let covers = |held: u64| within == 0 && part.len() as u64 >= held;
        let is_covered = match &current {
            Current::Hole => covers(0),
            Current::At(_, header, _) => covers(u64::from(header.len)),
            Current::Lost => covers(self.geometry().frame()),
        };
        if is_covered {
            return Ok(part.to_vec());
        }
        let mut content = self.content(frame, current)?;
        content.resize(content.len().max(within + part.len()), 0);
        content[within..within + part.len()].copy_from_slice(part);
        Ok(content)
    }

    /// Undoes a growth whose write failed.
    fn shrink_back(&self, state: &mut State, size: u64) {
        if size < state.size && self.cut(state, size).is_err() {
            // The bytes read as zeros, as after a crash.
            tracing::warn!(ino = self.file.ino.0, "a file is longer than what could be written to it");
        }
    }
}
