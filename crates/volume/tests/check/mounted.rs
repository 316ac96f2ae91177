//! Checks while the volume is in use.

use crate::bed::{Bed, RANGE, attr_name, lookup, pattern, read, truncate, write};
use braid_contract::{Caller, FileSystem, InodeId, OpenFlags, OpenRequest, RenameMode, WriteFlags};
use braid_testkit::damage::{Kind, Target};
use braid_volume::{CheckOptions, Problem, Volume};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn check(bed: &Bed, volume: &Volume, repair: bool) -> Vec<Problem> {
    let options = CheckOptions { repair, ..bed.options() };
    volume.check(&options, &mut |_| true).unwrap().problems
}

fn codes(problems: &[Problem]) -> Vec<&'static str> {
    problems.iter().map(|problem| problem.code).collect()
}

/// Ends the threads that watch it, even when a check fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_volume_in_use_has_no_problem() {
    let bed = Bed::filled();
    let volume = bed.mount();
    assert!(check(&bed, &volume, false).is_empty());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (volume, stop) = (&volume, &stop);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    churn(volume, thread, round);
                    round += 1;
                }
            });
        }
        let _stop = Stop(&stop);
        for _ in 0..60 {
            let problems = check(&bed, &volume, true);
            assert!(problems.is_empty(), "{problems:#?}");
        }
    });
    volume.shutdown().unwrap();
    drop(volume);
    assert!(bed.check(false).is_empty());
}

/// Creates, writes, reads, truncates, renames and removes a file of several
/// ranges.
fn churn(volume: &Volume, thread: u64, round: u64) {
    let (name, other) = (format!("t{thread}-{round}"), format!("dir/u{thread}-{round}"));
    let piece = pattern(round, RANGE);
    let pieces: Vec<_> = (0..6).map(|at| (at * RANGE as u64, piece.clone())).collect();
    write(volume, &name, &pieces);
    assert_eq!(read(volume, Path::new(&name)).unwrap().len(), 6 * RANGE);
    truncate(volume, &name, 2 * RANGE as u64 + 5);
    let caller = Caller::root();
    let dir = lookup(volume, Path::new("dir")).unwrap();
    let new = Path::new(&other).file_name().unwrap();
    volume.rename(&caller, InodeId::ROOT, OsStr::new(&name), dir, new, RenameMode::Replace).unwrap();
    assert_eq!(read(volume, Path::new(&other)).unwrap().len(), 2 * RANGE + 5);
    if round.is_multiple_of(3) {
        truncate(volume, &other, 0);
    }
    volume.unlink(&caller, dir, new).unwrap();
    volume.tick();
}

#[test]
fn what_is_safe_beside_users_is_repaired_and_the_rest_is_left_for_later() {
    let bed = Bed::filled();
    for (kind, of) in [("index-header-bit", "big"), ("object-orphan", "big"), ("id-removed", "sparse")] {
        Kind::by_name(kind).unwrap().apply(&bed.dirs(), &Target::Path(of.into()), 3).unwrap();
    }
    let volume = bed.mount();
    let before = codes(&check(&bed, &volume, false));
    for code in ["index-header", "object-orphan", "id-lost"] {
        assert!(before.contains(&code), "{before:?}");
    }
    let problems = check(&bed, &volume, true);
    for problem in &problems {
        assert_eq!(problem.repaired, problem.code == "index-header", "{problem:?}");
        assert!(problem.repaired || problem.repair.contains("unmount first"), "{problem:?}");
    }
    assert_eq!(read(&volume, Path::new("big")).unwrap().len(), 12 * RANGE + 100);
    volume.shutdown().unwrap();
    drop(volume);
    bed.check(true);
    assert!(bed.check(false).is_empty());
}

#[test]
fn a_file_that_is_open_is_checked_and_repaired_only_when_it_is_closed() {
    let bed = Bed::filled();
    let volume = bed.mount();
    let caller = Caller::root();
    let ino = lookup(&volume, Path::new("big")).unwrap();
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let request = OpenRequest { flags, ..OpenRequest::default() };
    let handle = volume.open(&caller, ino, request).unwrap().handle;
    // The word that says whether holes are intended.
    let index = std::fs::File::options().write(true).open(bed.object("fast", "big")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&index, &[0x77; 8], 280).unwrap();
    let problems = check(&bed, &volume, true);
    assert_eq!(codes(&problems), ["gaps-damaged"]);
    assert!(!problems[0].repaired && problems[0].repair.contains("close it"), "{problems:?}");
    volume.release(handle).unwrap();
    assert!(check(&bed, &volume, true)[0].repaired);
    assert!(check(&bed, &volume, false).is_empty());
    let handle = volume.open(&caller, ino, request).unwrap().handle;
    volume.write(&caller, handle, 0, b"new", WriteFlags::default()).unwrap();
    volume.fsync(&caller, handle, false).unwrap();
    volume.release(handle).unwrap();
    volume.shutdown().unwrap();
}

#[test]
fn an_attribute_that_is_lost_beside_users_is_not_set_again_by_a_mounted_check() {
    let bed = Bed::filled();
    let volume = bed.mount();
    rustix::fs::removexattr(bed.path("fast/big"), attr_name()).unwrap();
    let problems = check(&bed, &volume, true);
    assert_eq!(codes(&problems), ["id-lost"]);
    assert!(!problems[0].repaired, "{problems:?}");
    volume.shutdown().unwrap();
    drop(volume);
    assert_eq!(bed.codes(true), ["id-lost"]);
    assert!(bed.check(false).is_empty());
}
