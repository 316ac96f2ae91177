//! Names that several threads change at the same time, without a kernel that
//! serialises them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests need more of it")]
mod common;

use braid_contract::{Errno, FileSystem, InodeId, RenameMode};
use braid_testkit::sim::Model;
use braid_volume::{Volume, check};
use common::machine::Machine;
use common::{Bed, Open, RANGE, caller};
use std::ffi::OsStr;

/// Times that each thread replaces the name.
const ROUNDS: usize = 60;

/// Ranges of a file, so that it is spread.
const RANGES: usize = 3;

/// Creates a spread file full of one byte, gives it the name, and repeats that;
/// sometimes removes the name instead.
fn replace(open: &Open, name: &OsStr, byte: u8) {
    let own = format!("of-{byte}");
    for round in 0..ROUNDS {
        let (ino, handle) = open.create(&own);
        open.write_ranges(handle, &vec![byte; RANGES * RANGE as usize]);
        open.volume.release(handle).unwrap();
        let renamed = open.volume.rename(
            &caller(),
            InodeId::ROOT,
            OsStr::new(&own),
            InodeId::ROOT,
            name,
            RenameMode::Replace,
        );
        renamed.unwrap();
        open.volume.forget(ino, 1);
        if round % 8 == 7 {
            // Another thread may have done so.
            let _ = open.volume.unlink(&caller(), InodeId::ROOT, name);
        }
    }
}

#[test]
fn files_that_are_replaced_at_the_same_time_leave_nothing_and_lose_nothing() {
    let bed = Bed::new();
    let open = bed.open();
    let name = OsStr::new("name");
    std::thread::scope(|scope| {
        for byte in 1..=4 {
            let open = &open;
            scope.spawn(move || replace(open, name, byte));
        }
    });
    if let Ok(ino) = open.lookup("name") {
        let handle = open.open(ino);
        let found = open.read(handle, 0, RANGES * RANGE as usize + 1);
        assert_eq!(found.len(), RANGES * RANGE as usize);
        assert!(found.iter().all(|byte| *byte == found[0] && (1..=4).contains(byte)));
        open.volume.release(handle).unwrap();
    }
    open.close();
    let report = braid_volume::check(bed.config(), false, &mut |_| {}).unwrap();
    let said: Vec<String> =
        report.problems.iter().map(|problem| format!("{}: {}", problem.code, problem.what)).collect();
    assert_eq!(said, Vec::<String>::new());
}

#[test]
fn a_rename_that_can_not_mark_the_file_that_it_replaces_replaces_nothing() {
    let machine = Machine::new(["home", "tier"], Model::EXT4);
    let mount = || Open { volume: Volume::open(machine.config(0)).unwrap() };
    let open = mount();
    for name in ["new", "old"] {
        let (_, handle) = open.create(name);
        open.write_ranges(handle, &vec![1; RANGES * RANGE as usize]);
        open.volume.release(handle).unwrap();
    }
    open.close();
    let open = mount();
    let [old, new] = ["old", "new"].map(OsStr::new);
    let rename =
        || open.volume.rename(&caller(), InodeId::ROOT, new, InodeId::ROOT, old, RenameMode::Replace);
    machine.disks[0].refuse(Some(("create", Errno::EMFILE)));
    assert_eq!(rename().unwrap_err().errno(), Errno::EMFILE);
    machine.disks[0].refuse(None);
    assert!(open.lookup("new").is_ok() && open.lookup("old").is_ok());
    rename().unwrap();
    assert!(open.lookup("new").is_err() && open.lookup("old").is_ok());
    open.close();
    let report = check(machine.config(0), false, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
