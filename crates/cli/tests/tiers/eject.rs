//! `braid eject`, from a user's point of view.

use crate::common::{Bench, RANGE, is_well, pattern, write_ranges};
use rustix::fs::{FallocateFlags, XattrFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Braid's attributes of a file.
fn attributes(path: &Path) -> Vec<String> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(path, &mut names).unwrap();
    let names = String::from_utf8(names[..len].to_vec()).unwrap();
    names.split('\0').filter(|name| name.contains("braid")).map(str::to_owned).collect()
}

/// A volume with files of all kinds, unmounted; their contents, by name.
fn filled(bench: &Bench) -> Vec<(&'static str, Vec<u8>)> {
    bench.ok(&["mount", "s.yaml", "m"]);
    let files = vec![
        ("m/small", pattern(1, 100)),
        ("m/large", pattern(2, 20 * RANGE + 77)),
        ("m/dir/pinned", pattern(3, 9 * RANGE)),
        ("m/empty", Vec::new()),
    ];
    bench.make_dir("m/dir");
    for (name, data) in &files {
        write_ranges(&bench.path(name), data);
        fs::File::open(bench.path(name)).unwrap().sync_all().unwrap();
    }
    fs::hard_link(bench.path("m/large"), bench.path("m/dir/link")).unwrap();
    fs::set_permissions(bench.path("m/large"), fs::Permissions::from_mode(0o640)).unwrap();
    let sparse = fs::File::create(bench.path("m/sparse")).unwrap();
    sparse.set_len(40 * RANGE as u64).unwrap();
    drop(sparse);
    bench.ok(&["pin", "m/dir/pinned"]);
    assert!(bench.on("m/large", "slow") > 0 && bench.on("m/dir/pinned", "slow") > 0);
    bench.ok(&["umount", "m"]);
    files
}

#[test]
fn everything_comes_home_and_nothing_of_braid_is_left() {
    let Some(bench) = Bench::new() else { return };
    let files = filled(&bench);
    let mtime = fs::metadata(bench.path("a/large")).unwrap().mtime_nsec();

    let told = bench.json(&[
        "eject",
        "--tier",
        "fast=a",
        "--tier",
        "slow=b",
        "--home",
        "fast",
        "--policy",
        "weighted",
        "--range",
        "64KiB",
        "--dry-run",
        "--json",
    ]);
    assert_eq!((told["files"].as_u64(), told["done"].as_bool()), (Some(2), Some(false)), "{told}");
    let said = bench.ok(&["eject", "--dry-run", "s.yaml"]);
    assert!(said.starts_with("to bring home: ") && said.contains("of 2 files"), "{said}");
    assert!(bench.path("a/.braid/label").exists() && !attributes(&bench.path("a/large")).is_empty());

    let said = bench.ok(&["eject", "s.yaml"]);
    assert!(said.ends_with("nothing of Braid is left\n"), "{said}");
    for (name, data) in &files {
        let home = bench.path(&name.replacen("m/", "a/", 1));
        assert!(fs::read(&home).unwrap() == *data, "{name}");
        assert_eq!(attributes(&home), [""; 0], "{name}");
    }
    let large = fs::metadata(bench.path("a/large")).unwrap();
    assert_eq!((large.mode() & 0o7777, large.nlink(), large.mtime_nsec()), (0o640, 2, mtime));
    let sparse = fs::metadata(bench.path("a/sparse")).unwrap();
    assert_eq!((sparse.len(), sparse.blocks()), (40 * RANGE as u64, 0));
    assert!(!bench.path("a/.braid").exists() && !bench.path("b/.braid").exists());
    assert_eq!(fs::read_dir(bench.path("b")).unwrap().count(), 0);

    let said = bench.refused(&["eject", "s.yaml"]);
    assert!(said.contains("no label"), "{said}");
}

#[test]
fn what_is_mounted_or_has_no_room_is_left_as_it_is() {
    let Some(mut bench) = Bench::bare(&["a", "m"]) else { return };
    bench.make_tmpfs("b", c"size=64m");
    bench.write_stack(
        "\
stack:
  volume:
    home: fast
    policy: { weighted: { } }
    range: 64KiB
    tiers:
      fast: { dir: a, weight: 3, reserve: 99% }
      slow: { dir: b, weight: 1 }
",
    );
    // The reserve is more than home's file system has left.
    let fill = File::create(bench.path("fill")).unwrap();
    let space = rustix::fs::fstatvfs(&fill).unwrap();
    rustix::fs::fallocate(&fill, FallocateFlags::empty(), 0, space.f_blocks * space.f_frsize / 50).unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    write_ranges(&bench.path("m/f"), &pattern(1, 20 * RANGE));
    let said = bench.refused(&["eject", "s.yaml"]);
    assert!(said.contains("is mounted at") && said.contains("help: unmount it first"), "{said}");
    bench.ok(&["umount", "m"]);
    let said = bench.refused(&["eject", "s.yaml"]);
    assert!(said.contains("tier fast has no room"), "{said}");
    is_well(&bench);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(bench.path("m/f")).unwrap() == pattern(1, 20 * RANGE));
    bench.ok(&["umount", "m"]);
}

#[test]
fn one_that_was_interrupted_is_gone_on_with() {
    let Some(bench) = Bench::new() else { return };
    let files = filled(&bench);
    // As when all data is home, and `.braid` of the other tier is gone.
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.ok(&["unpin", "m/dir/pinned"]);
    bench.ok(&["move", "m", "--to", "fast"]);
    bench.ok(&["umount", "m"]);
    assert_eq!(attributes(&bench.path("a/large")), [""; 0], "wholly at home again");
    fs::create_dir_all(bench.path("a/.braid/intent")).unwrap();
    fs::write(bench.path("a/.braid/intent/eject"), "x").unwrap();
    fs::remove_dir_all(bench.path("b/.braid")).unwrap();

    let said = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(said.contains("go on with braid eject"), "{said}");
    let said = bench.fails(&["eject", "--dry-run", "s.yaml"]).1;
    assert!(said.contains("what is left is to be cleared"), "{said}");
    // A tier of another volume in the stack file is not cleared.
    bench.make_dir("c");
    bench.make_dir("d");
    bench.ok(&["create", "--tier", "one=c", "--tier", "two=d", "--home", "one", "--policy", "adaptive"]);
    fs::rename(bench.path("d/.braid"), bench.path("b/.braid")).unwrap();
    let said = bench.fails(&["eject", "s.yaml"]).1;
    assert!(said.contains("is not of the volume that is being taken apart"), "{said}");
    fs::rename(bench.path("b/.braid"), bench.path("d/.braid")).unwrap();
    bench.ok(&["eject", "s.yaml"]);
    assert!(!bench.path("a/.braid").exists());
    for (name, data) in &files {
        assert!(fs::read(bench.path(&name.replacen("m/", "a/", 1))).unwrap() == *data, "{name}");
    }
}

#[test]
fn a_file_that_cant_be_read_keeps_the_volume_together() {
    let Some(bench) = Bench::new() else { return };
    filled(&bench);
    // A copied id belongs to no file: it is removed.
    let mut id = [0; 256];
    let len = rustix::fs::getxattr(bench.path("a/large"), "trusted.braid.id", &mut id).unwrap();
    rustix::fs::setxattr(bench.path("a/small"), "trusted.braid.id", &id[..len], XattrFlags::empty()).unwrap();
    let shard = fs::read_dir(bench.path("b/.braid/data")).unwrap().next().unwrap().unwrap().path();
    fs::rename(&shard, bench.path("kept")).unwrap();
    let said = bench.refused(&["eject", "s.yaml"]);
    assert!(said.contains("1 file can't be brought home"), "{said}");
    assert!(bench.path("a/.braid/label").exists());
    fs::rename(bench.path("kept"), &shard).unwrap();
    bench.ok(&["eject", "s.yaml"]);
    assert_eq!(attributes(&bench.path("a/small")), [""; 0]);
}

/// A disk's directory, the name of a file there, and its contents.
type Disks = (&'static str, &'static str, Vec<u8>);

/// Three disks with imported files; home has no room for the others'. Their
/// contents, by directory and name.
fn three_disks() -> Option<(Bench, Vec<Disks>)> {
    let mut bench = Bench::bare(&["m"])?;
    bench.make_tmpfs("a", c"size=8m");
    bench.make_tmpfs("b", c"size=32m");
    bench.make_tmpfs("c", c"size=32m");
    bench.write_stack(THREE);
    let files = vec![
        ("a", "films/one", pattern(1, 3 * RANGE)),
        ("b", "films/two", pattern(2, 170 * RANGE + 5)),
        ("b", "only/b/deep", pattern(3, 10 * RANGE)),
        ("c", "films/three", pattern(4, 150 * RANGE + 1)),
        ("c", "only/c/small", pattern(5, 100)),
    ];
    for (disk, name, data) in &files {
        let path = bench.path(disk).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, data).unwrap();
    }
    let two = bench.path("b/films/two");
    chown(&two, Some(1234), Some(4321)).unwrap();
    fs::set_permissions(&two, fs::Permissions::from_mode(0o4750)).unwrap();
    set_times(&two, 1_234_567_890);
    rustix::fs::setxattr(&two, "trusted.note", b"seen", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&two, "system.posix_acl_access", &ACL, XattrFlags::empty()).unwrap();
    fs::hard_link(&two, bench.path("b/only/b/again")).unwrap();
    let dir = bench.path("b/only/b");
    chown(&dir, Some(99), Some(98)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o2751)).unwrap();
    rustix::fs::setxattr(&dir, "trusted.of", b"dir", XattrFlags::empty()).unwrap();
    set_times(&dir, 1_111_111_111);
    set_times(&bench.path("b/only"), 1_000_000_001);
    mount_noting(&bench);
    bench.ok(&["import", "two", "m"]);
    bench.ok(&["import", "three", "m"]);
    Some((bench, files))
}

const THREE: &str = "\
stack:
  volume:
    home: one
    policy: { adaptive: { } }
    range: 64KiB
    tiers:
      one: { dir: a, reserve: 0 }
      two: { dir: b, reserve: 0 }
      three: { dir: c, reserve: 0 }
";

/// `u::rwx,u:77:r-x,g::r-x,m::r-x,o::---`, as the kernel takes it.
const ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 5, 0, 77, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16,
    0, 5, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

fn mount_noting(bench: &Bench) {
    let output = bench.braid(&["mount", "s.yaml", "m"]);
    assert!(output.status.success(), "{output:?}");
}

fn set_times(path: &Path, secs: u64) {
    let time = UNIX_EPOCH + Duration::new(secs, 5_000);
    let times = fs::FileTimes::new().set_modified(time).set_accessed(time);
    fs::File::open(path).unwrap().set_times(times).unwrap();
}

type State = (u32, u32, u32, i64, i64, u64, Vec<(String, Vec<u8>)>);

/// The state of a file, apart from its path: mode, owner, time, links,
/// attributes.
fn state(path: &Path) -> State {
    let stat = fs::metadata(path).unwrap();
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(path, &mut names).unwrap();
    let names = String::from_utf8(names[..len].to_vec()).unwrap();
    let mut names: Vec<_> = names.split('\0').filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let value = |name: &str| {
        let mut value = vec![0; 4096];
        let len = rustix::fs::getxattr(path, name, &mut value).unwrap();
        (name.to_owned(), value[..len].to_vec())
    };
    let attributes = names.iter().filter(|name| !name.contains("braid")).map(|name| value(name)).collect();
    let links = if stat.is_dir() { 0 } else { stat.nlink() };
    (stat.mode(), stat.uid(), stat.gid(), stat.mtime(), stat.mtime_nsec(), links, attributes)
}

/// Paths of the files on their own disk.
const STATES: [&str; 5] = ["b/films/two", "b/only/b/again", "b/only/b/deep", "b/only/b", "c/films/three"];

/// Their states through the mount, which then ends.
fn states(bench: &Bench) -> Vec<State> {
    let states = STATES.iter().map(|path| state(&bench.path("m").join(&path[2..]))).collect();
    bench.ok(&["umount", "m"]);
    states
}

/// Every disk has its own files again, as they were in the volume.
#[track_caller]
fn is_parted(bench: &Bench, files: &[Disks], states: &[State]) {
    for (disk, name, data) in files {
        for other in ["a", "b", "c"] {
            let path = bench.path(other).join(name);
            if other == *disk {
                assert!(fs::read(&path).unwrap() == *data, "{name}");
                assert_eq!(attributes(&path), [""; 0], "{name}");
            } else {
                assert!(!path.exists(), "{name} is on {other}");
            }
        }
    }
    for (path, before) in STATES.iter().zip(states) {
        assert_eq!(state(&bench.path(path)), *before, "{path}");
    }
    let [two, again] = ["b/films/two", "b/only/b/again"].map(|path| fs::metadata(bench.path(path)).unwrap());
    assert_eq!((two.ino(), two.mode() & 0o7777), (again.ino(), 0o4750));
    for disk in ["a", "b", "c"] {
        assert!(!bench.path(disk).join(".braid").exists());
    }
}

#[test]
fn three_full_disks_are_parted_again() {
    let Some((bench, files)) = three_disks() else { return };
    write_ranges(&bench.path("m/both"), &pattern(9, 2 * RANGE));
    set_times(&bench.path("m/films"), 1_222_222_222);
    let states = states(&bench);
    // Data of an object beyond the end of its file has no meaning.
    let deep = object_of(&bench, 10 * RANGE as u64);
    fs::File::options().append(true).open(deep).unwrap().write_all(b"garbage").unwrap();
    assert!(!states[0].6.is_empty() && !states[3].6.is_empty(), "{states:?}");

    // Without room for all of it, the message names the remedy, with the
    // numbers.
    let said = bench.refused(&["eject", "s.yaml"]);
    assert!(said.contains("tier one has no room for all that is elsewhere"), "{said}");
    assert!(said.contains("help: with --in-place, what is wholly on another tier stays there"), "{said}");
    let (status, _) = bench.fails(&["eject", "--dry-run", "s.yaml"]);
    let said = String::from_utf8(bench.braid(&["eject", "--dry-run", "s.yaml"]).stdout).unwrap();
    assert!(status == 1 && said.contains("could stay on two: "), "{said}");
    let said = bench.ok(&["eject", "--in-place", "--dry-run", "s.yaml"]);
    assert!(
        said.starts_with("to bring home: ")
            && said.contains("to stay on two: ")
            && said.contains("to stay on three: "),
        "{said}"
    );
    let told = bench.json(&["eject", "--in-place", "--dry-run", "s.yaml", "--json"]);
    let stays: Vec<_> =
        told["stays"].as_array().unwrap().iter().map(|stays| stays["files"].as_u64()).collect();
    assert_eq!(stays, [Some(2), Some(2)], "{told}");
    assert!(!bench.path("b/films").exists() && bench.path("a/.braid/label").exists());

    let said = bench.ok(&["eject", "--in-place", "s.yaml"]);
    assert!(said.contains("left on two: ") && said.ends_with("nothing of Braid is left\n"), "{said}");
    is_parted(&bench, &files, &states);
    assert!(fs::read(bench.path("a/both")).unwrap() == pattern(9, 2 * RANGE));
    assert_eq!(fs::metadata(bench.path("a/films")).unwrap().mtime(), 1_222_222_222);
    assert!(bench.path("a/only/b").is_dir(), "directories stay on home");
}

#[test]
fn what_is_in_the_place_of_a_file_is_not_touched() {
    let Some((bench, files)) = three_disks() else { return };
    let states = states(&bench);
    // A file of that name, a link on the way, another mount on the way.
    fs::create_dir(bench.path("c/films")).unwrap();
    fs::write(bench.path("c/films/three"), "foreign").unwrap();
    let away = bench.path("c/away");
    fs::create_dir_all(away.join("c")).unwrap();
    symlink("away", bench.path("c/only")).unwrap();
    let output = bench.braid(&["eject", "--in-place", "s.yaml"]);
    let told = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("tier one has no room for all that can't stay where it is"), "{said}");
    for name in ["films/three", "only/c/small"] {
        assert!(told.contains(&format!("{name}: tier three has something else of that name")), "{told}");
    }
    assert!(!bench.path("b/films").exists(), "nothing was begun");
    assert_eq!(fs::read(bench.path("c/films/three")).unwrap(), b"foreign");
    // Small files come home.
    fs::remove_dir_all(bench.path("c/films")).unwrap();
    let said = bench.ok(&["eject", "--in-place", "s.yaml"]);
    assert!(said.contains("brought home: 100 B of 1 file"), "{said}");
    let (small, rest): (Vec<_>, Vec<_>) = files.into_iter().partition(|(_, name, _)| *name == "only/c/small");
    assert!(fs::read(bench.path("a/only/c/small")).unwrap() == small[0].2);
    assert_eq!(fs::read_dir(away.join("c")).unwrap().count(), 0);
    is_parted(&bench, &rest, &states);
}

#[test]
fn another_mount_on_the_way_is_not_gone_into() {
    let Some((mut bench, _)) = three_disks() else { return };
    states(&bench);
    fs::create_dir_all(bench.path("c/aside/c")).unwrap();
    bench.bind("c/aside", "c/only");
    let told = bench.json(&["eject", "--in-place", "--dry-run", "s.yaml", "--json"]);
    assert_eq!((told["files"].as_u64(), told["bytes"].as_u64()), (Some(1), Some(100)), "{told}");
    let said = bench.ok(&["eject", "--in-place", "s.yaml"]);
    assert!(said.contains("brought home: 100 B of 1 file"), "{said}");
    assert!(fs::read(bench.path("a/only/c/small")).unwrap() == pattern(5, 100));
    assert_eq!(fs::read_dir(bench.path("c/aside/c")).unwrap().count(), 0);
}

#[test]
fn one_in_place_that_was_interrupted_is_gone_on_with() {
    let Some((bench, files)) = three_disks() else { return };
    bench.ok(&["umount", "m"]);
    for at in 0..4000 {
        fs::create_dir_all(bench.path("b/many")).unwrap();
        fs::write(bench.path(&format!("b/many/{at}")), format!("{at}")).unwrap();
    }
    mount_noting(&bench);
    bench.ok(&["import", "two", "m"]);
    let states = states(&bench);
    for signal in [Signal::INT, Signal::KILL] {
        let mut eject = bench.start(&["eject", "--in-place", "s.yaml"]);
        while !bench.path("b/many").exists() {
            assert!(eject.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&eject), signal).unwrap();
        assert!(!eject.wait().unwrap().success(), "it was too fast to be interrupted");
        // It still is a volume, and a sound one.
        mount_noting(&bench);
        for at in 0..4000 {
            assert_eq!(fs::read(bench.path(&format!("m/many/{at}"))).unwrap(), format!("{at}").as_bytes());
        }
        assert!(fs::read(bench.path("m/films/two")).unwrap() == files[1].2);
        if signal == Signal::INT {
            // A file that has its name already is recognised.
            bench.ok(&["import", "two", "m"]);
            assert!(!bench.path("b/many").exists());
        }
        bench.ok(&["umount", "m"]);
        is_well(&bench);
    }
    bench.ok(&["eject", "--in-place", "s.yaml"]);
    for at in 0..4000 {
        assert_eq!(fs::read(bench.path(&format!("b/many/{at}"))).unwrap(), format!("{at}").as_bytes());
        assert!(!bench.path(&format!("a/many/{at}")).exists());
    }
    is_parted(&bench, &files, &states);
}

#[test]
fn after_one_in_place_was_interrupted_everything_can_come_home() {
    let Some((bench, files)) = three_disks() else { return };
    let states = states(&bench);
    // As when a file has its name on the tier.
    let large = object_of(&bench, files[1].2.len() as u64);
    fs::create_dir(bench.path("b/films")).unwrap();
    fs::hard_link(large, bench.path("b/films/two")).unwrap();
    rustix::mount::mount_remount(bench.path("a"), rustix::mount::MountFlags::empty(), c"size=64m").unwrap();
    bench.ok(&["eject", "s.yaml"]);
    let (_, name, data) = &files[1];
    assert!(fs::read(bench.path("a").join(name)).unwrap() == *data);
    assert_eq!(state(&bench.path("a/films/two")), states[0]);
    assert!(!bench.path("b/films/two").exists(), "not there twice");
}

/// An object of this size on the second disk.
fn object_of(bench: &Bench, size: u64) -> PathBuf {
    let objects = names_below(&bench.path("b/.braid/data"));
    objects.into_iter().find(|path| fs::metadata(path).unwrap().len() == size).unwrap()
}

fn names_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { names_below(&path) } else { vec![path] }).collect()
}

#[test]
fn holes_need_no_room_at_home() {
    let Some(mut bench) = Bench::bare(&["b", "m"]) else { return };
    bench.make_tmpfs("a", c"size=64m");
    bench.write_stack(
        "stack: { volume: { home: one, policy: { weighted: { } }, range: 64KiB, tiers: { one: { dir: a }, \
         two: { dir: b } } } }\n",
    );
    let mut holey = fs::File::create(bench.path("b/holey")).unwrap();
    holey.set_len(1 << 30).unwrap();
    for at in [0, 1 << 29, (1 << 30) - 300_000] {
        holey.seek(SeekFrom::Start(at)).unwrap();
        holey.write_all(&pattern(at, 300_000)).unwrap();
    }
    drop(holey);
    assert!(bench.braid(&["mount", "s.yaml", "m"]).status.success());
    bench.ok(&["import", "two", "m"]);
    bench.ok(&["umount", "m"]);
    let told = bench.json(&["eject", "--dry-run", "--json", "s.yaml"]);
    let [bytes, space] = ["bytes", "space"].map(|key| told[key].as_u64().unwrap());
    assert!(bytes == 1 << 30 && space < 2 << 20 && told["hindrance"].is_null(), "{told}");
    bench.ok(&["eject", "s.yaml"]);
    let file = bench.path("a/holey");
    assert!(fs::metadata(&file).unwrap().blocks() * 512 < 2 << 20);
    let mut found = fs::File::open(file).unwrap();
    for at in [0, 1 << 29, (1 << 30) - 300_000] {
        let mut data = vec![0; 300_000];
        found.seek(SeekFrom::Start(at)).unwrap();
        found.read_exact(&mut data).unwrap();
        assert!(data == pattern(at, 300_000), "{at}");
    }
}
