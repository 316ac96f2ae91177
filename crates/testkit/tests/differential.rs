//! The differential run, tried on native file systems: sides that are right
//! agree, and each deliberate fault is found and shrunk to its cause.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use braid_testkit::{Common, Fault, FaultySide, ModelSide, NativeSide, Op, Runner, Settings, run_parallel};
use std::path::Path;
use std::sync::{Arc, Once};
use tempfile::TempDir;

fn umask() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        rustix::process::umask(rustix::fs::Mode::from(0o022));
    });
}

/// A directory on the file system of temporary files, and one in memory.
fn two_dirs() -> (TempDir, TempDir) {
    umask();
    (TempDir::new().unwrap(), TempDir::new_in("/dev/shm").unwrap())
}

fn common(dirs: &[&Path]) -> Arc<Common> {
    Arc::new(Common::model().with(dirs).unwrap())
}

fn settings(seed: u64, common: &Common) -> Settings {
    Settings { seed, case_len: 150, compare_every: 50, plain_modes: !common.superuser }
}

#[test]
fn native_file_systems_agree_with_the_model() {
    let (disk, memory) = two_dirs();
    for dir in [disk.path(), memory.path()] {
        let common = common(&[dir]);
        let (native, model) = (NativeSide::new(dir.into(), common.clone()), ModelSide(common.clone()));
        let totals =
            Runner::new(&native, &model, settings(1, &common)).run(10_000).unwrap_or_else(|f| panic!("{f}"));
        // A run in which nearly everything fails would compare nothing but errors.
        assert!(totals.succeeded * 3 > totals.ops, "{totals:?}");
    }
}

#[test]
fn native_file_systems_agree_with_each_other() {
    let (disk, memory) = two_dirs();
    let common = common(&[disk.path(), memory.path()]);
    let left = NativeSide::new(disk.path().into(), common.clone());
    let right = NativeSide::new(memory.path().into(), common.clone());
    Runner::new(&left, &right, settings(2, &common)).run(10_000).unwrap_or_else(|f| panic!("{f}"));
}

#[test]
fn threads_agree() {
    let (disk, memory) = two_dirs();
    let common = common(&[disk.path(), memory.path()]);
    let left = NativeSide::new(disk.path().into(), common.clone());
    let right = NativeSide::new(memory.path().into(), common.clone());
    let runner = Runner::new(&left, &right, settings(3, &common));
    let totals = run_parallel(&runner, 4, 10_000).unwrap_or_else(|f| panic!("{f}"));
    assert!(totals.ops >= 10_000 && totals.cases.is_multiple_of(4), "{totals:?}");
    for dir in [disk.path(), memory.path()] {
        assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "a run leaves nothing behind");
    }
}

/// The fault is found, and its report repeats it from the stored form.
fn finds(fault: Fault, ops_max: usize) {
    let (disk, memory) = two_dirs();
    let common = common(&[disk.path(), memory.path()]);
    let side = NativeSide::new(disk.path().into(), common.clone());
    let (faulty, right) = (FaultySide { side, fault }, NativeSide::new(memory.path().into(), common.clone()));
    let runner = Runner::new(&faulty, &right, settings(4, &common));
    let failure = runner.run(20_000).expect_err("the fault was not found");
    assert!(failure.reproduced, "{failure}");
    assert!(failure.ops.len() <= ops_max, "{failure}");
    let stored = serde_json::to_string(&failure.ops).unwrap();
    let loaded: Vec<Op> = serde_json::from_str(&stored).unwrap();
    assert_eq!(loaded, failure.ops);
    assert_eq!(*runner.replay(&loaded).unwrap_err(), failure.difference);
    // Every operation that is left is needed.
    for index in 0..loaded.len() {
        let mut fewer = loaded.clone();
        fewer.remove(index);
        assert!(runner.replay(&fewer).is_ok(), "operation {index} is not needed: {failure}");
    }
}

#[test]
fn a_corrupted_byte_is_found() {
    finds(Fault::CorruptsByte, 5);
}

#[test]
fn a_dropped_truncate_is_found() {
    finds(Fault::DropsTruncate, 5);
}

#[test]
fn a_forgotten_time_is_found() {
    finds(Fault::ForgetsTime, 4);
}

#[test]
fn a_fault_in_shared_files_is_found() {
    let (disk, memory) = two_dirs();
    let common = common(&[disk.path(), memory.path()]);
    let side = NativeSide::new(disk.path().into(), common.clone());
    let faulty = FaultySide { side, fault: Fault::CorruptsByte };
    let right = NativeSide::new(memory.path().into(), common.clone());
    // Sequences of one operation leave the work on shared files to find it.
    let settings = Settings { case_len: 1, ..settings(5, &common) };
    assert!(run_parallel(&Runner::new(&faulty, &right, settings), 4, 5_000).is_err());
}
