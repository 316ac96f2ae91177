//! Block devices without zones as tiers, through the `braid` command. Needs root,
//! /dev/fuse and loop devices; skipped without them.

use crate::common::{Bench, RANGE, pattern};
use crate::in_zones::{RANGES, read, survives_a_mount_and_a_kill, write};
use braid_contract::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;
/// Of the device: its head, two units for the index and 18 for data.
const UNITS: u64 = 20;
/// A block device over a file, which has no zones.
struct Loop(String);

impl Loop {
    fn over(image: &Path, bytes: u64) -> Option<Self> {
        File::create(image).unwrap().set_len(bytes).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok()?;
        made.status.success().then(|| Self(String::from_utf8(made.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn bench(bytes: u64) -> Option<(Bench, Loop)> {
    let bench = Bench::bare(&["a", "z", "m"])?;
    let Some(device) = Loop::over(&bench.path("image"), bytes) else {
        braid_testkit::skipped("loop devices");
        return None;
    };
    Some((bench, device))
}

/// A home for names, and all data on the tier at `path`.
fn write_stack(bench: &Bench, path: &str, settings: &str) {
    write_stack_with(bench, (path, settings), "");
}

fn write_stack_with(bench: &Bench, (path, settings): (&str, &str), reserve: &str) {
    let text = "\
stack:
  volume:
    home: fast
    policy: { size: { small: 0, sync: 0, large: units } }
    range: 64KiB
    rules:
      - { when: 'path.matches(\"wal*\")', stream: wal }
    tiers:
      fast: { dir: a RESERVE }
      units: { dir: PATH SETTINGS }
";
    let text = text.replace("PATH", path).replace(" SETTINGS", settings);
    bench.write_stack(&text.replace(" RESERVE", reserve));
}

/// A mounted volume on a device that is cut into units.
fn mounted() -> Option<(Bench, Loop)> {
    let (bench, device) = bench(MIB + UNITS * MIB)?;
    write_stack(&bench, &device.0, ", zoned: { unit: 1MiB }");
    bench.ok(&["mount", "s.yaml", "m"]);
    Some((bench, device))
}

/// Fills the volume with files until there is no room; answers how many are whole.
fn fill(bench: &Bench) -> usize {
    for number in 0..200 {
        let file = File::create(bench.path("m").join(format!("fill-{number}"))).unwrap();
        let data = pattern(number, RANGES * RANGE);
        let done = file.write_all_at(&data, 0).and_then(|()| file.sync_all());
        if let Err(error) = done {
            assert_eq!(error.raw_os_error(), Some(Errno::ENOSPC.0), "{error}");
            drop(file);
            fs::remove_file(bench.path("m").join(format!("fill-{number}"))).unwrap();
            return number as usize;
        }
    }
    panic!("it does not become full");
}

#[test]
fn data_in_units_is_there_after_another_mount_and_after_a_kill() {
    let Some((bench, device)) = mounted() else { return };
    survives_a_mount_and_a_kill(&bench, "units");
    // The device says how it is cut.
    write_stack(&bench, &device.0, "");
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(read(&bench, "last") == pattern(99, RANGES * RANGE));
    assert!(bench.ok(&["status", "m"]).contains("units: 18 zones:"));
    bench.unmount_clean();
    write_stack(&bench, &device.0, ", zoned: { unit: 2MiB }");
    let said = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(
        said.contains("cut into units of 1048576 bytes") && said.contains("zoned: { unit: SIZE }"),
        "{said}"
    );
}

#[test]
fn a_full_device_takes_data_again_once_some_is_removed() {
    let Some((bench, device)) = bench(MIB + UNITS * MIB) else { return };
    // Nothing goes to home in its place.
    write_stack_with(&bench, (&device.0, ", zoned: { unit: 1MiB }"), ", reserve: 1000TiB");
    bench.ok(&["mount", "s.yaml", "m"]);
    let first = fill(&bench);
    assert!(first >= 15, "{first} files of {} KiB", (RANGES * RANGE) >> 10);
    bench.unmount_clean();
    bench.ok(&["mount", "s.yaml", "m"]);
    for round in 0..3 {
        for number in (round % 2..first).step_by(2) {
            fs::remove_file(bench.path("m").join(format!("fill-{number}"))).unwrap();
        }
        for number in (round % 2..first).step_by(2) {
            let name = format!("fill-{number}");
            assert!(write(&bench, &name, number as u64) == read(&bench, &name), "{round}, {name}");
            File::open(bench.path("m").join(name)).unwrap().sync_all().unwrap();
        }
    }
    bench.kill();
    bench.ok(&["mount", "s.yaml", "m"]);
    for number in 0..first {
        let wanted = pattern(number as u64, RANGES * RANGE);
        assert!(read(&bench, &format!("fill-{number}")) == wanted, "{number}");
    }
    assert!(bench.ok(&["fsck", "m"]).ends_with("no problems\n"));
    bench.unmount_clean();
}

#[test]
fn a_volume_that_was_killed_again_and_again_is_whole() {
    let Some((bench, _device)) = mounted() else { return };
    let mut wanted = Vec::new();
    for round in 0..8u64 {
        let (kept, gone) = (format!("wal-{}", round % 5), format!("gone-{round}"));
        write(&bench, &gone, 100 + round);
        let data = write(&bench, &kept, round);
        File::open(bench.path("m").join(&kept)).unwrap().sync_all().unwrap();
        wanted.retain(|(name, _)| *name != kept);
        wanted.push((kept, data));
        fs::remove_file(bench.path("m").join(&gone)).unwrap();
        bench.kill();
        bench.ok(&["mount", "s.yaml", "m"]);
        for (name, data) in &wanted {
            assert!(read(&bench, name) == *data, "{round}, {name}");
        }
    }
    let zones = &bench.tier("units")["zones"];
    let wal = zones["streams"].as_array().unwrap().iter().find(|stream| stream["name"] == "wal").unwrap();
    // It goes on where the daemon before it has left off.
    let bytes = wal["bytes"].as_u64().unwrap();
    assert!(wal["zones"].as_u64().unwrap() <= bytes.div_ceil(MIB) + 2, "{zones}");
    assert!(wal.get("placement").is_none(), "this device places nothing: {zones}");
    bench.unmount_clean();
}

#[test]
fn a_tier_in_units_is_emptied_removed_and_added_again() {
    let Some((bench, device)) = mounted() else { return };
    write(&bench, "file", 1);
    bench.ok(&["tier", "evacuate", "units", "m"]);
    assert_eq!(bench.ranges_on("units"), 0);
    bench.unmount_clean();
    // Without a policy that names it.
    let text = "stack: { volume: { home: fast, policy: weighted, tiers: { fast: { dir: a }, units: { dir: PATH } } } }\n";
    bench.write_stack(&text.replace("PATH", &device.0));
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.ok(&["tier", "remove", "units", "m"]);
    assert!(read(&bench, "file") == pattern(1, RANGES * RANGE));
    bench.ok(&["tier", "add", &format!("other={}", device.0), "m"]);
    assert!(
        bench.ok(&["status", "m"]).contains("other: 18 zones: 18 free"),
        "{}",
        bench.ok(&["status", "m"])
    );
    bench.unmount_clean();
}

#[test]
fn the_rescue_script_reads_units() {
    let Some((bench, device)) = mounted() else { return };
    let files: Vec<(String, Vec<u8>)> = (0..14)
        .map(|round| (format!("f{}", round % 7), write(&bench, &format!("f{}", round % 7), round)))
        .collect();
    for (name, _) in &files[7..] {
        File::open(bench.path("m").join(name)).unwrap().sync_all().unwrap();
    }
    bench.kill();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/rescue/rescue.py");
    let tiers = [format!("fast={}", bench.path("a").display()), format!("units={}", device.0)];
    let mut command = Command::new("python3");
    command.args([script, "--tier", &tiers[0], "--tier", &tiers[1], "--home", "fast"]).arg(bench.path("out"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (name, data) in &files[7..] {
        assert!(fs::read(bench.path("out").join(name)).unwrap() == *data, "{name}");
    }
}

#[test]
fn what_can_not_be_cut_into_units_is_refused() {
    let Some((bench, device)) = bench(MIB + 7 * MIB) else { return };
    let refused = |path: &str, settings: &str, said: &[&str]| {
        write_stack(&bench, path, settings);
        let found = bench.refused(&["mount", "s.yaml", "m"]);
        assert!(said.iter().all(|said| found.contains(said)), "{said:?}: {found}");
    };
    let path = &device.0;
    refused(path, "", &["is a block device without zones", "zoned: { unit: SIZE }"]);
    for wrong in ["4KiB", "1023KiB", "65GiB", "1048577"] {
        let settings = format!(", zoned: {{ unit: {wrong} }}");
        refused(path, &settings, &["s.yaml:10", "a unit of", "1MiB to 64GiB"]);
    }
    refused(path, ", zoned: { unit: 1MiB }", &["it has 7 units", "at least 8 are needed"]);
    refused("z", ", zoned: { unit: 1MiB }", &["s.yaml:10", "is a directory, and only", "take `unit` out"]);
    bench.ok(&["zoned", "emulate", "z", "--zones", "12", "--zone-size", "64KiB"]);
    refused("z", ", zoned: { unit: 1MiB }", &["is an emulated zoned device, and only"]);
}

#[test]
fn a_device_with_something_else_on_it_is_refused_until_it_is_zeroed() {
    let Some((bench, device)) = bench(MIB + UNITS * MIB) else { return };
    let path = &device.0;
    let done = |command: &mut Command| assert!(command.output().unwrap().status.success(), "{command:?}");
    done(Command::new("mkfs.ext4").arg("-q").arg(path));
    write_stack(&bench, path, ", zoned: { unit: 1MiB }");
    let said = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(said.contains("holds data that is not Braid's: its first 3145728 bytes"), "{said}");
    assert!(said.contains("blkdiscard --zeroout"), "{said}");
    done(Command::new("blkdiscard").args(["--force", "--zeroout", "--length", "3145728", path]));
    bench.ok(&["mount", "s.yaml", "m"]);
    let data = write(&bench, "file", 1);
    bench.unmount_clean();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(read(&bench, "file") == data);
    // It is this mount's alone.
    let exclusively = rustix::fs::OFlags::EXCL.bits() as i32;
    let other = File::options().write(true).custom_flags(exclusively).open(path).unwrap_err();
    assert_eq!(other.raw_os_error(), Some(Errno::EBUSY.0));
    bench.unmount_clean();
}
