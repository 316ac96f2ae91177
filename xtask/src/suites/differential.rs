//! The same random operations on a Braid volume and on a native directory must
//! agree in results, contents and attributes.

use super::arena::{Arena, HOME_FIRST, SIZE, Shape};
use super::{Report, Suite};
use crate::error::Result;
use crate::lab::Kind;
use crate::paths;
use crate::sh::cmd;
use crate::test::Options;

/// Named in the list of suites.
pub(super) const SUITE: Suite =
    Suite { name: "differential", about: "random operations agree with a native directory", run };

const SHAPES: &[Shape] = &[
    Shape::spread(Kind::Ext4, Kind::Xfs).mib(1024),
    Shape::spread(Kind::Ext4, Kind::Tmpfs).policy(SIZE).mib(1024),
    Shape::spread(Kind::Ext4, Kind::Btrfs).policy(HOME_FIRST).mib(1024),
];

fn run(options: &Options, report: &mut Report) -> Result<()> {
    let build = ["build", "--quiet", "--release", "-p", "braid-testkit", "--bin", "differential"];
    cmd("cargo").args(build).dir(&paths::root()).run()?;
    let count = options.scale(5_000, 40_000, 1_000_000);
    let shapes = if options.on.is_some() { &SHAPES[..1] } else { SHAPES };
    for (shape, at) in shapes.iter().zip(1..) {
        let mut arena = Arena::new("differential", *shape, options)?;
        let seed = options.seed + at;
        let title = format!("{count} operations, seed {seed}, on {}", arena.name);
        report.case(&title, || compare(&mut arena, count, seed))?;
        report.case(&format!("fsck after the operations on {}", arena.name), || arena.finish())?;
    }
    Ok(())
}

fn compare(arena: &mut Arena, count: u64, seed: u64) -> Result<()> {
    let reference = arena.lab.file_system("reference", Kind::Ext4, 1024)?;
    cmd(paths::target().join("release/differential"))
        .arg("--mount")
        .arg(arena.fresh("differential")?)
        .arg("--reference")
        .arg(&reference)
        .args(["--ops", &count.to_string(), "--seed", &seed.to_string()])
        .quiet()
}
