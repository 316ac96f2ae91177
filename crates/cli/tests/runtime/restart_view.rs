//! The process that serves a view is killed while it is in use, and another one goes on, with the
//! session that the first one began. Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, kill_and_wait, until};
use crate::crashing::crash_in_a_while;
use crate::in_use::{InUse, stays_open_through};
use crate::restart::{files_outlive_crashes, programs_outlive_crashes};
use crate::restart_sessions::applications_outlive_crashes;
use braid_runtime::Options;
use std::fs::{self, File};

/// A bench with a volume that is mounted at `l`, and a view of it at `m`.
fn mounted(below: &[&str], modules: &str, flags: &[&str]) -> Option<Bench> {
    let bench = Bench::new()?;
    bench.make_dir("l");
    bench.ok(&[&["mount", "--runtime"], below, &["s.yaml", "l"]].concat());
    let (open, closed) =
        if modules.is_empty() { (String::new(), "") } else { (format!("{modules}: {{ "), " }") };
    let text = format!("stack: {{ {open}view: {{ of: l }}{closed} }}\nmount: {{ restart: true }}\n");
    fs::write(bench.path("v.yaml"), text).unwrap();
    let mounted = bench.as_written(&[&["mount", "--log-file", "log"], flags, &["v.yaml", "m"]].concat());
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let status = bench.status();
    assert!(status["outlives_crash"] == true && status["view"].is_string(), "{status}");
    Some(bench)
}

/// Nothing of the view is left below; both can be unmounted at once.
fn unmount(bench: &Bench) {
    let below = || bench.json(&["status", "--json", "l"]);
    until("the files are closed below", || below()["open_files"] == 0);
    bench.ok(&["umount", "m"]);
    bench.ok(&["umount", "l"]);
    let said = bench.ok(&["fsck", "s.yaml"]);
    assert!(said.ends_with("no problems\n"), "{said}");
}

/// Kills the process that serves the mount below; another one does then.
fn crash_below(bench: &Bench) {
    let pid = || bench.json(&["status", "--json", "l"])["pid"].as_i64().unwrap();
    let before = pid();
    kill_and_wait(i32::try_from(before).unwrap());
    assert_ne!(pid(), before);
}

#[test]
fn all_that_is_open_in_a_view_goes_on() {
    let Some(bench) = mounted(&[], "", &[]) else { return };
    stays_open_through(&bench, crash_in_a_while);
    unmount(&bench);
}

#[test]
fn programs_see_only_a_pause_of_a_view() {
    let Some(bench) = mounted(&[], "metrics", &[]) else { return };
    programs_outlive_crashes(&bench);
    unmount(&bench);
}

#[test]
fn a_view_and_the_mount_below_crash_in_turn() {
    let Some(bench) = mounted(&["--restart"], "", &[]) else { return };
    let used = InUse::of(&bench);
    for turn in 0..3 {
        crash_in_a_while(&bench);
        crash_below(&bench);
        used.goes_on(&bench, turn);
        let upgrade = bench.json(&["upgrade", "--json", "m"]);
        assert!(upgrade.get("error").is_none(), "{upgrade}");
    }
    drop(used);
    unmount(&bench);
}

#[test]
fn files_in_frames_of_a_view_stay_open() {
    let Some(bench) = mounted(&[], "compress", &[]) else { return };
    programs_outlive_crashes(&bench);
    files_outlive_crashes(&bench);
    unmount(&bench);
}

#[test]
fn sessions_with_a_view_see_only_a_pause() {
    let Some(bench) = mounted(&[], "", &["--runtime=workers=3"]) else { return };
    applications_outlive_crashes(&bench, Options::default());
    unmount(&bench);
}

#[test]
fn the_end_below_ends_a_view_and_its_guard() {
    let Some(bench) = mounted(&[], "", &[]) else { return };
    let file = File::create(bench.path("m/file")).unwrap();
    kill_and_wait(i32::try_from(bench.json(&["status", "--json", "l"])["pid"].as_i64().unwrap()).unwrap());
    until("the view has no session", || {
        fs::metadata(bench.path("m/file")).is_err_and(|error| error.raw_os_error() == Some(107))
    });
    kill_and_wait(i32::try_from(bench.status()["pid"].as_i64().unwrap()).unwrap());
    drop(file);
    // No process can go on without the session: the mount is dead, as without `restart`.
    until("the mount ends", || {
        fs::metadata(bench.path("m/file")).is_err_and(|error| error.raw_os_error() == Some(107))
    });
    bench.ok(&["umount", "m"]);
    bench.ok(&["umount", "l"]);
}
