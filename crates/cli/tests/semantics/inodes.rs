//! How many inodes the kernel remembers, and the daemon with it. Needs root,
//! /dev/fuse and a kernel that can be asked to forget; skipped without them.

use crate::common::{Bench, RANGE, pattern, stack, until};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

const DIRS: usize = 40;
const FILES: usize = 50;
const BOUND: u64 = 1_000;

/// A kernel from 6.18 on.
fn kernel_forgets() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let forgets = (parts.next().unwrap(), parts.next().unwrap()) >= (6, 18);
    if !forgets {
        braid_testkit::skipped("a kernel that can be asked to forget inodes (6.18)");
    }
    forgets
}

fn path(bench: &Bench, number: usize) -> PathBuf {
    bench.path("m").join(format!("{}/{number}", number % DIRS))
}

fn known(bench: &Bench) -> u64 {
    bench.status()["known_inodes"].as_u64().unwrap()
}

/// The contents of a file; each fortieth is spread.
fn data(number: usize) -> Vec<u8> {
    pattern(number as u64, if number.is_multiple_of(40) { 3 * RANGE } else { 100 })
}

#[test]
fn the_oldest_inodes_are_forgotten_and_nothing_of_their_files() {
    let Some(bench) = Bench::new().filter(|_| kernel_forgets()) else { return };
    bench.ok(&["mount", "s.yaml", "m", "--inodes", "1000"]);
    for dir in 0..DIRS {
        fs::create_dir(bench.path("m").join(dir.to_string())).unwrap();
    }
    fs::write(bench.path("m/in-use"), "before").unwrap();
    let in_use = File::options().read(true).write(true).open(bench.path("m/in-use")).unwrap();
    let ino = in_use.metadata().unwrap().ino();
    for number in 0..DIRS * FILES {
        // The kernel has the data still.
        fs::write(path(&bench, number), data(number)).unwrap();
    }
    until("inodes are forgotten", || known(&bench) <= BOUND);
    in_use.write_all_at(b"after!", 0).unwrap();
    assert_eq!(fs::read_to_string(bench.path("m/in-use")).unwrap(), "after!");
    assert_eq!(fs::metadata(bench.path("m/in-use")).unwrap().ino(), ino);
    for number in 0..DIRS * FILES {
        assert!(fs::read(path(&bench, number)).unwrap() == data(number), "{number}");
    }
    until("they are forgotten again", || known(&bench) <= BOUND);
    drop(in_use);
    bench.unmount_clean();
}

#[test]
fn inodes_in_use_may_be_more() {
    let Some(bench) = Bench::new().filter(|_| kernel_forgets()) else { return };
    bench.write_stack(&format!("{}mount: {{ inodes: 1000 }}\n", stack(&bench)));
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(bench.ok(&["stack", "dump", "m"]).contains("inodes: 1000"));
    let create = |number: usize| {
        let path = bench.path("m").join(number.to_string());
        File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap()
    };
    let files: Vec<File> = (0..1_500).map(create).collect();
    let count = files.len() as u64;
    for (number, file) in files.iter().enumerate() {
        file.write_all_at(&data(number), 0).unwrap();
    }
    assert!(known(&bench) >= count);
    for (number, file) in files.iter().enumerate() {
        let mut read = data(number);
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == data(number), "{number}");
    }
    drop(files);
    until("closed files are forgotten", || known(&bench) <= BOUND);
    bench.unmount_clean();
}
