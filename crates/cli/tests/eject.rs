//! `braid eject`, as a user who has had enough of Braid runs it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Bench, RANGE, is_well, pattern, write_ranges};
use rustix::fs::XattrFlags;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Attributes of Braid's on a file.
fn attributes(path: &Path) -> Vec<String> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(path, &mut names).unwrap();
    let names = String::from_utf8(names[..len].to_vec()).unwrap();
    names.split('\0').filter(|name| name.contains("braid")).map(str::to_owned).collect()
}

/// A volume with files of all kinds, unmounted; what they hold, by name.
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
    // As it is when all is home, and `.braid` of the other tier is gone.
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
    // A tier of another volume that came into the stack file is not cleared.
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
    // An id that was copied along is nobody's: it goes.
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
