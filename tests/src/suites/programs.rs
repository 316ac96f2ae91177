//! Real programs on a volume that spreads early.

mod databases;
mod place;
mod tools;

use crate::arena::{Arena, Shape};
use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::error::Result;
use braid_tests_support::lab::Kind;
use braid_tests_support::options::Options;
use place::Place;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "programs",
    about: "git, SQLite, RocksDB, Redis, tar, rsync, a Rust build, appending shells",
    on_request: false,
    on_directories: true,
    turn: Turn::Machine,
    trials,
};

/// A program's test in an empty directory of the volume.
type Test = fn(&Place<'_>) -> Result<()>;

/// A title, its test, and its check after a remount.
const PROGRAMS: &[(&str, Test, Option<Test>)] = &[
    ("git: clone, commit, gc, fsck", tools::git, Some(tools::git_fsck)),
    ("SQLite: four writers on a write-ahead log", databases::sqlite, Some(databases::sqlite_integrity)),
    ("RocksDB: synced writes, reads, checksums", databases::rocksdb, None),
    ("RocksDB: direct I/O and mmap", databases::rocksdb_direct, None),
    ("Redis: killed and started again", databases::redis, None),
    ("tar: pack, unpack, compare", tools::tar, None),
    ("rsync: links, attributes and ACLs", tools::rsync, None),
    ("Rust: build and test a crate", tools::rust, None),
    ("shells: four append to one file", tools::appends, None),
];

fn trials(options: &Options) -> Vec<Trial> {
    let trial = |(title, test, afterwards): &(&'static str, Test, Option<Test>)| {
        let (title, test, afterwards, own) = (*title, *test, *afterwards, options.clone());
        let trial = Trial::new(title, move |report| run(title, test, afterwards, &own, report));
        trial.on_file_systems(options)
    };
    PROGRAMS.iter().map(trial).collect()
}

fn run(
    title: &str,
    test: Test,
    afterwards: Option<Test>,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let mut arena = Arena::new("programs", Shape::spread(Kind::Ext4, Kind::Xfs), options)?;
    let scale = options.scale(1, 2, 10);
    let dir = arena.fresh("program")?;
    let name = arena.name.clone();
    report.case(&format!("{title}, on {name}"), || test(&Place { arena: &arena, dir: &dir, scale }))?;
    if let Some(test) = afterwards {
        arena.remount()?;
        let title = format!("{title}, after a remount of {name}");
        report.case(&title, || test(&Place { arena: &arena, dir: &dir, scale }))?;
    }
    report.case(&format!("fsck after the program on {name}"), || arena.finish())
}
