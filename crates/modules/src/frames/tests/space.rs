//! The space of files below.

use super::bed::{Bed, checked, compressed};
use crate::frames::Pipeline;
use crate::frames::codec::Codec;
use braid_contract::FallocateMode;

#[test]
fn small_files_take_two_blocks_and_large_ones_little_more_than_their_data() {
    let bed = Bed::new(Pipeline::default());
    let put = |name: &str, len: usize| {
        let (_, handle) = bed.create(name);
        bed.write(handle, 0, &braid_testkit::conformance::pattern(1, len));
        bed.fsync(handle);
        bed.close(handle);
    };
    put("small", 100);
    assert_eq!(bed.space("small"), 8192);
    put("large", 8 << 20);
    let more = bed.space("large") as f64 / f64::from(8 << 20);
    assert!(more < 1.01, "{more}");
}

#[test]
fn what_is_compressed_takes_less() {
    let bed = Bed::new(compressed(Codec::Zstd(3), 65536));
    let (_, handle) = bed.create("text");
    let text = "it is the same again and again; ".repeat(1 << 15);
    bed.write(handle, 0, text.as_bytes());
    bed.fsync(handle);
    assert!(bed.space("text") < text.len() as u64 / 8, "{}", bed.space("text"));
    // Written over, each frame has one slot again, later.
    (0..5).for_each(|_| bed.write(handle, 0, text.as_bytes()));
    bed.fs.settle().unwrap();
    assert!(bed.space("text") < text.len() as u64 / 8, "{}", bed.space("text"));
    bed.close(handle);
}

#[test]
fn holes_take_nothing_and_come_back_as_holes() {
    let mut bed = Bed::new(checked());
    let (ino, handle) = bed.create("a");
    bed.truncate(ino, Some(handle), 1 << 40).unwrap();
    bed.write(handle, 1 << 39, &[1; 100_000]);
    bed.fallocate(handle, (1 << 39) - 4096, 100 << 20, FallocateMode::PunchHole).unwrap();
    bed.fs.settle().unwrap();
    bed.fs.settle().unwrap();
    // Only blocks of headers remain.
    assert!(bed.space("a") <= 5 * 4096, "{}", bed.space("a"));
    bed.close(handle);
    bed.mount(checked()).unwrap();
    let (_, handle) = bed.open("a", false).unwrap();
    let seek = bed.door().seek(&braid_contract::Caller::root(), handle, 0, braid_contract::SeekTarget::Data);
    assert_eq!(seek.unwrap_err().errno(), braid_contract::Errno::ENXIO);
    bed.close(handle);
}

#[test]
fn space_of_a_removed_file_goes_with_its_last_descriptor() {
    let bed = Bed::new(checked());
    let (_, handle) = bed.create("a");
    (0..3).for_each(|byte| bed.write(handle, 0, &[byte; 50_000]));
    bed.door().unlink(&braid_contract::Caller::root(), super::bed::ROOT, "a".as_ref()).unwrap();
    assert!(!bed.fs.engine.files.untidy().is_empty());
    bed.close(handle);
    assert!(bed.fs.engine.files.untidy().is_empty());
}
