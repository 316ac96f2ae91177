//! Real programs on a volume that spreads early.

mod databases;
mod tools;

use super::arena::{Arena, Shape};
use super::{Report, Suite};
use crate::error::Result;
use crate::lab::Kind;
use crate::test::Options;
use std::path::Path;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "programs",
    about: "git, SQLite, RocksDB, Redis, tar, rsync, a Rust build, appending shells",
    run,
};

/// A program's name and its test in an empty directory of the volume.
type Case = (&'static str, fn(&Place<'_>) -> Result<()>);

const CASES: &[Case] = &[
    ("git: clone, commit, gc, fsck", tools::git),
    ("SQLite: four writers on a write-ahead log", databases::sqlite),
    ("RocksDB: synced writes, reads, checksums", databases::rocksdb),
    ("RocksDB: direct I/O and mmap", databases::rocksdb_direct),
    ("Redis: killed and started again", databases::redis),
    ("tar: pack, unpack, compare", tools::tar),
    ("rsync: links, attributes and ACLs", tools::rsync),
    ("Rust: build and test a crate", tools::rust),
    ("shells: four append to one file", tools::appends),
];

/// What must hold after a remount.
const AFTERWARDS: &[Case] =
    &[("git: fsck", tools::git_fsck), ("SQLite: integrity", databases::sqlite_integrity)];

/// Where a program works.
struct Place<'a> {
    arena: &'a Arena,
    dir: &'a Path,
    scale: u64,
}

fn run(options: &Options, report: &mut Report) -> Result<()> {
    let mut arena = Arena::new("programs", Shape::spread(Kind::Ext4, Kind::Xfs), options)?;
    let scale = options.scale(1, 2, 10);
    for (name, test) in CASES {
        let dir = arena.fresh(word(name))?;
        report.case(&format!("{name}, on {}", arena.name), || {
            test(&Place { arena: &arena, dir: &dir, scale })
        })?;
    }
    arena.remount()?;
    for (name, test) in AFTERWARDS {
        let dir = arena.dir.join(word(name));
        report
            .case(&format!("{name} after a remount"), || test(&Place { arena: &arena, dir: &dir, scale }))?;
    }
    report.case(&format!("fsck after the programs on {}", arena.name), || arena.finish())
}

fn word(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}
