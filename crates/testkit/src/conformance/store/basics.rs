//! The basics of every store: objects of bytes.

use super::super::pattern;
use super::{A, B, Case, IO, always, can, errno, expect, get, list, put, set_up};
use braid_contract::{Access, Errno, ObjectId, ObjectStat, Store, Timestamp};
use std::io::{IoSlice, IoSliceMut};

pub(super) const CASES: [Case; 15] = [
    ("a new object is empty", always, a_new_object_is_empty),
    ("an object that exists is left as it is", always, an_object_that_exists_is_left_as_it_is),
    ("what is written is read", always, what_is_written_is_read),
    ("buffers follow one another", always, buffers_follow_one_another),
    ("a gap reads as zeros", always, a_gap_reads_as_zeros),
    ("reads are short at the end only", always, reads_are_short_at_the_end_only),
    ("nothing is written where there is nothing to write", always, nothing_to_write),
    ("offsets go far", always, offsets_go_far),
    ("truncate cuts and grows", always, truncate_cuts_and_grows),
    ("objects are apart", always, objects_are_apart),
    ("what is removed is gone", always, what_is_removed_is_gone),
    ("an object that does not exist answers ENOENT", always, an_object_that_does_not_exist),
    ("sync keeps what it makes durable", always, sync_keeps_what_it_makes_durable),
    ("a change is seen in the time", always, a_change_is_seen_in_the_time),
    ("an access time is what was set", |store| can(store).access_times, an_access_time_is_what_was_set),
];

fn a_new_object_is_empty(store: &dyn Store) {
    set_up(store, &[A]);
    assert_eq!(store.stat(A).unwrap().size, 0);
    assert_eq!(get(store, A, 0, 10), b"");
    assert_eq!(list(store), [A]);
}

fn an_object_that_exists_is_left_as_it_is(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, b"here");
    store.create(A).unwrap();
    expect(store, A, 0, b"here");
}

fn what_is_written_is_read(store: &dyn Store) {
    set_up(store, &[A]);
    let data = pattern(1, 300_000);
    let mut at = 0;
    // Pieces that end anywhere, each after the one before.
    for len in [1, 4095, 4097, 8192, 77, 131_072, 152_466] {
        put(store, A, at as u64, &data[at..at + len]);
        at += len;
        assert_eq!(store.stat(A).unwrap().size, at as u64);
    }
    assert_eq!(at, data.len());
    expect(store, A, 0, &data);
    for (offset, len) in [(0, 1), (1, 4096), (4095, 2), (5000, 200_000), (299_999, 1)] {
        assert_eq!(get(store, A, offset as u64, len), data[offset..offset + len], "{offset}");
    }
}

fn buffers_follow_one_another(store: &dyn Store) {
    set_up(store, &[A]);
    let data = pattern(2, 20_000);
    let (first, rest) = data.split_at(5);
    let (second, third) = rest.split_at(9_000);
    let bufs = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(second), IoSlice::new(third)];
    assert_eq!(store.write_at(A, 100, &bufs, IO).unwrap(), data.len());
    let (mut one, mut other, mut beyond) = (vec![0; 7], vec![0; 19_993], [0xee; 8]);
    let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other), IoSliceMut::new(&mut beyond)];
    assert_eq!(store.read_at(A, 100, &mut bufs, IO).unwrap(), data.len());
    assert_eq!((&one[..], &other[..]), data.split_at(7));
    assert_eq!(beyond, [0xee; 8]);
}

fn a_gap_reads_as_zeros(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 1 << 20, b"end");
    assert_eq!(get(store, A, 0, 4096), [0; 4096]);
    assert_eq!(get(store, A, (1 << 20) - 2, 10), b"\0\0end");
    // Written later, and beside it.
    put(store, A, 5000, b"middle");
    expect(store, A, (1 << 20) - 1, b"\0end");
    assert_eq!(get(store, A, 4999, 8), b"\0middle\0");
}

fn reads_are_short_at_the_end_only(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, &[7; 5000]);
    for (offset, len, read) in [(0, 5000, 5000), (0, 5001, 5000), (4999, 9, 1), (5000, 9, 0), (1 << 40, 9, 0)]
    {
        assert_eq!(get(store, A, offset, len).len(), read, "{len} bytes at {offset}");
    }
    assert_eq!(get(store, A, 10, 0).len(), 0);
}

fn nothing_to_write(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, b"abc");
    assert_eq!(store.write_at(A, 100, &[], IO).unwrap(), 0);
    assert_eq!(store.write_at(A, 100, &[IoSlice::new(&[])], IO).unwrap(), 0);
    expect(store, A, 0, b"abc");
}

fn offsets_go_far(store: &dyn Store) {
    set_up(store, &[A]);
    let far = (1 << 40) + 4093;
    put(store, A, far, b"far away");
    assert_eq!(store.stat(A).unwrap().size, far + 8);
    expect(store, A, far - 3, b"\0\0\0far away");
}

fn truncate_cuts_and_grows(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, &[7; 10_000]);
    store.truncate(A, 4100).unwrap();
    assert_eq!(store.stat(A).unwrap().size, 4100);
    expect(store, A, 4090, &[7; 10]);
    store.truncate(A, 4100).unwrap();
    store.truncate(A, 20_000).unwrap();
    let mut wanted = vec![7; 4100];
    wanted.resize(20_000, 0);
    expect(store, A, 0, &wanted);
    store.truncate(A, 0).unwrap();
    assert_eq!(get(store, A, 0, 10), b"");
    store.truncate(A, 10).unwrap();
    expect(store, A, 0, &[0; 10]);
}

fn objects_are_apart(store: &dyn Store) {
    // Ids that begin alike, end alike, and differ in one bit.
    let mut like_a = A;
    like_a.0[15] ^= 1;
    let mut also_like_a = A;
    also_like_a.0[0] ^= 0x80;
    let mut ids = [A, like_a, also_like_a, ObjectId([0; 16]), ObjectId([0xff; 16])];
    set_up(store, &ids);
    for (seed, id) in ids.iter().enumerate() {
        put(store, *id, 0, &pattern(seed as u64, 5000));
    }
    store.truncate(ids[1], 10).unwrap();
    store.remove(&[ids[2]]).unwrap();
    for seed in [0, 3, 4] {
        expect(store, ids[seed], 0, &pattern(seed as u64, 5000));
    }
    ids[2] = ids[0];
    ids.sort();
    assert_eq!(list(store), ids[..2].iter().chain(&ids[3..]).copied().collect::<Vec<_>>());
}

fn what_is_removed_is_gone(store: &dyn Store) {
    set_up(store, &[A, B]);
    put(store, A, 0, b"a");
    put(store, B, 0, b"b");
    store.remove(&[A, A]).unwrap();
    store.remove(&[A]).unwrap();
    store.remove(&[]).unwrap();
    assert_eq!(errno(store.stat(A)), Some(Errno::ENOENT));
    assert_eq!(list(store), [B]);
    expect(store, B, 0, b"b");
    store.create(A).unwrap();
    assert_eq!(store.stat(A).unwrap().size, 0);
    put(store, A, 1, b"new");
    expect(store, A, 0, b"\0new");
}

fn an_object_that_does_not_exist(store: &dyn Store) {
    set_up(store, &[B]);
    let mut buf = [0];
    let read = store.read_at(A, 0, &mut [IoSliceMut::new(&mut buf)], IO);
    let write = store.write_at(A, 0, &[IoSlice::new(b"x")], IO);
    let mut answers = vec![
        ("read_at", errno(read)),
        ("write_at", errno(write)),
        ("truncate", errno(store.truncate(A, 5))),
        ("sync", errno(store.sync(&[A], true))),
        ("sync of several", errno(store.sync(&[B, A], false))),
        ("stat", errno(store.stat(A))),
    ];
    let capabilities = can(store);
    if capabilities.allocate {
        answers.push(("allocate", errno(store.allocate(A, 0, 4096, false))));
    }
    if capabilities.punch {
        answers.push(("punch", errno(store.punch(A, 0, 4096))));
    }
    if capabilities.seek_data {
        answers.push(("next_data", errno(store.next_data(A, 0))));
    }
    if capabilities.native_files {
        answers.push(("object_file", errno(store.object_file(A))));
        let from = store.object_file(B).and_then(|file| file.reopen(Access::Read)).unwrap();
        answers.push(("share_range", errno(store.share_range(A, 0, &*from, 0, 1))));
    }
    for (method, answer) in answers {
        assert_eq!(answer, Some(Errno::ENOENT), "{method}");
    }
    assert_eq!(list(store), [B], "nothing was made");
}

fn sync_keeps_what_it_makes_durable(store: &dyn Store) {
    set_up(store, &[A, B]);
    put(store, A, 0, &pattern(3, 9000));
    store.sync(&[A, B], true).unwrap();
    store.sync(&[], false).unwrap();
    put(store, A, 9000, b"more");
    store.sync(&[A], false).unwrap();
    store.sync_all().unwrap();
    expect(store, A, 0, &[&pattern(3, 9000)[..], b"more"].concat());
    store.remove(&[B]).unwrap();
    store.sync_all().unwrap();
    assert_eq!(list(store), [A]);
}

fn a_change_is_seen_in_the_time(store: &dyn Store) {
    set_up(store, &[A, B]);
    put(store, A, 0, b"before");
    let before = store.stat(A).unwrap().mtime;
    // The clock is coarse: until it has moved on, as another object shows.
    while store.stat(B).unwrap().mtime <= before {
        let size = store.stat(B).unwrap().size;
        put(store, B, size, b"x");
    }
    assert_eq!(store.stat(A).unwrap().mtime, before, "reading is no change");
    put(store, A, 6, b"after");
    assert!(store.stat(A).unwrap().mtime > before);
}

fn an_access_time_is_what_was_set(store: &dyn Store) {
    set_up(store, &[A, B]);
    put(store, A, 0, b"data");
    get(store, A, 0, 4);
    assert_eq!(store.stat(A).unwrap().atime, None, "read, and never set");
    let before = store.stat(A).unwrap();
    for secs in [1_900_000_000, 1_000_000_000, 1_500_000_000] {
        let time = Timestamp { secs, nanos: 123_456_789 };
        store.set_access_time(A, time).unwrap();
        assert_eq!(get(store, A, 0, 4), b"data");
        assert_eq!(store.stat(A).unwrap(), ObjectStat { atime: Some(time), ..before });
    }
    let time = store.stat(A).unwrap().atime;
    put(store, A, 4, b"more");
    store.sync(&[A], false).unwrap();
    assert_eq!(store.stat(A).unwrap().atime, time);
    assert_eq!(store.stat(B).unwrap().atime, None);
    store.remove(&[A]).unwrap();
    store.create(A).unwrap();
    assert_eq!(store.stat(A).unwrap().atime, None, "of a new object");
}
