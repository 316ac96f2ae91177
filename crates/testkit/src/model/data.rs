//! Operations on the contents of open files.

use super::{Inode, Model, Slot};
use crate::op::{AllocateMode, Data, SeekTo, Target, aligned};
use crate::outcome::{Answer, Bytes, Kind, Time};
use rustix::io::Errno;

impl Model {
    /// The slot, if it can be read from.
    fn readable(&self, slot: u8) -> Result<(&Slot, &Inode), Errno> {
        let slot = self.slot(slot)?;
        let inode = self.inode(slot.ino)?;
        match inode.kind {
            _ if !slot.flags.access.reads() => Err(Errno::BADF),
            Kind::Dir => Err(Errno::ISDIR),
            _ => Ok((slot, inode)),
        }
    }

    /// The slot, if it can be written to.
    fn writable(&self, slot: u8) -> Result<&Slot, Errno> {
        let slot = self.slot(slot)?;
        if slot.flags.access.writes() { Ok(slot) } else { Err(Errno::BADF) }
    }

    pub(super) fn pread(&self, slot: u8, offset: u64, len: u32) -> Result<Answer, Errno> {
        let (slot, inode) = self.readable(slot)?;
        let (offset, len) = aligned(slot.flags.direct, offset, len);
        Ok(Answer::Bytes(Bytes(slice(&inode.data, offset, len.into()).to_vec())))
    }

    pub(super) fn read(&mut self, slot: u8, len: u32) -> Result<Answer, Errno> {
        if self.slot(slot)?.flags.direct {
            return Ok(Answer::Skipped);
        }
        let (open, inode) = self.readable(slot)?;
        let bytes = slice(&inode.data, open.position, len.into()).to_vec();
        self.slot_mut(slot)?.position += bytes.len() as u64;
        Ok(Answer::Bytes(Bytes(bytes)))
    }

    /// Stores bytes at an offset, or at the end of a file open for appending;
    /// answers where they end.
    fn store(&mut self, slot: u8, offset: u64, bytes: &[u8]) -> Result<u64, Errno> {
        let open = self.writable(slot)?;
        let (ino, append) = (open.ino, open.flags.append);
        let inode = self.inode_mut(ino)?;
        let start = if append { inode.data.len() } else { index(offset)? };
        if !bytes.is_empty() {
            let end = start + bytes.len();
            inode.grow(end);
            inode.data[start..end].copy_from_slice(bytes);
            inode.mtime = Time::Recent;
        }
        Ok((start + bytes.len()) as u64)
    }

    pub(super) fn write(&mut self, slot: u8, data: Data) -> Result<Answer, Errno> {
        let open = self.slot(slot)?;
        if open.flags.direct {
            return Ok(Answer::Skipped);
        }
        let mut position = open.position;
        let end = self.store(slot, position, &data.bytes())?;
        if data.len > 0 {
            position = end;
        }
        self.slot_mut(slot)?.position = position;
        Ok(Answer::Position { moved: data.len.into(), position })
    }

    pub(super) fn pwrite(&mut self, slot: u8, offset: u64, data: Data) -> Result<Answer, Errno> {
        let (offset, len) = aligned(self.slot(slot)?.flags.direct, offset, data.len);
        self.store(slot, offset, &Data { len, ..data }.bytes())?;
        Ok(Answer::Count(len.into()))
    }

    pub(super) fn seek(&mut self, slot: u8, to: SeekTo) -> Result<Answer, Errno> {
        let inode = self.inode(self.slot(slot)?.ino)?;
        if inode.kind == Kind::Dir {
            return Ok(Answer::Skipped);
        }
        let size = inode.data.len() as u64;
        let position = match to {
            SeekTo::Start(offset) => offset,
            SeekTo::End(offset) => size.checked_add_signed(offset).ok_or(Errno::INVAL)?,
            SeekTo::Data(offset) | SeekTo::Hole(offset) if offset >= size => return Err(Errno::NXIO),
            SeekTo::Data(_) | SeekTo::Hole(_) => return Ok(Answer::Consistent),
        };
        self.slot_mut(slot)?.position = position;
        Ok(Answer::Position { moved: 0, position })
    }

    pub(super) fn truncate(&mut self, target: &Target, len: u64) -> Result<Answer, Errno> {
        let ino = match target {
            Target::Slot(slot) => {
                let open = self.slot(*slot)?;
                if self.inode(open.ino)?.kind != Kind::File || !open.flags.access.writes() {
                    return Err(Errno::INVAL);
                }
                open.ino
            }
            // There is no form of truncate(2) that does not follow links.
            Target::Path(path) | Target::NoFollow(path) => self.find(path, true)?,
        };
        let len = index(len)?;
        let inode = self.inode_mut(ino)?;
        match inode.kind {
            Kind::Dir => return Err(Errno::ISDIR),
            Kind::File => {}
            _ => return Err(Errno::INVAL),
        }
        inode.mtime = Time::Recent;
        inode.data.resize(len, 0);
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
        let ino = self.slot(slot)?.ino;
        if len == 0 {
            return Err(Errno::INVAL);
        }
        self.writable(slot)?;
        let (start, end) = (index(offset)?, index(offset + len)?);
        let inode = self.inode_mut(ino)?;
        inode.mtime = Time::Recent;
        if matches!(mode, AllocateMode::Grow | AllocateMode::Zero) {
            inode.grow(end);
        }
        if !matches!(mode, AllocateMode::Grow | AllocateMode::KeepSize) {
            let size = inode.data.len();
            inode.data[start.min(size)..end.min(size)].fill(0);
        }
        Ok(Answer::Unit)
    }

    pub(super) fn copy(
        &mut self,
        from: u8,
        from_offset: u64,
        to: u8,
        to_offset: u64,
        len: u32,
    ) -> Result<Answer, Errno> {
        let (source, sink) = (self.slot(from)?, self.slot(to)?);
        if source.flags.direct || sink.flags.direct {
            return Ok(Answer::Skipped);
        }
        let same = source.ino == sink.ino;
        if self.inode(source.ino)?.kind == Kind::Dir || self.inode(sink.ino)?.kind == Kind::Dir {
            return Err(Errno::ISDIR);
        }
        if !source.flags.access.reads() || !sink.flags.access.writes() || sink.flags.append {
            return Err(Errno::BADF);
        }
        let bytes = slice(&self.inode(source.ino)?.data, from_offset, len.into()).to_vec();
        let count = bytes.len() as u64;
        if same && from_offset + count > to_offset && to_offset + count > from_offset {
            return Err(Errno::INVAL);
        }
        self.store(to, to_offset, &bytes)?;
        Ok(Answer::Count(count))
    }
}

impl Inode {
    fn grow(&mut self, end: usize) {
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
    }
}

fn index(offset: u64) -> Result<usize, Errno> {
    usize::try_from(offset).map_err(|_| Errno::FBIG)
}

/// The part of `data` that a read of `len` bytes at `offset` gives.
fn slice(data: &[u8], offset: u64, len: u64) -> &[u8] {
    let size = data.len();
    let start = usize::try_from(offset).unwrap_or(size).min(size);
    let end = usize::try_from(offset.saturating_add(len)).unwrap_or(size).clamp(start, size.max(start));
    &data[start..end]
}
