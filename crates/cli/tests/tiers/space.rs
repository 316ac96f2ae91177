//! Space is as reported: allocated space exists, failed allocations leave none,
//! and freed space can be used. Through the `braid` command, over file systems
//! in memory. Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, is_well, pattern};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// A volume over two file systems in memory, with `more` settings for the
/// second.
fn bench(more: &str) -> Option<Bench> {
    bench_weighing(1, more)
}

/// The same, where the second has this weight, and the first 1.
fn bench_weighing(weight: u32, more: &str) -> Option<Bench> {
    let mut bench = Bench::bare(&["m"])?;
    bench.make_tmpfs("a", c"size=6m");
    bench.make_tmpfs("b", c"size=24m");
    bench.write_stack(&format!(
        "\
stack:
  volume:
    home: fast
    policy: {{ weighted: {{ }} }}
    range: 64KiB
    tiers:
      fast: {{ dir: a, weight: 1, reserve: 256KiB }}
      slow: {{ dir: b, weight: {weight}, reserve: 256KiB{more} }}
"
    ));
    bench.ok(&["mount", "s.yaml", "m"]);
    Some(bench)
}

fn remount(bench: &Bench) {
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
}

fn available(dir: &Path) -> u64 {
    let stat = rustix::fs::statvfs(dir).unwrap();
    stat.f_bavail * stat.f_frsize
}

fn allocate(path: &Path, flags: FallocateFlags, len: u64) -> Result<(), Errno> {
    let file = File::options().write(true).create(true).truncate(false).open(path).unwrap();
    rustix::fs::fallocate(&file, flags, 0, len)
}

/// Writes until there is no room, but at most `most` bytes; answers how many.
fn fill(path: &Path, most: u64) -> u64 {
    let (mut file, piece) = (File::create(path).unwrap(), vec![7; 256 << 10]);
    let mut done = 0;
    while done < most {
        match file.write(&piece) {
            Ok(written) => done += written as u64,
            Err(error) if error.kind() == ErrorKind::StorageFull => break,
            Err(error) => panic!("{error}"),
        }
    }
    done
}

/// Bytes that the tiers use.
fn used(bench: &Bench) -> u64 {
    ["a", "b"]
        .map(|name| rustix::fs::statvfs(bench.path(name)).unwrap())
        .iter()
        .map(|stat| (stat.f_blocks - stat.f_bfree) * stat.f_frsize)
        .sum()
}

#[test]
fn an_allocation_that_fails_midway_leaves_the_file_as_it_was() {
    // The tiers report room; then one of them turns out to have none.
    let Some(bench) = bench(", faults: [\"allocate:ENOSPC,after=20\"]") else { return };
    let (new, old) = (bench.path("m/new"), bench.path("m/old"));
    let data = pattern(1, 300_000);
    fs::write(&old, &data).unwrap();
    File::create(&new).unwrap();
    let before = used(&bench);
    for flags in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
        for path in [&new, &old] {
            assert_eq!(allocate(path, flags, 12 * MIB), Err(Errno::NOSPC));
        }
    }
    // An index each, and directories.
    let after = used(&bench);
    assert!(after < before + 512 * 1024, "{before} bytes were used, {after} are");
    // Drops the kernel's cached sizes.
    remount(&bench);
    assert_eq!(fs::metadata(&new).unwrap().size(), 0);
    assert_eq!(fs::read(&old).unwrap(), data);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn space_that_is_kept_beyond_the_size_is_there_on_a_full_volume() {
    let Some(bench) = bench("") else { return };
    let kept = bench.path("m/kept");
    allocate(&kept, FallocateFlags::KEEP_SIZE, 8 * MIB).unwrap();
    assert_eq!(fs::metadata(&kept).unwrap().size(), 0);
    let rest = available(&bench.path("m"));
    assert!(rest < 22 * MIB, "{rest} bytes are said to be available");
    let filled = fill(&bench.path("m/filler"), u64::MAX);
    assert!(filled * 100 >= rest * 97, "{filled} of {rest} bytes could be written");
    remount(&bench);
    let data = pattern(2, 8 * MIB as usize);
    let file = File::options().write(true).open(&kept).unwrap();
    file.write_all_at(&data, 0).unwrap();
    drop(file);
    assert!(fs::read(&kept).unwrap() == data, "what was written to kept space is not what is read");
    // A truncation frees it, as natively.
    fs::remove_file(bench.path("m/filler")).unwrap();
    fs::remove_file(&kept).unwrap();
    allocate(&kept, FallocateFlags::KEEP_SIZE, 8 * MIB).unwrap();
    File::options().write(true).open(&kept).unwrap().set_len(100).unwrap();
    File::options().write(true).open(&kept).unwrap().set_len(50).unwrap();
    assert!(fs::metadata(&kept).unwrap().blocks() * 512 < MIB, "a file that was cut keeps its space");
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn a_file_cut_where_it_ends_gives_up_what_is_reserved_behind() {
    let Some(bench) = bench("") else { return };
    let path = bench.path("m/cut");
    allocate(&path, FallocateFlags::KEEP_SIZE, 8 * MIB).unwrap();
    let data = pattern(3, 3_000_000);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&data, 0).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 >= 8 * MIB);
    file.set_len(data.len() as u64).unwrap();
    drop(file);
    crate::common::until("space is given up", || fs::metadata(&path).unwrap().blocks() * 512 < 4 * MIB);
    assert!(crate::common::read_anew(&path) == data);
    // The daemon has the data this time.
    allocate(&path, FallocateFlags::KEEP_SIZE, 8 * MIB).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(data.len() as u64).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < 4 * MIB);
    drop(file);
    assert!(crate::common::read_anew(&path) == data);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn what_is_removed_can_be_used_at_once() {
    let Some(bench) = bench("") else { return };
    let all = available(&bench.path("m"));
    fill(&bench.path("m/base"), all / 10 * 9);
    let rest = available(&bench.path("m")) / 10 * 8 / MIB * MIB;
    for turn in 0..20 {
        let path = bench.path("m/again");
        assert_eq!(fill(&path, rest), rest, "turn {turn}");
        fs::remove_file(&path).unwrap();
        allocate(&path, FallocateFlags::empty(), rest).unwrap_or_else(|error| panic!("turn {turn}: {error}"));
        fs::remove_file(&path).unwrap();
    }
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn data_goes_nowhere_else_while_removed_files_have_the_space() {
    let Some(bench) = bench_weighing(100_000, "") else { return };
    for turn in 0..5 {
        let path = bench.path(&format!("m/{turn}"));
        assert_eq!(fill(&path, 14 * MIB), 14 * MIB);
        let on_home = bench.on(&format!("m/{turn}"), "fast");
        assert!(on_home <= 1, "turn {turn}: {:?}", bench.runs(&format!("m/{turn}")));
        fs::remove_file(&path).unwrap();
        crate::common::until("the removal is known", || {
            bench.status()["pending_removals"] == 1 || available(&bench.path("b")) > 14 * MIB
        });
    }
    bench.unmount_clean();
}

#[test]
fn an_allocation_beside_writes_gets_what_fits() {
    let Some(bench) = bench("") else { return };
    for turn in 0..5 {
        let half = available(&bench.path("m")) / 100 * 47 / MIB * MIB;
        let [written, allocated] = ["m/written", "m/allocated"].map(|name| bench.path(name));
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| fill(&written, half));
            allocate(&allocated, FallocateFlags::empty(), half)
                .unwrap_or_else(|error| panic!("turn {turn}: {error}"));
            assert_eq!(writes.join().unwrap(), half, "turn {turn}");
        });
        fs::remove_file(&written).unwrap();
        fs::remove_file(&allocated).unwrap();
        // The kernel reports removals later; `df` does not wait for them.
        crate::common::until("space comes back", || available(&bench.path("m")) > 2 * half);
    }
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

/// A file with this much reserved, of which little was written, and the bytes that it takes.
fn reserved(bench: &Bench, name: &str, len: u64) -> (File, u64) {
    let path = bench.path(name);
    fs::write(&path, pattern(4, 300_000)).unwrap();
    allocate(&path, FallocateFlags::empty(), len).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let taken = file.metadata().unwrap().blocks() * 512;
    assert!(taken >= len, "{taken} bytes for {len}");
    (file, taken)
}

/// All of a file can be written on a full volume.
fn has_room_for(bench: &Bench, file: &File, len: u64) {
    fill(&bench.path("m/filler"), u64::MAX);
    file.write_all_at(&pattern(5, len as usize), 0).unwrap();
}

#[test]
fn an_allocation_that_fails_leaves_what_was_reserved_before() {
    let Some(bench) = bench("") else { return };
    let (file, before) = reserved(&bench, "m/f", 4 * MIB);
    assert_eq!(allocate(&bench.path("m/f"), FallocateFlags::empty(), 64 * MIB), Err(Errno::NOSPC));
    // Home takes no more, and the other one fails once, behind the ranges that it has already.
    bench.ok(&["tier", "set", "fast", "reserve=99%", "./m"]);
    bench.ok(&["drill", "slow", "allocate:ENOSPC,after=70,once", "./m"]);
    assert_eq!(allocate(&bench.path("m/f"), FallocateFlags::KEEP_SIZE, 8 * MIB), Err(Errno::NOSPC));
    bench.ok(&["tier", "set", "fast", "reserve=256KiB", "./m"]);
    let after = file.metadata().unwrap().blocks() * 512;
    assert!(after >= before, "{before} bytes were reserved, {after} are");
    has_room_for(&bench, &file, 4 * MIB);
    drop(file);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn a_file_cut_within_what_is_reserved_keeps_the_space_below() {
    let Some(bench) = bench("") else { return };
    let (file, _) = reserved(&bench, "m/f", 8 * MIB);
    file.set_len(4 * MIB).unwrap();
    let taken = file.metadata().unwrap().blocks() * 512;
    assert!((4 * MIB..5 * MIB).contains(&taken), "{taken} bytes are reserved");
    has_room_for(&bench, &file, 4 * MIB);
    drop(file);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn what_is_reserved_behind_an_append_stays_after_the_last_close() {
    let Some(mut bench) = Bench::bare(&["a", "m"]) else { return };
    File::create(bench.path("image")).unwrap().set_len(512 * MIB).unwrap();
    let made = std::process::Command::new("mkfs.xfs").arg(bench.path("image")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    bench.mount_image("disk", "image");
    fs::create_dir(bench.path("disk/b")).unwrap();
    bench.write_stack(
        "stack: { volume: { home: fast, policy: { weighted: { } }, range: 1MiB, tiers: { fast: { dir: a, weight: 1 }, \
         slow: { dir: disk/b, weight: 100000 } } } }\n",
    );
    bench.ok(&["mount", "s.yaml", "m", "--cache", "direct"]);
    let path = bench.path("m/f");
    fs::write(&path, pattern(1, 4 * MIB as usize)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&pattern(2, 4096), 4 * MIB).unwrap();
    let on_disk = || fs::metadata(&path).unwrap().blocks() * 512;
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 4 * MIB, MIB).unwrap();
    assert_eq!(bench.runs("m/f").last().unwrap()["tier"]["name"], "slow");
    let before = on_disk();
    assert!(before >= 5 * MIB, "{before} bytes are reserved");
    drop(file);
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(on_disk(), before);
    bench.unmount_clean();
}

#[test]
fn a_small_file_that_leaves_home_leaves_no_space_there() {
    let Some(bench) = bench("") else { return };
    fs::write(bench.path("m/f"), pattern(1, 4096)).unwrap();
    allocate(&bench.path("m/f"), FallocateFlags::KEEP_SIZE, 48 << 10).unwrap();
    bench.ok(&["move", "m/f", "--to", "slow"]);
    let taken = || fs::metadata(bench.path("a/f")).unwrap().blocks() * 512;
    crate::common::until("home has nothing of it", || taken() < 4096);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}
