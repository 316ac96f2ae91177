//! Capabilities of a store beyond the basics, which it supports or has to
//! refuse.

use super::super::pattern;
use super::{A, Case, IO, always, can, errno, expect, get, put, set_up};
use braid_contract::SplitMix;
use braid_contract::{Errno, Store, StoreIo};
use std::io::{IoSlice, IoSliceMut};

pub(super) const CASES: [Case; 6] = [
    ("capabilities make sense and stay", always, capabilities_make_sense_and_stay),
    ("data is written over in place", |store| can(store).overwrite, data_is_written_over_in_place),
    ("each byte is written once", |store| !can(store).overwrite, each_byte_is_written_once),
    ("random writes leave the last of each byte", |store| can(store).overwrite, random_writes),
    ("direct access comes to the same", always, direct_access_comes_to_the_same),
    ("direct writes go over cached ones", |store| can(store).overwrite, direct_writes_go_over_cached_ones),
];

/// Every device takes multiples of this past the page cache, and some of a part
/// of it.
const UNIT: usize = 4096;

fn capabilities_make_sense_and_stay(store: &dyn Store) {
    let before = can(store);
    assert!(before.queue_depth >= 1);
    set_up(store, &[A]);
    put(store, A, 0, b"data");
    assert_eq!(can(store), before);
}

fn data_is_written_over_in_place(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, &[1; 10_000]);
    put(store, A, 4000, &[2; 200]);
    let mut wanted = vec![1; 10_000];
    wanted[4000..4200].fill(2);
    expect(store, A, 0, &wanted);
    put(store, A, 9_999, b"ab");
    wanted.splice(9_999.., *b"ab");
    expect(store, A, 0, &wanted);
}

fn each_byte_is_written_once(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, &[1; 5000]);
    put(store, A, 10_000, &[2; 5000]);
    let refused = |offset, data: &[u8]| {
        let answer = errno(store.write_at(A, offset, &[IoSlice::new(data)], IO));
        assert_eq!(answer, Some(Errno::EOPNOTSUPP), "{} bytes at {offset}", data.len());
    };
    for (offset, len) in [(0, 1), (4999, 1), (4999, 10), (9999, 2), (4000, 7000), (14_999, 2), (10_000, 5000)]
    {
        refused(offset, &vec![9; len]);
    }
    // Between, and after.
    put(store, A, 5000, &[3; 5000]);
    put(store, A, 15_000, &[4; 100]);
    let wanted = [vec![1; 5000], vec![3; 5000], vec![2; 5000], vec![4; 100]].concat();
    expect(store, A, 0, &wanted);
    // Truncated bytes may still count as written; punched ones do not, and a new
    // object starts afresh.
    store.truncate(A, 12_000).unwrap();
    let again = store.write_at(A, 13_000, &[IoSlice::new(b"again")], IO);
    assert!(again.as_ref().is_ok_and(|done| *done == 5) || errno(again) == Some(Errno::EOPNOTSUPP));
    if can(store).punch {
        store.punch(A, 3000, 5000).unwrap();
        refused(2990, &[9; 20]);
        put(store, A, 4000, &[5; 1000]);
        let wanted = [&[1][..], &[0; 1000], &[5; 1000], &[0; 3000], &[3; 2000], &[2; 2000]].concat();
        assert!(get(store, A, 2999, wanted.len()) == wanted);
    }
    store.remove(&[A]).unwrap();
    store.create(A).unwrap();
    put(store, A, 0, b"anew");
    expect(store, A, 0, b"anew");
}

fn random_writes(store: &dyn Store) {
    const LEN: u64 = 1 << 18;
    set_up(store, &[A]);
    let (mut random, mut wanted) = (SplitMix::new(7), Vec::new());
    for seed in 0..200 {
        let (offset, len) = (random.below(LEN) as usize, 1 + random.below(9000) as usize);
        if random.below(10) == 0 {
            store.truncate(A, offset as u64).unwrap();
            wanted.resize(offset, 0);
            continue;
        }
        let data = pattern(seed, len);
        put(store, A, offset as u64, &data);
        wanted.resize(wanted.len().max(offset + len), 0);
        wanted[offset..offset + len].copy_from_slice(&data);
    }
    expect(store, A, 0, &wanted);
    store.sync(&[A], true).unwrap();
    expect(store, A, 0, &wanted);
}

fn direct_access_comes_to_the_same(store: &dyn Store) {
    const DIRECT: StoreIo = StoreIo { direct: true, ..IO };
    set_up(store, &[A]);
    let data = pattern(4, 6 * UNIT + 100);
    // Aligned, at the end of the object, and as nothing is.
    for (start, end) in
        [(0, 2 * UNIT), (2 * UNIT, 4 * UNIT), (4 * UNIT, 4 * UNIT + 7), (4 * UNIT + 7, data.len())]
    {
        let done = store.write_at(A, start as u64, &[IoSlice::new(&data[start..end])], DIRECT);
        assert_eq!(done.unwrap(), end - start);
    }
    expect(store, A, 0, &data);
    for (start, len) in [(0, UNIT), (UNIT, 4 * UNIT), (0, 9 * UNIT), (3, 2 * UNIT), (6 * UNIT, UNIT), (5, 11)]
    {
        // Memory of every alignment.
        let mut buf = vec![0xee; len + 1];
        let done = store.read_at(A, start as u64, &mut [IoSliceMut::new(&mut buf[1..])], DIRECT).unwrap();
        assert_eq!(done, len.min(data.len() - start), "{len} bytes at {start}");
        assert_eq!(buf[1..=done], data[start..start + done], "{len} bytes at {start}");
    }
}

fn direct_writes_go_over_cached_ones(store: &dyn Store) {
    const DIRECT: StoreIo = StoreIo { direct: true, ..IO };
    set_up(store, &[A]);
    put(store, A, 0, &vec![1; 4 * UNIT]);
    assert_eq!(store.write_at(A, UNIT as u64, &[IoSlice::new(&vec![2; UNIT])], DIRECT).unwrap(), UNIT);
    put(store, A, (2 * UNIT) as u64, &vec![3; UNIT]);
    let mut buf = vec![0; 4 * UNIT];
    store.read_at(A, 0, &mut [IoSliceMut::new(&mut buf)], DIRECT).unwrap();
    let wanted: Vec<u8> = [1, 2, 3, 1].into_iter().flat_map(|byte| vec![byte; UNIT]).collect();
    assert!(buf == wanted, "read directly");
    assert!(get(store, A, 0, 4 * UNIT) == wanted, "read from the cache");
}
