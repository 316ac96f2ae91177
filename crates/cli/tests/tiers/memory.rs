//! Tiers in memory through the `braid` command: data that an unmount moves
//! away, and data lost with a killed daemon. Needs root and /dev/fuse; skipped
//! without them.

use crate::common::{Bench, RANGE, pattern, read_anew, stack, write_ranges};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const RANGES: usize = 8;
const EIO: i32 = 5;

/// A home, another tier, and one in memory for scratch files only.
fn bench(size: &str) -> Option<Bench> {
    let bench = Bench::bare(&["a", "b", "m"])?;
    bench.write_stack(&format!(
        "\
stack:
  volume:
    home: fast
    policy: {{ size: {{ small: 0, sync: 0, large: slow }} }}
    range: 64KiB
    rules:
      - {{ when: 'path.matches(\"scratch/**\")', tier: ram }}
    tiers:
      fast: {{ dir: a }}
      slow: {{ dir: b }}
      ram: {{ memory: {{ size: {size} }} }}
"
    ));
    Some(bench)
}

fn write(bench: &Bench, name: &str, seed: u64) -> Vec<u8> {
    let (path, data) = (bench.path("m").join(name), pattern(seed, RANGES * RANGE));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_ranges(&path, &data);
    data
}

fn read(bench: &Bench, name: &str) -> Vec<u8> {
    read_anew(&bench.path("m").join(name))
}

#[test]
fn an_unmount_moves_what_is_in_memory_to_the_other_tiers() {
    let Some(bench) = bench("16MiB") else { return };
    let before = stack(&bench);
    // More often than there are tier numbers.
    for seed in 0..3 {
        bench.ok(&["mount", "s.yaml", "m"]);
        let ram = bench.tier("ram");
        assert_eq!(
            (&ram["state"], &ram["durable"], &ram["ranges"]),
            (&"online".into(), &false.into(), &0.into())
        );
        assert_eq!(ram["total"], 16 << 20);
        let data = write(&bench, "scratch/file", seed);
        let kept = write(&bench, "kept", seed + 10);
        assert!(bench.on("m/scratch/file", "ram") >= RANGES as u64 - 1, "{:?}", bench.runs("m/scratch/file"));
        assert_eq!(bench.on("m/kept", "ram"), 0);
        assert!(bench.ok(&["explain", "m/scratch/file"]).contains("volatile"));
        assert!(bench.ok(&["fsck", "m"]).ends_with("no problems\n"));
        bench.unmount_clean();
        assert_eq!(stack(&bench), before, "the tier comes again with the next mount");
        bench.ok(&["mount", "s.yaml", "m"]);
        assert!(read(&bench, "scratch/file") == data);
        assert!(read(&bench, "kept") == kept);
        assert_eq!(bench.on("m/scratch/file", "ram"), 0);
        bench.unmount_clean();
    }
}

#[test]
fn what_a_killed_daemon_takes_with_it_answers_eio_and_never_zeros() {
    let Some(bench) = bench("16MiB") else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let kept = write(&bench, "kept", 1);
    write(&bench, "scratch/file", 2);
    File::open(bench.path("m/scratch/file")).unwrap().sync_all().unwrap();
    File::open(bench.path("m/kept")).unwrap().sync_all().unwrap();
    bench.ok(&["sync", "m"]);
    bench.kill();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(read(&bench, "kept") == kept);
    let file = File::options().read(true).write(true).open(bench.path("m/scratch/file")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (RANGES * RANGE) as u64);
    let mut buf = [0; 4096];
    let lost = file.read_exact_at(&mut buf, (RANGES - 1) as u64 * RANGE as u64).unwrap_err();
    assert_eq!(lost.raw_os_error(), Some(EIO));
    drop(file);
    // The new tier is used, and lost data can be written again.
    fs::remove_file(bench.path("m/scratch/file")).unwrap();
    let data = write(&bench, "scratch/file", 3);
    assert!(bench.on("m/scratch/file", "ram") > 0);
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(read(&bench, "scratch/file") == data);
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_full_memory_leaves_the_rest_to_other_tiers() {
    let Some(bench) = bench("256KiB") else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let data = write(&bench, "scratch/file", 1);
    assert!(read(&bench, "scratch/file") == data);
    let in_memory = bench.on("m/scratch/file", "ram");
    assert!((1..=4).contains(&in_memory), "{in_memory} of {RANGES} ranges");
    bench.unmount_clean();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let Some(bench) = bench("16MiB") else { return };
    let good = stack(&bench);
    for (from, to, said) in [
        ("home: fast", "home: ram", "the home tier can't be in memory"),
        ("size: 16MiB", "size: 0", "there is nothing in a memory of this size"),
        ("{ size: 16MiB }", "{ }", "the key 'size' is missing"),
        ("memory:", "dir: c, memory:", "ram.dir: unknown key"),
        ("tier: ram", "tier: rom", "there is no tier 'rom'"),
    ] {
        bench.write_stack(&good.replace(from, to));
        let error = bench.refused(&["mount", "s.yaml", "m"]);
        assert!(error.contains(said), "{to}: {error}");
    }
    bench.write_stack(&good);
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.write_stack(&good.replace("16MiB", "32MiB"));
    let error = bench.refused(&["reload", "m"]);
    assert!(error.contains("the tiers in memory are not as they were"), "{error}");
    bench.write_stack(&good);
    bench.unmount_clean();
}
