//! fio writes blocks with checksums by several engines and reads them back, at
//! once and after a remount.

use crate::arena::{ADAPTIVE, Arena, Shape, expect_spread};
use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use braid_tests_support::error::Result;
use braid_tests_support::lab::Kind;
use braid_tests_support::options::Options;
use braid_tests_support::sh::cmd;

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "fio-verify",
    about: "checksummed blocks by psync, libaio (direct) and mmap",
    on_request: false,
    on_directories: true,
    turn: Turn::Machine,
    trials,
};

/// A name, with the options besides those that all jobs share.
const JOBS: &[(&str, &[&str])] = &[
    ("psync-sequential", &["--ioengine=psync", "--rw=write", "--bs=1M"]),
    ("psync-random", &["--ioengine=psync", "--rw=randwrite", "--bs=4k"]),
    ("psync-unaligned", &["--ioengine=psync", "--rw=randwrite", "--bsrange=512-100k", "--bs_unaligned"]),
    ("psync-fsync", &["--ioengine=psync", "--rw=randwrite", "--bs=16k", "--fsync=16", "--io_size=16m"]),
    ("libaio-sequential", &["--ioengine=libaio", "--direct=1", "--iodepth=16", "--rw=write", "--bs=1M"]),
    ("libaio-random", &["--ioengine=libaio", "--direct=1", "--iodepth=32", "--rw=randwrite", "--bs=4k"]),
    ("libaio-odd", &["--ioengine=libaio", "--direct=1", "--iodepth=8", "--rw=randwrite", "--bs=36k"]),
    ("mmap-sequential", &["--ioengine=mmap", "--rw=write", "--bs=64k"]),
    ("mmap-random", &["--ioengine=mmap", "--rw=randwrite", "--bs=4k"]),
    ("psync-four-jobs", &["--ioengine=psync", "--rw=randwrite", "--bs=8k", "--numjobs=4"]),
    (
        "libaio-four-jobs",
        &["--ioengine=libaio", "--direct=1", "--iodepth=8", "--rw=randwrite", "--bs=64k", "--numjobs=4"],
    ),
];

const SHAPES: &[Shape] =
    &[Shape::spread(Kind::Ext4, Kind::Xfs), Shape::spread(Kind::Xfs, Kind::Ext4).policy(ADAPTIVE)];

fn trials(options: &Options) -> Vec<Trial> {
    let shapes = if options.on.is_some() || options.quick { &SHAPES[..1] } else { SHAPES };
    let trial = |shape: &Shape| {
        let (shape, own) = (*shape, options.clone());
        Trial::new(&shape.title(options), move |report| run(shape, &own, report)).on_file_systems(options)
    };
    shapes.iter().map(trial).collect()
}

fn run(shape: Shape, options: &Options, report: &mut Report) -> Result<()> {
    let mut arena = Arena::new("fio", shape, options)?;
    for (name, extra) in JOBS {
        let title = format!("{name} written and verified on {}", arena.name);
        report.case(&title, || fio(&arena, name, extra, options, &["--do_verify=1"]))?;
    }
    let spread = arena.dir.join("psync-sequential.0.0");
    report.case(&format!("files are spread on {}", arena.name), || expect_spread(&arena, &spread))?;
    arena.remount()?;
    for (name, extra) in JOBS {
        let title = format!("{name} verified after a remount on {}", arena.name);
        report.case(&title, || fio(&arena, name, extra, options, &["--verify_only"]))?;
    }
    report.case(&format!("fsck after fio on {}", arena.name), || arena.finish())
}

fn fio(arena: &Arena, name: &str, extra: &[&str], options: &Options, mode: &[&str]) -> Result<()> {
    let size = options.scale(8, 32, 256);
    cmd("fio")
        .arg(format!("--name={name}"))
        .arg(format!("--directory={}", arena.dir.display()))
        .arg(format!("--size={size}m"))
        .args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--end_fsync=1"])
        .args(["--randseed=7", "--minimal"])
        .args(mode)
        .args(extra)
        .dir(arena.lab.path())
        .quiet()
}
