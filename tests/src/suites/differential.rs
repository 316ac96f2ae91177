//! The same random operations on a Braid volume and on a native directory must
//! agree in results, contents and attributes.

use crate::arena::{Arena, HOME_FIRST, RANGES, SIZE, Shape};
use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::error::Result;
use braid_tests_support::lab::Kind;
use braid_tests_support::options::Options;
use braid_tests_support::paths;
use braid_tests_support::sh::cmd;
use std::path::Path;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "differential",
    about: "random operations agree with a native directory",
    on_request: false,
    on_directories: true,
    turn: Turn::Machine,
    trials,
};

const SHAPES: &[Shape] = &[
    Shape::spread(Kind::Ext4, Kind::Xfs).mib(1024),
    Shape::spread(Kind::Ext4, Kind::Tmpfs).policy(SIZE).mib(1024),
    Shape::spread(Kind::Ext4, Kind::Btrfs).policy(HOME_FIRST).mib(1024),
    Shape::spread(Kind::Ext4, Kind::Btrfs).policy(RANGES).mib(1024),
];

fn trials(options: &Options) -> Vec<Trial> {
    let shapes = if options.on.is_some() { &SHAPES[..1] } else { SHAPES };
    // The native directory is on a file system of its own, too.
    let rights = Options { on: None, ..options.clone() };
    let trial = |(shape, at): (&Shape, u64)| {
        let (shape, own, seed) = (*shape, options.clone(), options.seed + at);
        let trial = Trial::new(&shape.title(options), move |report| run(shape, seed, &own, report));
        trial.on_file_systems(&rights)
    };
    shapes.iter().zip(1..).map(trial).collect()
}

fn run(shape: Shape, seed: u64, options: &Options, report: &mut Report) -> Result<()> {
    // As part of all tests, so that shared crates are built once.
    let build = ["test", "--quiet", "--workspace", "--no-run", "--locked", "--test", "differential"];
    cmd("cargo").args(build).dir(&paths::root()).run()?;
    let count = options.scale(5_000, 40_000, 1_000_000);
    let mut arena = Arena::new("differential", shape, options)?;
    let reference = arena.lab.file_system("reference", Kind::Ext4, 1024)?;
    for (threads, count) in [(1, count), (4, count / 4)] {
        let title = format!("{count} operations, {threads} threads, seed {seed}, on {}", arena.name);
        report.case(&title, || {
            compare(&arena, &reference, &[("ops", count), ("threads", threads), ("seed", seed)])
        })?;
    }
    report.case(&format!("fsck after the operations on {}", arena.name), || arena.finish())
}

/// A sequence that differs is kept below `target`, to be replayed.
fn compare(arena: &Arena, reference: &Path, numbers: &[(&str, u64)]) -> Result<()> {
    let mut differential = cmd(paths::built("differential"))
        .arg("--mount")
        .arg(arena.fresh("differential")?)
        .arg("--reference")
        .arg(reference)
        .arg("--save")
        .arg(paths::target().join("differential-failure.json"));
    for (name, number) in numbers {
        differential = differential.arg(format!("--{name}={number}"));
    }
    differential.quiet()
}
