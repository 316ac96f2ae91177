//! Checks of sound volumes, and the limits of repairs.

use crate::bed::{Bed, RANGE, TIERS, attr_name, pattern, write, write_in_syncs};
use braid_contract::ObjectId;
use braid_format::{SIZE_AT, Words};
use braid_testkit::damage::{Kind, Target};
use braid_volume::{CheckOptions, Severity, check_with};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn damage(bed: &Bed, kind: &str, of: &str) {
    Kind::by_name(kind).unwrap().apply(&bed.dirs(), &Target::Path(of.into()), 1).unwrap();
}

#[test]
fn a_sound_volume_has_no_problem_and_is_not_changed() {
    let bed = Bed::filled();
    let state = bed.state();
    let report = bed.try_check(false).unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_eq!((report.files, report.spread_files), (5, 4));
    assert_eq!(bed.state(), state);
    assert!(bed.check(true).is_empty());
    assert_eq!(bed.state(), state, "nor by a repair that has nothing to do");
}

#[test]
fn lost_bytes_are_told_by_where_they_are_and_stay_unreadable() {
    let bed = Bed::filled();
    let before = bed.contents();
    std::fs::remove_file(bed.object("slow", "big")).unwrap();
    let lost = bed.check(false);
    assert!(!lost.is_empty());
    for problem in &lost {
        assert_eq!((problem.code, problem.severity), ("object-missing", Severity::Damage));
        assert_eq!(problem.tier.as_deref(), Some("slow"));
        let bytes = problem.bytes.clone().unwrap();
        assert!(bytes.start % RANGE as u64 == 0 && bytes.end <= 12 * RANGE as u64 + 100, "{problem:?}");
    }
    assert_eq!(bed.check(true).len(), lost.len());
    assert_eq!(bed.check(false).len(), lost.len());
    let after = bed.contents();
    for (path, contents) in &before {
        let lost = path.to_str() == Some("big");
        assert_eq!(after[path].is_none(), lost, "{}", path.display());
        assert!(lost || after[path] == *contents, "{}", path.display());
    }
}

#[test]
fn holes_of_a_file_whose_index_is_made_anew_are_not_taken_for_zeros() {
    let bed = Bed::filled();
    damage(&bed, "index-missing", "sparse");
    let codes = bed.codes(true);
    assert!(codes.contains(&"index-missing") && codes.contains(&"entry-doubtful"), "{codes:?}");
    let left = bed.check(false);
    assert!(left.iter().all(|problem| problem.code == "entry-damaged"), "{left:#?}");
    assert_eq!(left.len(), 4);
    assert!(bed.contents()[Path::new("sparse")].is_none(), "those ranges can't be read");
}

#[test]
fn the_objects_of_a_file_whose_attribute_and_index_are_damaged_are_kept() {
    let bed = Bed::filled();
    let objects = [bed.object("slow", "big"), bed.object("far", "big")];
    damage(&bed, "index-missing", "big");
    rustix::fs::setxattr(bed.path("fast/big"), attr_name(), &[1; 40], rustix::fs::XattrFlags::empty())
        .unwrap();
    let codes = bed.codes(true);
    assert!(codes.contains(&"id-damaged") && codes.contains(&"object-orphan"), "{codes:?}");
    assert!(objects.iter().all(|object| object.exists()));
}

#[test]
fn a_file_that_was_emptied_and_written_again_does_not_get_its_old_id_back() {
    let bed = Bed::filled();
    rustix::fs::removexattr(bed.path("fast/big"), attr_name()).unwrap();
    let new = pattern(9, 12 * RANGE + 100);
    std::fs::write(bed.path("fast/big"), &new).unwrap();
    assert_eq!(bed.codes(true), ["index-unused"]);
    assert_eq!(std::fs::read(bed.path("fast/big")).unwrap(), new);
}

#[test]
fn an_empty_directory_is_not_labelled_in_the_place_of_a_tier() {
    let bed = Bed::filled();
    std::fs::rename(bed.path("slow"), bed.path("away")).unwrap();
    std::fs::create_dir(bed.path("slow")).unwrap();
    assert!(bed.try_check(true).is_err());
    assert!(std::fs::read_dir(bed.path("slow")).unwrap().next().is_none());
}

#[test]
fn a_word_that_two_bits_of_were_flipped_is_told_by_the_data() {
    let bed = Bed::filled();
    let before = bed.contents();
    let index = std::fs::File::options().read(true).write(true).open(bed.object("fast", "big")).unwrap();
    let mut word = [0; 8];
    index.read_exact_at(&mut word, 4096 + 5 * 8).unwrap();
    word[0] ^= 0x41;
    index.write_all_at(&word, 4096 + 5 * 8).unwrap();
    assert_eq!(bed.codes(true), ["entry-damaged"]);
    assert!(bed.check(false).is_empty());
    assert_eq!(bed.contents(), before);
}

#[test]
fn only_what_was_asked_for_is_checked() {
    let bed = Bed::filled();
    damage(&bed, "object-missing", "big");
    damage(&bed, "size-damaged", "dir/second");
    damage(&bed, "object-orphan", "big");
    let check = |paths: &[&str]| {
        let paths = paths.iter().map(Into::into).collect();
        let options = CheckOptions { paths, ..bed.options() };
        let report = check_with(bed.config(), &options, &mut |_| true).unwrap();
        let mut codes: Vec<_> = report.problems.iter().map(|problem| problem.code).collect();
        codes.dedup();
        (report.files, codes)
    };
    assert_eq!(check(&["dir"]), (2, vec!["size-damaged"]));
    assert_eq!(check(&["big", "plain"]), (2, vec!["object-missing"]));
    assert_eq!(check(&["nothing"]), (0, vec!["not-readable"]));
}

#[test]
fn a_check_ends_when_nobody_wants_to_know() {
    let bed = Bed::filled();
    assert!(check_with(bed.config(), &bed.options(), &mut |_| false).is_err());
}

#[test]
fn what_a_kill_left_is_noted_and_recovered_by_a_repair() {
    let bed = Bed::filled();
    let volume = bed.mount();
    write(&volume, "new", &[(0, pattern(1, RANGE)), (RANGE as u64, pattern(2, 5 * RANGE))]);
    drop(volume);
    std::fs::write(bed.path("fast/.braid/open").join(bed.id("big")), b"").unwrap();
    let problems = bed.check(false);
    assert!(problems.iter().all(|problem| problem.severity == Severity::Note), "{problems:#?}");
    assert_eq!(problems.len(), 1);
    assert!(bed.check(true).iter().all(|problem| problem.repaired));
    assert!(bed.check(false).is_empty());
}

#[test]
fn a_size_that_the_last_part_tells_is_that_of_the_file() {
    let bed = Bed::filled();
    let volume = bed.mount();
    let grown = write_in_syncs(&volume, "log", &[pattern(1, 6 * RANGE), pattern(2, 100), pattern(3, 100)]);
    drop(volume);
    // What power loss leaves, which reaches back to the last sync of the index.
    let index = std::fs::File::options().write(true).open(bed.object("fast", "log")).unwrap();
    let id = ObjectId(u128::from_str_radix(&bed.id("log"), 16).unwrap().to_be_bytes());
    let size = Words::of(id).encode_size(SIZE_AT, 6 * RANGE as u64 + 100);
    index.write_all_at(&size.to_le_bytes(), SIZE_AT).unwrap();
    let problems = bed.check(false);
    assert!(problems.iter().all(|problem| problem.severity == Severity::Note), "{problems:#?}");
    assert!(bed.check(true).iter().all(|problem| problem.repaired));
    assert!(bed.check(false).is_empty());
    assert_eq!(bed.contents()[Path::new("log")], Some(grown));
}

#[test]
fn a_label_that_lies_elsewhere_in_the_volume_is_refused() {
    let bed = Bed::filled();
    let labels = TIERS.map(|tier| bed.path(tier).join(".braid/label"));
    std::fs::copy(&labels[1], &labels[2]).unwrap();
    assert!(bed.try_check(true).is_err());
}
