//! Stores that are another one in all but a few things.

use braid_contract::{
    Errno, Fd, NativeFd, ObjectId, ObjectStat, Result, Store, StoreCapabilities, StoreIo, Usage,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What is different from the store beneath.
pub trait StoreLayer: Send + Sync {
    /// The store beneath.
    fn inner(&self) -> &dyn Store;

    /// What is left of the store's capabilities. Methods that need one which is
    /// not left are refused without asking further.
    fn capabilities(&self) -> StoreCapabilities {
        self.inner().capabilities()
    }

    /// [`Store::read_at`].
    ///
    /// # Errors
    /// Those of the store.
    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        self.inner().read_at(id, offset, bufs, io)
    }

    /// [`Store::write_at`].
    ///
    /// # Errors
    /// Those of the store.
    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        self.inner().write_at(id, offset, bufs, io)
    }

    /// [`Store::punch`], where the capability is left.
    ///
    /// # Errors
    /// Those of the store.
    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.inner().punch(id, offset, len)
    }

    /// [`Store::truncate`].
    ///
    /// # Errors
    /// Those of the store.
    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.inner().truncate(id, size)
    }

    /// [`Store::remove`].
    ///
    /// # Errors
    /// Those of the store.
    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        self.inner().remove(ids)
    }

    /// [`Store::probe`].
    ///
    /// # Errors
    /// Those of the store.
    fn probe(&self, label: &[u8]) -> Result<()> {
        self.inner().probe(label)
    }
}

/// The store that a layer makes.
pub struct Layered<L>(pub L);

impl<L: StoreLayer> Layered<L> {
    fn inner(&self) -> &dyn Store {
        self.0.inner()
    }

    /// Refuses what needs a capability that is not there.
    fn needs(&self, has: fn(&StoreCapabilities) -> bool) -> Result<()> {
        if has(&self.0.capabilities()) { Ok(()) } else { Err(Errno::EOPNOTSUPP.into()) }
    }
}

impl<L: StoreLayer> Store for Layered<L> {
    fn capabilities(&self) -> StoreCapabilities {
        self.0.capabilities()
    }

    fn create(&self, id: ObjectId) -> Result<()> {
        self.inner().create(id)
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        self.0.read_at(id, offset, bufs, io)
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        self.0.write_at(id, offset, bufs, io)
    }

    // A batch is not handed on as one: its pieces are the layer's.

    fn allocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.needs(|capabilities| capabilities.allocate)?;
        self.inner().allocate(id, offset, len, keep_size)
    }

    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.needs(|capabilities| capabilities.punch)?;
        self.0.punch(id, offset, len)
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.0.truncate(id, size)
    }

    fn sync(&self, ids: &[ObjectId], data_only: bool) -> Result<()> {
        self.inner().sync(ids, data_only)
    }

    fn sync_all(&self) -> Result<()> {
        self.inner().sync_all()
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        self.0.remove(ids)
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat> {
        self.inner().stat(id)
    }

    fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>> {
        self.needs(|capabilities| capabilities.seek_data)?;
        self.inner().next_data(id, offset)
    }

    fn usage(&self) -> Result<Usage> {
        self.inner().usage()
    }

    fn label(&self) -> Result<Option<Vec<u8>>> {
        self.inner().label()
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.inner().set_label(label)
    }

    fn leave_notice(&self, text: &[u8]) -> Result<()> {
        self.inner().leave_notice(text)
    }

    fn probe(&self, label: &[u8]) -> Result<()> {
        self.0.probe(label)
    }

    fn clear(&self) -> Result<()> {
        let mut ids = Vec::new();
        self.list(&mut |id| ids.push(id))?;
        self.0.remove(&ids)?;
        self.inner().clear()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.inner().list(visit)
    }

    // Files that others may write to are no objects of a store that looks at
    // each write.

    fn directory(&self) -> Result<Fd> {
        self.needs(|capabilities| capabilities.descriptors)?;
        self.inner().directory()
    }

    fn adopt(&self, id: ObjectId, file: &dyn NativeFd) -> Result<()> {
        self.needs(|capabilities| capabilities.descriptors)?;
        self.inner().adopt(id, file)
    }

    fn object_file(&self, id: ObjectId) -> Result<Fd> {
        self.needs(|capabilities| capabilities.descriptors)?;
        self.inner().object_file(id)
    }

    fn fd(&self, id: ObjectId) -> Result<Arc<OwnedFd>> {
        self.needs(|capabilities| capabilities.descriptors)?;
        self.inner().fd(id)
    }
}
