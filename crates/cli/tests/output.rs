//! What the command prints: names that would forge it, sizes and words. Needs
//! root and /dev/fuse; passed over without them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Bench, RANGE, pattern, write_ranges};

/// Names that nobody can be shown as they are, and how they are shown: one ends
/// a line and says what a check would say, one is an escape sequence of eight
/// bits, one writes backwards.
const NAMES: [(&str, &str); 3] = [
    ("x\n0 problems\nno problems", r"$'x\n0 problems\nno problems'"),
    ("\u{9b}31mred", r"$'\u009b31mred'"),
    ("\u{202e}txt.exe", r"$'\u202etxt.exe'"),
];

/// Whether a terminal would do anything but show it, line by line.
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
    let tier = bench.path("b");
    std::fs::rename(tier.join(".braid/data"), tier.join("data")).unwrap();
    std::fs::create_dir(tier.join(".braid/data")).unwrap();
    let checked = String::from_utf8(bench.braid(&["fsck", "s.yaml"]).stdout).unwrap();
    let json = String::from_utf8(bench.braid(&["fsck", "s.yaml", "--json"]).stdout).unwrap();
    bench.ok(&["mount", "s.yaml", "m", "--without", "slow"]);
    let affected = bench.ok(&["status", "m", "--affected"]);
    for (_, shown) in NAMES {
        assert!(
            checked.contains(&format!("\n{shown}, ")) || checked.starts_with(&format!("{shown}, ")),
            "{checked}"
        );
        assert!(affected.contains(&format!("{shown}: bytes ")), "{affected}");
    }
    assert!(!checked.contains("\nno problems"), "{checked}");
    assert!(affected.ends_with("3 files are affected\n"), "{affected}");
    for text in [checked, json, affected, bench.ok(&["status", "m", "--affected", "--json"])] {
        assert!(is_tame(&text), "{text:?}");
    }
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_recording_has_no_name_that_acts_on_a_terminal() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let recorder = bench.start(&["trace", "record", "m", "--output", "t", "--size", "8KiB", "--json"]);
    let mut last = 0;
    while !bench.path("t").exists() || std::fs::metadata(bench.path("t")).unwrap().len() < 4096 {
        for (name, _) in NAMES {
            write_ranges(&bench.path(&format!("m/{name}")), &pattern(last, 2 * RANGE));
        }
        last += 1;
        assert!(last < 10_000);
    }
    assert!(recorder.wait_with_output().unwrap().status.success());
    let trace = std::fs::read_to_string(bench.path("t")).unwrap();
    assert!(
        is_tame(&trace) && trace.contains(r"\u202etxt.exe") && trace.contains(r"\u009b31mred"),
        "{trace}"
    );
    bench.ok(&["umount", "m"]);
}
