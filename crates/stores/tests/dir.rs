//! Tests of the directory store alone: where objects are, and who may use them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_contract::{Errno, ObjectId, Store, StoreIo};
use braid_stores::dir::DirStore;
use std::io::IoSlice;

const ID: ObjectId = ObjectId([7; 16]);
const IO: StoreIo = StoreIo { direct: false, hint: braid_contract::Hint { stream: None, life: None } };

#[test]
fn opening_creates_nothing_and_excludes_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirStore::open(dir.path()).unwrap();
    assert_eq!(store.label().unwrap(), None);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(DirStore::open(dir.path()).err().unwrap().errno(), Errno::EBUSY);
    drop(store);
    assert!(DirStore::open(dir.path()).is_ok());
}

#[test]
fn an_object_is_a_file_by_its_id() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirStore::open(dir.path()).unwrap();
    store.set_label(b"label").unwrap();
    store.create(ID).unwrap();
    store.write_at(ID, 1 << 20, &[IoSlice::new(b"ab"), IoSlice::new(b"c")], IO).unwrap();
    let file = std::fs::read(dir.path().join(format!(".braid/data/07/{ID}"))).unwrap();
    assert_eq!((file.len(), &file[1 << 20..]), ((1 << 20) + 3, &b"abc"[..]));
}
