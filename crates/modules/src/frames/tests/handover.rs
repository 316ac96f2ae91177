//! Another process goes on with open files.

use super::bed::{Bed, ROOT, compressed, encrypted};
use crate::frames::codec::Codec;
use crate::{Member, State};
use braid_contract::Caller;
use std::ffi::OsStr;

#[test]
fn files_stay_open_whatever_became_of_their_names() {
    let mut bed = Bed::new(encrypted(1));
    let (_, kept) = bed.create("kept");
    let (_, again) = bed.open("kept", false).unwrap();
    let (gone, removed) = bed.create("gone");
    let (_, empty) = bed.create("empty");
    for turn in 0..3_u8 {
        for handle in [kept, removed] {
            (0..5).for_each(|part| bed.write(handle, u64::from(part) * 3000, &[turn + part; 3000]));
        }
        if turn == 0 {
            bed.door().unlink(&Caller::root(), ROOT, OsStr::new("gone")).unwrap();
            // The kernel does so while the file is open.
            bed.door().forget(gone, 1);
        }
        bed.hand_over();
        for handle in [kept, again, removed] {
            let all: Vec<u8> = (0..5).flat_map(|part| [turn + part; 3000]).collect();
            assert!(bed.read(handle, 0, 20_000).unwrap() == all, "{turn}");
        }
        assert_eq!(bed.read(empty, 0, 10).unwrap(), b"");
    }
    bed.write(empty, 0, b"not any more");
    [kept, again, removed, empty].into_iter().for_each(|handle| bed.close(handle));
    assert_eq!(bed.fs.engine.files.open(), (Vec::new(), Vec::new()));
    let same = bed.pipeline.clone();
    bed.mount(same).unwrap();
    assert_eq!(bed.content("empty").unwrap(), b"not any more");
    assert!(bed.content("kept").unwrap().ends_with(&[6; 3000]));
}

#[test]
fn the_process_before_leaves_all_below_settled_and_closed() {
    let mut bed = Bed::new(compressed(Codec::Lz4, 4096));
    let (_, handle) = bed.create("file");
    (0..3).for_each(|turn| bed.write(handle, 0, &[turn; 9000]));
    assert!(bed.fs.engine.is_unsettled());
    bed.hand_over();
    assert!(!bed.fs.engine.is_unsettled());
    // One slot of each frame, and the headers.
    assert_eq!(bed.space("file"), 4 * 4096);
    bed.close(handle);
}

#[test]
fn a_state_of_another_kind_is_refused_and_a_lost_file_closed() {
    let bed = Bed::new(compressed(Codec::Lz4, 4096));
    let (ino, handle) = bed.create("file");
    bed.write(handle, 0, b"data");
    for (version, bytes) in [(2, "{}"), (1, "{}"), (1, r#"{"handles":[],"held":[],"more":1}"#)] {
        let error = bed.fs.import(&State { version, bytes: bytes.into() }).unwrap_err();
        assert_eq!(error.errno(), braid_contract::Errno::EINVAL, "{bytes}");
    }
    let bytes = format!(r#"{{"handles":[[{},{}]],"held":[]}}"#, handle.0 + 1000, ino.0 + 1000);
    bed.fs.import(&State { version: 1, bytes: bytes.into_bytes() }).unwrap();
    assert_eq!(bed.read(handle, 0, 10).unwrap(), b"data");
    bed.close(handle);
}
