//! A directory of any file system keeps the promises of keys and values.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use braid_contract::key_value::VALUE_MAX;
use braid_contract::{Caller, FileSystem, KeyValue, ScanRange};
use braid_kv::{FileBucket, Listings, resolve};
use braid_testkit::conformance::key_value::{Fresh, run};
use braid_testkit::dir_fs::{Choice, DirFs};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

fn fresh() -> Fresh {
    let kept = tempfile::tempdir().unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(DirFs::new(kept.path(), Choice::Cached));
    let made =
        fs.mkdir(&Caller::root(), braid_contract::InodeId::ROOT, OsStr::new("bucket"), 0o700, 0).unwrap();
    fs.forget(made.attr.ino, 1);
    let held = resolve(&fs, &Caller::root(), Path::new("/bucket")).unwrap();
    let dir = held.ino();
    let values: Arc<dyn KeyValue> =
        Arc::new(FileBucket::new(Arc::clone(&fs), held, None, &Arc::new(Listings::default())));
    Fresh { values, fs, dir, value_max: VALUE_MAX, knows_callers: true, kept: Box::new(kept) }
}

#[test]
fn a_directory_keeps_the_promises_of_keys_and_values() {
    run("files of a directory", &fresh).conclude();
}

#[test]
fn what_a_crash_left_is_no_key_and_goes() {
    let Fresh { values, kept, .. } = fresh();
    let dir = kept.downcast::<tempfile::TempDir>().unwrap();
    let left = dir.path().join("bucket/%new.7777");
    std::fs::write(&left, "half of").unwrap();
    std::fs::write(dir.path().join("bucket/%no key"), "").unwrap();
    let page = values.scan(&Caller::root(), &ScanRange::default(), 10, true).unwrap();
    assert!(page.entries.is_empty() && page.next.is_none());
    assert!(!left.exists() && dir.path().join("bucket/%no key").exists());
}

#[test]
fn a_directory_is_found_only_by_who_may_search_those_above_it() {
    let Fresh { fs, kept: _kept, .. } = fresh();
    let one = Caller { uid: 1001, gid: 1001, ..Caller::root() };
    let refused = |path: &str| resolve(&fs, &one, Path::new(path)).err().map(|error| error.errno().0);
    assert_eq!(refused("/bucket/../bucket"), Some(22));
    assert_eq!(resolve(&fs, &Caller::root(), Path::new("/none")).unwrap_err().errno().0, 2);
}
