//! Several reads and writes in one call.

use super::super::pattern;
use super::{A, B, Case, IO, always, errno, expect, get, put, set_up};
use braid_contract::{Errno, PieceIo, Store};
use std::io::{IoSlice, IoSliceMut};

pub(super) const CASES: [Case; 3] = [
    ("a batch carries out every piece", always, a_batch_carries_out_every_piece),
    ("a batch reports how far each piece came", always, a_batch_reports_how_far_each_piece_came),
    ("a batch ends at a failure", always, a_batch_ends_at_a_failure),
];

fn a_batch_carries_out_every_piece(store: &dyn Store) {
    set_up(store, &[A, B]);
    let (a, b) = (pattern(1, 30_000), pattern(2, 30_000));
    put(store, B, 0, &b[..10_000]);
    let first = [IoSlice::new(&a[..10]), IoSlice::new(&a[10..20_000])];
    let second = [IoSlice::new(&b[10_000..])];
    let third = [IoSlice::new(&a[20_000..])];
    let (mut one, mut other) = (vec![0; 4000], vec![0; 6000]);
    let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
    let mut pieces = [
        PieceIo::Write { id: A, offset: 0, bufs: &first, done: 0 },
        PieceIo::Read { id: B, offset: 0, bufs: &mut bufs, done: 0 },
        PieceIo::Write { id: B, offset: 10_000, bufs: &second, done: 0 },
        PieceIo::Write { id: A, offset: 20_000, bufs: &third, done: 0 },
    ];
    store.batch(&mut pieces, IO).unwrap();
    assert_eq!(pieces.iter().map(done).collect::<Vec<_>>(), [20_000, 10_000, 20_000, 10_000]);
    assert_eq!([one, other].concat(), b[..10_000]);
    expect(store, A, 0, &a);
    expect(store, B, 0, &b);
    store.sync(&[A, B], true).unwrap();
    store.batch(&mut [], IO).unwrap();
}

fn a_batch_reports_how_far_each_piece_came(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, b"hello");
    let (mut at_end, mut beyond, mut all) = ([0xee; 8], [0xee; 8], [0xee; 5]);
    let mut bufs =
        ([IoSliceMut::new(&mut at_end)], [IoSliceMut::new(&mut beyond)], [IoSliceMut::new(&mut all)]);
    let mut pieces = [
        PieceIo::Read { id: A, offset: 1, bufs: &mut bufs.0, done: 0 },
        PieceIo::Read { id: A, offset: 5, bufs: &mut bufs.1, done: 0 },
        PieceIo::Read { id: A, offset: 0, bufs: &mut bufs.2, done: 0 },
    ];
    store.batch(&mut pieces, IO).unwrap();
    assert_eq!(pieces.iter().map(done).collect::<Vec<_>>(), [4, 0, 5]);
    assert_eq!((&at_end, &beyond, &all), (b"ello\xee\xee\xee\xee", &[0xee; 8], b"hello"));
}

fn a_batch_ends_at_a_failure(store: &dyn Store) {
    set_up(store, &[A]);
    let (first, second) = ([IoSlice::new(b"first")], [IoSlice::new(b"second")]);
    let mut pieces = [
        PieceIo::Write { id: A, offset: 0, bufs: &first, done: 0 },
        PieceIo::Write { id: B, offset: 0, bufs: &first, done: 0 },
        PieceIo::Write { id: A, offset: 5, bufs: &second, done: 0 },
    ];
    assert_eq!(errno(store.batch(&mut pieces, IO)), Some(Errno::ENOENT));
    let counts: Vec<usize> = pieces.iter().map(done).collect();
    assert_eq!(counts[1], 0, "there is no such object");
    // The order is the store's; pieces that it reports as done are done.
    assert!([0, 5].contains(&counts[0]) && [0, 6].contains(&counts[2]), "{counts:?}");
    if counts[0] == 5 {
        assert_eq!(get(store, A, 0, 5), b"first");
    }
    if counts[2] == 6 {
        assert_eq!(get(store, A, 5, 6), b"second");
    }
}

fn done(piece: &PieceIo<'_>) -> usize {
    match piece {
        PieceIo::Read { done, .. } | PieceIo::Write { done, .. } => *done,
    }
}
