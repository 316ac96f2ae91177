//! [`DirStore`] itself.

use super::held::Held;
use super::probe;
use super::tier::{LABEL, LABEL_MAX, Tier};
use crate::native::open_tier_dir;
use braid_contract::{
    Context, Errno, FallocateMode, Fd, NativeFd, ObjectId, ObjectStat, ReadPiece, Result, SetTime, Shown,
    Store, StoreCapabilities, StoreIo, Timestamp, Usage,
};
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Operations in flight on the file system at once: enough to keep an NVMe
/// device busy, and few enough that a hanging one does not hold every thread of
/// the process.
const QUEUE_DEPTH: u32 = 20;

/// A tier in a directory of a mounted file system. The directory is locked, so
/// that one process at a time uses it as a tier.
pub struct DirStore {
    /// The path for finding the directory again; `None` if only its descriptor
    /// is known.
    path: Option<PathBuf>,
    held: Held,
    /// Locked while the directory is opened again.
    probing: Mutex<()>,
    capabilities: StoreCapabilities,
}

impl DirStore {
    /// Opens the directory as a tier and locks it. Creates nothing. If its file
    /// system goes away and is mounted again at the same place,
    /// [`probe`](Store::probe) finds it there.
    ///
    /// # Errors
    /// `EBUSY` if another process uses the directory as a tier, and those of
    /// `open(2)`.
    pub fn open(dir: &Path) -> Result<Self> {
        // Later probes must not depend on the working directory.
        let path = std::path::absolute(dir).with_context(|| dir.shown().to_string())?;
        let mut store = Self::new(open_tier_dir(dir)?)?;
        store.path = Some(path);
        Ok(store)
    }

    /// Uses an open directory, which the caller has locked if needed.
    ///
    /// # Errors
    /// If the file system beneath can't be measured.
    pub fn new(root: Fd) -> Result<Self> {
        let usage = root.usage()?;
        let capabilities = StoreCapabilities {
            native_files: true,
            punch: true,
            allocate: true,
            seek_data: true,
            overwrite: true,
            // Without a birth time, an access time that was never set can't be
            // recognised.
            access_times: root.stat()?.attr.btime.is_some(),
            durable: !usage.volatile,
            preallocates: usage.preallocates,
            queue_depth: QUEUE_DEPTH,
        };
        Ok(Self { path: None, held: Held::new(Tier::new(root)), probing: Mutex::new(()), capabilities })
    }

    /// Runs `change` on the object's file, and marks it as unsynced.
    fn change<T>(&self, id: ObjectId, change: impl FnOnce(&dyn NativeFd) -> Result<T>) -> Result<T> {
        let tier = self.held.tier()?;
        let file = tier.file_to_change(id)?;
        let result = change(&*file);
        tier.unsynced.changed(id, &file);
        check_current(&tier)?;
        result
    }
}

/// Fails if the last operation went to a file system that is not the tier's any
/// more. Called after marking: either the mark was found when the file system
/// was given up, or this check sees that.
fn check_current(tier: &Tier) -> Result<()> {
    if tier.unsynced.is_given_up() { Err(Errno::ESTALE.into()) } else { Ok(()) }
}

impl Store for DirStore {
    fn capabilities(&self) -> StoreCapabilities {
        self.capabilities
    }

    fn create(&self, id: ObjectId) -> Result<()> {
        let tier = self.held.tier()?;
        tier.create(id)?;
        check_current(&tier)
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        self.held.tier()?.file(id)?.read_at(offset, bufs, io.direct)
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        self.change(id, |file| {
            if let Some(life) = io.hint.life {
                file.expect_life(life);
            }
            file.write_at(offset, bufs, io.direct)
        })
    }

    fn read_pieces(&self, id: ObjectId, pieces: &mut [ReadPiece<'_>], io: StoreIo) -> Result<()> {
        let file = self.held.tier()?.file(id)?;
        for piece in pieces {
            piece.done = file.read_at(piece.offset, &mut [IoSliceMut::new(piece.buf)], io.direct)?;
        }
        Ok(())
    }

    fn allocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.change(id, |file| file.allocate(FallocateMode::Allocate { keep_size }, offset, len))
    }

    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.change(id, |file| file.allocate(FallocateMode::PunchHole, offset, len))
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.change(id, |file| file.truncate(size))
    }

    fn start_write_back(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.held.tier()?.file(id)?.start_write_back(offset, len)
    }

    fn start_read(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.held.tier()?.file(id)?.start_read(offset, len)
    }

    fn sync(&self, ids: &[ObjectId], data_only: bool) -> Result<()> {
        // Before the check for losses: the probe may find that this file system
        // has come back.
        let tier = self.held.tier()?;
        self.held.tell_lost(ids)?;
        tier.sync(ids, data_only)?;
        check_current(&tier)
    }

    fn sync_all(&self) -> Result<()> {
        let tier = self.held.tier()?;
        self.held.tell_any_lost()?;
        tier.sync_all()?;
        check_current(&tier)
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        let tier = self.held.tier()?;
        for id in ids {
            tier.remove(*id)?;
            self.held.forget_lost(*id);
        }
        check_current(&tier)
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat> {
        let attr = self.held.tier()?.file_to_stat(id)?.stat()?.attr;
        // Made with the file, and set by nothing but `set_access_time`. A time
        // that is set to that of the file's birth can't be distinguished from
        // it.
        let atime = attr.btime.filter(|made| *made != attr.atime).map(|_| attr.atime);
        Ok(ObjectStat { size: attr.size, allocated: attr.blocks * 512, mtime: attr.mtime, atime })
    }

    fn set_access_time(&self, id: ObjectId, time: Timestamp) -> Result<()> {
        // Not to be waited for by a sync: the times of an object are no data.
        self.held.tier()?.file_to_change(id)?.set_times(Some(SetTime::At(time)), None)
    }

    fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>> {
        self.held.tier()?.file(id)?.next_data(offset)
    }

    fn usage(&self) -> Result<Usage> {
        let usage = self.held.tier()?.root.usage()?;
        if usage.read_only {
            return Err(Errno::EROFS.into());
        }
        Ok(usage.space)
    }

    fn label(&self) -> Result<Option<Vec<u8>>> {
        self.held.tier()?.root.read_small(LABEL, LABEL_MAX).context("reading .braid/label")
    }

    fn set_label(&self, bytes: &[u8]) -> Result<()> {
        self.held.tier()?.set_label(bytes)
    }

    fn leave_notice(&self, text: &[u8]) -> Result<()> {
        self.held.tier()?.leave_notice(text)
    }

    fn probe(&self, label: &[u8]) -> Result<()> {
        let _probing = self.probing.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.path {
            Some(path) => probe::at(&self.held, path, label),
            // A tier without a path can't be found again.
            None => probe::open_one(&self.held.tier()?.root, label),
        }
    }

    fn clear(&self) -> Result<()> {
        self.held.tier()?.clear()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.held.tier()?.list(visit)
    }

    fn directory(&self) -> Result<Fd> {
        Ok(Arc::clone(&self.held.tier()?.root))
    }

    fn adopt(&self, id: ObjectId, file: &dyn NativeFd) -> Result<()> {
        let tier = self.held.tier()?;
        tier.adopt(id, file)?;
        check_current(&tier)
    }

    fn object_file(&self, id: ObjectId) -> Result<Fd> {
        self.held.tier()?.file_to_stat(id)
    }

    fn share_range(
        &self,
        id: ObjectId,
        offset: u64,
        from: &dyn NativeFd,
        from_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.change(id, |file| from.copy_range(from_offset, file, offset, len))
    }
}
