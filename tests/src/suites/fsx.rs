//! The file-system exerciser fsx: random operations on one file, with every
//! read compared to the expected data.

use crate::arena::{Arena, COMPRESSED, ENCRYPTED, FRAMES, HOME_FIRST, SIZE, Shape};
use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::error::{Context, Result};
use braid_tests_support::lab::Kind;
use braid_tests_support::options::Options;
use braid_tests_support::sh::cmd;
use braid_tests_support::tools::FSX;
use std::path::Path;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "fsx",
    about: "random operations on one file, with mmap, punch and copy_file_range",
    on_request: false,
    on_directories: true,
    turn: Turn::Machine,
    trials,
};

/// Operations on files of up to 4 MiB: with ranges of 64 KiB most files are
/// spread, and truncation makes plain ones again and again.
const LARGE: &str = "flen = 4194304\n[opsize]\nmin = 1\nmax = 262144\n";

/// Operations around the size at which a file is spread.
const SMALL: &str = "flen = 262144\n[opsize]\nmin = 1\nmax = 65536\n";

const WEIGHTS: &str = "\
[weights]
close_open = 1
invalidate = 1
read = 10
write = 10
mapread = 5
mapwrite = 5
truncate = 2
fsync = 0.3
fdatasync = 0.3
posix_fallocate = 2
punch_hole = 3
sendfile = 2
posix_fadvise = 1
copy_file_range = 3
";

const SHAPES: &[Shape] = &[
    Shape::spread(Kind::Ext4, Kind::Xfs).mib(512),
    Shape::spread(Kind::Xfs, Kind::Btrfs).mib(512),
    Shape::spread(Kind::Btrfs, Kind::Ext4).policy(SIZE).mib(512),
    Shape::spread(Kind::Tmpfs, Kind::Ext4).policy(HOME_FIRST).mib(512),
    Shape::spread(Kind::Ext4, Kind::Xfs).mib(512).below(COMPRESSED),
    Shape::spread(Kind::Ext4, Kind::Ext4).mib(512).below(FRAMES[2]),
    Shape::log(ENCRYPTED),
    Shape::spread(Kind::Ext4, Kind::Xfs).mib(512).below(COMPRESSED).in_view(),
];

/// Frames in other orders, log file systems below other modules, and other views: in long runs only.
const MORE: &[Shape] = &[
    Shape::spread(Kind::Xfs, Kind::Ext4).mib(512).below(ENCRYPTED),
    Shape::spread(Kind::Ext4, Kind::Xfs).mib(512).below(FRAMES[3]),
    Shape::spread(Kind::Xfs, Kind::Ext4).mib(512).below(FRAMES[4]),
    Shape::spread(Kind::Ext4, Kind::Ext4).mib(512).below(FRAMES[5]),
    Shape::spread(Kind::Ext4, Kind::Xfs).mib(512).below(FRAMES[6]),
    Shape::log(&[]),
    Shape::log(COMPRESSED),
    Shape::log(FRAMES[2]),
    Shape::spread(Kind::Ext4, Kind::Xfs).mib(512).in_view(),
    Shape::spread(Kind::Xfs, Kind::Btrfs).mib(512).below(ENCRYPTED).in_view(),
];

fn trials(options: &Options) -> Vec<Trial> {
    let shapes = match (options.on.is_some(), options.long) {
        (true, _) => SHAPES[..1].to_vec(),
        (false, false) => SHAPES.to_vec(),
        (false, true) => [SHAPES, MORE].concat(),
    };
    let trial = |(shape, at): (&Shape, u64)| {
        let (shape, own, seed) = (*shape, options.clone(), options.seed + at);
        let trial = Trial::new(&shape.title(options), move |report| run(shape, seed, &own, report));
        trial.on_file_systems(options)
    };
    shapes.iter().zip(1..).map(trial).collect()
}

fn run(shape: Shape, seed: u64, options: &Options, report: &mut Report) -> Result<()> {
    let count = options.scale(3_000, if options.suites.is_empty() { 4_000 } else { 10_000 }, 200_000);
    let arena = Arena::new("fsx", shape, options)?;
    for (sizes, name) in [(LARGE, "4 MiB"), (SMALL, "256 KiB")] {
        let title = format!("fsx {count} operations, up to {name}, seed {seed}, on {}", arena.name);
        report.case(&title, || exercise(&arena, sizes, count, seed))?;
    }
    report.case(&format!("fsck after fsx on {}", arena.name), || arena.finish())
}

fn exercise(arena: &Arena, sizes: &str, count: u64, seed: u64) -> Result<()> {
    let configuration = arena.lab.path().join("fsx.toml");
    std::fs::write(&configuration, format!("{sizes}{WEIGHTS}")).at(&configuration)?;
    let file = arena.dir.join("fsx");
    let program = FSX.path()?;
    cmd(program)
        .arg("-f")
        .arg(&configuration)
        .args(["-N", &count.to_string(), "-S", &seed.to_string(), "-P"])
        .arg(arena.lab.path())
        .arg(&file)
        .quiet()?;
    remove(&file)
}

fn remove(file: &Path) -> Result<()> {
    std::fs::remove_file(file).at(file)
}
