//! A check that can't see everything; and that its counts are those of the
//! volume.

use crate::bed::{Bed, RANGE, lookup, pattern, ranges, write};
use braid_contract::{Caller, Errno, FileSystem, InodeId, Store};
use braid_stores::dir::DirStore;
use braid_stores::fault::FaultStore;
use braid_testkit::damage::{Kind, Target};
use braid_volume::{CheckOptions, TierConfig, Volume, check_with};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_tier_that_cant_be_listed_is_told_of_and_takes_nothing_with_it() {
    let bed = Bed::filled();
    let mut config = bed.config();
    let far = config.tiers.iter_mut().find(|tier| tier.name == "far").unwrap();
    let store = FaultStore::new(far.store.take().unwrap(), Vec::new());
    let control = store.control();
    far.store = Some(Arc::new(store));
    let volume = Volume::open(config).unwrap();
    control.set(vec!["list:EIO".parse().unwrap()]);
    let report = volume.check(&CheckOptions::default(), &mut |_| true).unwrap();
    let codes: Vec<_> =
        report.problems.iter().map(|problem| (problem.code, problem.tier.as_deref())).collect();
    assert_eq!(codes, [("tier-unreadable", Some("far"))]);
    control.set(Vec::new());
    assert!(volume.check(&CheckOptions::default(), &mut |_| true).unwrap().problems.is_empty());
    volume.shutdown().unwrap();
}

#[test]
fn a_lost_volume_table_is_not_made_anew_from_a_look_at_some_files() {
    let bed = Bed::filled();
    let table = bed.path("fast").join(".braid/volume");
    let kept = std::fs::read(&table).unwrap();
    std::fs::remove_file(&table).unwrap();
    let options = CheckOptions { repair: true, paths: vec!["plain".into()], ..bed.options() };
    let report = check_with(bed.config(), &options, &mut |_| true).unwrap();
    let told: Vec<_> = report.problems.iter().map(|problem| (problem.code, problem.repaired)).collect();
    assert_eq!(told, [("table-damaged", false)]);
    assert!(!table.exists());
    assert_eq!(bed.codes(true), ["table-damaged"]);
    assert_eq!(std::fs::read(&table).unwrap(), kept);
}

#[test]
fn a_damaged_attribute_of_a_file_with_two_names_is_repaired_whole() {
    let bed = Bed::filled();
    std::fs::hard_link(bed.path("fast").join("big"), bed.path("fast").join("dir/other")).unwrap();
    let damage = Kind::by_name("id-damaged").unwrap();
    damage.apply(&bed.dirs(), &Target::Path("big".into()), 1).unwrap();
    let problems = bed.check(true);
    assert!(problems.iter().all(|problem| problem.repaired), "{problems:#?}");
    assert!(bed.check(false).is_empty());
}

#[test]
fn ranges_of_removed_files_are_not_counted_after_a_crash() {
    let bed = Bed::filled();
    let volume = bed.mount();
    write(&volume, "doomed", &ranges(9, 20 * RANGE));
    let ino = lookup(&volume, Path::new("doomed")).unwrap();
    volume.unlink(&Caller::root(), InodeId::ROOT, OsStr::new("doomed")).unwrap();
    volume.forget(ino, 1);
    // As after a kill of the daemon.
    drop(volume);
    let volume = bed.mount();
    let ranges = |volume: &Volume| volume.status().tiers.iter().map(|tier| tier.ranges).sum::<u64>();
    let until = Instant::now() + Duration::from_secs(20);
    while ranges(&volume) == 0 {
        assert!(Instant::now() < until, "the ranges were not counted");
        std::thread::sleep(Duration::from_millis(5));
    }
    volume.shutdown().unwrap();
    drop(volume);
    assert!(bed.path("fast").join(".braid/counts").exists());
    let problems = bed.check(false);
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn a_replacement_that_did_not_get_to_the_table_can_be_tried_again() {
    let bed = Bed::filled();
    let new = |name: &str| {
        std::fs::create_dir_all(bed.path(name)).unwrap();
        Arc::new(DirStore::open(&bed.path(name)).unwrap()) as Arc<dyn Store>
    };
    let replace = |store| {
        let mut config = bed.config();
        let far = config.tiers.iter_mut().find(|tier| tier.name == "far").unwrap();
        far.store = None;
        let new = TierConfig { store: Some(store), ..far.clone() };
        let volume = Volume::open(config).unwrap();
        let replaced = volume.replace_tier(new);
        // Background threads would keep the directories in use.
        volume.shutdown().unwrap();
        replaced
    };
    let table = bed.path("fast").join(".braid/volume");
    let before = std::fs::read(&table).unwrap();
    replace(new("new")).unwrap();
    // The label was written, and the table was not.
    std::fs::write(&table, before).unwrap();
    let other = new("other");
    other.set_label(&pattern(1, 512)).unwrap();
    assert_eq!(replace(other).unwrap_err().errno(), Errno::EEXIST, "the label of something else");
    replace(new("new")).unwrap();
}
