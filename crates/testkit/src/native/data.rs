//! Operations on the contents of open files.

use super::Native;
use crate::op::{AllocateMode, DIRECT_ALIGNMENT, Op, SeekTo, Target, aligned};
use crate::outcome::{Answer, Bytes, Kind};
use rustix::fs::{AtFlags, FallocateFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::path::Path;

impl Native {
    pub(super) fn transfer(&self, op: &Op) -> Result<Answer, Errno> {
        match *op {
            Op::Read { slot, len } => {
                let slot = self.slot(slot)?;
                if slot.direct {
                    return Ok(Answer::Skipped);
                }
                let mut buf = vec![0; len as usize];
                let mut done = 0;
                while done < buf.len() {
                    match rustix::io::read(&slot.fd, &mut buf[done..])? {
                        0 => break,
                        count => done += count,
                    }
                }
                buf.truncate(done);
                // An empty read has yet to fail where a longer one would.
                rustix::io::read(&slot.fd, &mut [0u8; 0][..])?;
                Ok(Answer::Bytes(Bytes(buf)))
            }
            Op::Pread { slot, offset, len } => {
                let slot = self.slot(slot)?;
                let (offset, len) = aligned(slot.direct, offset, len);
                let mut buf = AlignedBuf::new(len as usize);
                let count = rustix::io::pread(&slot.fd, buf.bytes_mut(), offset)?;
                Ok(Answer::Bytes(Bytes(buf.bytes_mut()[..count].to_vec())))
            }
            Op::Write { slot, data } => {
                let slot = self.slot(slot)?;
                if slot.direct {
                    return Ok(Answer::Skipped);
                }
                let moved = rustix::io::write(&slot.fd, &data.bytes())? as u64;
                Ok(Answer::Position { moved, position: rustix::fs::tell(&slot.fd)? })
            }
            Op::Pwrite { slot, offset, data } => {
                let slot = self.slot(slot)?;
                let (offset, len) = aligned(slot.direct, offset, data.len);
                let data = crate::Data { len, ..data };
                let mut buf = AlignedBuf::new(len as usize);
                buf.bytes_mut().copy_from_slice(&data.bytes());
                Ok(Answer::Count(rustix::io::pwrite(&slot.fd, buf.bytes_mut(), offset)? as u64))
            }
            _ => Ok(Answer::Skipped),
        }
    }

    pub(super) fn seek(&self, slot: u8, to: SeekTo) -> Result<Answer, Errno> {
        let slot = self.slot(slot)?;
        if slot.kind == Kind::Dir {
            return Ok(Answer::Skipped);
        }
        let moved = |position| Ok(Answer::Position { moved: 0, position });
        match to {
            SeekTo::Start(offset) => moved(rustix::fs::seek(&slot.fd, SeekFrom::Start(offset))?),
            SeekTo::End(offset) => moved(rustix::fs::seek(&slot.fd, SeekFrom::End(offset))?),
            SeekTo::Data(offset) | SeekTo::Hole(offset) => {
                let before = rustix::fs::tell(&slot.fd)?;
                let data = matches!(to, SeekTo::Data(_));
                let target = if data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) };
                let found = rustix::fs::seek(&slot.fd, target);
                rustix::fs::seek(&slot.fd, SeekFrom::Start(before))?;
                judge_seek(&Whole::read(&slot.fd)?, data, offset, found)
            }
        }
    }

    pub(super) fn truncate(&self, target: &Target, len: u64) -> Result<Answer, Errno> {
        match target {
            Target::Slot(slot) => rustix::fs::ftruncate(self.fd(*slot)?, len)?,
            Target::Path(path) | Target::NoFollow(path) => {
                truncate_path(&self.full(path), len)?;
                if !self.common.truncate_times {
                    rustix::fs::utimensat(&self.dir, path.bytes(), &MTIME_NOW, AtFlags::empty())?;
                }
            }
        }
        Ok(Answer::Unit)
    }

    pub(super) fn allocate(
        &self,
        slot: u8,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    ) -> Result<Answer, Errno> {
        if !self.common.allows(mode) {
            return Ok(Answer::Skipped);
        }
        let fd = self.fd(slot)?;
        rustix::fs::fallocate(fd, allocate_flags(mode), offset, len)?;
        if !self.common.allocate_times {
            rustix::fs::futimens(fd, &MTIME_NOW)?;
        }
        Ok(Answer::Unit)
    }

    pub(super) fn copy(
        &self,
        from: u8,
        from_offset: u64,
        to: u8,
        to_offset: u64,
        len: u32,
    ) -> Result<Answer, Errno> {
        let (from, to) = (self.slot(from)?, self.slot(to)?);
        if from.direct || to.direct {
            return Ok(Answer::Skipped);
        }
        let (mut read_at, mut write_at) = (from_offset, to_offset);
        // The source may grow by the copy itself, if it is the sink as well.
        let size = u64::try_from(rustix::fs::fstat(&from.fd)?.st_size).unwrap_or(0);
        let all = u64::from(len).min(size.saturating_sub(from_offset));
        let mut left = len as usize;
        loop {
            let count =
                rustix::fs::copy_file_range(&from.fd, Some(&mut read_at), &to.fd, Some(&mut write_at), left)?;
            left -= count;
            let done = u64::from(len) - left as u64;
            if count == 0 || done >= all {
                return Ok(Answer::Count(done));
            }
        }
    }

    pub(super) fn sync(&self, slot: u8, data_only: bool) -> Result<Answer, Errno> {
        let fd = self.fd(slot)?;
        if data_only {
            rustix::fs::fdatasync(fd)?
        } else {
            rustix::fs::fsync(fd)?
        }
        Ok(Answer::Unit)
    }
}

/// Sets the modification time where file systems disagree whether it changes.
const MTIME_NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
};

/// `truncate(2)`, which has side effects of its own compared to `ftruncate`.
pub(crate) fn truncate_path(path: &Path, len: u64) -> Result<(), Errno> {
    let len = i64::try_from(len).map_err(|_| Errno::INVAL)?;
    nix::unistd::truncate(path, len).map_err(|errno| Errno::from_raw_os_error(errno as i32))
}

/// The flags that stand for a mode.
pub(crate) fn allocate_flags(mode: AllocateMode) -> FallocateFlags {
    match mode {
        AllocateMode::Grow => FallocateFlags::empty(),
        AllocateMode::KeepSize => FallocateFlags::KEEP_SIZE,
        AllocateMode::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        AllocateMode::Zero => FallocateFlags::ZERO_RANGE,
        AllocateMode::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
    }
}

/// A buffer that `O_DIRECT` accepts.
struct AlignedBuf {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    fn new(len: usize) -> Self {
        let alignment = DIRECT_ALIGNMENT as usize;
        let memory = vec![0; len + alignment];
        let start = memory.as_ptr().align_offset(alignment);
        Self { memory, start, len }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// A regular file's size, and its bytes where it is open for reading.
pub(crate) struct Whole {
    pub(crate) size: u64,
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Whole {
    fn read(fd: &impl std::os::fd::AsFd) -> Result<Self, Errno> {
        let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
        let bytes = match read_all(fd.as_fd(), size) {
            Ok(bytes) => Some(bytes),
            Err(Errno::BADF) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { size, bytes })
    }

    /// Whether `from..to` holds nothing but zeros, or can't be read.
    fn zeros(&self, from: u64, to: u64) -> bool {
        let Some(bytes) = &self.bytes else { return true };
        let end = bytes.len().min(usize::try_from(to).unwrap_or(usize::MAX));
        let start = end.min(usize::try_from(from).unwrap_or(usize::MAX));
        bytes[start..end].iter().all(|byte| *byte == 0)
    }
}

/// Reads up to `size` bytes from the start, and the bytes after them.
pub(super) fn read_all(fd: BorrowedFd<'_>, size: u64) -> Result<Vec<u8>, Errno> {
    const EXTRA: u64 = 4096;
    // Room for a whole number of blocks, since the file may be open O_DIRECT.
    let room = size.next_multiple_of(DIRECT_ALIGNMENT) + EXTRA;
    let mut buf = AlignedBuf::new(usize::try_from(room).map_err(|_| Errno::FBIG)?);
    let mut done = 0;
    loop {
        let count = rustix::io::pread(fd, &mut buf.bytes_mut()[done..], done as u64)?;
        done += count;
        if count == 0 || done % DIRECT_ALIGNMENT as usize != 0 || done as u64 == room {
            buf.memory.drain(..buf.start);
            buf.memory.truncate(done);
            return Ok(buf.memory);
        }
    }
}

/// Whether an answer to `SEEK_DATA` or `SEEK_HOLE` fits the file: where data
/// ends and holes begin is the file system's choice, as long as every byte that
/// is not zero counts as data and offsets at or past the end answer `ENXIO`.
pub(crate) fn judge_seek(
    file: &Whole,
    data: bool,
    offset: u64,
    found: Result<u64, Errno>,
) -> Result<Answer, Errno> {
    let ends = if offset >= file.size { Some(Errno::NXIO) } else { None };
    let consistent = match (found, ends) {
        (Err(error), Some(expected)) => {
            return if error == expected { Err(error) } else { wrong(offset, found) };
        }
        (Err(Errno::NXIO), None) => data && file.zeros(offset, file.size),
        (Err(error), None) => return Err(error),
        (Ok(_), Some(_)) => false,
        (Ok(at), None) if data => at >= offset && at < file.size && file.zeros(offset, at),
        (Ok(at), None) => {
            at >= offset && at <= file.size && file.zeros(at, file.size.min(at.saturating_add(1)))
        }
    };
    if consistent { Ok(Answer::Consistent) } else { wrong(offset, found) }
}

fn wrong(offset: u64, found: Result<u64, Errno>) -> Result<Answer, Errno> {
    Ok(Answer::Inconsistent(format!("from {offset}: {found:?}")))
}
