//! A process with few open files. It is alone in its program, since the limit
//! is the process's.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_contract::{Hint, ObjectId, Store, StoreIo};
use braid_stores::dir::DirStore;
use std::io::{IoSlice, IoSliceMut};
use std::process::Command;

const IO: StoreIo = StoreIo { direct: false, hint: Hint { stream: None, life: None } };

fn id(n: u16) -> ObjectId {
    // In a few directories, and everywhere else spread.
    ObjectId(std::array::from_fn(|at| n.to_be_bytes()[usize::from(at > 0)]))
}

#[test]
fn more_objects_are_used_than_can_be_open() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let store = DirStore::open(dir.path()).unwrap();
    store.set_label(b"label").unwrap();
    let pid = std::process::id().to_string();
    let limited = Command::new("prlimit").args(["--pid", &pid, "--nofile=100:100"]).status().unwrap();
    assert!(limited.success());
    for n in 0..600 {
        store.create(id(n)).unwrap();
        assert_eq!(store.write_at(id(n), 0, &[IoSlice::new(&n.to_be_bytes())], IO).unwrap(), 2);
    }
    for n in 0..600 {
        let mut bytes = [0; 2];
        store.read_at(id(n), 0, &mut [IoSliceMut::new(&mut bytes)], IO).unwrap();
        assert_eq!(u16::from_be_bytes(bytes), n);
        store.sync(&[id(n)], true).unwrap();
    }
}
