//! Log file systems as tiers of a volume, through the `braid` command. Needs root and
//! /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, pattern};
use crate::in_zones::{RANGES, read, survives_a_mount_and_a_kill, write};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// A home for names, and all data on a log file system in the file `l`.
fn bench() -> Option<Bench> {
    let bench = Bench::bare(&["a", "m", "k"])?;
    bench.ok(&["log", "create", "l", "--size", "64MiB"]);
    bench.write_stack(
        "\
stack:
  volume:
    home: fast
    policy: { size: { small: 0, sync: 0, large: log } }
    range: 64KiB
    tiers:
      fast: { dir: a }
      log: { dir: l }
",
    );
    let said = bench.ok(&["stack", "check", "s.yaml"]);
    assert!(said.contains("volume of 2 tiers; no problems"), "{said}");
    bench.ok(&["mount", "s.yaml", "m"]);
    Some(bench)
}

#[test]
fn data_on_a_log_is_there_after_another_mount_and_after_a_kill() {
    let Some(bench) = bench() else { return };
    survives_a_mount_and_a_kill(&bench, "log");
    let said = bench.ok(&["log", "check", "l"]);
    assert!(said.starts_with("l: sound"), "{said}");
}

#[test]
fn what_is_written_over_stays_and_holes_are_kept() {
    let Some(bench) = bench() else { return };
    let mut data = write(&bench, "file", 1);
    let file = File::options().write(true).open(bench.path("m/file")).unwrap();
    file.write_all_at(b"over", (2 * RANGE + 100) as u64).unwrap();
    file.set_len((RANGES * RANGE - 5000) as u64).unwrap();
    file.sync_all().unwrap();
    let hole = (3 * RANGE + 10, 2 * RANGE);
    let mode = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, mode, hole.0 as u64, hole.1 as u64).unwrap();
    drop(file);
    data[2 * RANGE + 100..][..4].copy_from_slice(b"over");
    data[hole.0..][..hole.1].fill(0);
    data.truncate(RANGES * RANGE - 5000);
    assert!(read(&bench, "file") == data);
    assert!(bench.on("m/file", "log") >= RANGES as u64 - 1, "{:?}", bench.runs("m/file"));
    bench.unmount_clean();
}

#[test]
fn space_is_given_back_and_a_log_joins_and_leaves() {
    let Some(bench) = bench() else { return };
    // Several times the capacity of the log.
    for round in 0..100 {
        let data = write(&bench, &format!("f{}", round % 8), round);
        assert!(read(&bench, &format!("f{}", round % 8)) == data, "{round}");
    }
    let big = pattern(5, 30 << 20);
    for _ in 0..5 {
        fs::write(bench.path("m/big"), &big).unwrap();
        File::open(bench.path("m/big")).unwrap().sync_all().unwrap();
        fs::remove_file(bench.path("m/big")).unwrap();
        bench.ok(&["sync", "m"]);
    }
    let kept: Vec<Vec<u8>> = (0..8).map(|number| read(&bench, &format!("f{number}"))).collect();
    bench.ok(&["log", "create", "other", "--size", "32MiB"]);
    crate::common::until("removed files are gone", || bench.tier("log")["free"].as_u64() > Some(50 << 20));
    bench.ok(&["tier", "add", "other=other,weight=1", "m"]);
    let other = bench.path("s.yaml");
    fs::write(&other, crate::common::stack(&bench).replace("large: log", "large: other")).unwrap();
    bench.ok(&["reload", "m"]);
    bench.ok(&["tier", "remove", "log", "m"]);
    assert!((0..8).all(|number| read(&bench, &format!("f{number}")) == kept[number]));
    // It is free, and holds nothing of the volume.
    crate::common::until("the log is free", || bench.braid(&["log", "check", "l"]).status.success());
    bench.ok(&["log", "mount", "--log-file", "log2", "l", "k"]);
    assert_eq!(fs::read_dir(bench.path("k")).unwrap().count(), 0);
    bench.ok(&["umount", "k"]);
    bench.unmount_clean();
}

#[test]
fn what_can_be_no_tier_is_refused() {
    let Some(bench) = bench() else { return };
    let said = bench.refused(&["log", "mount", "l", "k"]);
    assert!(said.contains("l: it is in use"), "{said}");
    let said = bench.refused(&["log", "check", "l"]);
    assert!(said.contains("l: it is in use"), "{said}");
    bench.ok(&["log", "create", "other", "--size", "32MiB"]);
    bench.ok(&["log", "mount", "--log-file", "log2", "other", "k"]);
    let said = bench.refused(&["tier", "add", "other=other", "m"]);
    assert!(said.contains("in use") && said.contains("help:"), "{said}");
    bench.ok(&["umount", "k"]);
    bench.ok(&["umount", "m"]);
    for (text, found) in [
        (
            "stack: { volume: { home: l, tiers: { l: { dir: l } } } }",
            "the home tier can't be a log file system",
        ),
        (
            "stack: { volume: { home: a, tiers: { a: { dir: a }, l: { dir: l, zoned: { gc: 0 } } } } }",
            "is a log file system, and has no zones",
        ),
        (
            "stack: { volume: { home: a, tiers: { a: { dir: a }, l: { dir: s.yaml } } } }",
            "is not a directory",
        ),
    ] {
        fs::write(bench.path("bad.yaml"), text).unwrap();
        let said = bench.refused(&["stack", "check", "bad.yaml"]);
        assert!(said.contains(found) && said.contains("help:"), "{text}: {said}");
    }
    // Damage is refused, and left as it is.
    let file = File::options().write(true).open(bench.path("l")).unwrap();
    for at in [60, (64 << 20) - 4096 + 60] {
        file.write_all_at(&[0xff; 8], at).unwrap();
    }
    let said = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(said.contains("braid log check") || said.contains("--without log"), "{said}");
}
