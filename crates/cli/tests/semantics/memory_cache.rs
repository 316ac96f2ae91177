//! The cache in memory of tiers' data: the reads that it answers, the changes that it follows, and
//! its settings while the volume is mounted. Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, pattern};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const MIB: usize = 1 << 20;

/// A volume of which all data is on `slow`, and no read is answered by the kernel.
fn stack(bench: &Bench, cache: &str) {
    bench.write_stack(&format!(
        "stack: {{ volume: {{ home: fast, range: 64KiB, rules: [ {{ when: 'size >= 0', tier: slow }} ],\n  {cache}\n  \
         tiers: {{ fast: {{ dir: a }}, slow: {{ dir: b }} }} }} }}\nmount: {{ cache: direct }}\n"
    ));
}

fn figure(bench: &Bench, name: &str) -> u64 {
    let status = bench.json(&["status", "m", "--json"]);
    let modules = status["modules"].as_array().unwrap();
    let figures = modules.iter().filter(|module| module["module"] == "cache");
    let mut figures = figures.flat_map(|module| module["figures"].as_array().unwrap());
    let found = figures.find(|figure| figure["name"] == name && figure["labels"]["tier"] == "slow");
    let value = |figure: &Value| figure["counter"].as_f64().or(figure["gauge"].as_f64());
    found.and_then(value).map_or(0, |value| value as u64)
}

#[test]
fn what_is_read_again_comes_from_memory_and_is_what_was_written() {
    let Some(bench) = Bench::bare(&["a", "b", "m"]) else { return };
    stack(&bench, "cache: { memory: 8MiB, tiers: { slow: 100% } },");
    bench.ok(&["mount", "s.yaml", "m"]);
    let file = bench.path("m/f");
    let mut data = pattern(3, MIB);
    fs::write(&file, &data).unwrap();
    assert!(fs::read(&file).unwrap() == data);
    let (hits, misses) = (figure(&bench, "cache_hits"), figure(&bench, "cache_misses"));
    assert!(misses >= 16, "{misses}");
    assert!(fs::read(&file).unwrap() == data);
    assert!(figure(&bench, "cache_hits") >= hits + 16);
    assert_eq!(figure(&bench, "cache_misses"), misses);
    assert!(bench.ok(&["status", "m"]).contains(" cache, slow: cache hits "), "status shows it");

    // Reads see every change of the file.
    let open = OpenOptions::new().read(true).write(true).open(&file).unwrap();
    open.write_all_at(b"changed", 100_000).unwrap();
    data[100_000..100_007].copy_from_slice(b"changed");
    assert!(fs::read(&file).unwrap() == data);
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&open, punch, 200_000, 50_000).unwrap();
    data[200_000..250_000].fill(0);
    assert!(fs::read(&file).unwrap() == data);
    open.set_len(70_000).unwrap();
    open.set_len(300_000).unwrap();
    data.truncate(70_000);
    data.resize(300_000, 0);
    assert!(fs::read(&file).unwrap() == data);
    fs::rename(&file, bench.path("m/g")).unwrap();
    fs::write(&file, b"another").unwrap();
    assert!(fs::read(bench.path("m/g")).unwrap() == data && fs::read(&file).unwrap() == b"another");

    // Direct reads come from the tier; and faults of a drill are met before the cache.
    let before = (figure(&bench, "cache_hits"), figure(&bench, "cache_misses"));
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let direct = File::options().read(true).custom_flags(direct).open(bench.path("m/g")).unwrap();
    let mut buf = vec![0; 8192];
    let at = buf.as_ptr().align_offset(4096);
    direct.read_exact_at(&mut buf[at..at + 4096], 4096).unwrap();
    assert!(buf[at..at + 4096] == data[4096..8192]);
    assert_eq!((figure(&bench, "cache_hits"), figure(&bench, "cache_misses")), before);
    bench.ok(&["drill", "slow", "read:EIO", "./m"]);
    assert!(fs::read(bench.path("m/g")).is_err());
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    drop((open, direct));
    bench.unmount_clean();
}

#[test]
fn it_comes_and_goes_with_the_stack_file() {
    let Some(bench) = Bench::bare(&["a", "b", "m"]) else { return };
    stack(&bench, "");
    bench.ok(&["mount", "s.yaml", "m"]);
    let data = pattern(1, MIB);
    fs::write(bench.path("m/f"), &data).unwrap();
    let read = || assert!(fs::read(bench.path("m/f")).unwrap() == data);
    read();
    assert!(!bench.ok(&["status", "m"]).contains(" cache, slow"));
    stack(&bench, "cache: { memory: 256KiB, tiers: { slow: 100% } },");
    assert_eq!(bench.ok(&["reload", "m", "--dry-run"]), "cache: on\n");
    assert_eq!(bench.ok(&["reload", "m"]), "cache: on\n");
    read();
    read();
    let bytes = figure(&bench, "cache_bytes");
    assert!(bytes > 0 && bytes <= 256 << 10, "{bytes}");
    assert!(figure(&bench, "cache_evictions") > 0);
    assert!(bench.ok(&["stack", "dump", "m"]).contains("memory: 256KiB"));
    stack(&bench, "cache: { memory: 256KiB, tiers: { slow: 'off' } },");
    assert_eq!(bench.ok(&["reload", "m"]), "cache: other settings\n");
    assert_eq!((figure(&bench, "cache_bytes"), figure(&bench, "cache_passes")), (0, 1));
    read();
    stack(&bench, "cache: { memory: 256KiB, range: 16KiB },");
    let refused = bench.refused(&["reload", "m"]);
    assert!(
        refused.contains("s.yaml:2: stack.volume.cache.range: the cache has ranges of 64KiB"),
        "{refused}"
    );
    stack(&bench, "cache: { tiers: { fast: auto } },");
    let refused = bench.refused(&["reload", "m"]);
    assert!(refused.contains("the home tier has no part of the cache"), "{refused}");
    stack(&bench, "");
    assert_eq!(bench.ok(&["reload", "m"]), "cache: off\n");
    read();
    bench.unmount_clean();
}
