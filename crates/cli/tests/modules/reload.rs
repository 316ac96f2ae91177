//! `braid reload`: a changed stack file on a mounted volume. Needs root and
//! /dev/fuse; skipped without them.

use crate::common::{Bench, stack, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

impl Bench {
    /// Edits the stack file, replacing some parts by others.
    #[track_caller]
    fn edit(&self, parts: &[(&str, &str)]) {
        let mut text = stack(self);
        for (from, to) in parts {
            assert!(text.contains(from), "{from}: {text}");
            text = text.replacen(from, to, 1);
        }
        self.write_stack(&text);
    }

    fn policy(&self) -> String {
        self.status()["policy"].as_str().unwrap().to_owned()
    }

    /// The tier that holds all of a file.
    fn tier_of(&self, path: &str) -> String {
        let runs = self.json(&["explain", path, "--json"])["runs"].clone();
        runs[0]["tier"]["name"].as_str().unwrap().to_owned()
    }
}

const WEIGHTED: &str = "policy: { weighted: { } }";

#[test]
fn what_changed_in_the_stack_file_comes_into_force() {
    let Some(bench) = Bench::new() else { return };
    bench.make_dir("c");
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.ok(&["reload", "m"]), "nothing changed\n");
    let before = bench.policy();

    bench.edit(&[
        (
            WEIGHTED,
            "policy: { home-first: { watermark: 70% } }\n      \
             movers: { promote: false, bandwidth: 20MiB/s }\n      \
             rules: [ { when: 'path.matches(\"*.third\")', tier: third, range: 128KiB } ]",
        ),
        (
            "slow: { dir: b, weight: 1 }",
            "slow: { dir: b, weight: 2, readonly: true }\n        third: { dir: c }",
        ),
    ]);
    let third = bench.path("c").canonicalize().unwrap();
    let changes = format!(
        "policy: home-first, was weighted\n\
         rules: 1, were 0\n\
         movers: demote by policy, bandwidth 20971520 B/s, watermark_high 70%, watermark_low 60%, heat_threshold 0%\n\
         tier slow: weight 2, read only\n\
         tier third: added, at {}\n",
        third.display()
    );
    assert_eq!(bench.ok(&["reload", "m", "--dry-run"]), changes);
    assert_eq!((bench.policy(), bench.tier("third").is_null()), (before.clone(), true));
    assert!(!third.join(".braid").exists());

    let reloaded = bench.json(&["reload", "s.yaml", "--json"]);
    assert_eq!(reloaded["changes"].as_array().unwrap().len(), 5);
    assert_ne!(bench.policy(), before);
    assert_eq!((&bench.tier("slow")["weight"], &bench.tier("slow")["readonly"]), (&2.0.into(), &true.into()));
    assert_eq!(bench.tier("third")["readonly"], false);
    let movers = bench.ok(&["job", "list"]);
    assert!(movers.contains("demote") && !movers.contains("promote"), "{movers}");
    fs::write(bench.path("m/a.third"), vec![1; 1 << 20]).unwrap();
    assert_eq!(bench.tier_of("m/a.third"), "third");
    assert_eq!(bench.json(&["explain", "m/a.third", "--json"])["range_size"], 128 << 10);
    fs::write(bench.path("m/b.other"), vec![2; 1 << 20]).unwrap();
    assert_eq!(bench.tier_of("m/b.other"), "fast");
    assert_eq!(bench.ok(&["reload", "m"]), "nothing changed\n");

    // A mount of the file accepts the result of a reload.
    bench.unmount_clean();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(fs::read(bench.path("m/a.third")).unwrap(), vec![1; 1 << 20]);
    bench.edit(&[
        ("home-first: { watermark: 70% }", "adaptive: { }"),
        ("movers: { promote: false, bandwidth: 20MiB/s }", "movers: { demote: false }"),
    ]);
    let said = bench.ok(&["reload", "m"]);
    assert!(
        said.starts_with("policy: adaptive, was home-first\nmovers: demote false, balance by policy"),
        "{said}"
    );
    let jobs = bench.ok(&["job", "list"]);
    assert!(!jobs.contains("demote") && jobs.contains("balance"), "a mover is off, and one on: {jobs}");
    bench.unmount_clean();
}

/// The tiers with their settings. Their free space changes by itself.
fn listed(bench: &Bench) -> Vec<String> {
    let text = bench.ok(&["tier", "list", "m"]);
    text.lines().map(|line| line.split_whitespace().take(5).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn what_only_a_mount_can_change_is_refused_with_its_line() {
    let Some(bench) = Bench::new() else { return };
    bench.make_dir("c");
    bench.ok(&["mount", "s.yaml", "m"]);
    let (text, before) = (stack(&bench), listed(&bench));
    for (from, to, said) in [
        ("home: fast", "home: slow", "s.yaml:4: stack.noop.volume.home: home is 'fast'"),
        (
            "range: 64KiB",
            "range: 128KiB",
            "s.yaml:6: stack.noop.volume.range: the volume has ranges of 65536",
        ),
        ("dir: b", "dir: c", "s.yaml:9: stack.noop.volume.tiers.slow.dir: tier 'slow' is at"),
        (
            "        slow: { dir: b, weight: 1 }\n",
            "",
            "tier 'slow' is not here any more\n  help: put it back, and let it be emptied",
        ),
        (
            "range: 64KiB",
            "range: 64KiB\n      epoch: 1s",
            "s.yaml:7: stack.noop.volume.epoch: this was changed",
        ),
        (
            "weight: 1 }\n",
            "weight: 1 }\nmount: { threads: 3 }\n",
            "s.yaml:10: mount.threads: this was changed",
        ),
        ("  noop:\n    volume:", "  volume:", "stack: the modules were noop, volume"),
        (
            WEIGHTED,
            "policy: { wieghted: { } }",
            "s.yaml:5: stack.noop.volume.policy.wieghted: there is no policy",
        ),
        (WEIGHTED, "policy: { size: { large: none } }", "there is no tier 'none'"),
        (
            "weight: 1 }",
            "weight: 1 }\n        more: { dir: nowhere }",
            "s.yaml:10: stack.noop.volume.tiers.more",
        ),
        ("weight: 1 }", "weight: 1 }\n        more: { dir: b }", "one would be inside the other"),
    ] {
        // Even possible changes are not made.
        bench.write_stack(&text.replace("weight: 3", "weight: 30").replacen(from, to, 1));
        let refused = bench.refused(&["reload", "m"]);
        assert!(refused.contains(said), "{to}: {refused}");
        assert_eq!(listed(&bench), before, "{to}");
    }
    bench.write_stack(&text);
    assert_eq!(bench.ok(&["reload", "m"]), "nothing changed\n");
    bench.unmount_clean();

    bench.ok(&["mount", "--tier", "fast=a", "--tier", "slow=b", "m"]);
    let refused = bench.refused(&["reload", "m"]);
    assert!(refused.contains("mounted by flags: there is no stack file to be read"), "{refused}");
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_change_that_fails_in_the_middle_is_undone() {
    let Some(bench) = Bench::new() else { return };
    ["c", "d", "n"].iter().for_each(|name| bench.make_dir(name));
    // A tier of another volume: only the volume can detect that, when it is to
    // join.
    bench.ok(&["mount", "--tier", "home=n", "--tier", "foreign=d", "m"]);
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    let settings = || {
        let tiers = ["fast", "slow", "third", "fourth"].map(|name| bench.tier(name));
        tiers.map(|tier| (tier["state"].clone(), tier["weight"].clone(), tier["location"].clone()))
    };
    let (before, tiers) = (bench.policy(), settings());
    let text = stack(&bench);
    bench.edit(&[
        (WEIGHTED, "policy: { adaptive: { } }"),
        ("weight: 1 }", "weight: 2 }\n        third: { dir: c }\n        fourth: { dir: d }"),
    ]);
    let refused = bench.refused(&["reload", "m"]);
    assert!(refused.contains("belongs to") || refused.contains("is a tier of another volume"), "{refused}");
    assert_eq!((bench.policy(), settings()), (before, tiers));
    assert!(!bench.path("c/.braid").exists(), "the first one stayed");
    bench.write_stack(&text);
    bench.unmount_clean();
    // A mount does not take the tier for a removed one.
    bench.write_stack(&text.replace("weight: 1 }", "weight: 1 }\n        third: { dir: c }"));
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.tier("third")["state"], "online");
    bench.unmount_clean();
}

#[test]
fn a_signal_makes_the_daemon_read_its_stack_file_anew() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let pid = Pid::from_raw(i32::try_from(bench.status()["pid"].as_i64().unwrap()).unwrap()).unwrap();
    let logged = |what: &str| fs::read_to_string(bench.path("log")).unwrap().contains(what);
    bench.edit(&[("weight: 1 }", "weight: 7 }")]);
    kill_process(pid, Signal::HUP).unwrap();
    until("the tier is set", || bench.tier("slow")["weight"] == 7.0);
    until("it is logged", || logged("the stack file was read anew") && logged("tier slow: weight 7"));
    bench.edit(&[("weight: 7 }", "wieght: 7 }")]);
    kill_process(pid, Signal::HUP).unwrap();
    until("it is logged why not", || logged("nothing is changed: ") && logged("did you mean 'weight'"));
    bench.edit(&[("wieght: 7 }", "weight: 7 }")]);
    bench.unmount_clean();
}
