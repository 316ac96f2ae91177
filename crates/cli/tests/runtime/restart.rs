//! The process that serves a mount is killed while the volume is in use, and another one
//! goes on (`braid mount --restart`). Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, is_well, kill_and_wait, pattern, until};
use crate::crashing::{crash, crash_in_a_while, pid, serves_for_a_while};
use crate::in_use::{InUse, LEN, open, write_frames};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn mounted(flags: &[&str]) -> Option<Bench> {
    let bench = Bench::new()?;
    mount(&bench, flags);
    Some(bench)
}

fn mount(bench: &Bench, flags: &[&str]) {
    bench.ok(&[&["mount", "--restart"], flags, &["s.yaml", "m"]].concat());
    let status = bench.status();
    assert!(status["outlives_crash"] == true && status["transport"] == "device", "{status}");
}

fn goes_on_with(flags: &[&str]) {
    if let Some(bench) = mounted(flags) {
        crate::in_use::goes_on_through(&bench, crash_in_a_while);
    }
}

#[test]
fn all_that_is_open_goes_on_where_the_kernel_writes_back() {
    goes_on_with(&[]);
}

#[test]
fn all_that_is_open_goes_on_with_passthrough() {
    goes_on_with(&["--cache", "passthrough"]);
}

#[test]
fn all_that_is_open_goes_on_with_direct_io() {
    goes_on_with(&["--cache", "direct"]);
}

/// Operations that go wrong if one is done twice, or not at all.
fn one_by_one(dir: &Path, stop: &AtomicBool) -> u64 {
    let path = |name: &str| dir.join(name);
    fs::create_dir(dir).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    let mut log = OpenOptions::new().append(true).create_new(true).open(path("log")).unwrap();
    fs::write(path("one"), "0").unwrap();
    fs::write(path("other"), "1").unwrap();
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        writeln!(log, "{round}").unwrap();
        renameat_with(CWD, path("one"), CWD, path("other"), RenameFlags::EXCHANGE).unwrap();
        round += 1;
        assert_eq!(fs::read_to_string(path("one")).unwrap(), (round % 2).to_string());
        fs::hard_link(path("one"), path("link")).unwrap();
        assert_eq!(fs::metadata(path("one")).unwrap().nlink(), 2);
        fs::rename(path("link"), path("renamed")).unwrap();
        fs::remove_file(path("renamed")).unwrap();
        std::os::unix::fs::symlink("one", path("symlink")).unwrap();
        fs::remove_file(path("symlink")).unwrap();
        fs::create_dir(path("sub")).unwrap();
        fs::remove_dir(path("sub")).unwrap();
        // Only its maker may write to it, and only by this descriptor.
        let acting = braid_sys::act_as(1000, 1000, 0).unwrap();
        let made = OpenOptions::new().write(true).create_new(true).mode(0o444).open(path("read-only"));
        drop(acting);
        made.unwrap().write_all_at(b"text", 0).unwrap();
        fs::remove_file(path("read-only")).unwrap();
        let removed =
            OpenOptions::new().read(true).write(true).create_new(true).open(path("removed")).unwrap();
        fs::set_permissions(path("removed"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::remove_file(path("removed")).unwrap();
        removed.write_all_at(b"there", 0).unwrap();
        removed.sync_data().unwrap();
        let mut found = [0; 5];
        removed.read_exact_at(&mut found, 0).unwrap();
        assert_eq!((&found, removed.metadata().unwrap().mode() & 0o777), (b"there", 0o640));
    }
    let lines: String = (0..round).map(|line| format!("{line}\n")).collect();
    assert_eq!(fs::read_to_string(path("log")).unwrap(), lines);
    round
}

/// Blocks written past the cache, which lie on both tiers.
fn blocks(file: &Path, stop: &AtomicBool) -> u64 {
    let file = File::options().read(true).write(true).create_new(true).open(file).unwrap();
    let (mut written, mut round) = (BTreeMap::new(), 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let at = (round * 7919) % (LEN as u64 / 4096);
        file.write_all_at(&pattern(round, 4096), at * 4096).unwrap();
        written.insert(at, round);
        if round % 16 == 0 {
            file.sync_data().unwrap();
        }
        round += 1;
    }
    crate::common::drop_caches();
    for (at, round) in written {
        let mut found = vec![0; 4096];
        file.read_exact_at(&mut found, at * 4096).unwrap();
        assert!(found == pattern(round, 4096), "block {at}");
    }
    round
}

fn programs_see_only_a_pause(flags: &[&str]) {
    if let Some(bench) = mounted(flags) {
        programs_outlive_crashes(&bench);
        bench.unmount_clean();
    }
}

pub(crate) fn programs_outlive_crashes(bench: &Bench) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let deeds: Vec<_> = ["a", "b"]
            .map(|name| bench.path("m").join(name))
            .map(|dir| {
                scope.spawn(|| {
                    let dir = dir;
                    one_by_one(&dir, &stop)
                })
            })
            .into_iter()
            .collect();
        let blocks = scope.spawn(|| blocks(&bench.path("m/blocks"), &stop));
        let crashes = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for count in 1..=8 {
                crash(bench);
                assert_eq!(bench.status()["restarts"]["count"], count);
                let lines = || fs::metadata(bench.path("m/a/log")).map_or(0, |log| log.len());
                let before = lines();
                until("programs go on", || lines() > before + 200);
                serves_for_a_while(bench);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let rounds: Vec<u64> = deeds.into_iter().chain([blocks]).map(|load| load.join().unwrap()).collect();
        crashes.unwrap();
        assert!(rounds.iter().all(|rounds| *rounds > 10), "{rounds:?}");
    });
}

fn mounted_in_frames() -> Option<Bench> {
    let bench = Bench::new()?;
    write_frames(&bench);
    mount(&bench, &[]);
    Some(bench)
}

#[test]
fn programs_see_only_a_pause_with_files_in_frames() {
    if let Some(bench) = mounted_in_frames() {
        programs_outlive_crashes(&bench);
        bench.unmount_clean();
    }
}

pub(crate) fn files_outlive_crashes(bench: &Bench) {
    let used = InUse::of(bench);
    for turn in 0..3 {
        crash_in_a_while(bench);
        used.goes_on(bench, turn);
    }
}

#[test]
fn files_in_frames_stay_open() {
    let Some(bench) = mounted_in_frames() else { return };
    files_outlive_crashes(&bench);
    bench.unmount_clean();
    mount(&bench, &[]);
    assert!(fs::read(bench.path("m/spread")).unwrap()[..LEN] == pattern(1, LEN));
    bench.unmount_clean();
}

#[test]
fn programs_see_only_a_pause_where_the_kernel_writes_back() {
    programs_see_only_a_pause(&[]);
}

#[test]
fn programs_see_only_a_pause_with_direct_io() {
    programs_see_only_a_pause(&["--cache", "direct"]);
}

#[test]
fn an_exchanged_program_is_restarted_with_the_present_stack() {
    let Some(bench) = mounted(&[]) else { return };
    let used = open(&bench.path("m/file"));
    used.write_all_at(&pattern(1, LEN), 0).unwrap();
    bench.make_dir("third");
    bench.ok(&["tier", "add", "third=third", "m"]);
    crash(&bench);
    assert_eq!(bench.state("third"), "online");
    let upgrade = bench.json(&["upgrade", "--json", "m"]);
    assert!(upgrade.get("error").is_none(), "{upgrade}");
    assert_eq!(bench.status()["restarts"]["count"], 1);
    crash(&bench);
    assert_eq!(bench.status()["restarts"]["count"], 2);
    assert_eq!(bench.state("third"), "online");
    let mut found = vec![0; LEN];
    used.read_exact_at(&mut found, 0).unwrap();
    assert!(found == pattern(1, LEN));
    drop(used);
    bench.unmount_clean();
}

#[test]
fn a_crash_right_after_another_ends_the_mount_in_the_end() {
    let Some(bench) = mounted(&[]) else { return };
    fs::write(bench.path("m/file"), pattern(1, RANGE)).unwrap();
    let mut killed = 0;
    until("the mount ends", || {
        let said = bench.braid(&["status", "--json", "m"]);
        let status: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        if let Some(pid) = status["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).unwrap())) {
            killed += u32::from(kill_process(pid, Signal::KILL).is_ok());
        }
        fs::metadata(bench.path("m/file")).is_err_and(|error| error.raw_os_error() == Some(107))
    });
    assert!(killed >= 5, "{killed}");
    bench.ok(&["umount", "m"]);
    is_well(&bench);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(fs::read(bench.path("m/file")).unwrap() == pattern(1, RANGE));
    bench.unmount_clean();
}

#[test]
fn without_its_guard_the_daemon_serves_on() {
    let Some(bench) = mounted(&[]) else { return };
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid(&bench))).unwrap();
    kill_and_wait(stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap());
    let file = File::create(bench.path("m/file")).unwrap();
    fs::remove_file(bench.path("m/file")).unwrap();
    file.write_all_at(b"served", 0).unwrap();
    assert_eq!(bench.status()["outlives_crash"], false);
    drop(file);
    bench.unmount_clean();
}

#[test]
fn a_guard_in_the_foreground_says_that_it_is_ready_and_passes_signals_on() {
    let Some(bench) = Bench::new() else { return };
    let manager = UnixDatagram::bind(bench.path("notify")).unwrap();
    let mut command = bench.command(&["mount", "--foreground", "--restart", "s.yaml", "m"]);
    let mut guard = command.env("NOTIFY_SOCKET", bench.path("notify")).spawn().unwrap();
    let mut text = [0; 200];
    let len = manager.recv(&mut text).unwrap();
    assert_eq!(String::from_utf8_lossy(&text[..len]), "READY=1\n");
    crash(&bench);
    let of_guard = Pid::from_raw(guard.id().cast_signed()).unwrap();
    let pid = pid(&bench);
    kill_process(of_guard, Signal::TERM).unwrap();
    assert!(guard.wait().unwrap().success(), "the mount has ended as it should");
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    is_well(&bench);
    assert!(crate::common::is_empty(&bench.path("m")));
    // A failed mount is reported once, and the guard ends.
    let refused = bench.fails(&["mount", "--foreground", "--restart", "s.yaml", "no-such"]);
    assert!(refused.0 == 1 && refused.1.matches("braid: mount point no-such").count() == 1, "{refused:?}");
}

#[test]
fn what_can_not_go_on_is_refused() {
    let Some(mut bench) = Bench::bare(&["m", "a"]) else { return };
    bench.make_tmpfs("home", c"size=64m");
    let refused = bench.refused(&["mount", "--restart", "--tier", "home=home", "m"]);
    assert!(
        refused.contains("--restart: no process could go on after a crash: home is not on ext4"),
        "{refused}"
    );
    bench.write_stack(
        "stack: { volume: { home: a, tiers: { a: { dir: a }, b: { memory: { size: 16MiB } } } } }\nmount: { restart: true }\n",
    );
    let refused = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(refused.contains("s.yaml:2: mount.restart: no process could go on"), "{refused}");
    assert!(refused.contains("tier b is in the memory of the process"), "{refused}");
    bench.ok(&["mount", "--no-restart", "s.yaml", "m"]);
    assert_eq!(bench.status()["outlives_crash"], false);
    bench.ok(&["umount", "m"]);
}
