//! The program that serves a mount is exchanged while the volume is in use
//! (`braid upgrade`). Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, drop_caches, is_well, kill_and_wait, pattern, stack, until};
use crate::in_use::{InUse, LEN, open, write_frames};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

fn mounted(flags: &[&str]) -> Option<Bench> {
    let bench = Bench::new()?;
    let words = [&["mount"], flags, &["s.yaml", "m"]].concat();
    bench.ok(&words);
    Some(bench)
}

fn pid(bench: &Bench) -> i32 {
    i32::try_from(bench.status()["pid"].as_i64().unwrap()).unwrap()
}

/// Has another process go on with the mount.
fn exchange(bench: &Bench) {
    let before = pid(bench);
    let upgrade = bench.json(&["upgrade", "--json", "m"]);
    assert!(upgrade["paused_ns"].as_u64().unwrap() > 0 && upgrade.get("error").is_none(), "{upgrade}");
    assert_ne!(pid(bench), before);
}

fn goes_on_with(flags: &[&str]) {
    if let Some(bench) = mounted(flags) {
        crate::in_use::goes_on_through(&bench, exchange);
    }
}

#[test]
fn all_that_is_open_goes_on_where_the_kernel_writes_back() {
    goes_on_with(&[]);
}

#[test]
fn all_that_is_open_goes_on_by_the_device() {
    goes_on_with(&["--transport", "device"]);
}

#[test]
fn all_that_is_open_goes_on_with_passthrough() {
    goes_on_with(&["--cache", "passthrough"]);
}

#[test]
fn all_that_is_open_goes_on_with_direct_io() {
    goes_on_with(&["--cache", "direct", "--transport", "device"]);
}

#[test]
fn files_open_by_passthrough_are_closed_and_opened_again() {
    let Some(bench) = Bench::bare(&["a", "m"]) else { return };
    bench.ok(&["mount", "--tier", "a=a", "m"]);
    assert_eq!(bench.status()["cache"], "passthrough");
    let path = bench.path("m/file");
    let mut file = open(&path);
    file.write_all(b"before").unwrap();
    for turn in 0..3 {
        exchange(&bench);
        // The present open and a second one are of one kind.
        let mut other = open(&path);
        let mut found = String::new();
        other.read_to_string(&mut found).unwrap();
        assert_eq!(found, "before");
        drop(other);
        if turn == 1 {
            drop(std::mem::replace(&mut file, open(&path)));
        }
    }
    drop(file);
    fs::write(&path, "after").unwrap();
    bench.ok(&["umount", "m"]);
    assert_eq!(fs::read(bench.path("a/file")).unwrap(), b"after");
}

/// Does `work` while a program writes, so that the kernel always has data to write back.
pub(crate) fn beside_writes(bench: &Bench, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            let file = open(&bench.path("m/written"));
            let mut rounds = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                for part in 0..40 {
                    file.write_all_at(&pattern(rounds, 40_000), part * 30_000).unwrap();
                }
                if rounds % 4 == 3 {
                    file.sync_all().unwrap();
                }
                rounds += 1;
            }
            rounds
        });
        work();
        stop.store(true, Ordering::Relaxed);
        let rounds = written.join().unwrap();
        let found = fs::read(bench.path("m/written")).unwrap();
        assert!(found[39 * 30_000..] == pattern(rounds - 1, 40_000), "{rounds}");
    });
}

#[test]
fn files_in_frames_go_on() {
    let Some(bench) = Bench::new() else { return };
    write_frames(&bench);
    bench.ok(&["mount", "s.yaml", "m"]);
    let used = InUse::of(&bench);
    beside_writes(&bench, || {
        for turn in 0..3 {
            exchange(&bench);
            used.goes_on(&bench, turn);
        }
    });
    // A program that can't be a daemon: the process before goes on.
    bench.fails(&["upgrade", "--to", "/bin/false", "m"]);
    used.goes_on(&bench, 3);
    drop(used);
    bench.unmount_clean();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(bench.path("m/spread")).unwrap()[..LEN] == pattern(1, LEN));
    bench.unmount_clean();
}

#[test]
fn syncs_that_modules_and_users_make_do_not_keep_the_process() {
    let Some(bench) = Bench::new() else { return };
    let relaxed = "consistency:\n    mode: relaxed\n    within: 10ms\n";
    bench.write_stack(&stack(&bench).replace("noop:\n", relaxed));
    bench.ok(&["mount", "s.yaml", "m"]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let output = bench.braid(&["sync", "m"]);
                let said = String::from_utf8_lossy(&output.stderr);
                // It ends with the process.
                assert!(output.status.success() || said.contains("braid: "), "{said}");
            }
        });
        beside_writes(&bench, || (0..12).for_each(|_| exchange(&bench)));
        over.store(true, Ordering::Relaxed);
        syncs.join().unwrap();
    });
    bench.unmount_clean();
}

#[test]
fn a_killed_process_is_recovered_from_after_an_exchange() {
    let Some(bench) = mounted(&[]) else { return };
    let used = InUse::of(&bench);
    exchange(&bench);
    used.spread.sync_all().unwrap();
    kill_and_wait(pid(&bench));
    drop(used);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(bench.path("m/spread")).unwrap() == pattern(1, LEN));
    until("what was removed is gone from the tiers", || bench.status()["pending_removals"] == 0);
    bench.unmount_clean();
}

#[test]
fn a_job_and_a_module_go_on() {
    let Some(bench) = Bench::bare(&["a", "b", "m"]) else { return };
    bench.write_stack(
        "\
stack:
  deny:
    paths: [ 'kept/**' ]
    volume:
      home: fast
      policy: { weighted: { } }
      range: 64KiB
      tiers:
        fast: { dir: a, weight: 1 }
        slow: { dir: b, weight: 3 }
",
    );
    bench.make_dir("a/kept");
    fs::write(bench.path("a/kept/file"), "kept").unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    // The module knows names from lookups, which the kernel does not repeat.
    let kept = open_to_read(&bench.path("m/kept/file"));
    fs::write(bench.path("m/big"), pattern(4, 200 * RANGE)).unwrap();
    bench.ok(&["tier", "evacuate", "slow", "m", "--bandwidth", "4MiB/s", "--background"]);
    exchange(&bench);
    let refused = fs::write(bench.path("m/kept/file"), "changed").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::PERM.raw_os_error()));
    drop(kept);
    bench.until(1, |job| job["state"] == "done");
    assert_eq!(bench.ranges_on("slow"), 0);
    assert!(fs::read(bench.path("m/big")).unwrap() == pattern(4, 200 * RANGE));
    bench.unmount_clean();
}

fn open_to_read(path: &Path) -> File {
    File::open(path).unwrap()
}

/// A program that takes over like a real one, up to some step.
pub(crate) fn program(bench: &Bench, name: &str, text: &str) -> String {
    let path = bench.path(name);
    let shared = "\
#!/usr/bin/python3
import json, os, socket, struct, sys
s = socket.socket(fileno=0)
def say(message):
    text = json.dumps(message).encode()
    s.sendall(struct.pack('<Q', len(text)) + text)
def hear():
    left = struct.unpack('<Q', s.recv(8, socket.MSG_WAITALL))[0]
    return json.loads(s.recv(left, socket.MSG_WAITALL))
";
    fs::write(&path, format!("{shared}{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_program_that_does_not_take_over_changes_nothing() {
    let Some(bench) = mounted(&[]) else { return };
    let used = InUse::of(&bench);
    let before = pid(&bench);
    let hello = "say({'hello': {'version': 2, 'program': '9'}})\n";
    let ready = format!("{hello}hear()\nsay('ready')\n");
    for (at, (text, says)) in [
        ("", "it does not say that it is a braid"),
        ("say({'hello': {'version': 7, 'program': '9'}})\ns.recv(1)\n", "braid 9 understands version 7"),
        (&format!("{hello}hear()\nsay({{'failed': {{'why': 'not today'}}}})\n"), "not today"),
        (&format!("{ready}sys.exit(3)\n"), "it ended before it served the mount"),
        (&format!("{ready}hear()\nsay({{'failed': {{'why': 'no room'}}}})\n"), "no room"),
        (&format!("{ready}say('odd')\ns.recv(1)\n"), "it says what is not understood"),
    ]
    .into_iter()
    .enumerate()
    {
        let program = program(&bench, &format!("program-{at}"), text);
        let said = bench.refused(&["upgrade", "--to", &program, "m"]);
        assert!(said.contains(says), "{said}");
        assert_eq!(pid(&bench), before);
        used.goes_on(&bench, at as u64);
    }
    let (status, said) = bench.fails(&["upgrade", "--all", "m"]);
    assert!(status == 2 && said.contains("cannot be used with"), "{said}");
    let said = bench.refused(&["upgrade", "--to", "nothing", "m"]);
    assert!(said.contains("nothing: No such file"), "{said}");
    let said = bench.refused(&["upgrade", "--to", "s.yaml", "m"]);
    assert!(said.contains("can't be started"), "{said}");
    exchange(&bench);
    used.goes_on(&bench, 6);
    drop(used);
    bench.unmount_clean();
}

#[test]
fn what_only_the_process_has_keeps_it() {
    let Some(bench) = Bench::bare(&["a", "m"]) else { return };
    bench.write_stack(
        "\
stack:
  volume:
    home: fast
    tiers:
      fast: { dir: a }
      quick: { memory: { size: 64MiB } }
",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    let said = bench.refused(&["upgrade", "m"]);
    assert!(said.contains("tier quick is in the memory of the process: remove it first"), "{said}");
    bench.ok(&["umount", "m"]);
}

#[test]
fn all_mounts_are_upgraded() {
    let Some(bench) = Bench::new() else { return };
    bench.make_dir("c");
    bench.make_dir("n");
    // Other mounts of this machine are none of this test's.
    let script = "\
        mount -t tmpfs none /run && $BRAID mount --create s.yaml m && $BRAID mount --create --tier c=c n &&
        echo text > m/file && $BRAID upgrade --all && cat m/file && $BRAID umount m && $BRAID umount n";
    let output = bench.in_namespace(script);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("is served by braid").count(), 2, "{said}{error}");
    assert!(said.contains("text\n"), "{said}{error}");
}

#[test]
fn a_process_in_the_foreground_waits() {
    let Some(bench) = Bench::new() else { return };
    let mut first = bench.start(&["mount", "--foreground", "s.yaml", "m"]);
    until("it is mounted", || bench.braid(&["status", "m"]).status.success());
    assert_eq!(pid(&bench), first.id().cast_signed());
    let said = bench.ok(&["upgrade", "m"]);
    assert!(said.contains("is served by braid") && said.contains("operations were held up for"), "{said}");
    exchange(&bench);
    fs::write(bench.path("m/file"), "text").unwrap();
    assert_eq!(first.try_wait().unwrap(), None, "it waits");
    kill_process(Pid::from_child(&first), Signal::TERM).unwrap();
    assert!(first.wait().unwrap().success());
    assert_eq!(fs::read(bench.path("a/file")).unwrap(), b"text");
    assert!(bench.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
}

#[test]
fn a_service_manager_learns_of_the_new_process() {
    let Some(bench) = Bench::new() else { return };
    let manager = UnixDatagram::bind(bench.path("notify")).unwrap();
    let mut command = bench.command(&["mount", "--foreground", "s.yaml", "m"]);
    let mut first = command.env("NOTIFY_SOCKET", bench.path("notify")).spawn().unwrap();
    let hear = || {
        let mut text = [0; 200];
        let len = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    assert_eq!(hear(), "READY=1\n");
    exchange(&bench);
    assert_eq!(hear(), format!("MAINPID={}\n", pid(&bench)));
    assert!(first.wait().unwrap().success(), "it ends, and the mount stays");
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_mount_that_was_upgraded_can_be_unmounted_at_once() {
    for transport in ["auto", "device"] {
        let Some(bench) = mounted(&["--transport", transport]) else { return };
        for _ in 0..10 {
            bench.ok(&["upgrade", "m"]);
            let copies = crate::common::without_copies();
            unmount(bench.path("m"), UnmountFlags::empty()).unwrap();
            drop(copies);
            let again = || bench.braid(&["mount", "--transport", transport, "s.yaml", "m"]).status.success();
            until("the daemon has closed the volume", again);
        }
        bench.unmount_clean();
    }
}

#[test]
fn access_times_stay_as_they_were_set() {
    let Some(bench) = mounted(&["--options", "strictatime"]) else { return };
    let file = bench.path("m/plain");
    let renews = || {
        let touched = Command::new("touch").args(["-a", "-d", "2020-01-02"]).arg(&file).status();
        assert!(touched.unwrap().success());
        let before = fs::metadata(&file).unwrap().atime();
        drop_caches();
        fs::read(&file).unwrap();
        fs::metadata(&file).unwrap().atime() != before
    };
    fs::write(&file, "plain").unwrap();
    assert!(renews());
    let mut helper = Command::new(env!("CARGO_BIN_EXE_braid"));
    helper.arg0("mount.fuse.braid").args(["s.yaml", "m", "-o", "remount,noatime"]);
    assert!(helper.current_dir(bench.path("")).status().unwrap().success());
    assert!(!renews());
    exchange(&bench);
    assert!(!renews());
    bench.unmount_clean();
}

#[test]
fn what_a_zoned_tier_holds_back_is_written_before() {
    let Some(bench) = Bench::bare(&["a", "z", "m"]) else { return };
    bench.ok(&["zoned", "emulate", "z", "--zones", "20", "--zone-size", "1MiB"]);
    bench.write_stack(
        "\
stack:
  volume:
    home: fast
    policy: { size: { small: 0, sync: 0, large: zoned } }
    range: 64KiB
    tiers:
      fast: { dir: a }
      zoned: { dir: z }
",
    );
    bench.ok(&["mount", "--cache", "direct", "s.yaml", "m"]);
    let file = open(&bench.path("m/file"));
    // No whole extent, and not synced.
    file.write_all_at(&pattern(5, 3 * RANGE + 1000), 0).unwrap();
    exchange(&bench);
    let mut found = vec![0; 3 * RANGE + 1000];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == pattern(5, 3 * RANGE + 1000));
    assert!(bench.ranges_on("zoned") > 0);
    drop(file);
    bench.unmount_clean();
}

#[test]
fn inodes_keep_their_numbers_when_home_was_replaced_before() {
    let Some(bench) = mounted(&[]) else { return };
    bench.make_dir("c");
    let used = InUse::of(&bench);
    fs::create_dir(bench.path("m/in")).unwrap();
    let number = |name: &str| fs::metadata(bench.path("m").join(name)).unwrap().ino();
    let before = ["plain", "spread", "in", "dir/7"].map(number);
    bench.ok(&["tier", "replace", "fast", "c", "m"]);
    for turn in 0..2 {
        exchange(&bench);
        used.goes_on(&bench, turn);
        assert_eq!(["plain", "spread", "in", "dir/7"].map(number), before);
    }
    drop(used);
    bench.unmount_clean();
}
