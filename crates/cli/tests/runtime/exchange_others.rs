//! The program that serves a log file system or a view is exchanged while it is in use
//! (`braid upgrade`). Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, kill_and_wait, pattern, until};
use crate::exchange::{beside_writes, program};
use crate::in_use::{InUse, LEN, open};
use crate::seen::{BOTH, Seen, me, socket};
use rustix::fs::{AtFlags, CWD, FlockOperation, flock, linkat};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A log file system in the file `fs`, mounted at `m` by `braid log mount` with these flags.
fn log(flags: &[&str]) -> Option<Bench> {
    let bench = Bench::bare(&["m", "v"])?;
    bench.ok(&["log", "create", "fs", "--size", "128MiB"]);
    mount_log(&bench, flags);
    Some(bench)
}

fn mount_log(bench: &Bench, flags: &[&str]) {
    let log = bench.path("log");
    let words = [&["log", "mount", "--log-file", log.to_str().unwrap()], flags, &["fs", "m"]].concat();
    let output = bench.as_written(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Mounts a stack file.
fn mount(bench: &Bench, stack: &str, point: &str) {
    let log = bench.path("log");
    let output = bench.as_written(&["mount", "--log-file", log.to_str().unwrap(), stack, point]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn pid(bench: &Bench, point: &str) -> i64 {
    bench.json(&["status", "--json", point])["pid"].as_i64().unwrap()
}

/// Has another process go on with the mount at `point`.
fn exchange(bench: &Bench, point: &str) {
    let before = pid(bench, point);
    let upgrade = bench.json(&["upgrade", "--json", point]);
    assert!(upgrade["paused_ns"].as_u64().unwrap() > 0 && upgrade.get("error").is_none(), "{upgrade}");
    assert_ne!(pid(bench, point), before);
}

fn names(dir: &mut rustix::fs::Dir, most: usize) -> BTreeSet<String> {
    let names = dir.take(most).map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// Everything that is open at `m` goes on through an exchange of `point`.
fn goes_on(bench: &Bench, point: &str) {
    let used = InUse::of(bench);
    let mut listing = rustix::fs::Dir::read_from(&used.dir).unwrap();
    let mut seen = names(&mut listing, 100);
    for turn in 0..3 {
        exchange(bench, point);
        used.goes_on(bench, turn);
    }
    // A program that gives up when it has the whole state: the process before goes on from it.
    let hello = "say({'hello': {'version': 2, 'program': '9'}})\nhear()\nsay('ready')\nhear()\n";
    let gives_up = program(bench, "gives-up", &format!("{hello}say({{'failed': {{'why': 'no room'}}}})\n"));
    let said = bench.refused(&["upgrade", "--to", &gives_up, point]);
    assert!(said.contains("is served by the program before") && said.contains("no room"), "{said}");
    used.goes_on(bench, 3);
    seen.extend(names(&mut listing, usize::MAX));
    assert_eq!(seen.len(), 300, "the listing went on");
    let fd = format!("/proc/self/fd/{}", used.unnamed.as_raw_fd());
    linkat(CWD, &*fd, CWD, bench.path("m/named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    drop((used, listing));
    assert!(fs::read(bench.path("m/named")).unwrap()[..LEN] == pattern(3, LEN));
    assert!(fs::read(bench.path("m/spread")).unwrap()[..LEN] == pattern(1, LEN));
}

fn log_goes_on(flags: &[&str]) {
    let Some(bench) = log(flags) else { return };
    goes_on(&bench, "m");
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", "fs"]);
    mount_log(&bench, flags);
    assert!(fs::read(bench.path("m/spread")).unwrap()[..LEN] == pattern(1, LEN));
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_log_goes_on_where_the_kernel_writes_back() {
    log_goes_on(&[]);
}

#[test]
fn a_log_goes_on_with_direct_io_by_the_device() {
    log_goes_on(&["--cache", "direct", "--transport", "device"]);
}

#[test]
fn a_log_on_a_block_device_below_modules_goes_on() {
    let Some(bench) = Bench::bare(&["m"]) else { return };
    File::create(bench.path("image")).unwrap().set_len(128 << 20).unwrap();
    let attached =
        Command::new("losetup").args(["--find", "--show"]).arg(bench.path("image")).output().unwrap();
    let device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
    assert!(!device.is_empty(), "{}", String::from_utf8_lossy(&attached.stderr));
    bench.ok(&["log", "create", &device]);
    bench.write_stack(&format!(
        "stack: {{ metrics: {{ noop: {{ compress: {{ log: {{ device: {device} }} }} }} }} }}\n"
    ));
    mount(&bench, "s.yaml", "m");
    beside_writes(&bench, || (0..4).for_each(|_| exchange(&bench, "m")));
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", &device]);
    assert!(Command::new("losetup").args(["-d", &device]).status().unwrap().success());
}

#[test]
fn what_was_synced_before_a_kill_is_there_after_an_exchange() {
    let Some(bench) = log(&[]) else { return };
    let used = InUse::of(&bench);
    exchange(&bench, "m");
    used.spread.sync_all().unwrap();
    kill_and_wait(i32::try_from(pid(&bench, "m")).unwrap());
    drop(used);
    bench.ok(&["umount", "m"]);
    mount_log(&bench, &[]);
    assert!(fs::read(bench.path("m/spread")).unwrap() == pattern(1, LEN));
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", "fs"]);
}

#[test]
fn a_log_goes_on_with_its_device_wherever_its_path_leads() {
    let Some(bench) = log(&[]) else { return };
    fs::write(bench.path("m/file"), "text").unwrap();
    fs::rename(bench.path("fs"), bench.path("moved")).unwrap();
    exchange(&bench, "m");
    bench.ok(&["log", "create", "fs", "--size", "64MiB"]);
    exchange(&bench, "m");
    assert_eq!(fs::read_to_string(bench.path("m/file")).unwrap(), "text");
    let said = bench.refused(&["log", "check", "moved"]);
    assert!(said.contains("it is in use"), "{said}");
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", "moved"]);
}

#[test]
fn nothing_else_gets_the_device_of_a_log_meanwhile() {
    let Some(bench) = log(&[]) else { return };
    let gives_up = program(
        &bench,
        "gives-up",
        "say({'hello': {'version': 2, 'program': '9'}})\nhear()\nsay('ready')\nhear()\n\
         say({'failed': {'why': 'no room'}})\n",
    );
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let locked = scope.spawn(|| {
            let image = File::open(bench.path("fs")).unwrap();
            let lock = || flock(&image, FlockOperation::NonBlockingLockShared);
            while !is_over.load(Ordering::Relaxed) {
                if lock().is_ok() {
                    return true;
                }
            }
            false
        });
        for _ in 0..3 {
            exchange(&bench, "m");
            bench.fails(&["upgrade", "--to", &gives_up, "m"]);
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(!locked.join().unwrap());
    });
    bench.ok(&["umount", "m"]);
    bench.ok(&["log", "check", "fs"]);
}

#[test]
fn what_changes_during_an_upgrade_is_refused_or_goes_on() {
    let Some(bench) = Bench::bare(&["m"]) else { return };
    bench.ok(&["log", "create", "fs", "--size", "64MiB"]);
    bench.write_stack("stack: { noop: { log: { device: fs } } }\n");
    fs::write(bench.path("n.yaml"), "stack: { deny: { paths: [ kept ], log: { device: fs } } }\n").unwrap();
    mount(&bench, "s.yaml", "m");
    fs::write(bench.path("m/kept"), "").unwrap();
    let (braid, begun, go) = (env!("CARGO_BIN_EXE_braid"), bench.path("begun"), bench.path("go"));
    let text = format!(
        "#!/bin/sh\n: > {}\nwhile [ ! -e {} ]; do sleep 0.02; done\nexec {braid} \"$@\"\n",
        begun.display(),
        go.display()
    );
    fs::write(bench.path("slow"), text).unwrap();
    fs::set_permissions(bench.path("slow"), Permissions::from_mode(0o755)).unwrap();
    let mut upgrades: Vec<_> = (0..3).map(|_| bench.start(&["upgrade", "--to", "./slow", "m"])).collect();
    until("the other program has started", || begun.exists());
    let mut modify = bench.start(&["stack", "modify", "m", "n.yaml"]);
    fs::write(&go, "").unwrap();
    let upgraded = upgrades.iter_mut().filter_map(|upgrade| upgrade.wait().unwrap().success().then_some(()));
    assert!(upgraded.count() > 0);
    let modified = modify.wait().unwrap().success();
    assert_eq!(bench.ok(&["stack", "dump", "m"]).contains("deny:"), modified);
    assert_eq!(fs::write(bench.path("m/kept"), "new").is_err(), modified);
    exchange(&bench, "m");
    assert_eq!(fs::write(bench.path("m/kept"), "new").is_err(), modified);
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_client_that_takes_no_answer_does_not_hold_up_the_mount() {
    let Some(bench) = log(&[]) else { return };
    let mut slow = UnixStream::connect(socket(&bench).with_extension("sock")).unwrap();
    let request = "{\"protocol\":2,\"verb\":\"status\"}\n";
    slow.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // Until the daemon waits for its answers to be taken.
    while slow.write_all(request.as_bytes()).is_ok() {}
    exchange(&bench, "m");
    bench.ok(&["umount", "m"]);
}

#[test]
fn sessions_and_values_of_a_log_go_on() {
    let Some(bench) = Bench::bare(&["m"]) else { return };
    bench.ok(&["log", "create", "fs", "--size", "128MiB"]);
    let at = format!("unix:{}", bench.path("kv.sock").display());
    mount_log(&bench, &["--runtime", "--kv", &at]);
    let seen = Seen::of(&bench, "m");
    let (entry, opened) = {
        let made = seen.fs.create(&me(), seen.root, OsStr::new("file"), 0o644, 0, true, BOTH.into());
        made.unwrap()
    };
    let write = |at: u64, text: &[u8]| seen.fs.write(&me(), opened.handle, at, text, Default::default());
    assert_eq!(write(0, b"before").unwrap(), 6);
    let redis = |words: &str| {
        let mut stream = UnixStream::connect(bench.path("kv.sock")).unwrap();
        stream.write_all(format!("{words}\r\n").as_bytes()).unwrap();
        let mut answer = [0; 64];
        let len = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..len]).into_owned()
    };
    assert_eq!(redis("SET key value"), "+OK\r\n");
    for _ in 0..3 {
        exchange(&bench, "m");
        assert_eq!(write(6, b" after").unwrap(), 6);
        assert_eq!(redis("GET key"), "$5\r\nvalue\r\n");
    }
    assert_eq!(seen.fs.getattr(&me(), entry.attr.ino, Some(opened.handle)).unwrap().size, 12);
    seen.fs.release(opened.handle).unwrap();
    assert_eq!(fs::read_to_string(bench.path("m/file")).unwrap(), "before after");
    drop(seen);
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_view_goes_on_and_so_does_what_is_below() {
    let Some(bench) = Bench::new() else { return };
    // The view is at `m`, where everything is used.
    bench.make_dir("below");
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    fs::write(bench.path("below.yaml"), stack).unwrap();
    bench.ok(&["mount", "--runtime", "below.yaml", "below"]);
    fs::write(bench.path("v.yaml"), "stack: { noop: { view: { of: below } } }\n").unwrap();
    mount(&bench, "v.yaml", "m");
    goes_on(&bench, "m");
    exchange(&bench, "below");
    exchange(&bench, "m");
    assert!(fs::read(bench.path("m/spread")).unwrap()[..LEN] == pattern(1, LEN));
    bench.ok(&["umount", "m"]);
    until("the session has ended", || {
        bench.json(&["runtime", "--json", "below"])["sessions"].as_array().unwrap().is_empty()
    });
    bench.ok(&["umount", "below"]);
}

#[test]
fn a_sync_writes_what_only_the_kernel_has() {
    let Some(bench) = log(&[]) else { return };
    let file = open(&bench.path("m/file"));
    file.write_all_at(&pattern(9, LEN), 0).unwrap();
    bench.ok(&["sync", "m"]);
    kill_and_wait(i32::try_from(pid(&bench, "m")).unwrap());
    drop(file);
    bench.ok(&["umount", "m"]);
    mount_log(&bench, &[]);
    assert!(fs::read(bench.path("m/file")).unwrap() == pattern(9, LEN));
    bench.ok(&["umount", "m"]);
}
