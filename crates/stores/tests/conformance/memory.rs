//! Tests of the memory store's own limit.

use braid_contract::{Errno, Hint, ObjectId, Store, StoreIo};
use braid_stores::memory::MemoryStore;
use std::io::IoSlice;

const IO: StoreIo = StoreIo { direct: false, hint: Hint { stream: None, life: None } };
const A: ObjectId = ObjectId([1; 16]);
const B: ObjectId = ObjectId([2; 16]);
const PAGE: u64 = 4096;
const PAGES: u64 = 64;

fn full() -> MemoryStore {
    let store = MemoryStore::new(PAGES * PAGE);
    store.set_label(b"label").unwrap();
    store.create(A).unwrap();
    store.create(B).unwrap();
    write(&store, A, 0, PAGES * PAGE).unwrap();
    store
}

fn write(store: &MemoryStore, id: ObjectId, offset: u64, len: u64) -> Result<usize, Errno> {
    let data = vec![7; len as usize];
    store.write_at(id, offset, &[IoSlice::new(&data)], IO).map_err(|error| error.errno())
}

#[test]
fn what_does_not_fit_is_refused_and_what_is_there_is_written_over() {
    let store = full();
    assert_eq!(store.usage().unwrap().available, 0);
    assert_eq!(write(&store, B, 0, 1), Err(Errno::ENOSPC));
    assert_eq!(write(&store, A, PAGES * PAGE - 1, 2), Err(Errno::ENOSPC));
    assert_eq!(write(&store, A, 5, PAGES * PAGE - 5), Ok((PAGES * PAGE - 5) as usize));
    assert_eq!(store.allocate(B, 0, 1, true).unwrap_err().errno(), Errno::ENOSPC);
    store.allocate(A, 0, PAGES * PAGE, false).unwrap();
    store.truncate(B, 1 << 30).unwrap();
}

#[test]
fn space_comes_back_by_every_way() {
    let store = full();
    store.punch(A, PAGE - 1, PAGE + 2).unwrap();
    assert_eq!(store.usage().unwrap().available, PAGE, "whole pages");
    assert_eq!(write(&store, B, 0, PAGE), Ok(PAGE as usize));
    assert_eq!(write(&store, A, PAGE, 1), Err(Errno::ENOSPC));
    store.truncate(A, PAGE / 2).unwrap();
    assert_eq!(store.usage().unwrap().available, (PAGES - 2) * PAGE);
    store.remove(&[A]).unwrap();
    assert_eq!(store.usage().unwrap().available, (PAGES - 1) * PAGE);
    store.clear().unwrap();
    assert_eq!(store.usage().unwrap().available, PAGES * PAGE);
}

#[test]
fn what_is_reserved_is_there_when_all_else_is_taken() {
    let store = MemoryStore::new(PAGES * PAGE);
    store.create(A).unwrap();
    store.create(B).unwrap();
    store.allocate(A, 0, 8 * PAGE, true).unwrap();
    assert_eq!(store.stat(A).unwrap().size, 0);
    assert_eq!(write(&store, B, 0, (PAGES - 8) * PAGE), Ok(((PAGES - 8) * PAGE) as usize));
    assert_eq!(write(&store, A, 0, 8 * PAGE), Ok(8 * PAGE as usize));
    assert_eq!(write(&store, A, 8 * PAGE, 1), Err(Errno::ENOSPC));
}

#[test]
fn writers_in_parallel_never_take_more_than_there_is() {
    let store = MemoryStore::new(PAGES * PAGE);
    let ids: Vec<ObjectId> = (0..4).map(|n| ObjectId([n; 16])).collect();
    ids.iter().for_each(|id| store.create(*id).unwrap());
    let (ids, ref_store) = (&ids, &store);
    let written: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    // Two threads in each object.
                    let pages = (0..PAGES).filter(|page| page % 2 == thread / 4);
                    pages
                        .filter(|page| write(ref_store, ids[thread as usize % 4], page * PAGE, PAGE).is_ok())
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap() as u64).sum()
    });
    assert_eq!(written, PAGES, "all that there is, and no more");
    assert_eq!(store.usage().unwrap().available, 0);
}
