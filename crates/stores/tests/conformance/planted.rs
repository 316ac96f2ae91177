//! Stores that break a promise: the suite must detect that.

use super::SIZE;
use braid_contract::{ObjectId, Result, Store, StoreCapabilities, StoreIo, StoreLayer};
use braid_stores::memory::MemoryStore;
use braid_testkit::conformance::store::{Fresh, Layered, run};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

/// The broken promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Violation {
    /// It claims not to overwrite data, and does.
    Overwrites,
    /// It claims not to punch, but punches succeed, since it claims otherwise
    /// later.
    ChangesItsMind,
    /// A punch changes nothing.
    PunchesNothing,
    /// Removed objects stay.
    Keeps,
    /// A write of several buffers silently loses all but the first.
    LosesBuffers,
    /// A read ends before the object does.
    ReadsShort,
    /// Growing has no effect.
    DoesNotGrow,
    /// It accepts any label.
    TakesAnyLabel,
}

struct Broken {
    inner: MemoryStore,
    violation: Violation,
}

impl StoreLayer for Broken {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn capabilities(&self) -> StoreCapabilities {
        let inner = self.inner.capabilities();
        match self.violation {
            Violation::Overwrites => StoreCapabilities { overwrite: false, ..inner },
            Violation::ChangesItsMind => {
                let has_objects = {
                    let mut any = false;
                    self.inner.list(&mut |_| any = true).unwrap();
                    any
                };
                StoreCapabilities { punch: has_objects, ..inner }
            }
            _ => inner,
        }
    }

    fn read_at(&self, id: ObjectId, offset: u64, bufs: &mut [IoSliceMut<'_>], io: StoreIo) -> Result<usize> {
        match bufs {
            [buf] if self.violation == Violation::ReadsShort => {
                let some = buf.len().min(100_000);
                self.inner.read_at(id, offset, &mut [IoSliceMut::new(&mut buf[..some])], io)
            }
            bufs => self.inner.read_at(id, offset, bufs, io),
        }
    }

    fn write_at(&self, id: ObjectId, offset: u64, bufs: &[IoSlice<'_>], io: StoreIo) -> Result<usize> {
        match bufs {
            [first, ..] if self.violation == Violation::LosesBuffers => {
                self.inner.write_at(id, offset, &[IoSlice::new(first)], io)?;
                Ok(bufs.iter().map(|buf| buf.len()).sum())
            }
            bufs => self.inner.write_at(id, offset, bufs, io),
        }
    }

    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> Result<()> {
        if self.violation == Violation::PunchesNothing {
            return self.inner.stat(id).map(drop);
        }
        self.inner.punch(id, offset, len)
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        let before = self.inner.stat(id)?.size;
        if self.violation == Violation::DoesNotGrow && size > before {
            return Ok(());
        }
        self.inner.truncate(id, size)
    }

    fn remove(&self, ids: &[ObjectId]) -> Result<()> {
        if self.violation == Violation::Keeps { Ok(()) } else { self.inner.remove(ids) }
    }

    fn probe(&self, label: &[u8]) -> Result<()> {
        if self.violation == Violation::TakesAnyLabel { Ok(()) } else { self.inner.probe(label) }
    }
}

#[test]
fn planted_violations_fail_the_suite() {
    let cases = [
        (Violation::Overwrites, "each byte is written once"),
        (Violation::ChangesItsMind, "capabilities make sense and stay"),
        (Violation::PunchesNothing, "a punched hole reads as zeros"),
        (Violation::Keeps, "what is removed is gone"),
        (Violation::LosesBuffers, "buffers follow one another"),
        (Violation::ReadsShort, "what is written is read"),
        (Violation::DoesNotGrow, "truncate cuts and grows"),
        (Violation::TakesAnyLabel, "a probe knows the tier by its label"),
    ];
    for (violation, case) in cases {
        let fresh = || Fresh::new(Arc::new(Layered(Broken { inner: MemoryStore::new(SIZE), violation })), ());
        let report = run("a broken store", &fresh);
        assert!(report.has_failed(case), "{violation:?}: {:?}", report.failed);
    }
}
