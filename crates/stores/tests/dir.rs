//! The promises of `Store`, kept by the directory store.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_contract::{Errno, ObjectId, PieceIo, Store, StoreIo};
use braid_stores::dir::DirStore;
use std::io::{IoSlice, IoSliceMut};

const ID: ObjectId = ObjectId([7; 16]);
const IO: StoreIo = StoreIo { direct: false, hint: braid_contract::Hint { stream: None, group: None } };

fn store() -> (tempfile::TempDir, DirStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = DirStore::open(dir.path()).unwrap();
    store.set_label(b"label").unwrap();
    (dir, store)
}

fn read(store: &DirStore, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    let done = store.read_at(ID, offset, &mut [IoSliceMut::new(&mut buf)], IO).unwrap();
    buf.truncate(done);
    buf
}

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
fn labels_are_replaced_as_a_whole() {
    let (_dir, store) = store();
    store.set_label(b"another").unwrap();
    assert_eq!(store.label().unwrap().unwrap(), b"another");
}

#[test]
fn objects_are_sparse_and_keep_offsets() {
    let (dir, store) = store();
    store.create(ID).unwrap();
    store.create(ID).unwrap();
    assert_eq!(store.write_at(ID, 1 << 20, &[IoSlice::new(b"ab"), IoSlice::new(b"c")], IO).unwrap(), 3);
    assert_eq!(read(&store, (1 << 20) - 2, 10), b"\0\0abc");
    let stat = store.stat(ID).unwrap();
    assert_eq!(stat.size, (1 << 20) + 3);
    assert!(stat.allocated < 1 << 20);
    let (start, end) = store.next_data(ID, 0).unwrap().unwrap();
    assert!(start > 0 && start <= 1 << 20 && end >= (1 << 20) + 3);
    assert!(dir.path().join(format!(".braid/data/07/{ID}")).exists());
}

#[test]
fn punch_zeroes_and_truncate_cuts() {
    let (_dir, store) = store();
    store.create(ID).unwrap();
    store.write_at(ID, 0, &[IoSlice::new(&[1; 8192])], IO).unwrap();
    store.punch(ID, 0, 4096).unwrap();
    assert_eq!(read(&store, 4094, 4), [0, 0, 1, 1]);
    store.truncate(ID, 4097).unwrap();
    assert_eq!(read(&store, 4096, 10), [1]);
    store.allocate(ID, 0, 1 << 20, true).unwrap();
    assert_eq!(store.stat(ID).unwrap().size, 4097);
    store.sync(&[ID], false).unwrap();
}

#[test]
fn a_batch_reports_how_far_each_piece_came() {
    let (_dir, store) = store();
    store.create(ID).unwrap();
    let mut buf = [0; 8];
    let mut pieces = [
        PieceIo::Write { id: ID, offset: 0, buf: b"hello", done: 0 },
        PieceIo::Read { id: ID, offset: 1, buf: &mut buf, done: 0 },
    ];
    store.batch(&mut pieces, IO).unwrap();
    let [PieceIo::Write { done: 5, .. }, PieceIo::Read { done: 4, .. }] = pieces else {
        panic!("{pieces:?}")
    };
    assert_eq!(buf, *b"ello\0\0\0\0");
}

#[test]
fn what_is_removed_is_gone_and_removing_it_again_is_no_error() {
    let (_dir, store) = store();
    store.create(ID).unwrap();
    let mut seen = Vec::new();
    store.list(&mut |id| seen.push(id)).unwrap();
    assert_eq!(seen, [ID]);
    store.remove(&[ID, ID]).unwrap();
    assert_eq!(store.stat(ID).unwrap_err().errno(), Errno::ENOENT);
    let mut buf = [0];
    assert_eq!(
        store.read_at(ID, 0, &mut [IoSliceMut::new(&mut buf)], IO).unwrap_err().errno(),
        Errno::ENOENT
    );
}
