//! The command's output: names that would forge it, sizes and words. Needs root
//! and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, pattern, until, write_ranges};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Names that must not be printed unchanged, and their printed form: one ends a
/// line and imitates a check's output, one is an escape sequence of eight bits,
/// one reverses the direction.
const NAMES: [(&str, &str); 3] = [
    ("x\n0 problems\nno problems", r"$'x\n0 problems\nno problems'"),
    ("\u{9b}31mred", r"$'\u009b31mred'"),
    ("\u{202e}txt.exe", r"$'\u202etxt.exe'"),
];

/// Whether a terminal would only show it, line by line.
fn is_tame(text: &str) -> bool {
    let wild = |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
    !text.contains(wild)
}

#[test]
fn names_of_files_forge_nothing() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let mut said = String::new();
    for (number, (name, shown)) in NAMES.iter().enumerate() {
        let file = format!("m/{name}");
        write_ranges(&bench.path(&file), &pattern(1, 8 * RANGE));
        let quoted = shown.replacen("$'", "$'m/", 1);
        let explained = bench.ok(&["explain", &file]);
        assert!(explained.starts_with(&format!("{quoted}: spread, ")), "{explained}");
        let moved = bench.ok(&["move", &file, "--to", "slow"]);
        assert!(moved.starts_with(&format!("job {}: move {shown} to slow: done", number + 1)), "{moved}");
        let job = bench.ok(&["job", "show", &(number + 1).to_string()]);
        let json = bench.ok(&["job", "show", &(number + 1).to_string(), "--json"]);
        let told: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(told["what"]["path"], *name);
        bench.ok(&["pin", &file]);
        let refused = bench.refused(&["explain", &format!("{file}?")]);
        assert!(
            refused.starts_with(&format!("braid: {}?': No such file", quoted.trim_end_matches('\''))),
            "{refused}"
        );
        for text in [explained, moved, job, json, bench.ok(&["explain", &file, "--json"]), refused] {
            assert!(is_tame(&text), "{text:?}");
            said += &text;
        }
    }
    let jobs = bench.ok(&["job", "list"]);
    let top = bench.ok(&["top", "m", "--once"]);
    for (_, shown) in NAMES {
        assert!(
            jobs.contains(&format!("move {shown} to slow\n")) && top.contains(&format!(" {shown}\n")),
            "{top}"
        );
    }
    for words in
        [&["job", "list", "--json"][..], &["top", "m", "--once", "--json"], &["status", "m", "--json"]]
    {
        said += &bench.ok(words);
    }
    assert!(is_tame(&(said + &jobs + &top)));
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_check_and_a_list_of_the_affected_name_files_as_they_are() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    for (name, _) in NAMES {
        write_ranges(&bench.path(&format!("m/{name}")), &pattern(1, 8 * RANGE));
    }
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m", "--without", "slow"]);
    let affected = bench.ok(&["status", "m", "--affected"]);
    let affected_json = bench.ok(&["status", "m", "--affected", "--json"]);
    bench.ok(&["umount", "m"]);
    // From another version, as a check reports it with the file's name.
    for dir in std::fs::read_dir(bench.path("a/.braid/index")).unwrap() {
        for index in std::fs::read_dir(dir.unwrap().path()).unwrap() {
            let index = std::fs::File::options().write(true).open(index.unwrap().path()).unwrap();
            index.write_all_at(b"x", 8).unwrap();
        }
    }
    let checked = String::from_utf8(bench.braid(&["fsck", "s.yaml"]).stdout).unwrap();
    let json = String::from_utf8(bench.braid(&["fsck", "s.yaml", "--json"]).stdout).unwrap();
    for (_, shown) in NAMES {
        assert!(format!("\n{checked}").contains(&format!("\n{shown}: its index ")), "{checked}");
        assert!(affected.contains(&format!("{shown}: bytes ")), "{affected}");
    }
    assert!(!checked.contains("\nno problems"), "{checked}");
    assert!(affected.ends_with("3 files are affected\n"), "{affected}");
    for text in [checked, json, affected, affected_json] {
        assert!(is_tame(&text), "{text:?}");
    }
}

#[test]
fn a_recording_has_no_name_that_acts_on_a_terminal() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let mut recorder = bench.start(&["trace", "record", "m", "--output", "t", "--size", "8KiB", "--json"]);
    let mut turn = 0;
    let status = loop {
        for (name, _) in NAMES {
            write_ranges(&bench.path(&format!("m/{name}")), &pattern(turn, 2 * RANGE));
        }
        turn += 1;
        if let Some(status) = recorder.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success());
    let trace = std::fs::read_to_string(bench.path("t")).unwrap();
    assert!(
        is_tame(&trace) && trace.contains(r"\u202etxt.exe") && trace.contains(r"\u009b31mred"),
        "{trace}"
    );
    bench.ok(&["umount", "m"]);
}

#[test]
fn what_is_removed_is_not_counted_any_more() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    for at in 0..3 {
        write_ranges(&bench.path(&format!("m/f{at}")), &pattern(at, 8 * RANGE));
    }
    let ranges = || ["fast", "slow"].map(|tier| bench.ranges_on(tier)).iter().sum::<u64>();
    assert_eq!(ranges(), 24);
    let hottest = || bench.status()["hottest"].as_array().unwrap().len();
    until("the files are hot", || hottest() == 3);
    std::fs::remove_file(bench.path("m/f0")).unwrap();
    std::fs::remove_file(bench.path("m/f1")).unwrap();
    // Its data is removed once its removal is durable; then it no longer
    // counts.
    until("nothing is pending", || bench.status()["pending_removals"] == 0);
    assert_eq!((ranges(), hottest()), (8, 1));
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(ranges(), 8);
    std::fs::remove_file(bench.path("m/f2")).unwrap();
    until("nothing is pending", || bench.status()["pending_removals"] == 0);
    bench.kill();
    // After a crash the ranges are counted again, without those being removed.
    bench.ok(&["mount", "s.yaml", "m"]);
    until("all is counted", || ranges() == 0);
    bench.unmount_clean();
}

/// Writes a range at a time, ignoring errors.
fn write_and_fail(path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    for at in 0..16 {
        let written = file.write_all_at(&pattern(at, RANGE), at * RANGE as u64);
        let _ = written.and_then(|()| file.sync_data());
    }
}

#[test]
fn a_check_says_by_its_status_how_it_is() {
    let Some(bench) = Bench::new() else { return };
    let check = |words: &[&str]| {
        let output = bench.braid(&[&["status", "m", "--check"], words].concat());
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    assert!(
        matches!(check(&[]), (3, said) if said.starts_with("BRAID UNKNOWN: m is not in a Braid file system"))
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    let (status, said) = check(&[]);
    assert!(status == 0 && said.starts_with("BRAID OK: ") && said.contains(": 2 tiers, "), "{said}");
    bench.ok(&["tier", "set", "slow", "readonly=on", "./m"]);
    assert_eq!(check(&[]).0, 0, "somebody wants it so");
    bench.ok(&["tier", "set", "slow", "readonly=No", "./m"]);
    bench.ok(&["drill", "slow", "write:EIO", "probe:EIO", "./m"]);
    assert_eq!(check(&[]), (1, "BRAID WARNING: faults are armed on tier slow\n".into()));
    write_and_fail(&bench.path("m/f"));
    until("the tier fails", || bench.state("slow") == "failing");
    let (status, said) = check(&[]);
    assert!(status == 2 && said.starts_with("BRAID CRITICAL: tier slow is failing ("), "{said}");
    assert_eq!(said.lines().count(), 1);
    let (status, said) = check(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((status, &json["check"], &json["schema"]), (2, &"critical".into(), &1.into()));
    assert_eq!(bench.fails(&["status", "m", "--check", "--affected"]).0, 2);
    bench.ok(&["drill", "slow", "--clear", "./m"]);
    bench.ok(&["umount", "m"]);
}

#[test]
fn every_object_of_json_tells_the_version_of_its_form() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    write_ranges(&bench.path("m/f"), &pattern(1, 4 * RANGE));
    for words in [
        &["status", "m", "--json"][..],
        &["top", "m", "--once", "--json"],
        &["tier", "list", "m", "--json"],
        &["job", "list", "--json"],
        &["explain", "m/f", "--json"],
        &["drill", "./m", "--json"],
        &["move", "m/f", "--to", "slow", "--json"],
        &["job", "wait", "1", "--json"],
        &["pin", "m/f", "--json"],
    ] {
        assert_eq!(bench.json(words)["schema"], 1, "{words:?}");
    }
    assert!(bench.ok(&["fsck", "m", "--json"]).starts_with("{\"schema\":1,"));
    let listed = bench.ok(&["tier", "list", "m", "--json"]);
    assert!(!listed.contains("histogram"), "{listed}");
    bench.ok(&["umount", "m"]);
}

#[test]
fn the_volume_is_named_last_and_a_list_before_it_has_no_slash() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let mut command = bench.command(&["drill"]);
    let inside = command.current_dir(bench.path("m")).output().unwrap();
    assert_eq!(String::from_utf8(inside.stdout).unwrap(), "slow: no faults\n");
    assert_eq!(bench.ok(&["drill", "slow", "./m"]), "slow: no faults\n");
    assert!(bench.refused(&["drill", "m", "./m"]).contains("there is no tier 'm'"));
    assert_eq!(bench.fails(&["drill", "--clear", "./m"]).0, 2);
    assert_eq!(bench.fails(&["job", "wait"]).0, 2);
    let (status, said) = bench.fails(&["job", "wait", "first"]);
    assert!(status == 2 && said.contains("'first': a job is called by its number"), "{said}");
    assert!(bench.refused(&["tier", "list", "/"]).contains("/ is not in a Braid file system"));
    bench.ok(&["umount", "m"]);
}

#[test]
fn sizes_truth_values_and_policies_are_written_as_people_do() {
    let Some(bench) = Bench::new() else { return };
    let text = crate::common::stack(&bench);
    for policy in [
        "weighted",
        "{ weighted: { } }",
        "weighted: ",
        "home-first:watermark=80%",
        "{ home-first: { watermark: 80 % } }",
    ] {
        let policy = if policy == "weighted: " { "{ weighted: }" } else { policy };
        bench.write_stack(
            &text
                .replace("policy: { weighted: { } }", &format!("policy: {policy}"))
                .replace("weight: 1 }", "weight: 1, reserve: 10 M, readonly: no }")
                .replace("range: 64KiB", "range: 64K\n      monitor: on"),
        );
        bench.ok(&["mount", "s.yaml", "m"]);
        bench.ok(&["tier", "set", "slow", "reserve=5 MiB", "readonly=yes", "./m"]);
        assert_eq!(bench.tier("slow")["reserve"], 5 << 20);
        bench.ok(&["tier", "set", "slow", "reserve=1g", "readonly=off", "./m"]);
        bench.ok(&["umount", "m"]);
    }
    for policy in ["weighted", "{ weighted: {} }", "{ home-first: { watermark: 80% } }"] {
        bench.ok(&["mount", "--tier", "fast=a", "--tier", "slow=b,readonly=no", "--policy", policy, "m"]);
        let dumped = bench.ok(&["stack", "dump", "m"]);
        std::fs::write(bench.path("again.yaml"), &dumped).unwrap();
        bench.ok(&["umount", "m"]);
        bench.ok(&["mount", "again.yaml", "m"]);
        assert_eq!(bench.ok(&["stack", "dump", "m"]), dumped);
        bench.ok(&["umount", "m"]);
    }
}
