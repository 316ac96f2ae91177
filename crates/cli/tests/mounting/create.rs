//! Volumes are created on request only. Needs root and /dev/fuse; skipped
//! without them.

use crate::common::{Bench, is_empty, stack};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

impl Bench {
    /// Creates the volume, with a file in it.
    fn made(&self) {
        assert!(self.as_written(&["create", "s.yaml"]).status.success());
        assert!(self.as_written(&["mount", "s.yaml", "m"]).status.success());
        fs::write(self.path("m/kept"), "x").unwrap();
        self.ok(&["umount", "--wait", "m"]);
    }

    /// Puts an empty directory in place of a tier's, as while its device is not
    /// mounted.
    fn hide(&self, dir: &str) -> PathBuf {
        let hidden = self.path(&format!("{dir}.hidden"));
        fs::rename(self.path(dir), &hidden).unwrap();
        self.make_dir(dir);
        hidden
    }
}

#[test]
fn a_mount_makes_no_volume_unless_asked() {
    let Some(bench) = Bench::new() else { return };
    let said = bench.refused_as_written(&["mount", "s.yaml", "m"]);
    assert!(
        said.contains(
            "tiers.fast.dir: a: there is no volume: the directory has no label\n  fast: no label in"
        ),
        "{said}"
    );
    assert!(
        said.contains("\n  slow: no label in") && said.contains("which is no mount point but on /"),
        "{said}"
    );
    assert!(said.contains("help: mount the devices") && said.contains("braid create"), "{said}");
    assert!(is_empty(&bench.path("a")) && is_empty(&bench.path("b")), "something was made");

    let told = bench.ok(&["create", "s.yaml"]);
    assert!(
        told.starts_with("volume ") && told.ends_with(" is made\n  fast: a, home\n  slow: b\n"),
        "{told}"
    );
    let id = told.split(' ').nth(1).unwrap();
    assert!(bench.path("a/.braid/label").exists() && bench.path("b/.braid/label").exists());
    let said = bench.refused(&["create", "s.yaml"]);
    assert!(said.contains(&format!("there is a volume already, {id}")), "{said}");
    assert!(bench.as_written(&["mount", "s.yaml", "m"]).status.success());
    assert_eq!(bench.status()["volume"], id);
    bench.ok(&["umount", "m"]);
    // The flag may stay in scripts.
    assert!(bench.as_written(&["mount", "--create", "s.yaml", "m"]).status.success());
    assert_eq!(bench.status()["volume"], id);
    bench.unmount_clean();
}

#[test]
fn a_volume_is_made_by_flags() {
    let Some(bench) = Bench::bare(&["a", "b", "m"]) else { return };
    let [fast, slow] = ["fast=a", "slow=b"];
    let told = bench.ok(&[
        "create",
        "--tier",
        fast,
        "--tier",
        slow,
        "--home",
        "slow",
        "--policy",
        "home-first",
        "--range",
        "1MiB",
    ]);
    assert!(told.ends_with("\n  fast: a\n  slow: b, home\n"), "{told}");
    bench.ok(&["mount", "--tier", fast, "--tier", slow, "--home", "slow", "m"]);
    assert_eq!(bench.status()["range_size"], 1 << 20);
    bench.ok(&["umount", "m"]);
}

#[test]
fn devices_that_are_not_mounted_are_missed_and_nothing_is_made_beneath() {
    let Some(bench) = Bench::new() else { return };
    bench.made();
    let home = bench.hide("a");
    for words in [&["mount", "s.yaml", "m"][..], &["mount", "--create", "s.yaml", "m"], &["create", "s.yaml"]]
    {
        let said = bench.refused_as_written(words);
        assert!(
            said.contains("tiers.fast.dir: a: the directory has no label, so it is not the home of volume "),
            "{said}"
        );
        assert!(
            said.contains("which tier `slow` belongs to") && said.contains("probably not mounted"),
            "{said}"
        );
        assert!(!said.contains(".braid directory"), "it advises to take the data apart: {said}");
        assert!(is_empty(&bench.path("a")), "something was made");
    }
    let slow = bench.hide("b");
    let said = bench.refused_as_written(&["mount", "s.yaml", "m"]);
    assert!(said.contains("there is no volume") && said.contains("\n  slow: no label in"), "{said}");

    fs::remove_dir(bench.path("a")).unwrap();
    fs::rename(home, bench.path("a")).unwrap();
    for words in [&["mount", "s.yaml", "m"][..], &["mount", "--create", "s.yaml", "m"]] {
        let said = bench.refused_as_written(words);
        assert!(
            said.contains("tiers.slow.dir: b: the volume has a tier of this name")
                && said.contains("--without slow"),
            "{said}"
        );
        assert!(is_empty(&bench.path("b")), "something was made");
    }
    fs::remove_dir(bench.path("b")).unwrap();
    fs::rename(slow, bench.path("b")).unwrap();
    assert!(bench.as_written(&["mount", "s.yaml", "m"]).status.success());
    assert!(bench.path("m/kept").exists());
    bench.unmount_clean();
}

#[test]
fn the_table_of_file_systems_names_the_device_that_is_missing() {
    let Some(bench) = Bench::new() else { return };
    let dir = bench.path("a");
    fs::write(bench.path("fstab"), format!("UUID=12-ab {} ext4 nofail 0 2\n", dir.display())).unwrap();
    // In a mount namespace of its own, so that other programs do not see that
    // table.
    let output = bench.in_namespace("mount --bind fstab /etc/fstab && exec $BRAID mount s.yaml m");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("/etc/fstab has UUID=12-ab, which is not mounted"), "{said}");
}

#[test]
fn a_new_tier_joins_at_a_mount_only_when_asked() {
    let Some(bench) = Bench::new() else { return };
    bench.made();
    bench.make_dir("c");
    let text = stack(&bench);
    bench.write_stack(&(text + "        more: { dir: c }\n"));
    let said = bench.refused_as_written(&["mount", "s.yaml", "m"]);
    assert!(
        said.contains("tiers.more.dir: c: the volume does not have this tier")
            && said.contains("braid tier add"),
        "{said}"
    );
    assert!(is_empty(&bench.path("c")), "something was made");
    assert!(bench.as_written(&["mount", "--create", "s.yaml", "m"]).status.success());
    bench.unmount_clean();
}

#[test]
fn a_tier_is_what_it_is_required_to_be() {
    let Some(mut bench) = Bench::new() else { return };
    let text = stack(&bench);
    bench.write_stack(&text.replace("dir: b,", "dir: b, require: mountpoint,"));
    for words in [&["create", "s.yaml"][..], &["mount", "--create", "s.yaml", "m"]] {
        let said = bench.refused_as_written(words);
        assert!(
            said.contains("tiers.slow.require: ") && said.contains("is required to be a mount point"),
            "{said}"
        );
        assert!(is_empty(&bench.path("a")), "something was made");
    }
    fs::remove_dir(bench.path("b")).unwrap();
    bench.make_tmpfs("b", c"size=64m");
    bench.made();
    assert!(bench.as_written(&["mount", "s.yaml", "m"]).status.success());
    bench.make_dir("c");
    let said = bench.refused(&["tier", "add", "more=c,require=mountpoint", "m"]);
    assert!(said.contains("is required to be a mount point"), "{said}");
    bench.make_tmpfs("d", c"size=64m");
    bench.ok(&["tier", "add", "more=d,require=mountpoint", "m"]);
    assert!(stack(&bench).contains("require: mountpoint }"), "{}", stack(&bench));
    bench.ok(&["tier", "set", "more", "require=nothing", "./m"]);
    bench.ok(&["umount", "m"]);

    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    bench.write_stack(&stack(&bench).replace("require: mountpoint,", &format!("require: uuid={uuid},")));
    let said = bench.refused_as_written(&["mount", "s.yaml", "m"]);
    assert!(
        said.contains(&format!("is not on the file system UUID={uuid}: no device that has it is known")),
        "{said}"
    );
    assert!(said.contains(&format!("help: mount it: mount UUID={uuid} ")), "{said}");
    bench.write_stack(&stack(&bench).replace("uuid=0", "uid=0"));
    let said = bench.refused_as_written(&["mount", "s.yaml", "m"]);
    assert!(said.contains("expected mountpoint or uuid=UUID"), "{said}");
}

#[test]
fn a_requirement_goes_with_the_directory_that_met_it() {
    let Some(mut bench) = Bench::new() else { return };
    fs::remove_dir(bench.path("b")).unwrap();
    bench.make_tmpfs("b", c"size=64m");
    bench.write_stack(&stack(&bench).replace("dir: b,", "dir: b, require: mountpoint,"));
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.ok(&["drill", "slow", "all:EIO", "./m"]);
    let _ = fs::write(bench.path("m/big"), vec![1; 8 << 20]);
    crate::common::until("the tier fails", || bench.state("slow") == "failing");
    bench.make_dir("c");
    bench.ok(&["tier", "replace", "slow", "c", "m"]);
    assert!(!stack(&bench).contains("require"), "{}", stack(&bench));
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.ok(&["umount", "m"]);
}

#[test]
fn the_uuid_of_a_file_system_is_found() {
    let Some(bench) = Bench::new() else { return };
    let found = |dir: &str| {
        let mut findmnt = Command::new("findmnt");
        let output =
            findmnt.args(["--noheadings", "--output", "UUID", "--target"]).arg(bench.path(dir)).output();
        let uuid = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
        uuid.trim().to_owned()
    };
    let uuid = found("b");
    if uuid.is_empty() {
        return; // A file system without a UUID, or without a way to find it.
    }
    bench.write_stack(&stack(&bench).replace("dir: b,", &format!("dir: b, require: uuid={uuid},")));
    bench.made();
}

#[test]
fn what_is_inside_the_home_of_a_volume_is_no_tier() {
    let Some(bench) = Bench::new() else { return };
    bench.made();
    bench.make_dir("a/in");
    bench.make_dir("c");
    let said = bench.refused_as_written(&["create", "--tier", "x=a/in", "--tier", "y=c"]);
    assert!(said.contains("a/in is inside ") && said.contains("the home tier of a volume"), "{said}");
    bench.ok(&["mount", "s.yaml", "m"]);
    let said = bench.refused_as_written(&["mount", "--create", "--tier", "x=c", "--tier", "y=a/in", "m"]);
    assert!(said.contains("the home tier of a volume") && !said.contains("--without"), "{said}");
    let said = bench.refused(&["tier", "add", "y=a/in", "m"]);
    assert!(
        said.contains("would be inside the other") || said.contains("the home tier of a volume"),
        "{said}"
    );
    bench.ok(&["umount", "m"]);

    bench.make_dir("d");
    fs::rename(bench.path("b"), bench.path("d/b")).unwrap();
    let said = bench.refused_as_written(&["create", "--tier", "x=d", "--tier", "y=c"]);
    assert!(said.contains("d/b is in it, a tier of a volume"), "{said}");
    assert!(!bench.path("d/.braid").exists());
}
