//! [`MemoryStore`] itself.

use super::account::Account;
use super::object::Object;
use braid_contract::{
    Errno, Error, ObjectId, ObjectStat, Result, Store, StoreCapabilities, StoreIo, Timestamp, Usage,
};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Longest label.
const LABEL_MAX: usize = 4096;

/// More than there are threads to fill it: memory does not block.
const QUEUE_DEPTH: u32 = 256;

/// Number of stores of this process, for distinct device numbers.
static STORES: AtomicU64 = AtomicU64::new(0);

/// A tier in memory. An object is a memory file, which takes one descriptor;
/// one that is never written to takes no memory. Space is reserved before it is
/// written, in whole pages.
pub struct MemoryStore {
    objects: RwLock<HashMap<ObjectId, Arc<Object>>>,
    account: Arc<Account>,
    label: Mutex<Option<Vec<u8>>>,
    device: u64,
}

impl MemoryStore {
    /// An empty store without a label, whose objects take at most `size` bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self {
            objects: RwLock::default(),
            account: Arc::new(Account::new(size)),
            label: Mutex::default(),
            // No device of the kernel has such a number.
            device: u64::MAX - STORES.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn object(&self, id: ObjectId) -> Result<Arc<Object>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(&id).map(Arc::clone).ok_or_else(|| Errno::ENOENT.into())
    }

    fn label_slot(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.label.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            native_files: false,
            punch: true,
            allocate: true,
            seek_data: true,
            overwrite: true,
            access_times: true,
            durable: false,
            preallocates: false,
            queue_depth: QUEUE_DEPTH,
        }
    }

    fn create(&self, id: ObjectId) -> Result<()> {
        if self.object(id).is_ok() {
            return Ok(());
        }
        let made = Arc::new(Object::new(Arc::clone(&self.account))?);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been faster.
        objects.entry(id).or_insert(made);
        Ok(())
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], _io: StoreIo) -> Result<usize> {
        self.object(id)?.read_at(offset, bufs)
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], _io: StoreIo) -> Result<usize> {
        self.object(id)?.write_at(offset, bufs)
    }

    fn allocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.object(id)?.allocate(offset, len, keep_size)
    }

    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.object(id)?.punch(offset, len)
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.object(id)?.truncate(size)
    }

    fn sync(&self, ids: &[ObjectId], _data_only: bool) -> Result<()> {
        ids.iter().try_for_each(|id| self.object(*id).map(drop))
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        for id in ids {
            let removed = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(id);
            // Freed without the lock.
            drop(removed);
        }
        Ok(())
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat> {
        self.object(id)?.stat()
    }

    fn set_access_time(&self, id: ObjectId, time: Timestamp) -> Result<()> {
        self.object(id)?.set_access_time(time);
        Ok(())
    }

    fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>> {
        self.object(id)?.next_data(offset)
    }

    fn usage(&self) -> Result<Usage> {
        let available = self.account.available();
        Ok(Usage { total: self.account.size(), free: available, available, device: self.device })
    }

    fn label(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.label_slot().clone())
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > LABEL_MAX {
            return Err(Errno::EINVAL.into());
        }
        *self.label_slot() = Some(label.to_vec());
        Ok(())
    }

    fn probe(&self, label: &[u8]) -> Result<()> {
        if self.label_slot().as_deref() == Some(label) {
            return Ok(());
        }
        Err(Error::new(Errno::ESTALE, "the memory store is not the tier any more"))
    }

    fn clear(&self) -> Result<()> {
        let objects = std::mem::take(&mut *self.objects.write().unwrap_or_else(PoisonError::into_inner));
        drop(objects);
        *self.label_slot() = None;
        Ok(())
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        // The visitor may use the store.
        let ids: Vec<ObjectId> = objects.keys().copied().collect();
        drop(objects);
        ids.into_iter().for_each(visit);
        Ok(())
    }
}
