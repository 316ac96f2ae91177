//! The operations of the store.

use super::objects::{Objects, id_of};
use braid_contract::{
    Caller, Errno, FallocateMode, FileSystem, InodeId, ObjectId, ObjectStat, Result, SeekTarget, SetAttr,
    Store, StoreCapabilities, StoreIo, Usage, WriteFlags, XattrMode,
};
use std::ffi::OsStr;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

/// The attribute of the root that is the label.
const LABEL: &str = "trusted.braid.label";

/// Operations that it is worth to have under way.
const QUEUE_DEPTH: u32 = 64;

/// Most bytes of several pieces that are written as one.
const GATHER_MAX: usize = 1 << 20;

/// A tier on a file system of this program, which has no other user.
pub struct FileStore {
    fs: Arc<dyn FileSystem>,
    objects: Objects,
    device: u64,
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").field("device", &self.device).finish_non_exhaustive()
    }
}

impl FileStore {
    /// The store on a file system. `device` distinguishes it from others: see
    /// [`Usage::device`].
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>, device: u64) -> Self {
        Self { objects: Objects::new(Arc::clone(&fs)), fs, device }
    }

    fn fallocate(&self, id: ObjectId, offset: u64, len: u64, mode: FallocateMode) -> Result<()> {
        let file = self.objects.open(id)?;
        self.fs.fallocate(&Caller::root(), file.handle, offset, len, mode)
    }

    fn read_one(&self, id: ObjectId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.objects.open(id)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.fs.read(&Caller::root(), file.handle, at, &mut buf[done..], false)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }
}

/// The pieces as longer ones, where several would be one operation each.
fn gathered<'a>(bufs: &'a [IoSlice<'_>], joined: &'a mut Vec<u8>) -> Vec<&'a [u8]> {
    let bufs: Vec<&[u8]> = bufs.iter().map(|buf| &buf[..]).filter(|buf| !buf.is_empty()).collect();
    let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
    if bufs.len() < 2 || bytes > GATHER_MAX {
        return bufs;
    }
    bufs.iter().for_each(|buf| joined.extend_from_slice(buf));
    vec![joined]
}

impl Store for FileStore {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            native_files: false,
            punch: true,
            allocate: true,
            seek_data: true,
            overwrite: true,
            access_times: false,
            durable: true,
            preallocates: false,
            queue_depth: QUEUE_DEPTH,
        }
    }

    fn create(&self, id: ObjectId) -> Result<()> {
        self.objects.create(id)
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], _io: StoreIo) -> Result<usize> {
        // Also where there is nothing to be read.
        self.objects.open(id)?;
        let mut done = 0;
        for buf in bufs {
            let read = self.read_one(id, offset + done as u64, buf)?;
            done += read;
            if read < buf.len() {
                break;
            }
        }
        Ok(done)
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        let file = self.objects.open(id)?;
        let flags = WriteFlags { hint: io.hint, ..WriteFlags::default() };
        let mut joined = Vec::new();
        let mut done = 0;
        for piece in gathered(bufs, &mut joined) {
            match self.fs.write(&Caller::root(), file.handle, offset + done as u64, piece, flags) {
                Ok(written) => {
                    done += written;
                    if written < piece.len() {
                        break;
                    }
                }
                // It is answered again when the rest is written.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn allocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.fallocate(id, offset, len, FallocateMode::Allocate { keep_size })
    }

    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.fallocate(id, offset, len, FallocateMode::PunchHole)
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        let file = self.objects.open(id)?;
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(&Caller::root(), file.known.ino, Some(file.handle), &changes).map(drop)
    }

    fn sync(&self, ids: &[ObjectId], data_only: bool) -> Result<()> {
        for id in ids {
            let file = self.objects.open(*id)?;
            self.fs.fsync(&Caller::root(), file.handle, data_only)?;
        }
        self.objects.sync_names()
    }

    fn sync_all(&self) -> Result<()> {
        self.fs.sync()
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        ids.iter().try_for_each(|id| self.objects.remove(*id))
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat> {
        let file = self.objects.open(id)?;
        let attr = self.fs.getattr(&Caller::root(), file.known.ino, Some(file.handle))?;
        Ok(ObjectStat { size: attr.size, allocated: attr.blocks * 512, mtime: attr.mtime, atime: None })
    }

    fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>> {
        let file = self.objects.open(id)?;
        let seek = |from, target| self.fs.seek(&Caller::root(), file.handle, from, target);
        let start = match seek(offset, SeekTarget::Data) {
            Err(error) if error.errno() == Errno::ENXIO => return Ok(None),
            start => start?,
        };
        Ok(Some((start, seek(start, SeekTarget::Hole)?)))
    }

    fn usage(&self) -> Result<Usage> {
        let space = self.fs.statfs(&Caller::root())?;
        Ok(Usage { total: space.total, free: space.free, available: space.available, device: self.device })
    }

    fn label(&self) -> Result<Option<Vec<u8>>> {
        match self.fs.getxattr(&Caller::root(), InodeId::ROOT, OsStr::new(LABEL)) {
            Err(error) if error.errno() == Errno::ENODATA => Ok(None),
            label => label.map(Some),
        }
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.objects.set_up()?;
        let caller = Caller::root();
        self.fs.setxattr(&caller, InodeId::ROOT, OsStr::new(LABEL), label, XattrMode::Set)?;
        self.fs.sync()
    }

    fn leave_notice(&self, text: &[u8]) -> Result<()> {
        self.objects.leave_notice(text)
    }

    fn probe(&self, label: &[u8]) -> Result<()> {
        if self.label()?.as_deref() != Some(label) {
            return Err(Errno::ESTALE.into());
        }
        // Whether it can still be written.
        self.fs.sync()
    }

    fn clear(&self) -> Result<()> {
        self.objects.clear()?;
        self.fs.sync()?;
        match self.fs.removexattr(&Caller::root(), InodeId::ROOT, OsStr::new(LABEL)) {
            Err(error) if error.errno() == Errno::ENODATA => Ok(()),
            removed => removed,
        }?;
        self.fs.sync()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.objects.list()?.iter().filter_map(|name| id_of(name)).for_each(visit);
        Ok(())
    }
}
