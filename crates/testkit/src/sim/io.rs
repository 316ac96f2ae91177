//! Operations on the contents and attributes of one inode.

use super::content::{BLOCK, split};
use super::inode::{Body, Change};
use super::state::{Context, State};
use braid_contract::{Errno, FallocateMode, Result, SetTime, Timestamp, XattrMode};
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// No file is larger (ext4 with blocks of 4 KiB).
const SIZE_MAX: u64 = (1 << 44) - BLOCK;
const XATTR_NAME_MAX: usize = 255;
const XATTR_SIZE_MAX: usize = 65536;
const E2BIG: Errno = Errno(7);

impl State {
    /// Writes as much as there is space for.
    pub(super) fn write(
        &mut self,
        context: &Context<'_>,
        ino: u64,
        offset: u64,
        bufs: &[IoSlice<'_>],
    ) -> Result<usize> {
        let content = self.content(ino)?;
        let wanted: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        if wanted == 0 {
            return Ok(0);
        }
        if offset >= SIZE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let end = (offset + wanted).min(SIZE_MAX);
        let mut free = self.capacity.saturating_sub(self.used);
        let mut blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let full = blocks.find(|block| {
            let missing = !content.is_allocated(*block);
            let full = missing && free == 0;
            free -= u64::from(missing && !full);
            full
        });
        let end = full.map_or(end, |block| end.min(block * BLOCK));
        if end <= offset {
            return Err(Errno::ENOSPC.into());
        }
        let grows = end > content.size;
        let seq = self.next_seq();
        self.write_blocks(seq, ino, offset, end, bufs);
        self.change_at(seq, context.now, ino, if grows { Change::Grow(end) } else { Change::Touch });
        Ok((end - offset) as usize)
    }

    fn write_blocks(&mut self, seq: u64, ino: u64, offset: u64, end: u64, bufs: &[IoSlice<'_>]) {
        let bytes = match bufs {
            [buf] => std::borrow::Cow::Borrowed(&**buf),
            bufs => std::borrow::Cow::Owned(bufs.iter().flat_map(|buf| buf.iter().copied()).collect()),
        };
        let mut done = 0;
        while offset + (done as u64) < end {
            let (block, at) = split(offset + done as u64);
            let part = (BLOCK as usize - at).min((end - offset) as usize - done);
            self.write_block(seq, ino, block, at, &bytes[done..done + part]);
            done += part;
        }
    }

    /// Stores a word through a mapping.
    pub(super) fn store(&mut self, ino: u64, offset: u64, word: u64) {
        let seq = self.next_seq();
        let (block, at) = split(offset);
        self.write_block(seq, ino, block, at, &word.to_le_bytes());
    }

    pub(super) fn truncate(&mut self, context: &Context<'_>, ino: u64, size: u64) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let content = self.content(ino)?;
        let seq = self.next_seq_of(size < content.size, |state, seq| {
            state.zero_part(seq, ino, size, size.next_multiple_of(BLOCK));
        });
        self.change_at(seq, context.now, ino, Change::Truncate(size));
        Ok(())
    }

    /// A number for the next change, of which `first` is a part if `wanted`.
    fn next_seq_of(&mut self, wanted: bool, first: impl FnOnce(&mut Self, u64)) -> u64 {
        let seq = self.next_seq();
        if wanted {
            first(self, seq);
        }
        seq
    }

    /// Zeroes a part of one block, where it was written and is not zero yet.
    fn zero_part(&mut self, seq: u64, ino: u64, from: u64, to: u64) {
        let (block, at) = split(from);
        let len = (to - from) as usize;
        let Some(data) = self.inodes.get(&ino).and_then(|inode| inode.live.content()?.data(block)) else {
            return;
        };
        if data[at..at + len].iter().any(|byte| *byte != 0) {
            self.write_block(seq, ino, block, at, &[0; BLOCK as usize][..len]);
        }
    }

    pub(super) fn allocate(
        &mut self,
        context: &Context<'_>,
        ino: u64,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        let node = self.node(ino)?;
        let size = match &node.body {
            Body::File(content) => content.size,
            Body::Dir(_) => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::ENODEV.into()),
        };
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        if end > SIZE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let grown = |keep_size| if keep_size { size } else { size.max(end) };
        match mode {
            FallocateMode::Allocate { keep_size } => {
                let blocks = offset / BLOCK..end.div_ceil(BLOCK);
                self.must_fit(ino, blocks.clone())?;
                self.change(context.now, ino, Change::Allocate(blocks, grown(keep_size)));
            }
            FallocateMode::PunchHole => {
                // Data beyond the end of the file is lost with the data before.
                let end = if end >= size { end.next_multiple_of(BLOCK) } else { end };
                self.clear(context, ino, (offset, end), Change::Punch);
            }
            FallocateMode::ZeroRange { keep_size } => {
                let reserve = offset / BLOCK..end.div_ceil(BLOCK);
                self.must_fit(ino, reserve.clone())?;
                let size = grown(keep_size);
                self.clear(context, ino, (offset, end), |clear| Change::Zero { clear, reserve, size });
            }
        }
        Ok(())
    }

    /// Whether the blocks that have no space yet can have it.
    fn must_fit(&self, ino: u64, blocks: std::ops::Range<u64>) -> Result<()> {
        let fits = self.content(ino)?.missing(blocks) <= self.capacity.saturating_sub(self.used);
        if fits { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// Clears whole blocks by a change of metadata, and zeroes parts of blocks
    /// at both ends by writing.
    fn clear(
        &mut self,
        context: &Context<'_>,
        ino: u64,
        (from, to): (u64, u64),
        change: impl FnOnce(std::ops::Range<u64>) -> Change,
    ) {
        let seq = self.next_seq();
        let (first, last) = (from.next_multiple_of(BLOCK), to / BLOCK * BLOCK);
        if first > last {
            self.zero_part(seq, ino, from, to);
        } else {
            self.zero_part(seq, ino, from, first);
            self.zero_part(seq, ino, last, to);
        }
        let blocks = first / BLOCK..last.max(first) / BLOCK;
        self.change_at(seq, context.now, ino, change(blocks));
    }

    pub(super) fn set_xattr(
        &mut self,
        context: &Context<'_>,
        ino: u64,
        name: &OsStr,
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let node = self.node(ino)?;
        check_xattr_name(name)?;
        if is_user(name) && !matches!(node.body, Body::File(_) | Body::Dir(_)) {
            return Err(Errno::EPERM.into());
        }
        if value.is_some_and(|value| value.len() > XATTR_SIZE_MAX) {
            return Err(E2BIG.into());
        }
        match (node.xattrs.contains_key(name), mode) {
            (true, XattrMode::Create) => return Err(Errno::EEXIST.into()),
            (false, XattrMode::Replace) => return Err(Errno::ENODATA.into()),
            _ => {}
        }
        self.change(context.now, ino, Change::Xattr(name.into(), value.map(Arc::from)));
        Ok(())
    }

    pub(super) fn get_xattr(&self, ino: u64, name: &OsStr, buf: &mut [u8]) -> Result<usize> {
        check_xattr_name(name)?;
        let value = self.node(ino)?.xattrs.get(name).ok_or(Errno::ENODATA)?;
        copy_out(value, buf)
    }

    pub(super) fn list_xattr(&self, ino: u64, buf: &mut [u8]) -> Result<usize> {
        let mut names = Vec::new();
        for name in self.node(ino)?.xattrs.keys() {
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        copy_out(&names, buf)
    }

    pub(super) fn set_mode(&mut self, context: &Context<'_>, ino: u64, mode: u32) -> Result<()> {
        let node = self.node(ino)?;
        if matches!(node.body, Body::Symlink(_)) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let mode = (node.mode & !0o7777) | (mode & 0o7777);
        self.change(context.now, ino, Change::Mode(mode));
        Ok(())
    }

    pub(super) fn set_owner(
        &mut self,
        context: &Context<'_>,
        ino: u64,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        let node = self.node(ino)?;
        // The kernel clears set-id bits of anything but directories.
        let mode = match (node.is_dir(), node.mode & 0o010 != 0) {
            (true, _) => node.mode,
            (false, true) => node.mode & !0o6000,
            (false, false) => node.mode & !0o4000,
        };
        self.change(context.now, ino, Change::Owner { uid, gid, mode });
        Ok(())
    }

    pub(super) fn set_times(
        &mut self,
        context: &Context<'_>,
        ino: u64,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    ) -> Result<()> {
        self.node(ino)?;
        let time = |time: SetTime| -> Timestamp {
            match time {
                SetTime::Now => context.now,
                SetTime::At(time) => time,
            }
        };
        if atime.is_some() || mtime.is_some() {
            let change = Change::Times { atime: atime.map(time), mtime: mtime.map(time) };
            self.change(context.now, ino, change);
        }
        Ok(())
    }
}

fn is_user(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"user.")
}

fn check_xattr_name(name: &OsStr) -> Result<()> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Errno::ERANGE.into());
    }
    let known = [&b"user."[..], b"trusted.", b"security."];
    if !known.iter().any(|prefix| name.as_bytes().starts_with(prefix)) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    Ok(())
}

/// Hands a value out as the kernel does: its length alone to an empty buffer.
fn copy_out(value: &[u8], buf: &mut [u8]) -> Result<usize> {
    if !buf.is_empty() {
        buf.get_mut(..value.len()).ok_or(Errno::ERANGE)?.copy_from_slice(value);
    }
    Ok(value.len())
}
