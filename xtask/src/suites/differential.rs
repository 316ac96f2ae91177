//! The same random operations on a Braid volume and on a native directory must
//! agree in results, contents and attributes.

use super::arena::{Arena, HOME_FIRST, RANGES, SIZE, Shape};
use super::{Report, Suite};
use crate::error::Result;
use crate::lab::Kind;
use crate::paths;
use crate::sh::cmd;
use crate::test::Options;
use std::path::Path;

/// Named in the list of suites.
pub(super) const SUITE: Suite =
    Suite { name: "differential", about: "random operations agree with a native directory", run };

const SHAPES: &[Shape] = &[
    Shape::spread(Kind::Ext4, Kind::Xfs).mib(1024),
    Shape::spread(Kind::Ext4, Kind::Tmpfs).policy(SIZE).mib(1024),
    Shape::spread(Kind::Ext4, Kind::Btrfs).policy(HOME_FIRST).mib(1024),
    Shape::spread(Kind::Ext4, Kind::Btrfs).policy(RANGES).mib(1024),
];

fn run(options: &Options, report: &mut Report) -> Result<()> {
    // As a part of all tests: what they are made of is built once.
    let build = ["test", "--quiet", "--workspace", "--no-run", "--locked", "--test", "differential"];
    cmd("cargo").args(build).dir(&paths::root()).run()?;
    let count = options.scale(5_000, 40_000, 1_000_000);
    let shapes = if options.on.is_some() { &SHAPES[..1] } else { SHAPES };
    for (shape, at) in shapes.iter().zip(1..) {
        let mut arena = Arena::new("differential", *shape, options)?;
        let reference = arena.lab.file_system("reference", Kind::Ext4, 1024)?;
        for (threads, count) in [(1, count), (4, count / 4)] {
            let seed = options.seed + at;
            let title = format!("{count} operations, {threads} threads, seed {seed}, on {}", arena.name);
            report.case(&title, || {
                compare(&arena, &reference, &[("ops", count), ("threads", threads), ("seed", seed)])
            })?;
        }
        report.case(&format!("fsck after the operations on {}", arena.name), || arena.finish())?;
    }
    Ok(())
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
