//! [`DirStore`] itself.

use super::files::OpenFiles;
use braid_contract::{
    Context, Errno, ObjectId, ObjectStat, Result, Store, StoreCapabilities, StoreIo, Timestamp, Usage,
};
use braid_sys::{
    DIRECT_ALIGNMENT, DataFile, lock_tier_dir, measure_space, read_small_file, replace_small_file,
};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, SeekFrom};
use std::collections::HashSet;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A tier in a directory of a mounted file system. Holds an exclusive lock on
/// the directory, so that one process at a time uses it as a tier.
pub struct DirStore {
    root: OwnedFd,
    durable: bool,
    files: OpenFiles,
    /// Objects whose directory entry may not be durable yet.
    unsynced: Mutex<HashSet<ObjectId>>,
}

impl DirStore {
    /// Opens the directory as a tier. Creates nothing.
    ///
    /// # Errors
    /// `EBUSY` if another process uses the directory as a tier, and those of
    /// `open(2)`.
    pub fn open(dir: &Path) -> Result<Self> {
        let root = lock_tier_dir(dir).with_context(|| dir.display().to_string())?;
        let durable = rustix::fs::fstatfs(&root)?.f_type as i64 != TMPFS_MAGIC;
        Ok(Self { root, durable, files: OpenFiles::new(), unsynced: Mutex::new(HashSet::new()) })
    }

    fn file(&self, id: ObjectId) -> Result<Arc<DataFile>> {
        let open = |access| {
            let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            Ok(DataFile::new(rustix::fs::openat(&self.root, path_of(id), flags, Mode::empty())?))
        };
        match self.files.get(id, || open(OFlags::RDWR)) {
            // On a file system that went read-only, what is there can still be
            // read. Not kept: it may become writable again.
            Err(error) if error.errno() == Errno::EROFS => Ok(Arc::new(open(OFlags::RDONLY)?)),
            result => result,
        }
    }

    fn unsynced(&self) -> MutexGuard<'_, HashSet<ObjectId>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the names of new objects durable: their directory, and the one
    /// above, since the directory may be as new.
    fn sync_names(&self, ids: &[ObjectId]) -> Result<()> {
        let new: Vec<ObjectId> = {
            let unsynced = self.unsynced();
            ids.iter().copied().filter(|id| unsynced.contains(id)).collect()
        };
        for id in &new {
            sync_dir(&self.root, &format!(".braid/data/{}", id.shard()))?;
        }
        if !new.is_empty() {
            sync_dir(&self.root, ".braid/data")?;
        }
        let mut unsynced = self.unsynced();
        for id in &new {
            unsynced.remove(id);
        }
        Ok(())
    }
}

fn path_of(id: ObjectId) -> String {
    format!(".braid/data/{}/{id}", id.shard())
}

fn sync_dir(root: &OwnedFd, path: &str) -> Result<()> {
    let fd =
        rustix::fs::openat(root, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::fsync(fd)?)
}

/// Makes a directory that may exist.
fn make_dir(root: &OwnedFd, path: &str) -> rustix::io::Result<()> {
    match rustix::fs::mkdirat(root, path, Mode::from_raw_mode(0o700)) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        result => result,
    }
}

impl Store for DirStore {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            descriptors: true,
            punch: true,
            allocate: true,
            seek_data: true,
            overwrite: true,
            direct_alignment: DIRECT_ALIGNMENT as u32,
            durable: self.durable,
        }
    }

    fn create(&self, id: ObjectId) -> Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = || rustix::fs::openat(&self.root, path_of(id), flags, Mode::from_raw_mode(0o600));
        let opened = match open() {
            Err(rustix::io::Errno::NOENT) => {
                make_dir(&self.root, &format!(".braid/data/{}", id.shard()))?;
                open()
            }
            result => result,
        };
        match opened {
            Ok(fd) => {
                self.unsynced().insert(id);
                self.files.get(id, || Ok(DataFile::new(fd)))?;
                Ok(())
            }
            Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        Ok(self.file(id)?.read_at(offset, bufs, io.direct)?)
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        match self.file(id)?.write_at(offset, bufs, io.direct) {
            // Open for reading only, since the file system is.
            Err(rustix::io::Errno::BADF) => Err(Errno::EROFS.into()),
            result => Ok(result?),
        }
    }

    fn allocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let flags = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let file = self.file(id)?;
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fallocate(&*file, flags, offset, len))?)
    }

    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        let file = self.file(id)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fallocate(&*file, flags, offset, len))?)
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        Ok(rustix::fs::ftruncate(&*self.file(id)?, size)?)
    }

    fn sync(&self, ids: &[ObjectId], data_only: bool) -> Result<()> {
        for id in ids {
            let file = self.file(*id)?;
            if data_only { rustix::fs::fdatasync(&*file) } else { rustix::fs::fsync(&*file) }?;
        }
        self.sync_names(ids)
    }

    fn sync_all(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        for id in ids {
            match rustix::fs::unlinkat(&self.root, path_of(*id), AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
            self.files.forget(*id);
            self.unsynced().remove(id);
        }
        Ok(())
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat> {
        let stat = rustix::fs::statat(&self.root, path_of(id), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(ObjectStat {
            size: stat.st_size.cast_unsigned(),
            allocated: stat.st_blocks.cast_unsigned() * 512,
            mtime: Timestamp { secs: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 },
        })
    }

    fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>> {
        let file = self.file(id)?;
        let start = match rustix::fs::seek(&*file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(&*file, SeekFrom::Hole(start))?;
        Ok(Some((start, end)))
    }

    fn usage(&self) -> Result<Usage> {
        let space = measure_space(&self.root)?;
        if space.read_only {
            return Err(Errno::EROFS.into());
        }
        Ok(Usage { total: space.total, free: space.free, available: space.available, device: space.device })
    }

    fn label(&self) -> Result<Option<Vec<u8>>> {
        read_small_file(&self.root, ".braid/label", 4096).context("reading .braid/label")
    }

    fn set_label(&self, bytes: &[u8]) -> Result<()> {
        make_dir(&self.root, ".braid").context("making .braid")?;
        make_dir(&self.root, ".braid/data").context("making .braid/data")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.root, ".braid", flags, Mode::empty())?;
        replace_small_file(&dir, "label", bytes).context("writing .braid/label")?;
        Ok(rustix::fs::fsync(&self.root)?)
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let data = match rustix::fs::openat(&self.root, ".braid/data", flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            result => result?,
        };
        for shard in rustix::fs::Dir::read_from(&data)? {
            let shard = shard?;
            if shard.file_name().to_bytes().starts_with(b".") {
                continue;
            }
            let dir = rustix::fs::openat(&data, shard.file_name(), flags, Mode::empty())?;
            for object in rustix::fs::Dir::read_from(&dir)? {
                let object = object?;
                if let Some(id) = object.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
                    visit(id);
                }
            }
        }
        Ok(())
    }

    fn fd(&self, id: ObjectId) -> Result<Arc<OwnedFd>> {
        Ok(self.file(id)?.fd())
    }
}
