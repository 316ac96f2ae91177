//! Attributes of a spread file, as `stat` shows them. Needs root and /dev/fuse;
//! skipped without them.

use crate::common::{Bench, RANGE, drop_caches, pattern, read_anew, write_back, write_ranges};
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// The volume's answer, by a request of its own.
fn asked_anew(path: &Path) -> Statx {
    statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).unwrap()
}

fn blocks(path: &Path) -> u64 {
    asked_anew(path).stx_blocks
}

/// Blocks of these home files and of all objects.
fn taken(bench: &Bench, names: &[&str]) -> u64 {
    let of = |path: &Path| fs::metadata(path).unwrap().blocks();
    let home: u64 = names.iter().map(|name| of(&bench.path("a").join(name))).sum();
    let shards = fs::read_dir(bench.path("b/.braid/data")).unwrap();
    let objects = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    home + objects.map(|object| of(&object.unwrap().path())).sum::<u64>()
}

/// How often the tier `slow` was asked for an object, since it was armed to
/// fail that.
fn asked(bench: &Bench) -> u64 {
    let armed = bench.json(&["drill", "slow", "--json", "./m"]);
    armed["tiers"][0]["faults"][0]["hits"].as_u64().unwrap()
}

#[test]
fn a_second_stat_asks_no_tier() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let files = ["f", "g"].map(|name| bench.path("m").join(name));
    for file in &files {
        write_ranges(file, &pattern(1, 8 * RANGE));
        // With a hole, the tiers' blocks can't be guessed.
        File::options().write(true).open(file).unwrap().set_len(100 * RANGE as u64).unwrap();
    }
    let known = files.each_ref().map(|file| blocks(file));
    let all = |known: &[u64]| assert_eq!(known.iter().sum::<u64>(), taken(&bench, &["f", "g"]));
    all(&known);
    assert!(known.iter().all(|blocks| (1..9).contains(&(blocks * 512 / RANGE as u64))), "{known:?}");
    bench.ok(&["drill", "slow", "stat:EIO", "./m"]);
    for _ in 0..3 {
        assert_eq!(files.each_ref().map(|file| blocks(file)), known);
        let mut list = Command::new("ls");
        assert!(list.args(["-ls", "--time=atime"]).arg(bench.path("m")).status().unwrap().success());
        for file in &files {
            assert!(read_anew(file)[..8 * RANGE] == pattern(1, 8 * RANGE));
        }
    }
    assert_eq!(asked(&bench), 0);
    // After a change the tiers are asked.
    let file = File::options().write(true).open(&files[0]).unwrap();
    write_back(&file, &pattern(2, RANGE), 9 * RANGE as u64);
    blocks(&files[0]);
    assert!(asked(&bench) > 0);
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    let more = files.each_ref().map(|file| blocks(file));
    assert!(more[0] > known[0]);
    all(&more);
    drop(file);
    bench.unmount_clean();
}

#[test]
fn the_access_time_is_that_of_the_tier_that_was_read_last() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "--options", "relatime", "s.yaml", "m"]);
    let files = ["spread", "whole"].map(|name| bench.path("m").join(name));
    write_ranges(&files[0], &pattern(1, 8 * RANGE));
    write_ranges(&files[1], &pattern(2, 1000));
    for file in &files {
        bench.ok(&["move", file.to_str().unwrap(), "--to", "slow"]);
    }
    for options in ["relatime", "strictatime"] {
        bench.ok(&["umount", "m"]);
        bench.ok(&["mount", "--options", options, "s.yaml", "m"]);
        for file in &files {
            let touched = Command::new("touch").args(["-a", "-d", "2020-01-02"]).arg(file).status().unwrap();
            assert!(touched.success());
            // The kernel has its own change time, up to a tick earlier, until it
            // forgets the file.
            drop_caches();
            let before = asked_anew(file);
            drop_caches();
            fs::read(file).unwrap();
            let after = asked_anew(file);
            assert!(after.stx_atime.tv_sec > before.stx_atime.tv_sec, "{options}, {}", file.display());
            let of = |stat: &Statx| (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec, stat.stx_mtime.tv_sec);
            assert_eq!(of(&before), of(&after), "reading changed more");
            // Home is not read in the tier's place.
            let home = asked_anew(&bench.path("a").join(file.file_name().unwrap()));
            assert_eq!(home.stx_atime.tv_sec, before.stx_atime.tv_sec);
        }
    }
    let times = || {
        files
            .each_ref()
            .map(|file| asked_anew(file))
            .map(|stat| (stat.stx_atime.tv_sec, stat.stx_atime.tv_nsec))
    };
    let known = times();
    bench.kill();
    bench.ok(&["mount", "--options", "noatime", "s.yaml", "m"]);
    assert_eq!(times(), known, "the daemon was killed");
    for file in &files {
        read_anew(file);
        let name = file.to_str().unwrap();
        bench.ok(&["move", name, "--to", "fast"]);
        bench.ok(&["move", name, "--to", "slow"]);
    }
    assert_eq!(times(), known, "moved, and read without access times");
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(times(), known);
    bench.unmount_clean();
}
