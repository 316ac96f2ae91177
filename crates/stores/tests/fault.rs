//! Faults occur as requested, and end when they are lifted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_contract::{Errno, Hint, ObjectId, ReadPiece, Result, Store, StoreIo};
use braid_stores::dir::DirStore;
use braid_stores::fault::{FaultKind, FaultOp, FaultRule, FaultStore};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

const A: ObjectId = ObjectId([1; 16]);
const B: ObjectId = ObjectId([2; 16]);
const IO: StoreIo = StoreIo { direct: false, hint: Hint { stream: None, life: None } };

fn rules(texts: &[&str]) -> Vec<FaultRule> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A store with the objects `A` and `B`, and then these rules.
fn store(texts: &[&str]) -> (tempfile::TempDir, FaultStore) {
    let dir = tempfile::tempdir().unwrap();
    let inner = DirStore::open(dir.path()).unwrap();
    inner.set_label(b"label").unwrap();
    inner.create(A).unwrap();
    inner.create(B).unwrap();
    let store = FaultStore::new(Arc::new(inner), Vec::new());
    store.control().set(rules(texts));
    (dir, store)
}

fn errno<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

fn write(store: &FaultStore, bytes: &[&[u8]]) -> Result<usize> {
    let bufs: Vec<IoSlice<'_>> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
    store.write_at(A, 0, &bufs, IO)
}

fn read(store: &FaultStore, lens: [usize; 2]) -> Result<Vec<u8>> {
    let (mut a, mut b) = (vec![0xee; lens[0]], vec![0xee; lens[1]]);
    let done = store.read_at(A, 0, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], IO)?;
    a.extend(b);
    a.truncate(done);
    Ok(a)
}

/// The calls of `op`, among the first ones, that fail.
fn failures(calls: usize, mut op: impl FnMut() -> Option<Errno>) -> Vec<usize> {
    (0..calls).filter(|_| op().is_some()).collect()
}

#[test]
fn without_rules_nothing_fails() {
    let (_dir, store) = store(&[]);
    assert_eq!(write(&store, &[b"abc"]).unwrap(), 3);
    assert_eq!(read(&store, [2, 9]).unwrap(), b"abc");
    store.sync(&[A, B], false).unwrap();
    store.sync_all().unwrap();
    store.probe(b"label").unwrap();
    assert!(store.control().rules().is_empty());
}

#[test]
fn a_rule_fails_what_it_is_about_when_it_says() {
    let when = |text| {
        let (_dir, store) = store(&[text]);
        failures(10, || errno(store.usage()))
    };
    assert_eq!(when("usage:EIO"), (0..10).collect::<Vec<_>>());
    assert_eq!(when("usage:EIO,once"), [0]);
    assert_eq!(when("usage:EIO,after=8"), [8, 9]);
    assert_eq!(when("usage:EIO,every=4"), [0, 4, 8]);
    assert_eq!(when("usage:EIO,after=1,every=3,count=2"), [1, 4]);
    assert_eq!(when("stat:EIO"), [0; 0]);
}

#[test]
fn each_operation_is_met_by_its_rules_and_by_those_for_all() {
    type Op = fn(&FaultStore) -> Option<Errno>;
    let ops: [(&str, Op); 13] = [
        ("read", |store| errno(read(store, [1, 1]))),
        ("write", |store| errno(write(store, &[b"x"]))),
        ("sync", |store| errno(store.sync(&[A], true))),
        ("create", |store| errno(store.create(A))),
        ("remove", |store| errno(store.remove(&[B]))),
        ("allocate", |store| errno(store.allocate(A, 0, 1, true))),
        ("punch", |store| errno(store.punch(A, 0, 1))),
        ("truncate", |store| errno(store.truncate(A, 0))),
        ("stat", |store| errno(store.stat(A))),
        ("usage", |store| errno(store.usage())),
        ("label", |store| errno(store.label())),
        ("probe", |store| errno(store.probe(b"label"))),
        ("list", |store| errno(store.list(&mut |_| {}))),
    ];
    for (name, op) in ops {
        let data = matches!(name, "read" | "write" | "sync");
        for (rule, fails) in [(name, true), ("all", true), ("metadata", !data)] {
            let (_dir, store) = store(&[&format!("{rule}:ENODEV")]);
            assert_eq!(op(&store), fails.then_some(Errno::ENODEV), "{rule} on {name}");
        }
        for (other, _) in ops.iter().filter(|(other, _)| *other != name) {
            let (_dir, store) = store(&[&format!("{other}:ENODEV")]);
            assert_eq!(op(&store), None, "{other} on {name}");
        }
    }
}

#[test]
fn of_several_rules_the_first_that_fires_counts() {
    let (_dir, store) = store(&["read:EIO,after=1,once", "all:ENODEV,after=2,count=2"]);
    let seen: Vec<Option<Errno>> = (0..5).map(|_| errno(read(&store, [1, 1]))).collect();
    assert_eq!(seen, [None, Some(Errno::EIO), Some(Errno::ENODEV), Some(Errno::ENODEV), None]);
    let hits: Vec<u64> = store.control().rules().into_iter().map(|(_, hits)| hits).collect();
    assert_eq!(hits, [1, 2]);
}

#[test]
fn a_failed_operation_does_nothing() {
    let (_dir, store) = store(&["write:ENOSPC,once", "truncate:EIO,once"]);
    assert_eq!(errno(write(&store, &[b"abc"])), Some(Errno::ENOSPC));
    assert_eq!(errno(store.truncate(A, 7)), Some(Errno::EIO));
    assert_eq!(store.stat(A).unwrap().size, 0);
}

#[test]
fn short_is_half_of_the_bytes_and_never_none() {
    let (_dir, store) = store(&["all:short"]);
    assert_eq!(write(&store, &[b"abc", b"defg"]).unwrap(), 4);
    assert_eq!(store.stat(A).unwrap().size, 4);
    assert_eq!(read(&store, [1, 3]).unwrap(), b"ab");
    assert_eq!(read(&store, [0, 1]).unwrap(), b"a");
    assert_eq!(write(&store, &[b"x"]).unwrap(), 1);
    store.truncate(A, 9).unwrap();
}

#[test]
fn pieces_meet_their_own_faults() {
    let (_dir, store) = store(&["read:EIO,once,after=1"]);
    write(&store, &[b"hello"]).unwrap();
    let (mut first, mut second) = ([0; 2], [0; 3]);
    let mut pieces = [ReadPiece::new(0, &mut first), ReadPiece::new(2, &mut second)];
    assert_eq!(errno(store.read_pieces(A, &mut pieces, IO)), Some(Errno::EIO));
    assert_eq!(pieces.map(|piece| piece.done), [2, 0]);
    assert_eq!((&first, &second), (b"he", &[0; 3]));
}

#[test]
fn a_failed_write_back_is_told_once_until_there_is_something_new() {
    let (_dir, store) = store(&["sync:EIO"]);
    let sync = |ids: &[ObjectId]| errno(store.sync(ids, true));
    assert_eq!((sync(&[A]), sync(&[A])), (Some(Errno::EIO), None));
    assert_eq!((sync(&[A, B]), sync(&[A, B]), sync(&[B])), (Some(Errno::EIO), None, None));
    write(&store, &[b"x"]).unwrap();
    assert_eq!((sync(&[B]), sync(&[A]), sync(&[A])), (None, Some(Errno::EIO), None));
    assert_eq!(errno(store.sync_all()), Some(Errno::EIO));
    store.sync_all().unwrap();
    store.sync(&[], true).unwrap();
}

#[test]
fn a_device_that_is_gone_fails_each_sync() {
    let (_dir, store) = store(&["all:ENODEV"]);
    assert_eq!(failures(3, || errno(store.sync(&[A], true))), [0, 1, 2]);
    assert_eq!(failures(3, || errno(store.sync_all())), [0, 1, 2]);
    store.control().clear();
    store.probe(b"label").unwrap();
    store.sync(&[A], true).unwrap();
}

#[test]
fn what_hangs_goes_on_when_the_rules_change() {
    let (_dir, store) = store(&["write:hang"]);
    let control = store.control();
    let wait_until_rule_hit_both = || {
        while control.rules()[0].1 != 2 {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2).map(|_| scope.spawn(|| errno(write(&store, &[b"abc"])))).collect();
        wait_until_rule_hit_both();
        assert_eq!(control.hanging(), 2);
        // Nothing else waits for them.
        assert_eq!(read(&store, [1, 1]).unwrap(), b"");
        // Still hanging, by another rule.
        control.set(rules(&["all:hang"]));
        wait_until_rule_hit_both();
        control.set(vec![FaultRule::once(FaultOp::Write, FaultKind::Fail(Errno::EIO))]);
        let mut results: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        results.sort_by_key(|errno| errno.is_some());
        assert_eq!(results, [None, Some(Errno::EIO)]);
    });
    assert_eq!(control.hanging(), 0);
    control.clear();
    assert_eq!(read(&store, [2, 2]).unwrap(), b"abc");
}
