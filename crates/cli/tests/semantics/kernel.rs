//! The kernel's side of a mount: set-id bits and execution with them, cached
//! data beside asynchronous direct writes, `braid sync`. Needs root and
//! /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, drop_caches, pattern, until, write_ranges};
use braid_contract::NativeHandle;
use rustix::fs::{OFlags, XattrFlags};
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A user other than root, in a group of his own and in no other.
const USER: u32 = 1234;
const ROOT: u32 = 0;

impl Bench {
    /// A mounted bench that other users can reach, with a directory `native`
    /// beside the mount.
    fn mounted_for_all() -> Option<Self> {
        let bench = Self::new()?;
        bench.make_dir("native");
        bench.ok(&["mount", "s.yaml", "m"]);
        for dir in ["", "native", "m"] {
            fs::set_permissions(bench.path(dir), Permissions::from_mode(0o777)).unwrap();
        }
        Some(bench)
    }
}

/// A change of a file with this mode and owner, by this user.
struct Case {
    mode: u32,
    owner: (u32, u32),
    by: u32,
    words: &'static [&'static str],
}

const fn case(mode: u32, owner: (u32, u32), by: u32, words: &'static [&'static str]) -> Case {
    Case { mode, owner, by, words }
}

const WRITE: &[&str] = &["dd", "if=/dev/zero", "of=p", "bs=4096", "count=1", "conv=notrunc"];
const WRITE_DIRECTLY: &[&str] =
    &["dd", "if=/dev/zero", "of=p", "bs=4096", "count=1", "conv=notrunc", "oflag=direct"];
const ALLOCATE: &[&str] = &["fallocate", "-l", "700000", "p"];
const PUNCH: &[&str] = &["fallocate", "-p", "-o", "0", "-l", "4096", "p"];
const ZERO: &[&str] = &["fallocate", "-z", "-o", "0", "-l", "4096", "p"];
const CUT: &[&str] = &["truncate", "-s", "10", "p"];
const EMPTY: &[&str] = &["sh", "-c", ": > p"];
const COPY: &[&str] = &["xfs_io", "-c", "copy_range -l 4096 source", "p"];
const MAP: &[&str] = &["xfs_io", "-c", "mmap -rw 0 4096", "-c", "mwrite 0 4", "-c", "msync -s", "p"];
const LIST: &[&str] = &["setfacl", "-m", "u:5:rw", "p"];

/// All changes of a file, by root, by its owner and by others.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for words in [WRITE, WRITE_DIRECTLY, ALLOCATE, PUNCH, ZERO, CUT, EMPTY, COPY, MAP] {
        // Set-group-id without group execution stays if a member writes.
        for mode in [0o4777, 0o2777, 0o6777, 0o6767] {
            cases.push(case(mode, (ROOT, ROOT), USER, words));
            cases.push(case(mode, (ROOT, USER), USER, words));
        }
        cases.push(case(0o6777, (USER, USER), ROOT, words));
        cases.push(case(0o777, (USER, USER), ROOT, words));
    }
    for mode in [0o2777, 0o2767, 0o6777] {
        for group in [ROOT, USER] {
            cases.push(case(mode, (USER, group), USER, LIST));
            cases.push(case(mode, (USER, group), USER, &["chgrp", "1234", "p"]));
            cases.push(case(0o777, (USER, group), USER, &["chmod", "6777", "p"]));
            cases.push(case(mode, (USER, group), USER, &["chmod", "2775", "p"]));
        }
        cases.push(case(mode, (USER, USER), ROOT, &["chown", "5:5", "p"]));
        cases.push(case(mode, (USER, USER), ROOT, LIST));
    }
    cases
}

/// Sets a capability, effective, by its raw bytes.
fn give_capability(file: &Path) {
    let mut value = [0_u8; 20];
    value[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    value[5] = 0x20;
    rustix::fs::setxattr(file, "security.capability", &value, XattrFlags::empty()).unwrap();
}

/// Makes the change in `dir`; answers whether it succeeded, the mode that is
/// left, and whether there are capabilities.
fn outcome(dir: &Path, case: &Case, spread: bool) -> (bool, String, bool) {
    let file = dir.join("p");
    let _ = fs::remove_file(&file);
    let text = pattern(1, 8 * RANGE);
    match spread {
        true => write_ranges(&file, &text),
        false => fs::write(&file, &text[..RANGE / 2]).unwrap(),
    }
    fs::write(dir.join("source"), &text[..4096]).unwrap();
    chown(&file, Some(case.owner.0), Some(case.owner.1)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(case.mode)).unwrap();
    // A write by root to a file with both looks like a `chown` to Braid: both
    // are cleared.
    let as_natively = case.by != ROOT || case.mode & 0o6000 == 0;
    if as_natively {
        give_capability(&file);
    }
    // The kernel knows all of it.
    fs::metadata(&file).unwrap();
    let done = quiet(case.words).uid(case.by).gid(case.by).current_dir(dir).status().unwrap();
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
    let capable = match rustix::fs::getxattr(&file, "security.capability", &mut [0; 32]) {
        Err(rustix::io::Errno::NODATA) => false,
        got => got.map(|_| true).unwrap(),
    };
    (done.success(), format!("{mode:o}"), capable)
}

fn quiet(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn set_id_bits_and_capabilities_go_as_they_do_natively() {
    let Some(bench) = Bench::mounted_for_all() else { return };
    for case in cases() {
        let native = outcome(&bench.path("native"), &case, false);
        for spread in [false, true] {
            let here = outcome(&bench.path("m"), &case, spread);
            let Case { mode, owner, by, words } = case;
            assert_eq!(here, native, "{mode:o} of {owner:?}, {words:?} by {by}, spread: {spread}");
        }
    }
    bench.unmount_clean();
}

#[test]
fn members_of_the_group_are_known_by_all_their_groups() {
    let Some(bench) = Bench::mounted_for_all() else { return };
    let file = bench.path("m").join("p");
    let write = |groups: &str| {
        fs::write(&file, "text").unwrap();
        chown(&file, Some(0), Some(77)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o2767)).unwrap();
        let who = ["setpriv", "--reuid", "1234", "--regid", "1234", groups];
        assert!(quiet(&[&who, WRITE].concat()).current_dir(bench.path("m")).status().unwrap().success());
        fs::metadata(&file).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!(write("--groups=5,77"), 0o2767);
    assert_eq!(write("--groups=5,78"), 0o767);
    assert_eq!(write("--clear-groups"), 0o767);
    bench.unmount_clean();
}

#[test]
fn a_set_id_program_that_another_wrote_to_runs_without_its_owners_rights() {
    let Some(bench) = Bench::mounted_for_all() else { return };
    let (dir, program) = (bench.path("m"), bench.path("m").join("p"));
    let runs_as = || {
        let mut told = None;
        // Between its fork and its program, a process of a test beside has what this one has open.
        until("nothing has the program open for writing", || {
            let output = Command::new(&program).arg("-u").uid(USER).gid(USER).output();
            let busy = |error: &io::Error| error.kind() == io::ErrorKind::ExecutableFileBusy;
            told =
                output.map(Some).or_else(|error| if busy(&error) { Ok(None) } else { Err(error) }).unwrap();
            told.is_some()
        });
        String::from_utf8(told.unwrap().stdout).unwrap().trim().to_owned()
    };
    for how in ["oflag=direct", "oflag=sync"] {
        for held_open in [false, true] {
            fs::copy("/usr/bin/id", &program).unwrap();
            fs::set_permissions(&program, Permissions::from_mode(0o4777)).unwrap();
            let reader = held_open.then(|| fs::File::open(&program).unwrap());
            assert_eq!(runs_as(), "0");
            // The same bytes, but written by another user. They come from
            // another file, so that no one else has the program open.
            fs::copy(&program, bench.path("source")).unwrap();
            let write = ["dd", "if=../source", "of=p", "bs=4096", "count=1", "conv=notrunc", how];
            assert!(quiet(&write).uid(USER).gid(USER).current_dir(&dir).status().unwrap().success());
            assert_eq!(runs_as(), USER.to_string(), "{how}, held open: {held_open}");
            drop(reader);
        }
    }
    bench.unmount_clean();
}

/// Whether there is such a program; tests that need one are skipped.
fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        eprintln!("passed over: needs {program}");
    }
    there
}

/// During an asynchronous direct write, a reader caches the old data. When the
/// write is done, every reader gets the new data.
#[test]
fn what_was_cached_beside_an_asynchronous_direct_write_does_not_stay() {
    let Some(bench) = Bench::new() else { return };
    if !has("fio") {
        return;
    }
    bench.ok(&["mount", "s.yaml", "m"]);
    let file = bench.path("m").join("f");
    write_ranges(&file, &vec![b'o'; 8 * RANGE]);
    bench.ok(&["move", "m/f", "--to", "slow"]);
    let expected = vec![b'N'; 8 * RANGE];
    for engine in ["libaio", "io_uring"] {
        write_ranges(&file, &vec![b'o'; 8 * RANGE]);
        bench.ok(&["move", "m/f", "--to", "slow"]);
        // The file stays open, so that all later access is through the cache.
        let reader = fs::File::open(&file).unwrap();
        bench.ok(&["drill", "slow", "write:hang", "./m"]);
        let name = format!("--filename={}", file.display());
        let size = format!("--size={}", 8 * RANGE);
        let engine = format!("--ioengine={engine}");
        let fio = ["fio", "--name=w", &name, "--rw=write", "--bs=128k", &size, "--direct=1", &engine];
        let writer = [&fio[..], &["--iodepth=4", "--buffer_pattern=0x4e", "--thread"]].concat();
        let mut writer = quiet(&writer).current_dir(bench.path("")).spawn().unwrap();
        until("writes are under way", || hanging(&bench) == 4);
        assert!(fs::read(&file).unwrap().contains(&b'o'), "it is read while it is being written");
        bench.ok(&["drill", "slow", "--clear", "./m"]);
        assert!(writer.wait().unwrap().success());
        assert!(fs::read(&file).unwrap() == expected, "{engine}, while it is open");
        drop(reader);
        assert!(fs::read(&file).unwrap() == expected, "{engine}, opened again");
    }
    bench.unmount_clean();
}

/// Operations on `slow` that hang.
fn hanging(bench: &Bench) -> u64 {
    bench.json(&["drill", "slow", "--json", "./m"])["tiers"][0]["hanging"].as_u64().unwrap()
}

#[test]
fn sync_makes_all_durable_or_says_what_is_not() {
    let Some(bench) = Bench::mounted_for_all() else { return };
    write_ranges(&bench.path("m").join("f"), &pattern(3, 8 * RANGE));
    assert_eq!(bench.ok(&["sync", "m"]), "");
    assert_eq!(bench.ok(&["sync", "m/f"]), "");
    // Like sync(1), it is for every user; the program may be where not all can
    // reach it.
    let program = bench.path("braid");
    // In a process of its own: one that a parallel test forks would hold the
    // copy open for writing.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_braid")).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut theirs = Command::new(program);
    assert!(
        theirs
            .args(["sync", "m"])
            .current_dir(bench.path(""))
            .uid(USER)
            .gid(USER)
            .status()
            .unwrap()
            .success()
    );
    let open = fs::OpenOptions::new().write(true).open(bench.path("m").join("f")).unwrap();
    bench.ok(&["drill", "slow", "sync:EIO", "./m"]);
    std::os::unix::fs::FileExt::write_all_at(&open, b"new", 5).unwrap();
    let said = bench.refused(&["sync", "m"]);
    assert!(said.contains("slow"), "{said}");
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    until("the tier is well", || bench.state("slow") == "online");
    assert_eq!(bench.ok(&["sync", "m"]), "");
    drop(open);
    let said = bench.refused(&["sync", "native"]);
    assert!(said.contains("not in a Braid file system"), "{said}");
    bench.unmount_clean();
}

/// The answer of `name_to_handle_at` for a path of the mount.
fn handle(bench: &Bench, path: &str) -> (i32, Vec<u8>) {
    braid_sys::handle_of(fs::File::open(bench.path(path)).unwrap()).unwrap()
}

/// Opens an inode by handle.
fn by_handle(bench: &Bench, (kind, bytes): &(i32, Vec<u8>)) -> io::Result<fs::File> {
    let mount = fs::File::open(bench.path("m")).unwrap();
    braid_sys::open_handle(mount, *kind, bytes, OFlags::RDONLY).map(fs::File::from)
}

#[test]
fn a_handle_leads_back_after_caches_were_dropped_and_after_a_remount() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(mut bench) = Bench::bare(&["b", "m"]) else { return };
        let image = fs::File::create(bench.path("image")).unwrap();
        image.set_len(512 << 20).unwrap();
        let made = Command::new(format!("mkfs.{kind}")).arg(bench.path("image")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        bench.mount_image("disk", "image");
        fs::create_dir(bench.path("disk/a")).unwrap();
        bench.write_stack(
            "stack: { volume: { home: fast, policy: { weighted: { } }, tiers: { fast: { dir: disk/a }, \
             slow: { dir: b } } } }\n",
        );
        bench.ok(&["mount", "s.yaml", "m"]);
        fs::create_dir_all(bench.path("m/d/e")).unwrap();
        fs::write(bench.path("m/d/plain"), "plain").unwrap();
        fs::write(bench.path("m/d/e/spread"), pattern(1, 9 << 20)).unwrap();
        fs::write(bench.path("m/d/gone"), "gone").unwrap();
        let [root, dir, plain, spread, gone] =
            ["m", "m/d/e", "m/d/plain", "m/d/e/spread", "m/d/gone"].map(|path| handle(&bench, path));
        // Inodes of home's file system outside the volume.
        let others = ["disk/a/.braid", "disk/a/.braid/index", "disk"].map(|path| forged(&bench, path, &dir));
        for round in ["dropped", "mounted anew"] {
            if round == "dropped" {
                fs::remove_file(bench.path("m/d/gone")).unwrap();
                fs::write(bench.path("m/d/new"), "new").unwrap();
                drop_caches();
            } else {
                bench.ok(&["umount", "m"]);
                bench.ok(&["mount", "s.yaml", "m"]);
            }
            let read = |handle: &_| {
                let mut found = Vec::new();
                by_handle(&bench, handle).and_then(|mut file| file.read_to_end(&mut found)).map(|_| found)
            };
            let context = format!("{kind}, {round}");
            // The deepest first: its parents are found from it.
            let is_dir = |handle: &_, path| {
                let found = by_handle(&bench, handle).unwrap_or_else(|error| panic!("{context}: {error}"));
                let [found, wanted] = [found, fs::File::open(bench.path(path)).unwrap()];
                assert_eq!(found.metadata().unwrap().ino(), wanted.metadata().unwrap().ino(), "{context}");
            };
            is_dir(&dir, "m/d/e");
            is_dir(&root, "m");
            assert_eq!(read(&plain).unwrap(), b"plain", "{context}");
            assert!(read(&spread).unwrap() == pattern(1, 9 << 20), "{context}");
            let stale = Some(rustix::io::Errno::STALE.raw_os_error());
            assert_eq!(read(&gone).unwrap_err().raw_os_error(), stale, "{context}");
            assert!(by_handle(&bench, &forged(&bench, "disk/a/d/e", &dir)).is_ok(), "{context}");
            for other in &others {
                assert_eq!(by_handle(&bench, other).unwrap_err().raw_os_error(), stale, "{context}");
            }
        }
        bench.unmount_clean();
    }
}

/// A forged handle, equal to another one except for its inode: number and
/// generation as the daemon would report for the native file.
fn forged(bench: &Bench, path: &str, like: &(i32, Vec<u8>)) -> (i32, Vec<u8>) {
    let ino = fs::metadata(bench.path(path)).unwrap().ino();
    let (kind, native) = handle(bench, path);
    let generation = NativeHandle::from_parts(kind, &native).unwrap().generation();
    let words = [(ino >> 32) as u32, ino as u32, generation as u32];
    (like.0, words.iter().flat_map(|word| word.to_ne_bytes()).collect())
}

#[test]
fn access_times_are_renewed_as_the_mount_says() {
    const LONG_AGO: &str = "2020-01-02 03:04:05";
    const FILES: [&str; 4] = ["plain", "spread", "dir", "link"];
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::write(bench.path("m/plain"), "plain").unwrap();
    write_ranges(&bench.path("m/spread"), &pattern(1, 4 * RANGE));
    fs::create_dir(bench.path("m/dir")).unwrap();
    std::os::unix::fs::symlink("plain", bench.path("m/link")).unwrap();
    let age = |date: &str| {
        let mut touch = Command::new("touch");
        touch.args(["-h", "-a", "-d", date]).args(FILES).current_dir(bench.path("m"));
        assert!(touch.status().unwrap().success());
    };
    // The files with a new access time after all were read.
    let renewed = || {
        let before = FILES.map(|name| accessed(&bench, name));
        drop_caches();
        fs::read(bench.path("m/plain")).unwrap();
        fs::read(bench.path("m/spread")).unwrap();
        fs::read_dir(bench.path("m/dir")).unwrap().for_each(drop);
        fs::read_link(bench.path("m/link")).unwrap();
        let after = FILES.map(|name| accessed(&bench, name));
        std::array::from_fn::<bool, 4, _>(|at| before[at] != after[at])
    };
    for (options, old, recent) in [
        ("noatime", [false; 4], [false; 4]),
        ("strictatime", [true; 4], [true; 4]),
        ("relatime", [true; 4], [false; 4]),
        ("nodiratime", [true, true, false, true], [false; 4]),
        ("noatime,strictatime", [true; 4], [true; 4]),
    ] {
        bench.ok(&["umount", "m"]);
        bench.ok(&["mount", "--options", options, "s.yaml", "m"]);
        age(LONG_AGO);
        assert_eq!(renewed(), old, "{options}, old times");
        // Later than any change.
        age("1 hour");
        assert_eq!(renewed(), recent, "{options}, recent times");
    }
    // New options take effect at once.
    let remounted = |options: &str| {
        let mut helper = Command::new(env!("CARGO_BIN_EXE_braid"));
        helper.arg0("mount.fuse.braid").args(["s.yaml", "m", "-o", options]).current_dir(bench.path(""));
        helper.output().unwrap()
    };
    assert!(remounted("remount,noatime").status.success());
    age(LONG_AGO);
    assert_eq!(renewed(), [false; 4]);
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    let refused = remounted("remount,ro,noatime");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("unmount, and mount with the option"), "{said}");
    fs::write(bench.path("m/plain"), "nothing was changed").unwrap();
    assert!(remounted("remount,relatime,ro").status.success());
    fs::write(bench.path("m/plain"), "read-only").unwrap_err();
    bench.unmount_clean();
}

fn accessed(bench: &Bench, name: &str) -> (i64, i64) {
    let found = fs::symlink_metadata(bench.path("m").join(name)).unwrap();
    (found.atime(), found.atime_nsec())
}
