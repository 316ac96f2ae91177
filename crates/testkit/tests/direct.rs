//! A file system without a kernel in front agrees with the reference model.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use braid_testkit::dir_fs::{Choice, DirFs, Violation};
use braid_testkit::{Common, DirectSide, ModelSide, Runner, Settings, run_parallel};
use std::path::Path;
use std::sync::Arc;

fn settings(seed: u64, common: &Common) -> Settings {
    Settings { seed, case_len: 150, compare_every: 50, plain_modes: !common.superuser }
}

fn common(dir: &Path) -> Arc<Common> {
    Arc::new(Common::model().with(&[dir]).unwrap())
}

#[test]
fn a_directory_agrees_with_the_model() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let common = common(dir.path());
    let direct = DirectSide::new(Arc::new(DirFs::new(dir.path(), Choice::Cached)), common.clone());
    let model = ModelSide(common.clone());
    let totals =
        Runner::new(&direct, &model, settings(1, &common)).run(10_000).unwrap_or_else(|f| panic!("{f}"));
    // A run in which nearly everything fails would compare nothing but errors.
    assert!(totals.succeeded * 3 > totals.ops, "{totals:?}");
}

#[test]
fn threads_agree_without_the_kernels_locks() {
    let dirs = [tempfile::tempdir_in("/var/tmp").unwrap(), tempfile::tempdir_in("/var/tmp").unwrap()];
    let common = common(dirs[0].path());
    let side = |dir: &Path| DirectSide::new(Arc::new(DirFs::new(dir, Choice::Cached)), common.clone());
    let (left, right) = (side(dirs[0].path()), side(dirs[1].path()));
    let runner = Runner::new(&left, &right, settings(3, &common));
    run_parallel(&runner, 4, 10_000).unwrap_or_else(|f| panic!("{f}"));
    for dir in dirs {
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a run leaves nothing behind");
    }
}

#[test]
fn a_planted_violation_is_found() {
    for violation in [Violation::LosesRename, Violation::LosesUnlinked, Violation::PunchesNothing] {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let common = common(dir.path());
        let direct = DirectSide::new(Arc::new(DirFs::breaking(dir.path(), violation)), common.clone());
        let model = ModelSide(common.clone());
        let run = Runner::new(&direct, &model, settings(2, &common)).run(20_000);
        assert!(run.is_err(), "{violation:?} was not found");
    }
}
