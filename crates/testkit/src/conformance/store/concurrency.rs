//! Several threads at the same time.

use super::super::pattern;
use super::{A, Case, IO, always, can, expect, get, list, put, set_up};
use braid_contract::{ObjectId, Store};
use std::io::IoSlice;

/// Threads at work.
const THREADS: usize = 4;
/// Pieces that each of them writes.
const PIECES: usize = 40;
/// Bytes of a piece: the borders are within blocks.
const PIECE: usize = 5000;

pub(super) const CASES: [Case; 4] = [
    ("threads write to one object", always, threads_write_to_one_object),
    ("threads make the same objects", always, threads_make_the_same_objects),
    ("threads make and remove beside one another", always, threads_make_and_remove),
    ("threads punch beside writers", |store| can(store).punch, threads_punch_beside_writers),
];

/// Runs `work` in every thread, with the number of the thread.
fn in_threads(work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
}

fn threads_write_to_one_object(store: &dyn Store) {
    set_up(store, &[A]);
    let data = pattern(6, THREADS * PIECES * PIECE);
    in_threads(|thread| {
        for piece in 0..PIECES {
            let at = (piece * THREADS + thread) * PIECE;
            put(store, A, at as u64, &data[at..at + PIECE]);
            assert_eq!(get(store, A, at as u64, PIECE), data[at..at + PIECE]);
        }
        store.sync(&[A], true).unwrap();
    });
    expect(store, A, 0, &data);
}

fn threads_make_the_same_objects(store: &dyn Store) {
    set_up(store, &[]);
    let ids: Vec<ObjectId> =
        (0..PIECES as u8).map(|n| ObjectId([n % 3, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n])).collect();
    in_threads(|thread| {
        for id in &ids {
            store.create(*id).unwrap();
            put(store, *id, (thread * PIECE) as u64, &pattern(thread as u64, PIECE));
        }
    });
    let wanted: Vec<u8> = (0..THREADS).flat_map(|thread| pattern(thread as u64, PIECE)).collect();
    ids.iter().for_each(|id| expect(store, *id, 0, &wanted));
    assert_eq!(list(store).len(), ids.len());
}

fn threads_make_and_remove(store: &dyn Store) {
    set_up(store, &[]);
    in_threads(|thread| {
        for round in 0..PIECES as u64 {
            // In the same part of the store as those of other threads.
            let id = ObjectId([7, thread as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, thread as u8]);
            let data = pattern(round, PIECE);
            store.create(id).unwrap();
            put(store, id, 0, &data);
            expect(store, id, 0, &data);
            store.remove(&[id]).unwrap();
        }
    });
    assert_eq!(list(store), []);
    store.sync_all().unwrap();
}

fn threads_punch_beside_writers(store: &dyn Store) {
    set_up(store, &[A]);
    let len = THREADS * PIECES * PIECE;
    put(store, A, 0, &vec![1; len]);
    // One half is punched, the next one follows the data that is there.
    in_threads(|thread| {
        for piece in 0..PIECES {
            let at = ((piece * THREADS + thread) * PIECE) as u64;
            if thread % 2 == 0 {
                store.punch(A, at, PIECE as u64).unwrap();
            } else {
                let after = (len + (piece * THREADS + thread) * PIECE) as u64;
                let done = store.write_at(A, after, &[IoSlice::new(&[2; PIECE])], IO);
                assert_eq!(done.unwrap(), PIECE);
            }
        }
    });
    for piece in 0..PIECES * THREADS {
        let (at, punched) = ((piece * PIECE) as u64, piece % 2 == 0);
        assert_eq!(get(store, A, at, PIECE), [u8::from(!punched); PIECE], "{at}");
        if !punched {
            assert_eq!(get(store, A, len as u64 + at, PIECE), [2; PIECE], "{at}");
        }
    }
}
