//! Zoned tiers through the `braid` command, on emulated devices. Needs root and
//! /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, pattern};
use crate::in_zones::{RANGES, read, survives_a_mount_and_a_kill, write};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// A home for names, and all data on an emulated device.
fn bench() -> Option<Bench> {
    let bench = Bench::bare(&["a", "z", "m"])?;
    bench.ok(&[
        "zoned",
        "emulate",
        "z",
        "--zones",
        "24",
        "--zone-size",
        "1MiB",
        "--open",
        "6",
        "--active",
        "6",
    ]);
    bench.write_stack(
        "\
stack:
  volume:
    home: fast
    policy: { size: { small: 0, sync: 0, large: zns } }
    range: 64KiB
    tiers:
      fast: { dir: a }
      zns: { dir: z }
",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    Some(bench)
}

#[test]
fn data_in_zones_is_there_after_another_mount_and_after_a_kill() {
    let Some(bench) = bench() else { return };
    survives_a_mount_and_a_kill(&bench, "zns");
}

#[test]
fn what_is_written_over_goes_where_that_is_possible() {
    let Some(bench) = bench() else { return };
    let mut data = write(&bench, "file", 1);
    let file = File::options().write(true).open(bench.path("m/file")).unwrap();
    file.write_all_at(b"over", (2 * RANGE + 100) as u64).unwrap();
    file.sync_all().unwrap();
    drop(file);
    data[2 * RANGE + 100..][..4].copy_from_slice(b"over");
    assert!(read(&bench, "file") == data);
    assert_eq!(bench.on("m/file", "fast"), 2, "{:?}", bench.runs("m/file"));
    bench.unmount_clean();
}

#[test]
fn space_is_given_back_and_a_zoned_tier_can_be_emptied() {
    let Some(bench) = bench() else { return };
    // Several times the capacity of the zones.
    for round in 0..60 {
        let data = write(&bench, &format!("f{}", round % 8), round);
        assert!(read(&bench, &format!("f{}", round % 8)) == data, "{round}");
    }
    let kept: Vec<Vec<u8>> = (0..8).map(|number| read(&bench, &format!("f{number}"))).collect();
    bench.ok(&["tier", "evacuate", "zns", "m"]);
    assert_eq!(bench.ranges_on("zns"), 0);
    assert!((0..8).all(|number| read(&bench, &format!("f{number}")) == kept[number]));
    bench.unmount_clean();
}

#[test]
fn a_zoned_tier_is_one_of_several() {
    let Some(bench) = Bench::bare(&["a", "b", "z", "m"]) else { return };
    bench.ok(&["zoned", "emulate", "z", "--zones", "24", "--zone-size", "1MiB", "--conventional", "1"]);
    bench.write_stack(
        "\
stack:
  volume:
    home: fast
    policy: { weighted: { } }
    range: 64KiB
    rules:
      - { when: 'path.matches(\"*.wal\")', stream: wal }
    tiers:
      fast: { dir: a, weight: 1 }
      slow: { dir: b, weight: 1 }
",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.ok(&["tier", "add", "zns=z,weight=2", "m"]);
    let data = write(&bench, "file", 1);
    let wal = write(&bench, "x.wal", 2);
    let on = |tier| bench.on("m/file", tier);
    assert!(on("zns") >= 4 && on("fast") > 0 && on("slow") > 0, "{:?}", bench.runs("m/file"));
    assert!(read(&bench, "file") == data && read(&bench, "x.wal") == wal);
    File::open(bench.path("m/x.wal")).unwrap().sync_all().unwrap();
    let zones = bench.tier("zns")["zones"].clone();
    let of = |stream: &str| {
        let all = zones["streams"].as_array().unwrap();
        all.iter().find(|told| told["name"] == stream).map_or(0, |told| told["bytes"].as_u64().unwrap())
    };
    assert!(of("wal") > 0 && of("learned-0") > 0 && zones["mixed"] == 0, "{zones}");
    let text = bench.ok(&["status", "m"]);
    assert!(text.contains("zns: 23 zones:") && text.contains("zns: wal: "), "{text}");
    bench.ok(&["tier", "remove", "zns", "m"]);
    assert!(read(&bench, "file") == data && read(&bench, "x.wal") == wal);
    bench.unmount_clean();
}

#[test]
fn how_zones_are_kept_is_a_setting() {
    let Some(bench) = bench() else { return };
    bench.unmount_clean();
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    let with = |zoned: &str| {
        bench.write_stack(&stack.replace("zns: { dir: z }", &format!("zns: {{ dir: z, zoned: {zoned} }}")));
    };
    with("{ extent: 64KiB, memory: 128KiB, write-through: true, gc: 8MiB/s }");
    bench.ok(&["mount", "s.yaml", "m"]);
    let data = write(&bench, "file", 1);
    assert!(read(&bench, "file") == data);
    let memory = bench.tier("zns")["zones"]["memory_bytes"].as_u64().unwrap();
    assert!((1..=128 << 10).contains(&memory), "{memory}");
    with("{ extent: 32KiB }");
    let said = bench.refused(&["reload", "m"]);
    assert!(said.contains("can't change while it is mounted"), "{said}");
    bench.unmount_clean();
    for (zoned, reason) in [
        ("{ extent: 5000 }", "write a power of two from 4KiB to 512MiB"),
        ("{ extent: 1GiB }", "write a power of two from 4KiB to 512MiB"),
        ("{ extent: 64KiB, memory: 32KiB }", "32.0 KiB of memory is less than an extent"),
        ("{ size: 1MiB }", "size"),
        ("{ write-through: perhaps }", "write-through"),
        ("{ gc: fast }", "a rate is"),
    ] {
        with(zoned);
        let said = bench.refused(&["mount", "s.yaml", "m"]);
        assert!(said.contains("s.yaml:") && said.contains(reason), "{zoned}: {said}");
    }
    bench.write_stack(&stack.replace("fast: { dir: a }", "fast: { dir: a, zoned: { } }"));
    assert!(bench.refused(&["mount", "s.yaml", "m"]).contains("the home tier can't be kept in zones"));
    bench.make_dir("plain");
    bench.write_stack(&stack.replace("zns: { dir: z }", "zns: { dir: plain, zoned: { } }"));
    assert!(bench.refused(&["mount", "s.yaml", "m"]).contains("it has no zones"));
}

#[test]
fn what_is_no_device_is_refused() {
    let Some(bench) = Bench::bare(&["a", "z", "m"]) else { return };
    for (flags, said) in [
        (&["--zone-size", "5000"][..], "no zoned device is like this"),
        (&["--conventional", "65"], "no zoned device is like this"),
        (&["--open", "9", "--active", "8"], "no zoned device is like this"),
    ] {
        let refused = bench.refused(&[&["zoned", "emulate", "z"][..], flags].concat());
        assert!(refused.contains(said), "{refused}");
    }
    fs::write(bench.path("z/file"), "of a user").unwrap();
    assert!(bench.refused(&["zoned", "emulate", "z"]).contains("something is there"));
    fs::remove_file(bench.path("z/file")).unwrap();
    bench.ok(&["zoned", "emulate", "z", "--zones", "4", "--zone-size", "64KiB"]);
    assert!(bench.refused(&["zoned", "emulate", "z"]).contains("already"));
    fs::write(bench.path("z/.braid-zones"), "nonsense").unwrap();
    bench.write_stack(
        "stack: { volume: { home: a, policy: weighted, tiers: { a: { dir: a }, z: { dir: z } } } }\n",
    );
    assert!(bench.refused(&["mount", "s.yaml", "m"]).contains("not the shape of emulated zones"));
}

/// A block device over a file, which has no zones.
struct Loop(String);

impl Loop {
    fn over(image: &Path) -> Option<Self> {
        File::create(image).unwrap().set_len(8 << 20).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        made.status.success().then(|| Self(String::from_utf8(made.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_a_tier_only_with_zones_and_unmounted() {
    let Some(bench) = Bench::bare(&["a", "b", "m"]) else { return };
    let Some(device) = Loop::over(&bench.path("image")) else {
        return braid_testkit::skipped("loop devices");
    };
    let path = &device.0;
    let stack = |home: &str| {
        let text = "stack: { volume: { home: HOME, policy: weighted, tiers: { a: { dir: a }, z: { dir: DEV } } } }\n";
        bench.write_stack(&text.replace("HOME", home).replace("DEV", path));
        bench.refused(&["mount", "s.yaml", "m"])
    };
    for home in ["a", "z"] {
        let said = stack(home);
        assert!(said.contains(&format!("{path} is a block device without zones")), "{said}");
        assert!(said.contains("s.yaml:1") && said.contains("make a file system on it"), "{said}");
    }
    let done = |command: &mut Command| assert!(command.output().unwrap().status.success(), "{command:?}");
    done(Command::new("mkfs.ext4").arg("-q").arg(path));
    done(Command::new("mount").arg(path).arg(bench.path("b")));
    let said = stack("a");
    done(Command::new("umount").arg(bench.path("b")));
    let point = bench.path("b").display().to_string();
    assert!(said.contains(&format!("{path} is mounted at {point} (ext4)")), "{said}");
    assert!(said.contains(&format!("unmount it: umount {point}")), "{said}");
}

/// Rebuilds the volume by the rescue script; answers whether all is whole, and the script's
/// messages.
fn rescue(bench: &Bench, out: &str) -> (bool, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/rescue/rescue.py");
    let tiers =
        [("fast", "a"), ("zns", "z")].map(|(name, dir)| format!("{name}={}", bench.path(dir).display()));
    let mut command = Command::new("python3");
    command.args([script, "--tier", &tiers[0], "--tier", &tiers[1], "--home", "fast"]).arg(bench.path(out));
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn the_rescue_script_reads_zones() {
    let Some(bench) = bench() else { return };
    // Data that was moved between zones, punched, and is in the middle of a block too.
    for round in 0..14 {
        write(&bench, &format!("f{}", round % 7), round);
    }
    assert!(bench.on("m/f1", "zns") >= RANGES as u64 - 1, "{:?}", bench.runs("m/f1"));
    let file = File::options().write(true).open(bench.path("m/f1")).unwrap();
    punch(&file, 3 * RANGE as u64 + 100, 20_000);
    let small = File::create(bench.path("m/small")).unwrap();
    small.write_all_at(&pattern(77, 300_001), 0).unwrap();
    small.set_len(299_999).unwrap();
    let names: Vec<String> = (0..7).map(|number| format!("f{number}")).chain(["small".to_owned()]).collect();
    for name in &names {
        File::open(bench.path("m").join(name)).unwrap().sync_all().unwrap();
    }
    let wanted: Vec<Vec<u8>> = names.iter().map(|name| read(&bench, name)).collect();
    bench.kill();
    let (whole, said) = rescue(&bench, "out");
    assert!(whole, "{said}");
    for (name, wanted) in names.iter().zip(&wanted) {
        assert!(fs::read(bench.path("out").join(name)).unwrap() == *wanted, "{name}: {said}");
    }
    // The end of a zone is lost, and reported.
    let zones = fs::read_dir(bench.path("z/seq")).unwrap().map(|entry| entry.unwrap().path());
    let data = zones.filter(|path| !["0", "1"].contains(&path.file_name().unwrap().to_str().unwrap()));
    for zone in data {
        let file = File::options().write(true).open(zone).unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(len / 2 / 4096 * 4096).unwrap();
    }
    let (whole, said) = rescue(&bench, "half");
    assert!(!whole && said.contains("the device has lost this data"), "{said}");
}

/// Punches a hole.
fn punch(file: &File, offset: u64, len: u64) {
    let mode = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, mode, offset, len).unwrap();
}

#[test]
fn what_dies_early_is_learned_and_kept_apart() {
    let Some(bench) = bench() else { return };
    fs::create_dir(bench.path("m/store")).unwrap();
    for number in 0..6 {
        let early = format!("store/early-{number}.dat");
        write(&bench, &early, number);
        fs::remove_file(bench.path("m").join(&early)).unwrap();
        if number % 2 == 0 {
            write(&bench, &format!("store/late-{number}.dat"), number);
        }
    }
    write(&bench, "store/early-9.dat", 9);
    let stream =
        |file: &str| bench.json(&["explain", file, "--json"])["stream"]["name"].as_str().unwrap().to_owned();
    let (early, late) = (stream("m/store/early-9.dat"), stream("m/store/late-4.dat"));
    assert!(early.starts_with("learned-") && late.starts_with("learned-") && early != late, "{early} {late}");
    let zones = &bench.tier("zns")["zones"];
    let names: Vec<&str> =
        zones["streams"].as_array().unwrap().iter().map(|stream| stream["name"].as_str().unwrap()).collect();
    assert!(names.contains(&&*early) && names.contains(&&*late), "{names:?}");
    bench.unmount_clean();
}
