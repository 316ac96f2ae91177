//! Damage below is reported, and never shown as data.

use super::bed::{Bed, checked, compressed, encrypted};
use crate::frames::codec::Codec;
use crate::frames::geometry::{Geometry, Side};
use crate::frames::{CatError, Found};
use braid_contract::Errno;
use std::fs;
use std::os::unix::fs::FileExt;

/// The file `a` of three frames, settled, and where its frames are.
fn settled(bed: &Bed) -> Geometry {
    let (_, handle) = bed.create("a");
    let frame = bed.pipeline.geometry().frame() as usize;
    bed.write(handle, 0, &braid_testkit::conformance::pattern(1, 3 * frame));
    bed.close(handle);
    bed.fs.settle().unwrap();
    bed.pipeline.geometry()
}

#[test]
fn a_changed_bit_is_an_error_where_it_is_and_nowhere_else() {
    for pipeline in [checked(), compressed(Codec::Lz4, 16384), encrypted(1)] {
        let bed = Bed::new(pipeline);
        let geometry = settled(&bed);
        let frame = geometry.frame();
        let slot = geometry.slot_at(1, Side::A);
        for (at, what) in [(slot, "data"), (slot + frame - 1, "data"), (geometry.trio_at(1) + 30, "header")] {
            bed.damage("a", at);
            let (_, handle) = bed.open("a", true).unwrap();
            let read = |frame_number: u64| bed.read(handle, frame_number * frame, frame as usize);
            assert_eq!(read(1).unwrap_err().errno(), Errno::EIO, "{what}");
            assert!(read(1).unwrap_err().to_string().starts_with("a: the frame at offset"));
            assert!(read(0).is_ok() && read(2).is_ok(), "{what}");
            // A part of a damaged frame can't be written, all of it can.
            let part = bed.fs.engine.write(
                &braid_contract::Caller::root(),
                handle,
                frame + 5,
                b"x",
                Default::default(),
            );
            assert_eq!(part.unwrap_err().errno(), Errno::EIO);
            bed.close(handle);
            bed.damage("a", at);
            assert!(bed.content("a").is_ok());
        }
        bed.damage("a", geometry.trio_at(1));
        let (_, handle) = bed.open("a", true).unwrap();
        bed.write(handle, frame, &vec![3; frame as usize]);
        assert!(bed.read(handle, frame, frame as usize).unwrap().iter().all(|byte| *byte == 3));
        bed.close(handle);
    }
}

#[test]
fn without_a_mount_a_file_that_has_lost_its_head_is_read_by_its_attribute() {
    let bed = Bed::new(checked());
    settled(&bed);
    let content = bed.content("a").unwrap();
    let cat = || {
        let mut to = Vec::new();
        let damaged = Found::open(&bed.below("a"), None).and_then(|found| found.write_to(&mut to));
        damaged.map(|damaged| (to, damaged))
    };
    let file = fs::OpenOptions::new().write(true).open(bed.below("a")).unwrap();
    assert!(cat().unwrap() == (content.clone(), Vec::new()));
    file.write_all_at(&[0; 40], 0).unwrap();
    assert!(cat().unwrap() == (content, Vec::new()));
    file.write_all_at(b"something else", 0).unwrap();
    assert!(matches!(cat(), Err(CatError::Refused(_))));
}

#[test]
fn frames_that_change_places_are_told() {
    let bed = Bed::new(checked());
    let geometry = settled(&bed);
    let file = fs::OpenOptions::new().read(true).write(true).open(bed.below("a")).unwrap();
    let (mut slot, mut headers) = (vec![0; 4096], [0; 192]);
    file.read_exact_at(&mut slot, geometry.slot_at(0, Side::A)).unwrap();
    file.read_exact_at(&mut headers, geometry.trio_at(0)).unwrap();
    file.write_all_at(&slot, geometry.slot_at(1, Side::A)).unwrap();
    file.write_all_at(&headers, geometry.trio_at(1)).unwrap();
    assert_eq!(bed.content("a").unwrap_err().errno(), Errno::EIO);
}

#[test]
fn a_header_without_its_data_counts_only_if_power_may_have_been_lost() {
    for is_settled in [false, true] {
        let mut bed = Bed::new(checked());
        let (_, handle) = bed.create("a");
        bed.write(handle, 0, &[1; 4096]);
        bed.fs.settle().unwrap();
        bed.write(handle, 0, &[2; 4096]);
        bed.write(handle, 4096, &[3; 4096]);
        let both: Vec<u8> = [[2; 4096], [3; 4096]].concat();
        assert_eq!(bed.read(handle, 0, 9000).unwrap(), both);
        if is_settled {
            bed.fs.settle().unwrap();
        }
        // As if the data of the second writes had not reached the device.
        let geometry = bed.pipeline.geometry();
        bed.damage("a", geometry.slot_at(0, Side::B));
        bed.damage("a", geometry.slot_at(1, Side::A));
        bed.kill();
        if is_settled {
            assert_eq!(bed.content("a").unwrap_err().errno(), Errno::EIO);
            continue;
        }
        let older: Vec<u8> = [[1; 4096], [0; 4096]].concat();
        assert_eq!(bed.content("a").unwrap(), older);
        let counts = &bed.fs.engine.shared.counts;
        assert_eq!([counts.torn.get(), counts.damaged.get()], [2, 0]);
        // It stays so, even if the rest is written.
        let (_, handle) = bed.open("a", true).unwrap();
        bed.write(handle, 4097, b"x");
        bed.fs.settle().unwrap();
        bed.close(handle);
        bed.kill();
        let mut expected = older;
        expected[4097] = b'x';
        assert_eq!(bed.content("a").unwrap(), expected);
    }
}

#[test]
fn a_torn_version_is_not_taken_for_the_durable_one() {
    let mut bed = Bed::new(checked());
    let (_, handle) = bed.create("a");
    bed.write(handle, 0, &[1; 4096]);
    bed.fs.settle().unwrap();
    bed.write(handle, 0, &[2; 4096]);
    bed.write(handle, 0, &[3; 4096]);
    // The headers of both later versions have reached the device, their data has not.
    bed.tear("a", 2..4);
    bed.kill();
    assert_eq!(bed.content("a").unwrap(), [1; 4096]);
    let (_, handle) = bed.open("a", true).unwrap();
    bed.write(handle, 0, &[4; 4096]);
    bed.write(handle, 0, &[5; 4096]);
    assert_eq!(bed.read(handle, 0, 4096).unwrap(), [5; 4096]);
    bed.tear("a", 4..6);
    bed.kill();
    assert_eq!(bed.content("a").unwrap(), [1; 4096]);
}

#[test]
fn damaged_attributes_are_told() {
    let mut bed = Bed::new(checked());
    settled(&bed);
    let set = |path: &std::path::Path, name: &str| {
        rustix::fs::setxattr(path, name, b"nonsense", rustix::fs::XattrFlags::empty()).unwrap();
    };
    bed.mount(checked()).unwrap();
    set(&bed.below("a"), "trusted.braid-frame");
    assert_eq!(bed.content("a").unwrap_err().errno(), Errno::EUCLEAN);
    set(bed.dir.path(), "trusted.braid-frames");
    assert_eq!(bed.mount(checked()).unwrap_err().errno(), Errno::EUCLEAN);
}
