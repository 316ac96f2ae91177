//! The space that objects take: reserved, given back, distinguished from holes.

use super::super::pattern;
use super::{A, B, Case, always, can, errno, expect, get, put, set_up};
use braid_contract::{Errno, ObjectId, Store};

const MIB: u64 = 1 << 20;

pub(super) const CASES: [Case; 12] = [
    ("usage makes sense", always, usage_makes_sense),
    ("a sparse object takes what was written", always, a_sparse_object_takes_what_was_written),
    ("space is reserved and reads as zeros", |store| can(store).allocate, space_is_reserved),
    ("reserving is refused", |store| !can(store).allocate, reserving_is_refused),
    ("a punched hole reads as zeros", |store| can(store).punch, a_punched_hole_reads_as_zeros),
    ("a punched hole returns its space", |store| can(store).punch, a_punched_hole_returns_its_space),
    ("what is punched is written again", |store| can(store).punch && can(store).overwrite, written_again),
    ("punching is refused", |store| !can(store).punch, punching_is_refused),
    ("data is found and holes are not", |store| can(store).seek_data, data_is_found),
    (
        "a hole that is punched is no data",
        |store| can(store).seek_data && can(store).punch,
        punched_is_no_data,
    ),
    ("looking for data is refused", |store| !can(store).seek_data, looking_for_data_is_refused),
    ("a removed object takes nothing", always, a_removed_object_takes_nothing),
];

/// Whether every byte of the data lies in one of the stretches that the store
/// names, and how many bytes these are in all.
fn stretches(store: &dyn Store, id: ObjectId) -> Vec<(u64, u64)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some((start, end)) = store.next_data(id, at).unwrap() {
        assert!(start >= at && end > start, "{start} to {end}, from {at} on");
        found.push((start, end));
        at = end;
    }
    found
}

fn usage_makes_sense(store: &dyn Store) {
    set_up(store, &[A]);
    let usage = store.usage().unwrap();
    assert!(usage.available > 0 && usage.available <= usage.free && usage.free <= usage.total, "{usage:?}");
    assert_eq!(store.usage().unwrap().device, usage.device);
}

fn a_sparse_object_takes_what_was_written(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 256 * MIB, &[1; 4096]);
    put(store, A, 0, &[1; 8192]);
    store.sync(&[A], true).unwrap();
    let stat = store.stat(A).unwrap();
    assert_eq!(stat.size, 256 * MIB + 4096);
    assert!((12_288..64 * MIB).contains(&stat.allocated), "{stat:?}");
}

fn space_is_reserved(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, &[1; 5000]);
    store.allocate(A, 0, MIB, true).unwrap();
    assert_eq!(store.stat(A).unwrap().size, 5000);
    store.allocate(A, 0, 2 * MIB, false).unwrap();
    let stat = store.stat(A).unwrap();
    assert_eq!(stat.size, 2 * MIB);
    assert!(stat.allocated >= 2 * MIB, "{stat:?}");
    expect(store, A, 4990, &[&[1; 10][..], &vec![0; 2 * MIB as usize - 5000]].concat());
    // Within the object, and not from its beginning.
    store.allocate(A, MIB, 4096, false).unwrap();
    assert_eq!(store.stat(A).unwrap().size, 2 * MIB);
    store.allocate(B, 0, MIB, false).unwrap_err();
}

fn reserving_is_refused(store: &dyn Store) {
    set_up(store, &[A]);
    for keep_size in [false, true] {
        assert_eq!(errno(store.allocate(A, 0, 4096, keep_size)), Some(Errno::EOPNOTSUPP));
    }
    assert_eq!(store.stat(A).unwrap().size, 0);
}

fn a_punched_hole_reads_as_zeros(store: &dyn Store) {
    set_up(store, &[A]);
    let mut data = pattern(5, 40_000);
    put(store, A, 0, &data);
    // Whole blocks, parts of blocks, and over the end.
    for (offset, len) in [(4096, 8192), (20_001, 77), (30_000, 5000), (39_000, 90_000), (200_000, 4096)] {
        store.punch(A, offset, len).unwrap();
        let end = data.len().min((offset + len) as usize);
        if let Some(hole) = data.get_mut(offset as usize..end) {
            hole.fill(0);
        }
        assert_eq!(store.stat(A).unwrap().size, 40_000, "the size stays");
    }
    expect(store, A, 0, &data);
    store.sync(&[A], true).unwrap();
    expect(store, A, 0, &data);
}

fn a_punched_hole_returns_its_space(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, &vec![1; 4 * MIB as usize]);
    store.sync(&[A], false).unwrap();
    let before = store.stat(A).unwrap().allocated;
    store.punch(A, MIB, 2 * MIB).unwrap();
    store.sync(&[A], false).unwrap();
    let after = store.stat(A).unwrap().allocated;
    assert!(before >= after + 2 * MIB, "{before} before, {after} after");
}

fn written_again(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, &[1; 20_000]);
    store.punch(A, 0, 20_000).unwrap();
    put(store, A, 6000, b"again");
    assert_eq!(get(store, A, 5999, 7), b"\0again\0");
    store.punch(A, 0, 20_000).unwrap();
    expect(store, A, 0, &[0; 20_000]);
}

fn punching_is_refused(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, &[1; 10_000]);
    assert_eq!(errno(store.punch(A, 0, 8192)), Some(Errno::EOPNOTSUPP));
    expect(store, A, 0, &[1; 10_000]);
}

fn data_is_found(store: &dyn Store) {
    set_up(store, &[A, B]);
    assert_eq!(store.next_data(B, 0).unwrap(), None, "an empty object");
    store.truncate(B, 8 * MIB).unwrap();
    assert_eq!(store.next_data(B, 0).unwrap(), None, "one hole");
    for at in [4 * MIB, 8 * MIB, 16 * MIB] {
        put(store, A, at, &[1; 5000]);
    }
    store.truncate(A, 32 * MIB).unwrap();
    let found = stretches(store, A);
    for at in [4 * MIB, 8 * MIB, 16 * MIB] {
        assert!(found.iter().any(|(start, end)| (*start..*end).contains(&at)), "{at}: {found:?}");
        let next = store.next_data(A, at + 1).unwrap().unwrap();
        assert_eq!(next.0, at + 1, "within data");
    }
    // Stretches may be longer than the data, but these holes are large.
    for hole in [MIB, 6 * MIB, 12 * MIB, 28 * MIB] {
        assert!(!found.iter().any(|(start, end)| (*start..*end).contains(&hole)), "{hole}: {found:?}");
    }
    assert_eq!(store.next_data(A, 32 * MIB).unwrap(), None, "at the end");
    assert_eq!(store.next_data(A, 99 * MIB).unwrap(), None, "past the end");
}

fn punched_is_no_data(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, &vec![1; 6 * MIB as usize]);
    store.punch(A, 2 * MIB, 2 * MIB).unwrap();
    let found = stretches(store, A);
    let covers = |at| found.iter().any(|(start, end)| (*start..*end).contains(&at));
    assert!(covers(0) && covers(2 * MIB - 1) && covers(4 * MIB) && covers(6 * MIB - 1), "{found:?}");
    assert!(!covers(3 * MIB), "{found:?}");
}

fn looking_for_data_is_refused(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, b"data");
    assert_eq!(errno(store.next_data(A, 0)), Some(Errno::EOPNOTSUPP));
}

fn a_removed_object_takes_nothing(store: &dyn Store) {
    set_up(store, &[A]);
    for _ in 0..3 {
        store.create(B).unwrap();
        put(store, B, 0, &vec![1; MIB as usize]);
        store.remove(&[B]).unwrap();
        store.create(B).unwrap();
        assert!(store.stat(B).unwrap().allocated < MIB);
    }
}
