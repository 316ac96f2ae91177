//! The suite for [`Store`].

#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

mod append_only;
mod basics;
mod capabilities;
mod concurrency;
mod layer;
mod read_pieces;
mod space;
mod tier;

pub use append_only::{AppendOnly, AppendOnlyStore};
pub use braid_contract::StoreLayer;
pub use layer::Layered;

use super::Report;
use braid_contract::{Errno, Hint, ObjectId, Result, Store, StoreCapabilities, StoreIo};
use std::any::Any;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

/// A store without a label and objects, with the resources that it needs.
pub struct Fresh {
    store: Arc<dyn Store>,
    _kept: Box<dyn Any>,
}

impl Fresh {
    /// A store, and the directory that it is in, for example.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, kept: impl Any) -> Self {
        Self { store, _kept: Box::new(kept) }
    }
}

/// The name of a case, the capabilities it needs, and its function.
type Case = (&'static str, Needs, fn(&dyn Store));

/// Whether a case is for a store.
type Needs = fn(&dyn Store) -> bool;

const CASES: [&[Case]; 6] = [
    &basics::CASES,
    &read_pieces::CASES,
    &capabilities::CASES,
    &space::CASES,
    &tier::CASES,
    &concurrency::CASES,
];

/// The names of all cases.
pub fn cases() -> impl Iterator<Item = &'static str> {
    CASES.into_iter().flatten().map(|(name, ..)| *name)
}

/// Runs every case that is for the `implementation`, each on a store of its own.
#[must_use]
pub fn run(implementation: &str, fresh: &dyn Fn() -> Fresh) -> Report {
    let mut report = Report::new("store", implementation);
    for (name, needs, case) in CASES.into_iter().flatten() {
        report.run(name, || {
            let fresh = fresh();
            needs(&*fresh.store).then(|| case(&*fresh.store))
        });
    }
    report
}

const LABEL: &[u8] = b"the tier's label";
const A: ObjectId = ObjectId([0xa1; 16]);
const B: ObjectId = ObjectId([0xb2; 16]);
const IO: StoreIo = StoreIo { direct: false, hint: Hint { stream: None, life: None } };

/// For every store.
fn always(_: &dyn Store) -> bool {
    true
}

/// Lays the store out, and makes the objects.
fn set_up(store: &dyn Store, ids: &[ObjectId]) {
    store.set_label(LABEL).unwrap();
    ids.iter().for_each(|id| store.create(*id).unwrap());
}

fn can(store: &dyn Store) -> StoreCapabilities {
    store.capabilities()
}

fn errno<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

/// Writes all of `data`, which a store that has room does at once.
#[track_caller]
fn put(store: &dyn Store, id: ObjectId, offset: u64, data: &[u8]) {
    assert_eq!(store.write_at(id, offset, &[IoSlice::new(data)], IO).unwrap(), data.len(), "written");
}

fn try_get(store: &dyn Store, id: ObjectId, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut buf = vec![0xee; len];
    let done = store.read_at(id, offset, &mut [IoSliceMut::new(&mut buf)], IO)?;
    assert!(buf[done..].iter().all(|byte| *byte == 0xee), "more was changed than was read");
    buf.truncate(done);
    Ok(buf)
}

/// Reads up to `len` bytes.
#[track_caller]
fn get(store: &dyn Store, id: ObjectId, offset: u64, len: usize) -> Vec<u8> {
    try_get(store, id, offset, len).unwrap()
}

/// Fails with the first place where the object is not these bytes, and no more.
#[track_caller]
fn expect(store: &dyn Store, id: ObjectId, offset: u64, data: &[u8]) {
    let found = get(store, id, offset, data.len() + 1);
    assert_eq!(found.len(), data.len(), "bytes from {offset} on");
    let wrong = found.iter().zip(data).position(|(found, data)| found != data);
    assert_eq!(wrong, None, "the first byte from {offset} on that is wrong");
}

fn list(store: &dyn Store) -> Vec<ObjectId> {
    let mut ids = Vec::new();
    store.list(&mut |id| ids.push(id)).unwrap();
    ids.sort();
    ids
}
