//! Several reads in one call.

use super::{A, Case, IO, always, errno, put, set_up};
use braid_contract::{Errno, ReadPiece, Store};

pub(super) const CASES: [Case; 2] = [
    ("each piece is read as far as it goes", always, each_piece_is_read_as_far_as_it_goes),
    ("pieces of no object are not read", always, pieces_of_no_object_are_not_read),
];

fn each_piece_is_read_as_far_as_it_goes(store: &dyn Store) {
    set_up(store, &[A]);
    put(store, A, 0, b"hello");
    let (mut at_end, mut beyond, mut all) = ([0xee; 8], [0xee; 8], [0xee; 5]);
    let mut pieces =
        [ReadPiece::new(1, &mut at_end), ReadPiece::new(5, &mut beyond), ReadPiece::new(0, &mut all)];
    store.read_pieces(A, &mut pieces, IO).unwrap();
    assert_eq!(pieces.map(|piece| piece.done), [4, 0, 5]);
    assert_eq!((&at_end, &beyond, &all), (b"ello\xee\xee\xee\xee", &[0xee; 8], b"hello"));
    store.read_pieces(A, &mut [], IO).unwrap();
}

fn pieces_of_no_object_are_not_read(store: &dyn Store) {
    set_up(store, &[]);
    let mut buf = [0xee; 8];
    let mut pieces = [ReadPiece::new(0, &mut buf)];
    assert_eq!(errno(store.read_pieces(A, &mut pieces, IO)), Some(Errno::ENOENT));
    assert_eq!((pieces[0].done, buf), (0, [0xee; 8]));
}
