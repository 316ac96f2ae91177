//! The life of a mount through the `braid` command. Needs root and /dev/fuse;
//! skipped without them.

use crate::common::{Bench, kill_and_wait};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn mount_use_ask_unmount_check() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let data: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(bench.path("m/big"), &data).unwrap();
    fs::write(bench.path("m/small"), "hi").unwrap();

    let status = bench.json(&["status", "m", "--json"]);
    assert_eq!(status["tiers"][0]["name"], "fast");
    assert_eq!(status["tiers"][0]["home"], true);
    assert_eq!(status["range_size"], 65536);
    let text = bench.ok(&["status", "m/big"]);
    assert!(text.contains("fast*") && text.contains("slow") && !text.contains('\x1b'), "{text}");

    let big = bench.json(&["explain", "m/big", "--json"]);
    assert_eq!((&big["layout"], &big["size"]), (&"spread".into(), &data.len().into()));
    let len = |run: &serde_json::Value| run["len"].as_u64().unwrap();
    assert_eq!(big["runs"].as_array().unwrap().iter().map(len).sum::<u64>(), data.len() as u64);
    assert_eq!(bench.json(&["explain", "m/small", "--json"])["layout"], "plain");
    assert!(bench.ok(&["explain", "m/big"]).contains("in all: fast "));

    // The daemon checks the mounted volume, by whatever name it is addressed.
    for target in [&["fsck", "s.yaml"][..], &["fsck", "m"], &["fsck", "m", "big"], &["fsck", "--repair", "m"]]
    {
        assert!(bench.ok(target).ends_with("no problems\n"), "{target:?}");
    }
    let checked: serde_json::Value = bench.json(&["fsck", "--json", "m"]);
    assert_eq!((&checked["summary"]["left"], &checked["summary"]["spread_files"]), (&0.into(), &1.into()));
    assert_eq!(bench.fails(&["fsck", "m", "missing"]).0, 4);
    assert_eq!(bench.fails(&["fsck", "nothing.yaml"]).0, 8);
    for target in [&["fsck", "m", "../a"][..], &["fsck", "m", "x/.."], &["fsck", "s.yaml", "../a"]] {
        let (status, said) = bench.fails(target);
        assert!(status == 2 && said.contains("PATHs are below the volume's root"), "{target:?}: {said}");
    }
    assert_eq!(bench.fails(&["fsck"]).0, 2);

    let (_, said) = bench.fails(&["mount", "s.yaml", "m"]);
    assert!(said.contains("a Braid file system is mounted here already"), "{said}");

    bench.ok(&["umount", "m"]);
    assert!(fs::read_dir(bench.path("m")).unwrap().next().is_none());
    // The tiers are released at once: no retry or wait is needed.
    assert!(bench.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
    assert!(
        bench.ok(&["fsck", "--tier", "fast=a", "--tier", "slow=b", "big"]).starts_with("1 file, 1 of them")
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(bench.path("m/big")).unwrap() == data, "the contents changed");
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_busy_mount_stays_and_can_be_detached() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::write(bench.path("m/open"), "x").unwrap();
    let open = fs::File::open(bench.path("m/open")).unwrap();
    let (status, said) = bench.fails(&["umount", "m"]);
    assert_eq!(status, 1);
    let me = format!("\n  process {} (", std::process::id());
    assert!(
        said.contains("is busy") && said.contains(&me) && said.contains("has files of it open"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(bench.path("m/open")).unwrap(), "x");
    bench.ok(&["umount", "--lazy", "m"]);
    assert!(fs::read_dir(bench.path("m")).unwrap().next().is_none());
    drop(open);
}

#[test]
fn a_killed_daemon_leaves_a_mount_that_umount_cleans_up() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    kill_and_wait(i32::try_from(bench.status()["pid"].as_i64().unwrap()).unwrap());

    let (status, said) = bench.fails(&["fsck", "m"]);
    assert!(status == 8 && said.contains("is gone\n  help: clean up: braid umount"), "{said}");
    let (_, said) = bench.fails(&["status", "m"]);
    assert!(said.contains("is gone\n  help: clean up: braid umount"), "{said}");
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.ok(&["umount", "m"]);
}

#[test]
fn others_use_a_mount_only_where_they_may() {
    let Some(bench) = Bench::new() else { return };
    fs::set_permissions(bench.path("."), Permissions::from_mode(0o755)).unwrap();
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    fs::write(bench.path("mine.yaml"), format!("{text}mount: {{ allow-other: false }}\n")).unwrap();
    for (words, may) in [
        (&["mount", "s.yaml", "m"][..], true),
        (&["mount", "mine.yaml", "m"], false),
        (&["mount", "mine.yaml", "m", "--allow-other"], true),
        (&["mount", "s.yaml", "m", "--no-allow-other"], false),
    ] {
        bench.ok(words);
        let listed = Command::new("ls").arg(bench.path("m")).uid(4711).gid(4711).output().unwrap();
        assert_eq!(listed.status.success(), may, "{words:?}: {}", String::from_utf8_lossy(&listed.stderr));
        bench.ok(&["umount", "m"]);
    }
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    fs::write(bench.path("bad.yaml"), text.replace("weight: 1", "wieght: 1")).unwrap();
    let (status, said) = bench.fails(&["mount", "bad.yaml", "m"]);
    assert_eq!(status, 1);
    assert_eq!(
        said,
        "braid: bad.yaml:9: stack.noop.volume.tiers.slow.wieght: unknown key\n  \
         help: did you mean 'weight'? The keys here are dir, memory, weight, reserve, readonly, require, zoned, faults\n"
    );
    let (status, said) = bench.fails(&["mount", "m"]);
    assert_eq!((status, said.starts_with("braid: give a stack file, or --tier")), (2, true));

    // The daemon finds a tier of another volume, and the command reports it.
    fs::create_dir(bench.path("c")).unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.ok(&["umount", "m"]);
    fs::remove_file(bench.path("log")).unwrap();
    let (status, said) = bench.fails(&["mount", "--tier", "fast=c", "--tier", "slow=b", "m"]);
    assert_eq!(status, 1);
    assert!(
        said.starts_with("braid: --tier fast=c: c: the directory has no label, so it is not the home of"),
        "{said}"
    );
    assert!(said.contains("which tier `slow` belongs to") && !said.contains("move its .braid"), "{said}");
    assert!(fs::read_dir(bench.path("c")).unwrap().next().is_none(), "something was made");
    assert!(!bench.path("log").exists(), "a log was left");
}

#[test]
fn each_tier_says_that_its_directory_is_no_backup() {
    let Some(bench) = Bench::new() else { return };
    ["c", "n"].iter().for_each(|name| bench.make_dir(name));
    let says = |tier: &str| {
        let text = fs::read_to_string(bench.path(tier).join(".braid/README")).unwrap_or_default();
        text.contains("Do not back up or copy the tree") && text.contains("rescue.py")
    };
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(says("a") && says("b"), "a new volume");
    bench.ok(&["umount", "m"]);
    // A volume from before the file existed; and one with a modified file.
    fs::remove_file(bench.path("a/.braid/README")).unwrap();
    fs::write(bench.path("b/.braid/README"), "something else").unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(says("a") && says("b"), "an old volume");
    bench.ok(&["tier", "add", "third=c", "m"]);
    assert!(says("c"), "a tier that joined");
    bench.ok(&["tier", "remove", "third", "m"]);
    assert!(!bench.path("c/.braid").exists(), "a tier that left");
    bench.ok(&["tier", "replace", "fast", "n", "m"]);
    assert!(says("n"), "another home");
    bench.unmount_clean();
}

#[test]
fn home_keeps_space_for_indexes_from_the_first_moment_on() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let ballast = fs::metadata(bench.path("a/.braid/ballast")).unwrap();
    assert!(ballast.blocks() * 512 >= 1 << 20, "{} blocks", ballast.blocks());
    bench.unmount_clean();
}
