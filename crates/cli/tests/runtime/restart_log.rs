//! The process that serves a log file system is killed while it is in use, and another one goes on.
//! Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, kill_and_wait, pattern};
use crate::crashing::{crash_in_a_while, pid};
use crate::in_use::{LEN, open, stays_open_through};
use crate::restart::{files_outlive_crashes, programs_outlive_crashes};
use crate::restart_sessions::applications_outlive_crashes;
use braid_runtime::{Geometry, Options};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};

/// A bench with a log file system in the file `fs`.
fn bench() -> Option<Bench> {
    let bench = Bench::bare(&["m"])?;
    bench.ok(&["log", "create", "fs", "--size", "512MiB"]);
    Some(bench)
}

fn mounted(flags: &[&str]) -> Option<Bench> {
    let bench = bench()?;
    mount(&bench, flags);
    Some(bench)
}

fn mount(bench: &Bench, flags: &[&str]) {
    bench.ok(&[&["log", "mount", "--restart", "--log-file", "log"], flags, &["fs", "m"]].concat());
    is_protected(bench);
}

fn is_protected(bench: &Bench) {
    let status = bench.status();
    assert!(status["outlives_crash"] == true && status["transport"] == "device", "{status}");
}

/// A bench with modules on a log file system, each as in YAML without its last brace.
fn mounted_below(modules: &[&str]) -> Option<Bench> {
    let bench = bench()?;
    fs::write(bench.path("key"), [7; 32]).unwrap();
    fs::set_permissions(bench.path("key"), fs::Permissions::from_mode(0o600)).unwrap();
    let (closed, key) = (" }".repeat(modules.len()), bench.path("key"));
    let modules = modules.join(" ").replace("KEY", key.to_str().unwrap());
    bench.write_stack(&format!(
        "stack: {{ {modules} log: {{ device: fs }}{closed} }}\nmount: {{ restart: true }}\n"
    ));
    mount_stack(&bench);
    Some(bench)
}

fn mount_stack(bench: &Bench) {
    let mounted = bench.as_written(&["mount", "--log-file", "log", "s.yaml", "m"]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    is_protected(bench);
}

/// Unmounts; the file system is free and sound at once.
fn unmount(bench: &Bench) {
    bench.ok(&["umount", "m"]);
    let said = bench.ok(&["log", "check", "fs"]);
    assert!(said.contains(": sound; "), "{said}");
}

#[test]
fn all_that_is_open_goes_on_in_each_cache_mode() {
    for cache in ["writeback", "passthrough", "direct"] {
        let Some(bench) = mounted(&["--cache", cache]) else { return };
        stays_open_through(&bench, crash_in_a_while);
        unmount(&bench);
    }
}

#[test]
fn programs_see_only_a_pause() {
    for cache in ["writeback", "direct"] {
        let Some(bench) = mounted(&["--cache", cache, "--workers", "3"]) else { return };
        programs_outlive_crashes(&bench);
        unmount(&bench);
    }
}

#[test]
fn programs_see_only_a_pause_with_files_in_frames() {
    let Some(bench) = mounted_below(&["compress: {", "encrypt: { key_file: KEY,", "checksum: {"]) else {
        return;
    };
    programs_outlive_crashes(&bench);
    files_outlive_crashes(&bench);
    bench.ok(&["umount", "m"]);
    mount_stack(&bench);
    assert!(fs::read(bench.path("m/spread")).unwrap()[..LEN] == pattern(1, LEN));
    unmount(&bench);
}

#[test]
fn sessions_see_only_a_pause() {
    let Some(bench) = mounted(&["--runtime=workers=3"]) else { return };
    applications_outlive_crashes(&bench, Options::default());
    let geometry = Geometry { queues: 2, depth: 2, data: 4096 };
    ["a", "b", "c"].iter().for_each(|name| fs::remove_dir_all(bench.path("m").join(name)).unwrap());
    applications_outlive_crashes(&bench, Options { geometry, ordered: true, ..Options::default() });
    unmount(&bench);
}

#[test]
fn an_exchanged_program_goes_on_after_a_crash_and_is_exchanged_after_one() {
    let Some(bench) = mounted(&[]) else { return };
    let used = open(&bench.path("m/file"));
    for turn in 0..3 {
        used.write_all_at(&pattern(turn, LEN), 0).unwrap();
        // Not synced, nor written back.
        (0..500).for_each(|at| drop(File::create(bench.path("m").join(format!("{turn}-{at}"))).unwrap()));
        let upgrade = bench.json(&["upgrade", "--json", "m"]);
        assert!(upgrade.get("error").is_none(), "{upgrade}");
        (500..900).for_each(|at| drop(File::create(bench.path("m").join(format!("{turn}-{at}"))).unwrap()));
        crash_in_a_while(&bench);
        assert_eq!(bench.status()["restarts"]["count"], turn + 1);
        let mut found = vec![0; LEN];
        used.read_exact_at(&mut found, 0).unwrap();
        assert!(found == pattern(turn, LEN));
        assert_eq!(fs::read_dir(bench.path("m")).unwrap().count() as u64, 900 * (turn + 1) + 1);
    }
    drop(used);
    unmount(&bench);
}

#[test]
fn the_device_is_kept_from_others_until_the_mount_ends() {
    let Some(bench) = mounted(&[]) else { return };
    crash_in_a_while(&bench);
    let said = bench.refused(&["log", "check", "fs"]);
    assert!(said.contains("in use"), "{said}");
    let text = bench.ok(&["status", "m"]);
    assert!(text.contains("another process goes on, as 1 time before, the last by signal 9"), "{text}");
    unmount(&bench);
    // Without its guard, the daemon serves on, and its end is that of the mount.
    mount(&bench, &[]);
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid(&bench))).unwrap();
    kill_and_wait(stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap());
    fs::write(bench.path("m/file"), "there").unwrap();
    assert_eq!(bench.status()["outlives_crash"], false);
    unmount(&bench);
}

#[test]
fn what_can_not_go_on_is_refused() {
    let Some(bench) = bench() else { return };
    for (flags, why) in [
        (&["--driver", "io_uring"][..], "transfers of the driver io_uring may outlast the process"),
        (&["--salvage"], "what is salvaged is in the process"),
    ] {
        let said = bench.refused(&[&["log", "mount", "--restart"], flags, &["fs", "m"]].concat());
        let expected = format!("--restart: no process could go on after a crash: {why}");
        assert!(said.contains(&expected) && said.contains("help: "), "{said}");
    }
    bench.ok(&["log", "mount", "--restart", "--no-restart", "--driver", "io_uring", "fs", "m"]);
    assert_eq!(bench.status()["outlives_crash"], false);
    unmount(&bench);
}
