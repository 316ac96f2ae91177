//! The size of a file. A shorter one is one operation of the child, and leaves headers
//! and bytes behind; these go before the file grows over them, in an order that lets a
//! truncation that power loss undoes find its data.

use super::access::{Access, Current};
use super::file::State;
use super::geometry::{FRAMES, HEADERS, group_of};
use super::header::{HEAD, Trio};
use braid_contract::{Errno, Result};

impl Access<'_> {
    /// The child's size for one of the file.
    pub(crate) fn stored_size(&self, size: u64) -> Result<u64> {
        Ok(self.geometry().stored_size(size).ok_or(Errno::EFBIG)?)
    }

    /// Makes the file longer.
    pub(crate) fn grow(&self, state: &mut State, size: u64) -> Result<()> {
        let stored = self.stored_size(size)?;
        self.trim(state)?;
        self.set_size(state, stored)?;
        let was_empty = std::mem::replace(&mut state.size, size) == 0;
        let head: [u8; HEAD] = self.format.head.encode();
        if was_empty && let Err(error) = self.door.write_at(0, &head) {
            self.cut(state, 0)?;
            return Err(error);
        }
        Ok(())
    }

    /// Makes the file shorter.
    pub(crate) fn cut(&self, state: &mut State, size: u64) -> Result<()> {
        let stored = self.stored_size(size)?;
        self.set_size(state, stored)?;
        self.was_cut(state, size);
        Ok(())
    }

    /// Sets the child's size. If that fails, it may be another one than before all the same.
    fn set_size(&self, state: &mut State, stored: u64) -> Result<()> {
        self.door.set_size(stored).inspect_err(|_| {
            if let Ok(stored) = self.door.size() {
                self.was_cut(state, self.geometry().size(stored));
            }
        })
    }

    /// The child's file was made shorter.
    pub(crate) fn was_cut(&self, state: &mut State, size: u64) {
        state.size = size;
        state.is_trimmed = false;
        self.file.forget_groups();
        let end = self.geometry().frames_of(&(0..size)).end;
        state.untidy.retain(|frame, _| *frame < end);
    }

    /// Removes data behind the size, durably.
    fn trim(&self, state: &mut State) -> Result<()> {
        if state.is_trimmed {
            return Ok(());
        }
        let (is, expected) = (self.door.size()?, self.stored_size(state.size)?);
        let Some(last_byte) = state.size.checked_sub(1) else {
            if is > 0 {
                self.shared.expect_head(&self.door, &self.format.head)?;
                self.door.set_size(0)?;
            }
            state.is_trimmed = true;
            return Ok(());
        };
        let last = self.geometry().frame_of(last_byte);
        let len = (last_byte - self.geometry().start_of(last) + 1) as usize;
        let (leftover, shorter) = (self.leftover(last)?, self.shorter(last, len)?);
        let behind = self.behind(last, is.min(expected))?;
        if is != expected || !leftover.is_empty() || shorter.is_some() || behind > 0 {
            // The shorter size is durable first.
            self.shared.sync(self.file, state.last, || self.door.sync())?;
            self.door.set_size(expected)?;
            self.store_trios(&leftover)?;
            self.door.write_at(self.geometry().headers_at(group_of(last) + 1), &vec![0; behind as usize])?;
            self.file.forget_groups();
            if let Some(content) = shorter {
                self.replace(state, vec![(last, content)])?;
            }
            self.shared.sync(self.file, state.last, || self.door.sync())?;
        }
        state.is_trimmed = true;
        Ok(())
    }

    /// The frames of its group behind the last one that have headers, to be without.
    fn leftover(&self, last: u64) -> Result<Vec<(u64, Trio)>> {
        let (group, first) = (self.group(group_of(last))?, group_of(last) * FRAMES);
        let frames = (first..).zip(group.iter());
        let left = frames.filter(|(frame, trio)| *frame > last && !trio.is_absent());
        Ok(left.map(|(frame, _)| (frame, Trio::default())).collect())
    }

    /// The last frame without its bytes behind the size, if there are any.
    fn shorter(&self, last: u64, len: usize) -> Result<Option<Vec<u8>>> {
        match self.current(last, &self.trio(last)?)? {
            Current::At(side, header, bytes) if header.len as usize > len => {
                let mut content = self.content(last, Current::At(side, header, bytes))?;
                content.truncate(len);
                Ok(Some(content))
            }
            _ => Ok(None),
        }
    }

    /// Bytes of the next group's headers that are within the child's size and not zero.
    fn behind(&self, last: u64, stored: u64) -> Result<u64> {
        let at = self.geometry().headers_at(group_of(last) + 1);
        let within = stored.saturating_sub(at).min(HEADERS);
        let mut bytes = vec![0; within as usize];
        self.door.read_at(at, &mut bytes)?;
        Ok(if bytes.iter().any(|byte| *byte != 0) { within } else { 0 })
    }
}
