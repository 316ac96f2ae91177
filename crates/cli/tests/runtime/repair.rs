//! The states of modules outlive a crash of the daemon, and modules repair its leftovers. Needs
//! root and /dev/fuse; skipped without them.

use crate::common::{Bench, kill_and_wait, until};
use crate::crashing::{crash, pid, serves_for_a_while};
use crate::in_libraries::{ALICE, attribute, bench, compile, refused};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;

fn mends(bench: &Bench, flags: &[&str], to: &str) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/mends.c");
    compile(bench, source, flags, to);
}

/// A stack with the module `mends`, mounted.
fn mounted(flags: &[&str]) -> Option<Bench> {
    let bench = bench("mends:")?;
    mends(&bench, flags, "repo/mends.so");
    bench.ok(&["mount", "--restart", "s.yaml", "m"]);
    Some(bench)
}

fn make_files(bench: &Bench, names: &[&str]) {
    names.iter().for_each(|name| fs::write(bench.path("m").join(name), *name).unwrap());
}

/// Waits until the guard knows the present states of modules: one round of asking has begun since,
/// and another one after that.
fn is_kept(bench: &Bench) {
    let exports = || attribute(bench, "user.exports").unwrap().parse::<u64>().unwrap();
    let before = exports();
    until("modules are asked for their states", || exports() >= before + 2);
}

fn crash_later(bench: &Bench) {
    serves_for_a_while(bench);
    crash(bench);
}

fn counted(bench: &Bench) -> String {
    attribute(bench, "user.count").unwrap()
}

fn repairs(bench: &Bench) -> String {
    attribute(bench, "user.repairs").unwrap()
}

fn module(bench: &Bench, name: &str) -> Value {
    let status = bench.status();
    let modules = status["modules"].as_array().unwrap();
    modules.iter().find(|module| module["module"] == name).unwrap().clone()
}

fn log(bench: &Bench) -> String {
    fs::read_to_string(bench.path("log")).unwrap()
}

/// How many operations of a kind the module `metrics` has seen.
fn operations(bench: &Bench, operation: &str) -> u64 {
    let metrics = module(bench, "metrics");
    let figures = metrics["figures"].as_array().unwrap();
    let is_it =
        |figure: &&Value| figure["name"] == "operation_seconds" && figure["labels"]["operation"] == operation;
    let buckets = &figures.iter().find(is_it).unwrap()["histogram"]["buckets"];
    buckets.as_array().unwrap().iter().map(|bucket| bucket[1].as_u64().unwrap()).sum()
}

#[test]
fn what_modules_have_gathered_goes_on_after_crashes_and_they_repair_once() {
    let Some(bench) = bench("mends:") else { return };
    bench.write_stack(
        "stack:\n  metrics:\n    throttle:\n      by: uid\n      each: 1GiB/s\n      mends:\n        volume:\n          \
         home: fast\n          tiers:\n            fast: { dir: a }\n            slow: { dir: b }\n",
    );
    mends(&bench, &[], "repo/mends.so");
    bench.ok(&["mount", "--restart", "s.yaml", "m"]);
    make_files(&bench, &["1", "2", "3"]);
    assert_eq!((counted(&bench), repairs(&bench)), ("3".into(), "0: 0 0".into()));
    is_kept(&bench);
    let seen = operations(&bench, "create");
    crash_later(&bench);
    assert_eq!((counted(&bench), repairs(&bench)), ("3".into(), "1: 1 1".into()));
    assert!(operations(&bench, "create") >= seen && seen >= 3);
    for name in ["metrics", "throttle", "mends"] {
        let after = &module(&bench, name)["after_crash"];
        let age = after["state_age_seconds"].as_f64().unwrap();
        assert!((0.0..90.0).contains(&age) && after.get("error").is_none(), "{name}: {after}");
    }
    let said = bench.ok(&["status", "m"]);
    assert!(said.contains("module 3 mends: after the crash, it went on with its state of "), "{said}");

    make_files(&bench, &["4"]);
    is_kept(&bench);
    crash_later(&bench);
    assert_eq!((counted(&bench), repairs(&bench)), ("4".into(), "1: 2 1".into()));
    // State that another process takes over without a crash outlives one, too.
    make_files(&bench, &["5"]);
    bench.ok(&["upgrade", "m"]);
    assert_eq!((counted(&bench), repairs(&bench)), ("5".into(), "0: 0 0".into()));
    assert_eq!(module(&bench, "mends").get("after_crash"), None);
    is_kept(&bench);
    crash_later(&bench);
    assert_eq!((counted(&bench), repairs(&bench)), ("5".into(), "1: 3 1".into()));
    bench.ok(&["umount", "m"]);
}

#[test]
fn an_untrusted_module_goes_on_after_a_crash_too() {
    let Some(bench) = bench("mends:") else { return };
    mends(&bench, &[], "mends.so");
    chown(bench.path("mends.so"), Some(ALICE), Some(0)).unwrap();
    fs::rename(bench.path("mends.so"), bench.path("repo/mends.so")).unwrap();
    bench.ok(&["mount", "--restart", "s.yaml", "m"]);
    make_files(&bench, &["1", "2"]);
    is_kept(&bench);
    crash_later(&bench);
    assert_eq!((counted(&bench), repairs(&bench)), ("2".into(), "1: 1 1".into()));
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_module_that_can_not_be_repaired_goes_on_unless_that_would_be_wrong() {
    let Some(bench) = mounted(&["-DMENDS_ERROR=EIO"]) else { return };
    make_files(&bench, &["1"]);
    is_kept(&bench);
    crash_later(&bench);
    assert_eq!((counted(&bench), repairs(&bench)), ("1".into(), "1: 1 1".into()));
    let error = module(&bench, "mends")["after_crash"]["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("it could not repair what the crash left") && error.contains("broken inside"),
        "{error}"
    );
    assert!(bench.ok(&["status", "m"]).contains("broken inside"));

    // The next one answers that the mount may not go on.
    mends(&bench, &["-DMENDS_ERROR=ENOTRECOVERABLE"], "next.so");
    bench.ok(&["module", "upgrade", "mends", "--to", "next.so", "m"]);
    serves_for_a_while(&bench);
    kill_and_wait(pid(&bench));
    until("the mount ends", || fs::metadata(bench.path("m/1")).is_err());
    let log = log(&bench);
    assert!(
        log.contains("module mends can't go on after the crash") && log.contains("the mount ends"),
        "{log}"
    );
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_module_that_can_not_say_its_state_in_use_begins_anew() {
    // As if it had been made before there was a repair.
    let Some(bench) = mounted(&["-DMENDS_FLAGS=0"]) else { return };
    make_files(&bench, &["1"]);
    crash_later(&bench);
    assert_eq!((counted(&bench), repairs(&bench)), ("0".into(), "0: 0 0".into()));
    assert_eq!(attribute(&bench, "user.exports"), Ok("0".into()));
    assert_eq!(module(&bench, "mends")["after_crash"], serde_json::json!({}));
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_state_that_is_too_long_is_not_kept_and_the_log_says_so_once() {
    let Some(bench) = mounted(&["-DMENDS_STATE_LEN=(2u<<20)"]) else { return };
    make_files(&bench, &["1"]);
    is_kept(&bench);
    assert_eq!(log(&bench).matches("its state is too long").count(), 1, "{}", log(&bench));
    crash_later(&bench);
    assert_eq!((counted(&bench), repairs(&bench)), ("0".into(), "1: 1 0".into()));
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_state_goes_to_no_other_module_or_version() {
    let Some(bench) = mounted(&[]) else { return };
    make_files(&bench, &["1", "2"]);
    is_kept(&bench);
    serves_for_a_while(&bench);
    // Its state is its own, or none: never another's.
    let crashed_at_once = |bench: &Bench| {
        crash(bench);
        let (counted, repairs) = (counted(bench), repairs(bench));
        assert!(counted == "2" || counted == "0", "{counted}");
        assert!(repairs.starts_with("1: "), "{repairs}");
        assert_eq!(module(bench, "mends")["after_crash"].get("error"), None);
        assert!(!log(bench).contains("had gathered is lost"), "{}", log(bench));
    };
    let below = "stack:\n  metrics:\n    noop:\n      mends:\n        volume:\n          home: fast\n          tiers:\n            \
                 fast: { dir: a }\n            slow: { dir: b }\n";
    fs::write(bench.path("below.yaml"), below).unwrap();
    bench.ok(&["stack", "modify", "m", "below.yaml"]);
    crashed_at_once(&bench);
    serves_for_a_while(&bench);
    // The next one takes the states of the first, but after a crash only its own.
    mends(&bench, &["-DMENDS_VERSION=\"2\"", "-DMENDS_STATE=2"], "repo/mends.so");
    bench.ok(&["module", "upgrade", "mends", "m"]);
    crashed_at_once(&bench);
    // The file that a process loads after a crash may be another one.
    make_files(&bench, &["3"]);
    is_kept(&bench);
    mends(&bench, &["-DMENDS_VERSION=\"2\"", "-DMENDS_STATE=3"], "repo/mends.so");
    crash_later(&bench);
    let fifth = repairs(&bench);
    assert_eq!((counted(&bench), fifth.as_str()), ("0".into(), "1: 3 0"));
    assert!(log(&bench).contains("what was kept is of another one"), "{}", log(&bench));
    bench.ok(&["umount", "m"]);
}

/// Operations of a program that makes two files.
const TRACE: &str = r#"{"braid-trace":1,"braid":"0.1.0","volume":"00000000000000000000000000000001","range":2097152,"policy":"adaptive","began":1767225600}
{"op":"file","file":7,"path":"one","at":1}
{"op":"create","file":7,"at":1,"took":1}
{"op":"file","file":8,"path":"two","at":2}
{"op":"create","file":8,"at":2,"took":1}
{"op":"end","at":8,"ops":2,"why":"interrupted"}
"#;

#[test]
fn the_repair_of_a_module_is_tried_alone() {
    let Some(bench) = bench("mends:") else { return };
    fs::write(bench.path("trace"), TRACE).unwrap();
    mends(&bench, &[], "repo/mends.so");
    let words = ["module", "debug", "mends", "--trace", "trace", "--repair"];
    let told = bench.json(&[&words[..], &["--json"]].concat());
    assert_eq!(told["repair"], serde_json::json!({ "state_bytes": 8, "error": null }));
    assert!(bench.ok(&words).contains("repair: done; kept for it: 8"));
    mends(&bench, &["-DMENDS_ERROR=EIO"], "repo/mends.so");
    let said = refused(&bench, &words);
    assert!(
        said.contains("it could not repair what the crash left") && said.contains("broken inside"),
        "{said}"
    );
    let said = refused(&bench, &["module", "debug", "compress", "--trace", "trace", "--repair"]);
    assert!(said.contains("which only a mount with restart hands on"), "{said}");
}
