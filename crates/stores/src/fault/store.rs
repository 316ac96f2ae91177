//! [`FaultStore`] itself.

use super::control::{Course, FaultControl};
use super::rule::{FaultOp, FaultRule};
use braid_contract::{ObjectId, Result, Store, StoreIo, StoreLayer, StoreOperation};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

/// A store that fails by rules, in front of another one. Without rules it
/// costs next to nothing.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    control: FaultControl,
}

impl FaultStore {
    /// Puts the rules in front of `inner`, like [`FaultControl::set`].
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, rules: Vec<FaultRule>) -> Self {
        Self { inner, control: FaultControl::new(rules) }
    }

    /// The handle for changing the rules later.
    #[must_use]
    pub fn control(&self) -> FaultControl {
        self.control.clone()
    }
}

impl StoreLayer for FaultStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn before(&self, operation: StoreOperation, ids: &[ObjectId]) -> Result<()> {
        faults_of(operation, ids).iter().try_for_each(|op| self.control.meet(*op, ids).map(drop))
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
}

/// The faults that an operation may meet, in order.
fn faults_of(operation: StoreOperation, ids: &[ObjectId]) -> &'static [FaultOp] {
    match operation {
        StoreOperation::Create | StoreOperation::Adopt => &[FaultOp::Create],
        StoreOperation::Read => &[FaultOp::Read],
        StoreOperation::Write | StoreOperation::ShareRange => &[FaultOp::Write],
        StoreOperation::Allocate => &[FaultOp::Allocate],
        StoreOperation::Punch => &[FaultOp::Punch],
        StoreOperation::Truncate => &[FaultOp::Truncate],
        // An error of the device shows later.
        StoreOperation::StartWriteBack | StoreOperation::StartRead => &[],
        StoreOperation::Sync if ids.is_empty() => &[],
        StoreOperation::Sync | StoreOperation::SyncAll => &[FaultOp::Sync],
        StoreOperation::Remove => &[FaultOp::Remove],
        StoreOperation::Stat | StoreOperation::SetAccessTime | StoreOperation::NextData => &[FaultOp::Stat],
        // Reads by the file are not seen.
        StoreOperation::ObjectFile => &[FaultOp::Stat, FaultOp::Read],
        StoreOperation::Usage => &[FaultOp::Usage],
        StoreOperation::Label | StoreOperation::SetLabel => &[FaultOp::Label],
        StoreOperation::LeaveNotice => &[],
        StoreOperation::Probe => &[FaultOp::Probe],
        StoreOperation::Clear => &[FaultOp::Remove, FaultOp::Label],
        StoreOperation::List | StoreOperation::Directory => &[FaultOp::List],
    }
}

/// Half of the bytes, but at least one: zero would mean the object's end.
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
