//! [`FaultStore`] itself.

use super::control::{Course, FaultControl};
use super::rule::{FaultOp, FaultRule};
use braid_contract::{Fd, NativeFd, ObjectId, ObjectStat, Result, Store, StoreCapabilities, StoreIo, Usage};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A store that fails by rules, in front of another one. Without rules it
/// costs next to nothing.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    control: FaultControl,
}

impl FaultStore {
    /// Puts the rules in front of `inner`, as by [`FaultControl::set`].
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, rules: Vec<FaultRule>) -> Self {
        Self { inner, control: FaultControl::new(rules) }
    }

    /// The handle by which the rules are changed later.
    #[must_use]
    pub fn control(&self) -> FaultControl {
        self.control.clone()
    }

    fn meet(&self, op: FaultOp, ids: &[ObjectId]) -> Result<()> {
        self.control.meet(op, ids).map(drop)
    }
}

impl Store for FaultStore {
    fn capabilities(&self) -> StoreCapabilities {
        self.inner.capabilities()
    }

    fn create(&self, id: ObjectId) -> Result<()> {
        self.meet(FaultOp::Create, &[id])?;
        self.inner.create(id)
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        match self.control.meet(FaultOp::Read, &[id])? {
            Course::Whole => self.inner.read_at(id, offset, bufs, io),
            Course::Short => {
                let mut left = half(bufs.iter().map(|buf| buf.len()));
                let mut some: Vec<IoSliceMut<'_>> =
                    bufs.iter_mut().map(|buf| IoSliceMut::new(take_mut(buf, &mut left))).collect();
                self.inner.read_at(id, offset, &mut some, io)
            }
        }
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        match self.control.meet(FaultOp::Write, &[id])? {
            Course::Whole => self.inner.write_at(id, offset, bufs, io),
            Course::Short => {
                let mut left = half(bufs.iter().map(|buf| buf.len()));
                let some: Vec<IoSlice<'_>> =
                    bufs.iter().map(|buf| IoSlice::new(take(buf, &mut left))).collect();
                self.inner.write_at(id, offset, &some, io)
            }
        }
    }

    // A batch is not handed on as one: each of its pieces meets its own fault.

    fn allocate(&self, id: ObjectId, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.meet(FaultOp::Allocate, &[id])?;
        self.inner.allocate(id, offset, len, keep_size)
    }

    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        self.meet(FaultOp::Punch, &[id])?;
        self.inner.punch(id, offset, len)
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.meet(FaultOp::Truncate, &[id])?;
        self.inner.truncate(id, size)
    }

    fn sync(&self, ids: &[ObjectId], data_only: bool) -> Result<()> {
        if !ids.is_empty() {
            self.meet(FaultOp::Sync, ids)?;
        }
        self.inner.sync(ids, data_only)
    }

    fn sync_all(&self) -> Result<()> {
        self.meet(FaultOp::Sync, &[])?;
        self.inner.sync_all()
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        self.meet(FaultOp::Remove, ids)?;
        self.inner.remove(ids)
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat> {
        self.meet(FaultOp::Stat, &[id])?;
        self.inner.stat(id)
    }

    fn next_data(&self, id: ObjectId, offset: u64) -> Result<Option<(u64, u64)>> {
        self.meet(FaultOp::Stat, &[id])?;
        self.inner.next_data(id, offset)
    }

    fn usage(&self) -> Result<Usage> {
        self.meet(FaultOp::Usage, &[])?;
        self.inner.usage()
    }

    fn label(&self) -> Result<Option<Vec<u8>>> {
        self.meet(FaultOp::Label, &[])?;
        self.inner.label()
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.meet(FaultOp::Label, &[])?;
        self.inner.set_label(label)
    }

    fn leave_notice(&self, text: &[u8]) -> Result<()> {
        self.inner.leave_notice(text)
    }

    fn probe(&self, label: &[u8]) -> Result<()> {
        self.meet(FaultOp::Probe, &[])?;
        self.inner.probe(label)
    }

    fn clear(&self) -> Result<()> {
        self.meet(FaultOp::Remove, &[])?;
        self.meet(FaultOp::Label, &[])?;
        self.inner.clear()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.meet(FaultOp::List, &[])?;
        self.inner.list(visit)
    }

    fn directory(&self) -> Result<Fd> {
        self.meet(FaultOp::List, &[])?;
        self.inner.directory()
    }

    fn adopt(&self, id: ObjectId, file: &dyn NativeFd) -> Result<()> {
        self.meet(FaultOp::Create, &[id])?;
        self.inner.adopt(id, file)
    }

    fn object_file(&self, id: ObjectId) -> Result<Fd> {
        self.meet(FaultOp::Stat, &[id])?;
        self.inner.object_file(id)
    }

    fn fd(&self, id: ObjectId) -> Result<Arc<OwnedFd>> {
        self.meet(FaultOp::Descriptor, &[id])?;
        self.inner.fd(id)
    }
}

/// Half of the bytes, and never none of some: that would be the object's end.
fn half(lens: impl Iterator<Item = usize>) -> usize {
    lens.sum::<usize>().div_ceil(2)
}

/// The beginning of `bytes`, as far as there are bytes `left`.
fn take<'a>(bytes: &'a [u8], left: &mut usize) -> &'a [u8] {
    let len = bytes.len().min(*left);
    *left -= len;
    &bytes[..len]
}

fn take_mut<'a>(bytes: &'a mut [u8], left: &mut usize) -> &'a mut [u8] {
    let len = bytes.len().min(*left);
    *left -= len;
    &mut bytes[..len]
}
