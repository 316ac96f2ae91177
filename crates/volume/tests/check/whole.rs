//! Damage to whole files: those without an index, and with all their data in
//! one object.

use crate::bed::{Bed, Contents, attr_name, lookup, pattern, write};
use braid_volume::Severity;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LEN: usize = 5000;

const CAPABILITY: &str = "security.capability";

/// A volume with a whole file on `slow`.
fn bed() -> (Bed, Contents) {
    let bed = Bed::filled();
    let volume = bed.mount();
    write(&volume, "whole", &[(0, pattern(9, LEN))]);
    let ino = lookup(&volume, Path::new("whole")).unwrap();
    volume.move_range(ino, 0, "slow", &mut || {}).unwrap();
    volume.shutdown().unwrap();
    drop(volume);
    assert!(!bed.object("fast", "whole").exists(), "it has an index");
    assert!(bed.check(false).is_empty());
    let before = bed.contents();
    (bed, before)
}

fn whole(contents: &Contents) -> Option<&Vec<u8>> {
    contents[Path::new("whole")].as_ref()
}

/// Damages the file; the check reports it with `code`, and a repair restores
/// it, with nothing more to find.
fn is_mended(code: &str, damage: impl FnOnce(&Bed)) -> Bed {
    let (bed, before) = bed();
    damage(&bed);
    let told = bed.try_verbose_check().unwrap().problems;
    let found = told.iter().find(|problem| problem.code == code);
    let found = found.unwrap_or_else(|| panic!("{code} is not among {told:?}"));
    assert_eq!(found.path.as_deref(), Some(Path::new("whole")), "{found:?}");
    bed.check(true);
    assert!(bed.try_verbose_check().unwrap().problems.iter().all(|problem| problem.code != code));
    assert!(bed.check(false).is_empty());
    assert!(bed.contents() == before, "{code}");
    bed
}

#[test]
fn an_object_that_is_missing_is_told_and_nothing_is_made_up() {
    let (bed, before) = bed();
    fs::remove_file(bed.object("slow", "whole")).unwrap();
    for repair in [false, true, false] {
        let problems = bed.check(repair);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!((problems[0].code, problems[0].severity), ("object-missing", Severity::Damage));
        assert_eq!(problems[0].tier.as_deref(), Some("slow"));
        assert_eq!(problems[0].bytes, Some(0..LEN as u64));
    }
    let after = bed.contents();
    assert_eq!(whole(&after), None, "it can be read");
    for (path, contents) in before.iter().filter(|(path, _)| *path != Path::new("whole")) {
        assert!(after[path] == *contents, "{}", path.display());
    }
}

#[test]
fn an_object_that_is_too_long_is_cut() {
    is_mended("object-too-long", |bed| {
        let object = File::options().write(true).open(bed.object("slow", "whole")).unwrap();
        object.write_all_at(b"more", LEN as u64 + 10).unwrap();
    });
}

#[test]
fn an_object_on_another_tier_goes() {
    is_mended("object-unowned", |bed| {
        let left = bed.object("far", "whole");
        fs::create_dir_all(left.parent().unwrap()).unwrap();
        fs::copy(bed.object("slow", "whole"), left).unwrap();
    });
}

#[test]
fn data_in_the_home_file_goes() {
    let mut is_capable = false;
    let bed = is_mended("home-file-unowned", |bed| {
        let home = File::options().write(true).open(bed.path("fast/whole")).unwrap();
        let times = fs::metadata(bed.path("fast/whole")).unwrap().modified().unwrap();
        home.write_all_at(b"not the file's", 0).unwrap();
        home.set_modified(times).unwrap();
        // Where the test may: a write takes it away, and so would the repair.
        let value = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        is_capable = setxattr(bed.path("fast/whole"), CAPABILITY, &value, XattrFlags::empty()).is_ok();
    });
    let found = getxattr(bed.path("fast/whole"), CAPABILITY, &mut [0; 64][..]);
    assert_eq!(found.is_ok(), is_capable, "{found:?}");
}

#[test]
fn an_index_that_does_not_count_goes() {
    is_mended("index-unused", |bed| {
        let index = bed.object("fast", "whole");
        fs::create_dir_all(index.parent().unwrap()).unwrap();
        fs::copy(bed.object("fast", "big"), index).unwrap();
    });
}

#[test]
fn an_object_that_was_cut_is_told_and_reads_as_zeros() {
    let (bed, before) = bed();
    File::options().write(true).open(bed.object("slow", "whole")).unwrap().set_len(1000).unwrap();
    let told = bed.try_verbose_check().unwrap().problems;
    assert!(told.iter().any(|problem| problem.code == "object-short"), "{told:?}");
    let mut expected = whole(&before).unwrap().clone();
    expected[1000..].fill(0);
    assert!(whole(&bed.contents()) == Some(&expected));
}

#[test]
fn an_attribute_that_was_changed_makes_nobody_elses_data_its_own() {
    let (bed, before) = bed();
    let path = bed.path("fast/whole");
    let mut value = [0; 64];
    rustix::fs::getxattr(&path, attr_name(), &mut value[..]).unwrap();
    // The tier that the attribute names, and the id.
    for at in [4, 8, 30] {
        let mut changed = value;
        changed[at] ^= 1;
        rustix::fs::setxattr(&path, attr_name(), &changed, rustix::fs::XattrFlags::empty()).unwrap();
        assert!(bed.codes(false).contains(&"id-damaged"), "byte {at}: {:?}", bed.codes(false));
        assert_eq!(whole(&bed.contents()), None, "byte {at}: it can be read");
    }
    rustix::fs::setxattr(&path, attr_name(), &value, rustix::fs::XattrFlags::empty()).unwrap();
    assert!(bed.check(false).is_empty());
    let names: Vec<&PathBuf> = before.keys().collect();
    assert!(bed.contents() == before, "{names:?}");
}
