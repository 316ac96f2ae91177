//! Stacks that a program carries out itself, through the `braid` command. Needs root and
//! /dev/fuse; skipped without them.

use crate::common::{Bench, pattern, until};
use crate::in_libraries::untrusted;
use crate::users::{ALICE, as_user, said};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Stdio;

/// A log file system in `fs`, and a stack file for it with these modules on top.
fn bench(modules: &str) -> Option<Bench> {
    let bench = Bench::bare(&["a", "b", "m", "v", "repo"])?;
    fs::set_permissions(bench.path("."), Permissions::from_mode(0o755)).unwrap();
    bench.ok(&["log", "create", "fs", "--size", "128MiB"]);
    let closed = "}".repeat(modules.matches('{').count());
    let stack = format!("exec: direct\nstack: {{ {modules} log: {{ device: fs }} }} {closed}\n");
    fs::write(bench.path("direct.yaml"), stack).unwrap();
    Some(bench)
}

#[test]
fn keys_and_values_need_no_mount() {
    let Some(bench) = bench("metrics: { ") else { return };
    let checked = bench.ok(&["stack", "check", "direct.yaml"]);
    assert!(checked.contains("metrics over log of ") && checked.contains("no problems"), "{checked}");
    let data = pattern(1, 1_234_567);
    fs::write(bench.path("data"), &data).unwrap();
    bench.ok(&["kv", "put", "direct.yaml", "one", "--input", "data", "--sync"]);
    bench.ok(&["kv", "put", "direct.yaml", "two", "2", "--if", "absent"]);
    assert_eq!(bench.fails(&["kv", "put", "direct.yaml", "two", "3", "--if", "absent"]).0, 3);
    assert_eq!(bench.ok(&["kv", "scan", "direct.yaml"]), "one\ntwo\n");
    assert_eq!(bench.braid(&["kv", "get", "direct.yaml", "one"]).stdout, data);
    bench.ok(&["kv", "delete", "direct.yaml", "two"]);
    assert_eq!(bench.fails(&["kv", "get", "direct.yaml", "two"]).0, 3);
    assert!(bench.ok(&["log", "check", "fs"]).contains("sound"));

    // They are files of the mounted log, which has its device to itself.
    bench.ok(&["log", "mount", "--log-file", "log", "fs", "m"]);
    assert_eq!(fs::read(bench.path("m/one")).unwrap(), data);
    assert_eq!(fs::metadata(bench.path("m/one")).unwrap().uid(), 0);
    let refused = bench.refused(&["kv", "get", "direct.yaml", "one"]);
    assert!(refused.contains("in use") && refused.contains("direct.yaml:2"), "{refused}");
    bench.ok(&["umount", "m"]);
    assert_eq!(bench.ok(&["kv", "scan", "direct.yaml"]), "one\n");
}

#[test]
fn modules_run_in_the_program() {
    let Some(bench) = bench("compress: { checksum: { ") else { return };
    let text = "the same again ".repeat(40_000);
    fs::write(bench.path("data"), &text).unwrap();
    bench.ok(&["kv", "put", "direct.yaml", "text", "--input", "data"]);
    assert_eq!(bench.ok(&["kv", "get", "direct.yaml", "text"]), text);
    bench.ok(&["log", "mount", "--log-file", "log", "fs", "m"]);
    let stored = fs::metadata(bench.path("m/text")).unwrap().blocks() * 512;
    assert!(stored < text.len() as u64 / 10, "{stored}");
    assert_eq!(bench.ok(&["frames", "cat", "m/text"]), text);
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_view_is_that_of_the_user() {
    let Some(bench) = bench("") else { return };
    bench.write_stack("stack: { volume: { home: a, tiers: { a: { dir: a }, b: { dir: b } } } }\n");
    bench.ok(&["mount", "--no-measure", "--runtime", "s.yaml", "m"]);
    fs::set_permissions(bench.path("m"), Permissions::from_mode(0o755)).unwrap();
    let rules = "permissions: { rules: [ { paths: [ 'kept*' ], read_only: yes } ], view: { of: m/shown } }";
    for (name, mode, stack) in [
        ("own", 0o700, "metrics: { view: { of: m/own } }"),
        ("other", 0o700, "view: { of: m/other }"),
        ("shown", 0o755, "view: { of: m/shown }"),
        ("kept", 0o755, rules),
    ] {
        fs::create_dir(bench.path("m").join(name)).unwrap();
        fs::set_permissions(bench.path("m").join(name), Permissions::from_mode(mode)).unwrap();
        fs::write(bench.path(&format!("{name}.yaml")), format!("exec: direct\nstack: {{ {stack} }}\n"))
            .unwrap();
    }
    chown(bench.path("m/own"), Some(ALICE), Some(ALICE)).unwrap();
    fs::write(bench.path("m/shown/key"), "shown").unwrap();
    let alice = |words: &[&str]| {
        let output = as_user(ALICE, &bench.command(words));
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output))
    };
    // The rights are hers.
    assert_eq!(alice(&["kv", "put", "own.yaml", "key", "hers"]), (Some(0), String::new()));
    assert_eq!(fs::read(bench.path("m/own/key")).unwrap(), b"hers");
    assert_eq!(fs::metadata(bench.path("m/own/key")).unwrap().uid(), ALICE);
    assert_eq!(alice(&["kv", "get", "shown.yaml", "key"]), (Some(0), "shown".into()));
    for words in [&["kv", "put", "shown.yaml", "new", "x"][..], &["kv", "scan", "other.yaml"]] {
        let (status, said) = alice(words);
        assert!(status == Some(1) && said.to_lowercase().contains("permission denied"), "{words:?}: {said}");
    }
    // Rules of the stack hold beside them, where paths are told.
    bench.ok(&["kv", "put", "kept.yaml", "new", "x"]);
    assert_eq!(fs::read(bench.path("m/shown/new")).unwrap(), b"x");
    let refused = bench.refused(&["kv", "put", "kept.yaml", "kept", "x"]);
    assert!(refused.contains("Permission denied"), "{refused}");
    let (status, said) = alice(&["kv", "get", "kept.yaml", "key"]);
    assert!(
        status == Some(1) && said.contains("kept.yaml:2: stack.permissions: its rules go by paths"),
        "{said}"
    );
    bench.ok(&["umount", "m"]);
    let refused = bench.refused(&["kv", "get", "shown.yaml", "new"]);
    assert!(refused.contains("shown.yaml:2") && refused.contains("Braid"), "{refused}");
}

#[test]
fn each_load_is_measured_in_the_program() {
    let Some(bench) = bench("provenance: { ") else { return };
    for load in ["stat", "create", "read", "write", "put", "get", "deeds"] {
        let words = ["bench", "runtime", "direct.yaml", "--through", "direct", "--load", load];
        let measured = bench.json(&[&words[..], &["--seconds", "0.1", "--file", "1MiB", "--json"]].concat());
        assert!(measured["operations"].as_u64().unwrap() > 0, "{load}: {measured}");
    }
    let said = bench.ok(&["bench", "runtime", "direct.yaml", "--through", "direct", "--seconds", "0.1"]);
    assert!(said.starts_with("stat, in this process, clients: 1\n"), "{said}");
    // All is removed.
    assert_eq!(bench.ok(&["kv", "scan", "direct.yaml"]), "");
    bench.ok(&["log", "mount", "--log-file", "log", "fs", "m"]);
    assert_eq!(fs::read_dir(bench.path("m")).unwrap().count(), 0);
    bench.ok(&["umount", "m"]);
}

#[test]
fn synced_values_outlive_the_program() {
    let Some(bench) = bench("") else { return };
    bench.ok(&["kv", "put", "direct.yaml", "synced", "value", "--sync"]);
    let image = bench.path("fs");
    let changed = || fs::metadata(&image).unwrap().modified().unwrap();
    let before = changed();
    let words = ["bench", "runtime", "direct.yaml", "--through", "direct", "--load", "put"];
    let words = [&words[..], &["--seconds", "60", "--size", "16KiB", "--pause", "0.01"]].concat();
    let mut child = bench.command(&words).stdout(Stdio::null()).spawn().unwrap();
    until("the program writes", || changed() != before);
    assert!(bench.refused(&["kv", "get", "direct.yaml", "synced"]).contains("in use"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(bench.ok(&["log", "check", "fs"]).contains("sound"));
    assert_eq!(bench.ok(&["kv", "get", "direct.yaml", "synced"]), "value");
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(bench) = bench("") else { return };
    bench.write_stack("stack: { volume: { home: a, tiers: { a: { dir: a }, b: { dir: b } } } }\n");
    let write = |text: &str| fs::write(bench.path("odd.yaml"), text).unwrap();
    let log = "stack: { log: { device: fs } }\n";
    for (text, says) in [
        (
            format!("{log}exec: aside\n"),
            "odd.yaml:2: exec: found 'aside', expected a way to carry a stack out",
        ),
        (
            format!("exec: direct\n{log}mount: {{ point: m }}\n"),
            "odd.yaml:3: mount: a stack with 'exec: direct' is not mounted",
        ),
        (
            "exec: direct\nstack: { volume: { home: a, tiers: { a: { dir: a } } } }\n".to_owned(),
            "odd.yaml:1: exec: a volume is served by one process, for all programs",
        ),
    ] {
        write(&text);
        for words in
            [&["kv", "scan", "odd.yaml"][..], &["stack", "check", "odd.yaml"], &["mount", "odd.yaml", "m"]]
        {
            let refused = bench.refused(words);
            assert!(refused.contains(says) && refused.contains("help: "), "{words:?}: {refused}");
        }
    }
    let refused = bench.refused(&["mount", "direct.yaml", "m"]);
    assert!(refused.contains("direct.yaml:1: exec: a stack with 'exec: direct' is not mounted"), "{refused}");
    // One that a mount serves is none for programs.
    write(log);
    let refused = bench.refused(&["bench", "runtime", "odd.yaml", "--through", "direct"]);
    assert!(refused.contains("odd.yaml: no stack file with 'exec: direct'"), "{refused}");
    // A stack file that others can write would have devices and keys used for them.
    fs::set_permissions(bench.path("direct.yaml"), Permissions::from_mode(0o666)).unwrap();
    let refused = bench.refused(&["kv", "scan", "direct.yaml"]);
    assert!(refused.contains("direct.yaml:1: exec: another user can write this file"), "{refused}");
    fs::set_permissions(bench.path("direct.yaml"), Permissions::from_mode(0o644)).unwrap();
    bench.ok(&["kv", "scan", "direct.yaml"]);
    chown(bench.path("direct.yaml"), Some(ALICE), None).unwrap();
    bench.refused(&["kv", "scan", "direct.yaml"]);
    // A reload does not make a mount a program's.
    bench.ok(&["mount", "--no-measure", "s.yaml", "m"]);
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    fs::write(bench.path("s.yaml"), format!("exec: runtime\n{text}")).unwrap();
    bench.ok(&["reload", "m"]);
    bench.ok(&["umount", "m"]);
}

#[test]
fn untrusted_libraries_are_refused() {
    let Some(bench) = bench("odd: { ") else { return };
    bench.ok(&["module", "repo", "add", "repo"]);
    untrusted(&bench, &[]);
    let refused = bench.refused(&["kv", "scan", "direct.yaml"]);
    assert!(refused.contains("it is not trusted (") && refused.contains("direct.yaml:2"), "{refused}");
    // The owner's own are loaded.
    chown(bench.path("repo/odd.so"), Some(0), Some(0)).unwrap();
    bench.ok(&["kv", "put", "direct.yaml", "key", "value"]);
    assert_eq!(bench.ok(&["kv", "get", "direct.yaml", "key"]), "value");
}
