//! Operations on the contents of open files.

use super::{Direct, Slot, errno, os};
use crate::native::{Whole, judge_seek};
use crate::op::{AllocateMode, DIRECT_ALIGNMENT, Op, SeekTo, Target, aligned};
use crate::outcome::{Answer, Bytes, Kind};
use braid_contract::{FallocateMode, HandleId, SeekTarget, SetAttr, SetTime, WriteFlags};
use rustix::io::Errno;
use std::sync::PoisonError;

impl Direct {
    /// The slot, if it can be read from.
    fn readable(&self, slot: u8) -> Result<Slot, Errno> {
        let slot = *self.slot(slot)?;
        match slot.kind {
            _ if !slot.flags.access.reads() => Err(Errno::BADF),
            Kind::Dir => Err(Errno::ISDIR),
            _ => Ok(slot),
        }
    }

    /// The slot, if it can be written to.
    fn writable(&self, slot: u8) -> Result<Slot, Errno> {
        let slot = *self.slot(slot)?;
        if slot.flags.access.writes() { Ok(slot) } else { Err(Errno::BADF) }
    }

    pub(super) fn read_at(
        &self,
        handle: HandleId,
        offset: u64,
        len: usize,
        direct: bool,
    ) -> Result<Vec<u8>, Errno> {
        let mut memory = vec![0; len + DIRECT_ALIGNMENT as usize];
        let start = memory.as_ptr().align_offset(DIRECT_ALIGNMENT as usize);
        let buf = &mut memory[start..start + len];
        let done = os(self.fs.read(&self.caller, handle, offset, buf, direct))?;
        Ok(buf[..done].to_vec())
    }

    /// Writes all of the bytes; answers where they end.
    fn store(&self, slot: &Slot, offset: u64, bytes: &[u8]) -> Result<u64, Errno> {
        let _appending =
            slot.flags.append.then(|| self.appending.lock().unwrap_or_else(PoisonError::into_inner));
        let start = if slot.flags.append { self.size(slot)? } else { offset };
        let flags = WriteFlags { direct: slot.flags.direct, ..WriteFlags::default() };
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            done += os(self.fs.write(&self.caller, slot.handle, start + done as u64, rest, flags))?;
        }
        Ok(start + done as u64)
    }

    fn size(&self, slot: &Slot) -> Result<u64, Errno> {
        Ok(os(self.fs.getattr(&self.caller, slot.ino, Some(slot.handle)))?.size)
    }

    fn go_to(&mut self, slot: u8, position: u64) {
        if let Some(Some(slot)) = self.slots.get_mut(usize::from(slot)) {
            slot.position = position;
        }
    }

    pub(super) fn transfer(&mut self, op: &Op) -> Result<Answer, Errno> {
        match *op {
            Op::Read { slot, .. } | Op::Write { slot, .. } if self.slot(slot)?.flags.direct => {
                Ok(Answer::Skipped)
            }
            Op::Read { slot, len } => {
                let open = self.readable(slot)?;
                let bytes = self.read_at(open.handle, open.position, len as usize, false)?;
                self.go_to(slot, open.position + bytes.len() as u64);
                Ok(Answer::Bytes(Bytes(bytes)))
            }
            Op::Pread { slot, offset, len } => {
                let open = self.readable(slot)?;
                let (offset, len) = aligned(open.flags.direct, offset, len);
                let bytes = self.read_at(open.handle, offset, len as usize, open.flags.direct)?;
                Ok(Answer::Bytes(Bytes(bytes)))
            }
            Op::Write { slot, data } => {
                let open = self.writable(slot)?;
                let end = self.store(&open, open.position, &data.bytes())?;
                let position = if data.len > 0 { end } else { open.position };
                self.go_to(slot, position);
                Ok(Answer::Position { moved: data.len.into(), position })
            }
            Op::Pwrite { slot, offset, data } => {
                let open = self.writable(slot)?;
                let (offset, len) = aligned(open.flags.direct, offset, data.len);
                self.store(&open, offset, &crate::Data { len, ..data }.bytes())?;
                Ok(Answer::Count(len.into()))
            }
            _ => Ok(Answer::Skipped),
        }
    }

    pub(super) fn seek(&mut self, slot: u8, to: SeekTo) -> Result<Answer, Errno> {
        let open = *self.slot(slot)?;
        if open.kind == Kind::Dir {
            return Ok(Answer::Skipped);
        }
        let size = self.size(&open)?;
        let position = match to {
            SeekTo::Start(offset) => offset,
            SeekTo::End(offset) => size.checked_add_signed(offset).ok_or(Errno::INVAL)?,
            SeekTo::Data(offset) | SeekTo::Hole(offset) => {
                let data = matches!(to, SeekTo::Data(_));
                let target = if data { SeekTarget::Data } else { SeekTarget::Hole };
                let found = os(self.fs.seek(&self.caller, open.handle, offset, target));
                let reads = open.flags.access.reads();
                let bytes = reads.then(|| self.read_at(open.handle, 0, size as usize, false)).transpose()?;
                return judge_seek(&Whole { size, bytes }, data, offset, found);
            }
        };
        self.go_to(slot, position);
        Ok(Answer::Position { moved: 0, position })
    }

    pub(super) fn truncate(&mut self, target: &Target, len: u64) -> Result<Answer, Errno> {
        let (ino, handle) = match target {
            Target::Slot(slot) => {
                let open = self.slot(*slot)?;
                if open.kind != Kind::File || !open.flags.access.writes() {
                    return Err(Errno::INVAL);
                }
                (open.ino, Some(open.handle))
            }
            // There is no form of truncate(2) that does not follow links.
            Target::Path(path) | Target::NoFollow(path) => {
                let attr = self.find(path, true)?.attr;
                match super::kind_of(attr.kind) {
                    Kind::Dir => return Err(Errno::ISDIR),
                    Kind::File => (attr.ino, None),
                    _ => return Err(Errno::INVAL),
                }
            }
        };
        // The kernel sets the time too where the size stays.
        let changes = SetAttr { size: Some(len), mtime: Some(SetTime::Now), ..SetAttr::default() };
        os(self.fs.setattr(&self.caller, ino, handle, &changes))?;
        Ok(Answer::Unit)
    }

    pub(super) fn allocate(
        &mut self,
        slot: u8,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    ) -> Result<Answer, Errno> {
        if !self.common.allows(mode) {
            return Ok(Answer::Skipped);
        }
        self.slot(slot)?;
        if len == 0 {
            return Err(Errno::INVAL);
        }
        let open = self.writable(slot)?;
        let mode = match mode {
            AllocateMode::Grow => FallocateMode::Allocate { keep_size: false },
            AllocateMode::KeepSize => FallocateMode::Allocate { keep_size: true },
            AllocateMode::Punch => FallocateMode::PunchHole,
            AllocateMode::Zero => FallocateMode::ZeroRange { keep_size: false },
            AllocateMode::ZeroKeepSize => FallocateMode::ZeroRange { keep_size: true },
        };
        os(self.fs.fallocate(&self.caller, open.handle, offset, len, mode))?;
        if !self.common.allocate_times {
            let changes = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
            os(self.fs.setattr(&self.caller, open.ino, Some(open.handle), &changes))?;
        }
        Ok(Answer::Unit)
    }

    pub(super) fn copy(&mut self, from: (u8, u64), to: (u8, u64), len: u32) -> Result<Answer, Errno> {
        let ((source, from), (sink, to)) = ((*self.slot(from.0)?, from.1), (*self.slot(to.0)?, to.1));
        if source.flags.direct || sink.flags.direct {
            return Ok(Answer::Skipped);
        }
        if source.kind == Kind::Dir || sink.kind == Kind::Dir {
            return Err(Errno::ISDIR);
        }
        if !source.flags.access.reads() || !sink.flags.access.writes() || sink.flags.append {
            return Err(Errno::BADF);
        }
        let count = u64::from(len).min(self.size(&source)?.saturating_sub(from));
        if source.ino == sink.ino && from + count > to && to + count > from {
            return Err(Errno::INVAL);
        }
        let mut done = 0;
        while done < count {
            let (at, left) = (from + done, count - done);
            let some = self.fs.copy_range(&self.caller, source.handle, at, sink.handle, to + done, left);
            done += match some.map_err(|error| errno(&error)) {
                // The file system leaves this to the kernel.
                Err(Errno::OPNOTSUPP) => {
                    let bytes = self.read_at(source.handle, at, left as usize, false)?;
                    self.store(&sink, to + done, &bytes)?;
                    bytes.len() as u64
                }
                some => some?,
            };
        }
        Ok(Answer::Count(count))
    }

    pub(super) fn sync(&mut self, slot: u8, data_only: bool) -> Result<Answer, Errno> {
        let open = *self.slot(slot)?;
        if open.kind == Kind::Dir {
            os(self.fs.sync_dir(&self.caller, open.handle))?;
        } else {
            os(self.fs.fsync(&self.caller, open.handle, data_only))?;
        }
        Ok(Answer::Unit)
    }
}
