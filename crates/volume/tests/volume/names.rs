//! Names that several threads change at the same time, without a kernel that
//! serialises them.

use crate::common::machine::Machine;
use crate::common::{Bed, Open, RANGE, caller};
use braid_contract::{
    Caller, DirEntry, DirSink, Entry, Errno, FileKind, FileSystem, HandleId, InodeId, OpenFlags, OpenRequest,
    RenameMode, SetAttr,
};
use braid_placement::{Condition, RuleConfig};
use braid_testkit::sim::Model;
use braid_volume::{Volume, VolumeConfig, check};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

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

/// What happens to an open file between the look at its name and the name's
/// end.
struct Race {
    what: &'static str,
    /// A rule sends all of it to the other tier than home.
    ruled: bool,
    /// Ranges that it has before.
    ranges: usize,
    happens: fn(&Open, InodeId, HandleId),
}

const RACES: [Race; 10] = [
    Race { what: "a file with an index is closed", ruled: false, ranges: 5, happens: |_, _, _| {} },
    Race { what: "a whole file is closed", ruled: true, ranges: 5, happens: |_, _, _| {} },
    Race {
        what: "a whole file grows",
        ruled: true,
        ranges: 1,
        happens: |open, _, handle| open.write_ranges(handle, &[1; 5 * RANGE as usize]),
    },
    Race {
        what: "a whole file gets an index",
        ruled: true,
        ranges: 5,
        happens: |open, ino, _| move_home(open, ino, 2 * RANGE),
    },
    Race {
        what: "a whole file comes home",
        ruled: true,
        ranges: 1,
        happens: |open, ino, _| move_home(open, ino, 0),
    },
    Race {
        what: "a whole file is emptied, and written again",
        ruled: true,
        ranges: 1,
        happens: empty_and_write,
    },
    Race {
        what: "a file with an index is emptied",
        ruled: false,
        ranges: 5,
        happens: |open, ino, _| open.truncate(ino, 0),
    },
    Race {
        what: "a file with an index is emptied, and written again",
        ruled: false,
        ranges: 5,
        happens: empty_and_write,
    },
    Race {
        what: "a plain file is spread",
        ruled: false,
        ranges: 1,
        happens: |open, _, handle| open.write_ranges(handle, &[1; 5 * RANGE as usize]),
    },
    Race { what: "a plain file is written", ruled: false, ranges: 0, happens: empty_and_write },
];

fn move_home(open: &Open, ino: InodeId, offset: u64) {
    open.volume.move_range(ino, offset, "fast", &mut || {}).unwrap();
}

fn empty_and_write(open: &Open, ino: InodeId, handle: HandleId) {
    open.truncate(ino, 0);
    open.write_ranges(handle, &[1; 7 * RANGE as usize]);
}

/// When the file is closed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Close {
    BeforeTheNameGoes,
    /// And before it is looked at whether the file is in use.
    WhenTheNameIsGone,
    Afterwards,
}

/// Lets `race` happen while the name of a file goes; answers what is left of
/// the file, in the counts too.
fn lose(race: &Race, operation: &'static str, close: Close) -> Vec<String> {
    let machine = Machine::new(["home", "tier"], Model::EXT4);
    let rule = RuleConfig {
        when: Condition::parse("true").unwrap(),
        stream: None,
        tiers: vec!["slow".into()],
        policy: None,
        pin: false,
        range_size: None,
    };
    let rules = if race.ruled { vec![rule] } else { Vec::new() };
    let open = Open { volume: Volume::open(VolumeConfig { rules, ..machine.config(0) }).unwrap() };
    let create = |name, ranges| {
        let (ino, handle) = open.create(name);
        open.write_ranges(handle, &vec![1; ranges * RANGE as usize]);
        (ino, handle)
    };
    // Counts of nothing could not be too low.
    for (name, ranges) in [("stays", 20), ("other", 0)] {
        open.volume.release(create(name, ranges).1).unwrap();
    }
    let (ino, handle) = create("name", race.ranges);
    let elsewhere = |work: Box<dyn FnOnce(&Open) + Send>| {
        let open = Open { volume: Arc::clone(&open.volume) };
        move || std::thread::spawn(move || work(&open)).join().unwrap()
    };
    let (home, happens) = (machine.disks[0].clone(), race.happens);
    let happen = elsewhere(Box::new(move |open| happens(open, ino, handle)));
    let release = elsewhere(Box::new(move |open| open.volume.release(handle).unwrap()));
    machine.disks[0].precede(operation, move || {
        happen();
        match close {
            Close::BeforeTheNameGoes => release(),
            Close::WhenTheNameIsGone => home.precede("open", release),
            Close::Afterwards => {}
        }
    });
    let (root, [name, other]) = (InodeId::ROOT, ["name", "other"].map(OsStr::new));
    let lost = match operation {
        "unlink" => open.volume.unlink(&caller(), root, name),
        _ => open.volume.rename(&caller(), root, other, root, name, RenameMode::Replace),
    };
    let case = format!("{operation}, {}, closed {close:?}", race.what);
    lost.unwrap_or_else(|error| panic!("{case}: {error}"));
    if close == Close::Afterwards {
        open.volume.release(handle).unwrap();
    }
    assert_eq!(open.volume.status().open_files, 0, "{case}");
    open.volume.forget(ino, 1);
    open.close();
    let report = check(machine.config(0), false, &mut |_| {}).unwrap();
    report.problems.iter().map(|problem| format!("{case}: {}", problem.what)).collect()
}

#[test]
fn a_file_that_changes_as_its_last_name_goes_goes_as_it_is_then() {
    let mut left = Vec::new();
    for race in &RACES {
        for operation in ["unlink", "rename"] {
            for close in [Close::BeforeTheNameGoes, Close::WhenTheNameIsGone, Close::Afterwards] {
                left.extend(lose(race, operation, close));
            }
        }
    }
    assert!(left.is_empty(), "{left:#?}");
}

/// What the kernel asks of an inode without a name must not reach a new one
/// with its number: that may be another user's.
#[test]
fn an_inode_keeps_its_number_until_it_is_forgotten() {
    let bed = Bed::new();
    let open = bed.open();
    let volume = &open.volume;
    let root = InodeId::ROOT;
    let file = |name: &str| {
        let (ino, handle) = open.create(name);
        volume.release(handle).unwrap();
        ino
    };
    let dir = |name: &str| volume.mkdir(&caller(), root, OsStr::new(name), 0o700, 0).unwrap().attr.ino;
    let request = OpenRequest {
        flags: OpenFlags { read: true, write: true, ..OpenFlags::default() },
        ..OpenRequest::default()
    };
    let (entry, opened) = volume.tmpfile(&caller(), root, 0o600, 0, request).unwrap();
    volume.release(opened.handle).unwrap();
    let gone = [file("removed"), file("replaced"), dir("dir"), dir("replaced-dir"), entry.attr.ino];
    file("other");
    dir("other-dir");
    let rename = |from: &str, to: &str| {
        volume.rename(&caller(), root, OsStr::new(from), root, OsStr::new(to), RenameMode::Replace).unwrap();
    };
    volume.unlink(&caller(), root, OsStr::new("removed")).unwrap();
    rename("other", "replaced");
    volume.rmdir(&caller(), root, OsStr::new("dir")).unwrap();
    rename("other-dir", "replaced-dir");
    let new: Vec<InodeId> =
        (0..50).flat_map(|at| [file(&format!("new{at}")), dir(&format!("new-dir{at}"))]).collect();
    for ino in gone {
        assert!(!new.contains(&ino), "{ino:?} was given to a new inode");
        let mode = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        assert_eq!(volume.setattr(&caller(), ino, None, &mode).unwrap().mode, 0o777);
    }
    assert!(new.iter().all(|ino| volume.getattr(&caller(), *ino, None).unwrap().mode != 0o777));
    for ino in gone {
        volume.forget(ino, 1);
        assert_eq!(volume.getattr(&caller(), ino, None).unwrap_err().errno(), Errno::ESTALE);
    }
    open.close();
    assert_eq!(check(bed.config(), false, &mut |_| {}).unwrap().problems.len(), 0);
}

/// The entries of a listing, as the kernel gets them.
#[derive(Default)]
struct Listed(Vec<(OsString, Entry)>);

impl DirSink for Listed {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.0.extend(entry.entry.map(|found| (entry.name.to_owned(), found)));
        true
    }
}

fn listed(open: &Open) -> Vec<(OsString, Entry)> {
    let handle = open.volume.open_dir(&caller(), InodeId::ROOT).unwrap();
    let mut names = Listed::default();
    open.volume.read_dir(&caller(), handle, 0, true, &mut names).unwrap();
    open.volume.release_dir(handle).unwrap();
    names.0
}

/// Known inodes are listed in another way than unknown ones.
#[test]
fn a_listing_has_the_attributes_of_known_inodes_and_counts_lookups() {
    let bed = Bed::new();
    let open = bed.open();
    let volume = &open.volume;
    let (plain, handle) = open.create("plain");
    open.write(handle, 0, b"plain");
    volume.release(handle).unwrap();
    let (spread, handle) = open.create("spread");
    open.write_ranges(handle, &vec![1; RANGES * RANGE as usize]);
    volume.release(handle).unwrap();
    let (busy, busy_handle) = open.create("busy");
    volume.link(&caller(), plain, InodeId::ROOT, OsStr::new("link")).unwrap();
    let dir = volume.mkdir(&caller(), InodeId::ROOT, OsStr::new("dir"), 0o700, 0).unwrap().attr.ino;
    let lookups = [("plain", plain, 8), ("spread", spread, 4), ("busy", busy, 4), ("dir", dir, 4)];
    for round in 1..=3 {
        open.write(busy_handle, 0, &vec![2; round]);
        let entries = listed(&open);
        assert_eq!(entries.len(), 5, "{entries:?}");
        for (name, ino, _) in lookups {
            let found = &entries.iter().find(|(found, _)| found == name).unwrap().1;
            assert_eq!(found.attr, volume.getattr(&caller(), ino, None).unwrap(), "{name}");
            let alone = volume.lookup(&caller(), InodeId::ROOT, OsStr::new(name)).unwrap();
            assert_eq!(found.generation, alone.generation, "{name}");
            volume.forget(ino, 1);
        }
    }
    volume.release(busy_handle).unwrap();
    for (name, ino, count) in lookups {
        volume.forget(ino, count - 1);
        assert!(volume.getattr(&caller(), ino, None).is_ok(), "{name} is forgotten too early");
        volume.forget(ino, 1);
        assert_eq!(volume.getattr(&caller(), ino, None).unwrap_err().errno(), Errno::ESTALE, "{name}");
    }
    assert_eq!(listed(&open).len(), 5);
    open.close();
}

#[test]
fn a_whiteout_is_the_callers() {
    if !rustix::process::geteuid().is_root() {
        return braid_testkit::skipped("root");
    }
    let bed = Bed::new();
    let open = bed.open();
    let volume = &open.volume;
    let user = Caller { uid: 1234, gid: 1234, ..caller() };
    let dir = volume.mkdir(&caller(), InodeId::ROOT, OsStr::new("dir"), 0o755, 0).unwrap().attr.ino;
    let owner = SetAttr { uid: Some(1234), ..SetAttr::default() };
    volume.setattr(&caller(), dir, None, &owner).unwrap();
    volume.mknod(&user, dir, OsStr::new("file"), 0o100_600, 0, 0).unwrap();
    let (old, new) = (OsStr::new("file"), OsStr::new("new"));
    volume.rename(&user, dir, old, dir, new, RenameMode::Whiteout).unwrap();
    let left = volume.lookup(&user, dir, old).unwrap().attr;
    assert_eq!((left.kind, left.uid, left.gid), (FileKind::CharDevice, 1234, 1234));
    open.close();
}
