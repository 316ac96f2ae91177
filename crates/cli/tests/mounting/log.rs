//! Log file systems through the `braid` command. Needs root and /dev/fuse; skipped
//! without them.

use crate::common::{Bench, pattern, until, without_copies};
use braid_testkit::{Common, ModelSide, NativeSide, Runner, Settings};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::Arc;

/// Bytes of a group of blocks, with which segments are aligned.
const GROUP: u64 = 256 << 10;

fn mounted(bench: &Bench) {
    bench.ok(&["log", "mount", "--log-file", "log", "fs", "m"]);
}

fn bench() -> Option<Bench> {
    let bench = Bench::bare(&["m"])?;
    bench.ok(&["log", "create", "fs", "--size", "64MiB"]);
    Some(bench)
}

#[test]
fn make_mount_use_unmount_check() {
    let Some(bench) = bench() else { return };
    mounted(&bench);
    let data = pattern(1, 3_000_000);
    fs::write(bench.path("m/big"), &data).unwrap();
    fs::write(bench.path("m/small"), "hi").unwrap();
    fs::create_dir(bench.path("m/dir")).unwrap();
    fs::hard_link(bench.path("m/small"), bench.path("m/dir/linked")).unwrap();
    std::os::unix::fs::symlink("dir/linked", bench.path("m/link")).unwrap();
    let open = File::open(bench.path("m/small")).unwrap();
    open.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    drop(open);
    let provenance = Command::new("getfattr")
        .args(["--only-values", "-n", "braid.provenance"])
        .arg(bench.path("m/small"))
        .output();
    if let Ok(output) = provenance {
        let said = String::from_utf8(output.stdout).unwrap();
        let me = fs::read_to_string("/proc/self/comm").unwrap();
        assert!(said.starts_with("created time=") && said.contains(&format!("command={me}")), "{said}");
    }
    // A log file system in use is left alone.
    for words in [&["log", "check", "fs"][..], &["log", "show", "fs"], &["log", "create", "--force", "fs"]] {
        let said = bench.refused(words);
        assert!(said.contains("fs: it is in use") && said.contains("braid umount"), "{said}");
    }
    let said = bench.refused(&["log", "mount", "fs", "m"]);
    assert!(said.contains("a Braid file system is mounted here already"), "{said}");
    // A log file system is no volume.
    for words in [
        &["tier", "set", "fast", "weight=1", "./m"][..],
        &["explain", "m/small"],
        &["status", "--affected", "m"],
    ] {
        let said = bench.refused(words);
        assert!(
            said.contains("this is a log file system") && said.contains("docs/log.md"),
            "{words:?}: {said}"
        );
    }
    bench.ok(&["sync", "m"]);
    bench.ok(&["umount", "m"]);
    // It is free at once.
    let said = bench.ok(&["log", "check", "fs"]);
    assert!(said.starts_with("fs: sound; 5 inodes"), "{said}");
    let said = bench.ok(&["log", "show", "fs"]);
    assert!(said.contains("closed") && said.contains("2 directories, 2 files, 1 others"), "{said}");
    bench.ok(&[
        "log",
        "mount",
        "--workers",
        "3",
        "--no-allow-other",
        "--log-file",
        "log",
        "--log-level",
        "debug",
        "fs",
        "m",
    ]);
    assert!(fs::read(bench.path("m/big")).unwrap() == data);
    assert_eq!(fs::read_to_string(bench.path("m/link")).unwrap(), "hi");
    let found = fs::metadata(bench.path("m/small")).unwrap();
    assert_eq!((found.nlink(), found.mode() & 0o777), (2, 0o640));
    bench.ok(&["umount", "m"]);
    let said = bench.ok(&["log", "show", "fs"]);
    assert!(said.contains("3, with 1+1+1 segments of 256 KiB"), "{said}");
}

#[test]
fn a_mount_agrees_with_the_model_by_each_driver() {
    for driver in ["auto", "io_uring"] {
        let Some(bench) = bench() else { return };
        bench.ok(&["log", "mount", "--driver", driver, "--log-file", "log", "fs", "m"]);
        agrees_with_the_model(&bench);
        bench.ok(&["upgrade", "m"]);
        let told = bench.status()["log_driver"].as_str().map(str::to_owned);
        assert_eq!(told.as_deref(), Some(if driver == "auto" { "kernel" } else { driver }));
        assert!(bench.ok(&["stack", "dump", "m"]).contains(&format!("driver: {driver}")));
        let data = pattern(7, 3_000_001);
        fs::write(bench.path("m/after"), &data).unwrap();
        bench.ok(&["umount", "m"]);
        bench.ok(&["log", "check", "fs"]);
        // By the other way, all is the same.
        mounted(&bench);
        assert!(fs::read(bench.path("m/after")).unwrap() == data);
        bench.ok(&["umount", "m"]);
    }
}

#[test]
fn a_file_system_without_direct_io_is_refused_for_io_uring() {
    let Some(bench) = Bench::bare(&["m", "r"]) else { return };
    let script = "mount -t ramfs none r && $BRAID log create r/fs --size 16MiB && \
                  exec $BRAID log mount --driver io_uring r/fs m";
    let output = bench.in_namespace(script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("r/fs: its file system has no direct I/O"),
        "{said}"
    );
}

fn agrees_with_the_model(bench: &Bench) {
    rustix::process::umask(rustix::fs::Mode::from(0o022));
    let dir = bench.path("m/dir");
    fs::create_dir(&dir).unwrap();
    let common = Arc::new(Common::model().with(&[&dir]).unwrap());
    let (mount, model) = (NativeSide::new(dir, common.clone()), ModelSide(common));
    let settings = Settings { seed: 5, case_len: 200, compare_every: 50, plain_modes: false };
    let totals = Runner::new(&mount, &model, settings).run(15_000).unwrap_or_else(|found| panic!("{found}"));
    assert!(totals.succeeded * 3 > totals.ops, "{totals:?}");
}

#[test]
fn what_was_synced_outlives_the_daemon() {
    let Some(bench) = bench() else { return };
    let mut daemon =
        bench.start(&["log", "mount", "--foreground", "--allow-other", "--log-file", "log", "fs", "m"]);
    until("it is mounted", || {
        fs::metadata(bench.path("m")).unwrap().dev() != fs::metadata(bench.path("fs")).unwrap().dev()
    });
    let data = pattern(2, 500_000);
    let file = File::create(bench.path("m/synced")).unwrap();
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    drop(file);
    assert!(fs::read(bench.path("m/synced")).is_err());
    let said = bench.ok(&["log", "show", "fs"]);
    assert!(said.contains("to be recovered at the next mount"), "{said}");
    // The dead mount is cleared away.
    mounted(&bench);
    assert!(fs::read(bench.path("m/synced")).unwrap() == data);
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", "fs"]);
}

#[test]
fn what_holds_something_is_not_overwritten() {
    let Some(bench) = bench() else { return };
    let said = bench.refused(&["log", "create", "fs"]);
    assert!(said.contains("fs: it holds a log file system") && said.contains("--force"), "{said}");
    bench.ok(&["log", "create", "--force", "fs"]);
    let image = File::create(bench.path("ext4")).unwrap();
    image.set_len(32 << 20).unwrap();
    if Command::new("mkfs.ext4").arg("-q").arg(bench.path("ext4")).status().is_ok_and(|made| made.success()) {
        let said = bench.refused(&["log", "create", "ext4"]);
        assert!(said.contains("it holds an ext2, ext3 or ext4 file system"), "{said}");
        let said = bench.refused(&["log", "mount", "ext4", "m"]);
        assert!(said.contains("there is no log file system") && said.contains("braid log create"), "{said}");
    }
    fs::write(bench.path("letter"), vec![b'x'; 20 << 20]).unwrap();
    let said = bench.refused(&["log", "create", "letter"]);
    assert!(said.contains("it holds data of an unknown kind"), "{said}");
    assert_eq!(fs::read(bench.path("letter")).unwrap()[0], b'x');
    for (words, found) in [
        (&["log", "create", "none"][..], "say how large the file is to be: --size SIZE"),
        (&["log", "create", "none", "--size", "1MiB"], "are too few"),
        (&["log", "create", "fs", "--size", "128MiB"], "leave --size out"),
        (&["log", "create", "m"], "no block device, no NVMe namespace, and no regular file"),
        (&["log", "create", "/dev/null"], "/dev/null: it is no NVMe namespace (such as /dev/ng0n1)"),
        (&["log", "mount", "none", "m"], "make one first: braid log create none --size SIZE"),
        (&["log", "mount", "--driver", "uring", "fs", "m"], "write auto or io_uring"),
        (&["log", "mount", "--workers", "65", "fs", "m"], "write a whole number from 1 to 64"),
        (&["log", "mount", "fs", "nowhere"], "there is no such directory"),
        (&["log", "check", "none"], "No such file"),
    ] {
        let said = bench.refused(words);
        assert!(said.contains(found), "{words:?}: {said}");
    }
    assert!(!bench.path("none").exists());
    // Files in the mount point are hidden only on request.
    fs::write(bench.path("m/there"), "x").unwrap();
    let said = bench.refused(&["log", "mount", "fs", "m"]);
    assert!(said.contains("the directory is not empty"), "{said}");
    bench.ok(&["log", "mount", "--nonempty", "--log-file", "log", "fs", "m"]);
    assert!(!bench.path("m/there").exists());
    bench.ok(&["umount", "m"]);
}

#[test]
fn planted_damage_is_found() {
    let Some(bench) = bench() else { return };
    mounted(&bench);
    for file in 0..500 {
        fs::write(bench.path(&format!("m/file-{file}")), "content").unwrap();
    }
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", "fs"]);
    let file = OpenOptions::new().read(true).write(true).open(bench.path("fs")).unwrap();
    let turn_bit = |offset: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    };
    turn_bit(60);
    let (status, said) = bench.fails(&["log", "check", "fs"]);
    assert!(status == 1 && said.contains("1 problem"), "{said}");
    turn_bit(60);
    bench.ok(&["log", "check", "fs"]);
    // The image is in one of the groups: the one whose damage matters.
    let mut found = 0;
    for group in 0..(64 << 20) / GROUP {
        turn_bit(group * GROUP + 4096 + 100);
        if bench.braid(&["log", "check", "fs"]).status.code() == Some(1) {
            found += 1;
            let said = bench.refused(&["log", "mount", "fs", "m"]);
            assert!(said.contains("records of the image") && said.contains("at byte"), "{said}");
            assert!(said.contains("braid log check fs"), "{said}");
        }
        turn_bit(group * GROUP + 4096 + 100);
    }
    assert_eq!(found, 1);
    bench.ok(&["log", "check", "fs"]);
}

/// Turns a bit of the second block of the image, which is in the only group whose damage matters.
fn damage_the_image(bench: &Bench) {
    let file = OpenOptions::new().read(true).write(true).open(bench.path("fs")).unwrap();
    let turn_bit = |offset: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    };
    let matters = (0..(64 << 20) / GROUP).find(|group| {
        turn_bit(group * GROUP + 4096 + 100);
        let found = bench.braid(&["log", "check", "fs"]).status.code() == Some(1);
        if !found {
            turn_bit(group * GROUP + 4096 + 100);
        }
        found
    });
    assert!(matters.is_some(), "no image was found");
}

fn notes(bench: &Bench, words: &[&str]) -> String {
    let output = bench.as_written(words);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

/// Mounts it, and writes one large and 500 small files; returns the contents of the large one.
fn mounted_with_files(bench: &Bench) -> Vec<u8> {
    mounted(bench);
    let data = pattern(3, 700_000);
    fs::write(bench.path("m/big"), &data).unwrap();
    for file in 0..500 {
        fs::write(bench.path(&format!("m/file-{file}")), format!("content {file}")).unwrap();
    }
    data
}

/// Of these files, the large one and most small ones are there.
fn most_is_there(bench: &Bench, data: &[u8]) {
    assert!(fs::read(bench.path("m/big")).unwrap() == data);
    let read = (0..500).filter(|file| {
        let found = fs::read_to_string(bench.path(&format!("m/file-{file}")));
        found.is_ok_and(|found| found == format!("content {file}"))
    });
    let read = read.count();
    assert!(read >= 450, "{read} of 500");
}

#[test]
fn a_damaged_one_is_salvaged_and_nothing_is_written() {
    let Some(bench) = bench() else { return };
    let data = mounted_with_files(&bench);
    bench.ok(&["umount", "m"]);
    let salvage = ["log", "mount", "--salvage", "--log-file", "log", "fs", "m"];
    // A sound one can be salvaged, too.
    let sound = fs::read(bench.path("fs")).unwrap();
    let said = notes(&bench, &salvage);
    assert!(said.contains("note: ") && said.contains("nothing is wrong; 502 inodes"), "{said}");
    let said = bench.ok(&["status", "m"]);
    assert!(said.contains("salvaged to be read only; nothing is wrong"), "{said}");
    assert_eq!(fs::read_dir(bench.path("m")).unwrap().count(), 501);
    bench.ok(&["umount", "m"]);
    assert!(fs::read(bench.path("fs")).unwrap() == sound, "the device is changed");

    damage_the_image(&bench);
    let damaged = fs::read(bench.path("fs")).unwrap();
    for words in [&["log", "mount", "fs", "m"][..], &["log", "check", "fs"]] {
        let said = bench.refused(words);
        assert!(said.contains("braid log mount --salvage fs DIRECTORY"), "{said}");
    }
    let said = notes(&bench, &salvage);
    for wanted in ["can be read, and nothing is written", "records of the image", "braid log create --force"]
    {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let said = fs::read_to_string(bench.path("log")).unwrap();
    assert!(said.contains("damaged places of the image and the logs: at byte"), "{said}");
    let status = bench.status();
    assert!(status["log_salvage"].as_array().is_some_and(|wrong| !wrong.is_empty()), "{status}");
    most_is_there(&bench, &data);
    refuses_changes(&bench);
    bench.ok(&["umount", "m"]);
    assert!(fs::read(bench.path("fs")).unwrap() == damaged, "the device is changed");
}

#[test]
fn a_damaged_one_is_repaired_in_place() {
    let Some(bench) = bench() else { return };
    let data = mounted_with_files(&bench);
    let said = bench.refused(&["log", "check", "--repair", "fs"]);
    assert!(said.contains("unmount it first"), "{said}");
    bench.ok(&["umount", "m"]);
    let sound = fs::read(bench.path("fs")).unwrap();
    let said = bench.ok(&["log", "check", "--repair", "fs"]);
    assert!(said.contains("fs: sound; 502 inodes") && !said.contains("repaired"), "{said}");
    assert!(fs::read(bench.path("fs")).unwrap() == sound, "the device is changed");

    damage_the_image(&bench);
    let said = bench.refused(&["log", "check", "fs"]);
    assert!(said.contains("braid log check --repair fs"), "{said}");
    let said = bench.ok(&["log", "check", "--repair", "fs"]);
    let wanted = ["damaged places of the image and the logs: 1\n  at byte", "fs: repaired", "fs: sound; "];
    for wanted in wanted {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    mounted(&bench);
    most_is_there(&bench, &data);
    fs::write(bench.path("m/new"), "after the repair").unwrap();
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", "fs"]);
    mounted(&bench);
    assert_eq!(fs::read_to_string(bench.path("m/new")).unwrap(), "after the repair");
    bench.ok(&["umount", "m"]);

    File::create(bench.path("empty")).unwrap().set_len(32 << 20).unwrap();
    let said = bench.refused(&["log", "check", "--repair", "empty"]);
    assert!(said.contains("nothing is left of one") && said.contains("backups"), "{said}");
    let empty = fs::read(bench.path("empty")).unwrap();
    assert!(empty.iter().all(|byte| *byte == 0), "the device is changed");
}

fn refuses_changes(bench: &Bench) {
    let refused =
        |error: std::io::Error| error.raw_os_error() == Some(rustix::io::Errno::ROFS.raw_os_error());
    assert!(refused(fs::write(bench.path("m/new"), "x").unwrap_err()));
    assert!(refused(fs::remove_file(bench.path("m/big")).unwrap_err()));
    assert!(refused(fs::create_dir(bench.path("m/dir")).unwrap_err()));
    assert!(refused(OpenOptions::new().write(true).open(bench.path("m/big")).unwrap_err()));
    // Not by other doors, and not if the kernel lets changes through, either.
    let said = bench.refused(&["kv", "put", "m", "new", "value"]);
    assert!(said.to_lowercase().contains("read-only") || said.contains("read only"), "{said}");
    assert_eq!(bench.ok(&["kv", "get", "m", "file-7"]).trim(), "content 7");
    rustix::mount::mount_remount(bench.path("m"), rustix::mount::MountFlags::empty(), "").unwrap();
    assert!(refused(fs::write(bench.path("m/new"), "x").unwrap_err()));
    assert!(refused(fs::remove_file(bench.path("m/big")).unwrap_err()));
    assert!(refused(OpenOptions::new().write(true).open(bench.path("m/big")).unwrap_err()));
    let open = File::open(bench.path("m/big")).unwrap();
    assert!(refused(open.set_permissions(fs::Permissions::from_mode(0o600)).unwrap_err()));
    drop(open);
}

#[test]
fn what_can_not_be_salvaged_says_why() {
    let Some(bench) = bench() else { return };
    File::create(bench.path("empty")).unwrap().set_len(32 << 20).unwrap();
    let said = bench.refused(&["log", "mount", "--salvage", "--log-file", "log", "empty", "m"]);
    assert!(said.contains("nothing is left of one") && said.contains("backups"), "{said}");
    let stack = |options: &str| format!("stack: {{ log: {{ device: fs, salvage: true }} }}\n{options}");
    fs::write(bench.path("s.yaml"), stack("")).unwrap();
    let said = bench.refused_as_written(&["mount", "--log-file", "log", "s.yaml", "m"]);
    assert!(said.contains("what is salvaged is only read") && said.contains("options: [ro]"), "{said}");
    fs::write(bench.path("s.yaml"), stack("mount: { options: [ro] }\n")).unwrap();
    let said = bench.refused_as_written(&["mount", "--create", "--log-file", "log", "s.yaml", "m"]);
    assert!(said.contains("a mount makes no log file system"), "{said}");
    let said = notes(&bench, &["mount", "--log-file", "log", "s.yaml", "m"]);
    assert!(said.contains("nothing is wrong; 1 inode,"), "{said}");
    let said = bench.ok(&["stack", "dump", "m"]);
    assert!(said.contains("salvage: true") && said.contains("ro"), "{said}");
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_busy_mount_says_who_uses_it_and_other_tools_unmount_it() {
    let Some(bench) = bench() else { return };
    for tool in [&["umount"][..], &["fusermount3", "-u"]] {
        mounted(&bench);
        let user = File::create(bench.path("m/used")).unwrap();
        let said = bench.refused(&["umount", "m"]);
        assert!(said.contains("is busy"), "{said}");
        drop(user);
        // A process that another test forks has the descriptor for a moment.
        until("it is unmounted", || {
            let _copies = without_copies();
            let done = Command::new(tool[0]).args(&tool[1..]).arg(bench.path("m")).status();
            done.or_else(|_| bench.command(&["umount", "m"]).status()).is_ok_and(|done| done.success())
        });
        // The daemon closes it a moment later.
        until("it is closed", || bench.braid(&["log", "check", "fs"]).status.success());
    }
}
