//! Policies and rules through the `braid` command: where data goes, by `braid
//! explain`. Needs root and /dev/fuse; skipped without them.

mod rules;

use crate::common::{Bench, RANGE, is_empty, pattern, until, write_back, write_ranges};
use rustix::fs::OFlags;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

impl Bench {
    fn of_three() -> Option<Self> {
        Self::bare(&["a", "b", "c", "m"])
    }

    /// Writes the stack file with these lines in the volume's settings.
    fn write_stack_of(&self, settings: &str) {
        let indented: String = settings.lines().map(|line| format!("    {line}\n")).collect();
        let text = format!(
            "stack:\n  volume:\n    home: fast\n    range: 64KiB\n{indented}    tiers:\n      \
             fast: {{ dir: a, weight: 3 }}\n      slow: {{ dir: b, weight: 1 }}\n      disk: {{ dir: c, weight: 1 }}\n"
        );
        self.write_stack(&text);
    }

    /// The message for a stack file with these settings, which is refused.
    #[track_caller]
    fn refuses(&self, settings: &str) -> String {
        let said = self.refuses_now(settings);
        assert!(is_empty(&self.path("a")), "something was made");
        said
    }

    /// The same for an existing volume.
    #[track_caller]
    fn refuses_now(&self, settings: &str) -> String {
        self.write_stack_of(settings);
        let said = self.refused(&["mount", "s.yaml", "m"]);
        assert!(is_empty(&self.path("m")), "something was mounted");
        said
    }

    fn mounted(&self, settings: &str, work: impl FnOnce()) {
        self.write_stack_of(settings);
        self.ok(&["mount", "s.yaml", "m"]);
        work();
        assert!(self.ok(&["fsck", "m"]).ends_with("no problems\n"));
        self.ok(&["umount", "m"]);
    }

    /// Writes a file of so many ranges in the mount, one range at a time.
    fn write(&self, name: &str, ranges: usize, flags: i32) {
        let path = self.path("m").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::OpenOptions::new().write(true).create(true).custom_flags(flags).open(&path).unwrap();
        (0..ranges).for_each(|at| write_back(&file, &[7; RANGE], (at * RANGE) as u64));
    }

    /// The tier and the reason of each range of a file.
    fn ranges(&self, name: &str) -> Vec<(String, String)> {
        let run = |run: &serde_json::Value| {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or("nowhere").to_owned();
            let one = (text(&run["tier"]["name"]), text(&run["reason"]));
            std::iter::repeat_n(one, run["ranges"].as_u64().unwrap() as usize)
        };
        self.runs(&format!("m/{name}")).iter().flat_map(run).collect()
    }

    fn tiers(&self, name: &str) -> Vec<String> {
        self.ranges(name).into_iter().map(|(tier, _)| tier).collect()
    }
}

#[test]
fn how_fast_tiers_are_is_measured_once_and_remembered() {
    let Some(mut bench) = Bench::bare(&["a", "m"]) else { return };
    bench.write_stack_of("policy: { adaptive: { } }");
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap().replace(", weight: 1", "");
    bench.write_stack(&text.replace("    tiers:", "    measure: no\n    tiers:"));
    // Each has a device of its own, which nothing else uses: a busy one is not
    // measured.
    for dir in ["b", "c", "new", "other"] {
        bench.make_tmpfs(dir, c"size=64m");
    }
    // A file system without direct I/O can't be measured.
    let direct = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(bench.path("b/probe"))
        .is_ok();
    let _ = fs::remove_file(bench.path("b/probe"));
    let basis = |tier: &str| bench.tier(tier)["speed_basis"].clone();
    for words in [&["mount", "s.yaml", "m"][..], &["mount", "s.yaml", "m", "--no-measure"]] {
        bench.ok(words);
        assert!(["fast", "slow", "disk"].iter().all(|tier| basis(tier).is_null()));
        bench.ok(&["umount", "m"]);
        bench.write_stack(&text);
    }
    bench.ok(&["mount", "s.yaml", "m"]);
    // One whose weight is given needs no measurement.
    assert!(basis("fast").is_null());
    if direct {
        assert_eq!((basis("slow"), basis("disk")), ("measured".into(), "measured".into()));
        assert!(bench.tier("slow")["weight"].as_f64().unwrap() > 1.0);
        assert!(bench.ok(&["status", "m"]).contains("known from a measurement at the mount"));
    }
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    if direct {
        assert_eq!((basis("slow"), basis("disk")), ("last-mount".into(), "last-mount".into()));
    }
    bench.ok(&["tier", "add", "late=new", "m"]);
    assert_eq!(basis("late").is_string(), direct);
    assert!(bench.ok(&["fsck", "m"]).ends_with("no problems\n"));
    // Another device is in the place of the lost one.
    bench.ok(&["drill", "disk", "all:EIO", "./m"]);
    until("the tier fails", || {
        let _ = fs::write(bench.path("m/big"), vec![1; 8 << 20]);
        bench.state("disk") == "failing"
    });
    bench.ok(&["tier", "replace", "disk", "other", "m"]);
    assert_eq!(basis("disk") == "measured", direct, "{}", basis("disk"));
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_policy_brings_its_movers_and_a_flag_says_otherwise() {
    let Some(bench) = Bench::of_three() else { return };
    let movers = |words: &[&str]| {
        let tiers = ["mount", "--tier", "fast=a,weight=3", "--tier", "slow=b,weight=1", "m"];
        bench.ok(&[&tiers[..], words].concat());
        let jobs = bench.json(&["job", "list", "--json"]);
        bench.ok(&["umount", "m"]);
        let ids = jobs["jobs"].as_array().unwrap().iter().filter_map(|job| job["id"].as_str());
        ids.map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(movers(&[]), ["demote", "balance"], "of adaptive, the default");
    assert_eq!(movers(&["--policy", "weighted"]), [""; 0]);
    assert_eq!(movers(&["--policy", "static"]), ["promote", "demote"]);
    assert_eq!(movers(&["--policy", "adaptive", "--movers", "none"]), [""; 0]);
    assert_eq!(movers(&["--movers", "balance,promote"]), ["promote", "balance"]);
    let tier = ["mount", "--tier", "fast=a", "m", "--movers", "promote,faster"];
    assert!(bench.refused(&tier).contains("there is no mover 'faster'"));
    bench.write_stack(
        "stack: { volume: { home: fast, policy: weighted, movers: { balance: true, promote: false, demote: false }, \
         tiers: { fast: { dir: a, weight: 3 }, slow: { dir: b, weight: 1 } } } }\n",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(bench.ok(&["job", "show", "balance"]).contains("balance what is in use between tiers"));
    bench.ok(&["job", "pause", "balance"]);
    bench.ok(&["umount", "m"]);
}

#[test]
fn each_policy_places_as_it_says() {
    let Some(bench) = Bench::of_three() else { return };
    let count = |name: &str, tier: &str| bench.tiers(name).iter().filter(|found| *found == tier).count();
    bench.mounted("policy: { adaptive: { } }", || {
        bench.write("adaptive", 100, 0);
        for tier in ["fast", "slow", "disk"] {
            assert!(count("adaptive", tier) >= 5, "{tier}: {:?}", bench.tiers("adaptive"));
        }
        assert!(bench.ok(&["status", "m"]).contains("adaptive"));
    });
    bench.mounted("policy: { static: { threads: 1 } }", || {
        bench.write("static", 20, 0);
        // One thread writes, and one saturates the fastest.
        assert_eq!(count("static", "fast"), 20);
        let other = std::thread::scope(|scope| {
            scope.spawn(|| bench.write("other", 20, 0)).join().map(|()| bench.tiers("other"))
        });
        assert_eq!(other.unwrap().iter().filter(|tier| *tier == "fast").count(), 1);
    });
    bench.mounted(
        "policy: { dynamic: { threads: 4, threshold: 40%, global-threshold: 60% } }\nepoch: 100ms",
        || {
            bench.write("dynamic", 20, 0);
            assert_eq!(bench.tiers("dynamic").len(), 20);
            assert!(bench.ok(&["status", "m"]).contains("dynamic, thresholds 40% and 60%"));
        },
    );
    bench.mounted("policy: { size: { small: 64KiB, sync: 64KiB, large: disk } }", || {
        bench.write("large", 10, 0);
        assert_eq!((count("large", "fast"), count("large", "disk")), (1, 9));
        bench.write("synced", 10, OFlags::DSYNC.bits().cast_signed());
        assert_eq!(count("synced", "fast"), 10);
    });
    bench.mounted("policy: { home-first: { watermark: 100% } }", || {
        bench.write("home", 10, 0);
        assert_eq!(count("home", "fast"), 10);
    });
}

impl Bench {
    /// The tier that each of four threads writes to, one after the other: all
    /// ranges of its file are there except the first, which is home's.
    fn tiers_of_threads(&self) -> [String; 4] {
        [0, 1, 2, 3].map(|at| {
            let name = format!("thread{at}");
            std::thread::scope(|scope| scope.spawn(|| self.write(&name, 10, 0)).join().unwrap());
            let tiers = self.tiers(&name);
            assert_eq!((tiers.len(), &tiers[0][..]), (10, "fast"));
            assert!(tiers[1..].iter().all(|tier| *tier == tiers[1]), "{tiers:?}");
            fs::remove_file(self.path("m").join(name)).unwrap();
            tiers[1].clone()
        })
    }
}

/// A profile of three tiers: one thread saturates the first, two the second;
/// the third is the slowest.
fn profile() -> String {
    let tier = |(name, bandwidth, threads): (&str, u64, u32)| {
        let figures = format!(
            "{{ bandwidth: {bandwidth}, latency_ns: 1000, threads: {threads}, degrades_at: null, points: [] }}"
        );
        format!("  {name}:\n    read: {figures}\n    write: {figures}\n")
    };
    let tiers = [("fast", 300_000_000, 1), ("slow", 200_000_000, 2), ("disk", 100_000_000, 9)];
    format!("version: 1\ntiers:\n{}", tiers.map(tier).concat())
}

/// Nothing is learned, and no thread reassigned, before a test is over.
const LONG_EPOCH: &str = "epoch: 60s\nmovers: { promote: false, demote: false }";

#[test]
fn threads_are_mapped_to_the_tiers_that_they_saturate() {
    let Some(bench) = Bench::of_three() else { return };
    fs::write(bench.path("p.yaml"), profile()).unwrap();
    for policy in ["static", "dynamic"] {
        // The profile takes precedence over the setting.
        let profiled = format!("policy: {{ {policy}: {{ threads: 8 }} }}\nprofile: p.yaml\n{LONG_EPOCH}");
        bench.mounted(&profiled, || {
            assert_eq!(bench.tiers_of_threads(), ["fast", "slow", "slow", "disk"], "{policy}");
        });
        bench.mounted(&format!("policy: {{ {policy}: {{ threads: 1 }} }}\n{LONG_EPOCH}"), || {
            assert_eq!(bench.tiers_of_threads(), ["fast", "slow", "disk", "fast"], "{policy}");
        });
        bench.mounted(&format!("policy: {{ {policy}: {{ threads: 4 }} }}\n{LONG_EPOCH}"), || {
            assert_eq!(bench.tiers_of_threads(), ["fast"; 4], "{policy}");
        });
    }
}

#[test]
fn a_thread_takes_the_place_of_one_that_ended() {
    let Some(bench) = Bench::bare(&["a", "b", "m"]) else { return };
    // So fast that the tiers are never saturated.
    bench.write_stack(
        "stack:\n  volume:\n    home: fast\n    range: 64KiB\n    epoch: 50ms\n    policy: { dynamic: { threads: 1 } }\n    \
         movers: { promote: false, demote: false }\n    tiers:\n      fast: { dir: a, weight: 900000 }\n      \
         slow: { dir: b, weight: 300000 }\n",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    let remaps = || bench.json(&["status", "--json", "m"])["remaps"].as_u64().unwrap();
    std::thread::scope(|scope| scope.spawn(|| bench.write("first", 10, 0)).join().unwrap());
    bench.write("second", 10, 0);
    assert_eq!((bench.tiers("first")[1].as_str(), bench.tiers("second")[1].as_str()), ("fast", "slow"));
    let until = Instant::now() + Duration::from_secs(60);
    let mut written = 10;
    while bench.tiers("second")[written - 1] == "slow" {
        assert!(Instant::now() < until, "{}", bench.ok(&["status", "m"]));
        written += 10;
        bench.write("second", written, 0);
    }
    assert!(remaps() >= 1);
    let told = bench.ok(&["status", "m"]);
    assert!(
        told.lines().any(|line| line.starts_with("policy: ") && line.ends_with(" mapped to another tier"))
    );
    bench.ok(&["umount", "m"]);
}

#[test]
fn rules_go_before_the_policy_and_the_first_that_matches_counts() {
    let Some(bench) = Bench::of_three() else { return };
    // No ranges may move before they were examined.
    let settings = r#"policy: { home-first: { } }
movers: { promote: false, demote: false }
rules:
  - { when: 'path.matches("*.wal") && !sync', tier: slow, pin: true }
  - { when: 'path.matches("db/**")', tier: [ disk, slow ] }
  - { when: 'path.matches("*.big")', policy: { size: { small: 64KiB, large: disk } } }
  - { when: 'append && size > 128KiB && size <= 256KiB && uid == 0 && age < 1d', tier: slow }
  - { when: 'owner == 4711', policy: weighted }"#;
    bench.mounted(settings, || {
        let by_rule = |tier: &str, why: &str| (tier.to_owned(), format!("placed by {why}"));
        // From the first byte on, and in a file of less than a range too.
        bench.write("db/x.wal", 3, 0);
        assert_eq!(bench.ranges("db/x.wal"), vec![by_rule("slow", "rule 1"); 3]);
        fs::write(bench.path("m/tiny.wal"), "x").unwrap();
        assert_eq!(bench.ranges("tiny.wal"), [by_rule("slow", "rule 1")]);
        bench.write("db/x.sst", 3, 0);
        assert_eq!(bench.ranges("db/x.sst"), vec![by_rule("disk", "rule 2"); 3]);
        bench.write("plain", 6, 0);
        assert_eq!(bench.tiers("plain"), ["fast", "fast", "slow", "slow", "fast", "fast"]);
        bench.write("x.big", 4, 0);
        assert_eq!(bench.ranges("x.big")[1..], vec![by_rule("disk", "the policy of rule 3"); 3]);
        assert!(bench.ok(&["status", "m"]).contains("5 rules before it"));
    });
    // They may change from mount to mount; existing ranges stay.
    bench.mounted("policy: { weighted: { } }", || {
        assert_eq!(bench.tiers("db/x.wal"), ["slow"; 3]);
    });
}

#[test]
fn a_rule_gives_files_ranges_of_their_own_size_which_they_keep() {
    let Some(bench) = Bench::of_three() else { return };
    let settings = r#"policy: { weighted: { } }
rules:
  - { when: 'path.matches("*.big")', range: 256KiB }
  - { when: 'path.matches("*.log")', tier: disk, range: 128KiB }"#;
    let explain = |name: &str| -> serde_json::Value {
        serde_json::from_str(&bench.ok(&["explain", &format!("m/{name}"), "--json"])).unwrap()
    };
    let size = |name: &str| explain(name)["range_size"].as_u64().unwrap();
    let layout = |name: &str| explain(name)["layout"].as_str().unwrap().to_owned();
    let text = |name: &str| bench.ok(&["explain", &format!("m/{name}")]);
    let mut places = Vec::new();
    bench.mounted(settings, || {
        // While it fits into one of its ranges, it is plain.
        bench.write("a.big", 4, 0);
        assert_eq!((layout("a.big"), size("a.big")), ("plain".into(), 256 << 10));
        let said = "ranges: if it is spread now, of 256KiB; those of the volume are of 64KiB\n";
        assert!(text("a.big").contains(said), "{}", text("a.big"));
        bench.write("b.big", 40, 0);
        assert_eq!((layout("b.big"), size("b.big")), ("spread".into(), 256 << 10));
        assert!(text("b.big").contains("in ranges of 256KiB"), "{}", text("b.big"));
        assert!(text("b.big").contains("ranges: of 256KiB; those of the volume are of 64KiB\n"));
        // Ten ranges, of which the fast tier has three fifths, and up to two
        // more: the order of tiers begins elsewhere for each file.
        places = bench.tiers("b.big");
        assert_eq!(places.len(), 10);
        let fast = places.iter().filter(|tier| *tier == "fast").count();
        assert!((5..=8).contains(&fast), "{places:?}");
        // From the first byte on, and in one range.
        bench.write("c.log", 3, 0);
        assert_eq!((bench.tiers("c.log"), size("c.log")), (vec!["disk".to_owned(); 2], 128 << 10));
        bench.write("usual", 40, 0);
        assert_eq!((bench.tiers("usual").len(), size("usual")), (40, 64 << 10));
        assert!(!text("usual").contains("those of the volume"));
        // A copy is a file of its own.
        let copied = Command::new("cp").arg(bench.path("m/b.big")).arg(bench.path("m/copy")).status();
        assert!(copied.unwrap().success());
        assert_eq!((layout("copy"), size("copy")), ("spread".into(), 64 << 10));
    });
    // The rule is gone: a spread file keeps its range size, and grows by it.
    bench.mounted("policy: { weighted: { } }", || {
        assert_eq!((bench.tiers("b.big"), size("b.big")), (places.clone(), 256 << 10));
        bench.write("b.big", 48, 0);
        assert_eq!((bench.tiers("b.big").len(), size("b.big")), (12, 256 << 10));
        assert_eq!(bench.tiers("b.big")[..10], places);
        assert_eq!(fs::read(bench.path("m/b.big")).unwrap(), vec![7; 48 * RANGE]);
        assert_eq!((layout("a.big"), size("a.big")), ("plain".into(), 64 << 10));
        bench.write("a.big", 8, 0);
        assert_eq!((layout("a.big"), size("a.big")), ("spread".into(), 64 << 10));
        assert_eq!(fs::read(bench.path("m/a.big")).unwrap(), vec![7; 8 * RANGE]);
        // Moves use the file's own ranges.
        bench.ok(&["move", "m/b.big", "--to", "slow"]);
        assert_eq!((bench.tiers("b.big"), size("b.big")), (vec!["slow".to_owned(); 12], 256 << 10));
    });
    // The stack file of a dump says the same.
    bench.mounted(settings, || {
        let dump = bench.ok(&["stack", "dump", "m"]);
        assert!(dump.contains("range: 256KiB") && dump.contains("range: 64KiB"), "{dump}");
    });
}

#[test]
fn wrong_rules_and_profiles_are_refused_before_anything_is_made() {
    let Some(bench) = Bench::of_three() else { return };
    let rule = |rule: &str| format!("policy: {{ weighted: {{ }} }}\nrules:\n  - {{ {rule} }}");
    for (text, message) in [
        (
            "when: 'sizes > 1', tier: fast",
            "s.yaml:7: stack.volume.rules.1.when: sizes > 1: there is no variable 'sizes'",
        ),
        ("when: 'size > \"a\"', tier: fast", "rules.1.when: size > \"a\": '>' compares a number with a text"),
        ("when: 'size >', tier: fast", "rules.1.when: size >: not an expression"),
        ("when: 'path.match(\"x\")', tier: fast", "path.match(\"x\"): there is no function 'match'"),
        ("when: 'path.matches(1)', tier: fast", "'matches' is given a number\n  help: it is for texts"),
        ("when: 'size + 1', tier: fast", "the condition is a number, not true or false"),
        ("when: 'age < 5', tier: fast", "'<' compares a duration with a number\n  help: write a duration"),
        ("when: 'size < 64K', tier: fast", "rules.1.when: size < 64K: found '64K'"),
        ("when: 'sync', tier: [ slow, fats ]", "rules.1.tier: there is no tier 'fats'"),
        ("when: 'sync', tier: fats", "rules.1.tier: there is no tier 'fats'\n  help: did you mean 'fast'?"),
        ("when: 'sync', tier: [ ]", "rules.1.tier: the list is empty"),
        ("when: 'sync', policy: weihgted", "rules.1.policy: there is no policy 'weihgted'"),
        ("when: 'sync', policy: { size: { large: no } }", "rules.1.policy.size.large: there is no tier 'no'"),
        ("when: 'sync', teir: fast", "rules.1.teir: unknown key\n  help: did you mean 'tier'?"),
        ("when: 'sync'", "rules.1: the rule says nothing of where files go"),
        ("tier: fast", "rules.1: the key 'when' is missing"),
        ("when: 'sync', pin: perhaps", "rules.1.pin: found 'perhaps', expected yes or no"),
        (
            "when: 'sync', range: 3MiB",
            "s.yaml:7: stack.volume.rules.1.range: a range of 3MiB is not a power of two from 64KiB to 64MiB\n  \
             help: write 2MiB or 4MiB",
        ),
        ("when: 'sync', range: 32KiB", "rules.1.range: a range of 32KiB is not a power of two"),
        ("when: 'sync', range: 128MiB", "rules.1.range: a range of 128MiB is not a power of two"),
        ("when: 'sync', range: 8X", "rules.1.range: found '8X', expected a size"),
        ("when: 'sync', range: [ 1MiB ]", "rules.1.range: found a list"),
        ("range: 1MiB", "rules.1: the key 'when' is missing"),
    ] {
        let said = bench.refuses(&rule(text));
        assert!(said.contains(message), "{text}: {said}");
    }
    for (settings, message) in [
        ("policy: { adaptive: { threads: 1 } }", "policy.adaptive.threads: unknown key"),
        ("policy: { dynamic: { threshold: 0% } }", "at 0% every change would count"),
        ("policy: { static: { threads: 0 } }", "found '0', expected a number"),
        ("policy: { adaptive: { } }\nepoch: 1ms", "stack.volume.epoch: an epoch is 10ms to 60s long"),
        ("policy: { adaptive: { } }\nepoch: 5", "stack.volume.epoch: found '5', expected a duration"),
        ("policy: { adaptive: { } }\nprofile: none.yaml", "stack.volume.profile: none.yaml can't be read"),
        (
            "policy: { adaptive: { } }\nmovers: { bandwith: 1MiB/s }",
            "s.yaml:6: stack.volume.movers.bandwith: unk",
        ),
        ("policy: { adaptive: { } }\nmovers: { bandwidth: 0/s }", "movers.bandwidth: 0/s is too slow"),
        (
            "policy: { adaptive: { } }\nmovers: { promote: 1 }",
            "movers.promote: found '1', expected yes or no",
        ),
        (
            "policy: { adaptive: { } }\nmovers: { watermark_high: 50%, watermark_low: 60% }",
            "movers.watermark_low: a tier is relieved from 50% used down to 60%",
        ),
        (
            "policy: { adaptive: { } }\nmovers: { heat_threshold: 2 }",
            "heat_threshold: found '2', expected a perc",
        ),
        (
            "policy: { adaptive: { } }\nmovers: { latency_factor: 1 }",
            "latency_factor: found '1', expected a num",
        ),
        (
            "policy: { adaptive: { } }\nmovers: { latency_factor: 50% }",
            "latency_factor: found '50%', expected a num",
        ),
        ("policy: { adaptive: { } }\nheat: { budget: 1KiB }", "heat.budget: 1KiB is too little to remember"),
        (
            "policy: { adaptive: { } }\nheat: { budget: 0 }\nmovers: { promote: true }",
            "movers.promote: nothing is known to be in use while heat has a budget of 0",
        ),
        (
            "policy: { adaptive: { } }\nmonitor: often",
            "stack.volume.monitor: found 'often', expected yes or no",
        ),
        ("policy: { adaptive: { } }\njobs: 0", "stack.volume.jobs: found '0', expected a number"),
    ] {
        let said = bench.refuses(settings);
        assert!(said.contains(message), "{settings}: {said}");
    }
    let figures = "{ bandwidth: 1000000, latency_ns: 1000, threads: 2, degrades_at: null, points: [] }";
    let profile = format!("version: 1\ntiers:\n  fast:\n    read: {figures}\n    write: {figures}\n");
    for (from, to, message) in [
        ("latency_ns", "latency", "p.yaml:4: tiers.fast.read.latency: unknown key"),
        ("latency_ns: 1000", "latency_ns: 0", "p.yaml:4: tiers.fast.read.latency_ns: every operation takes"),
        (
            "bandwidth: 1000000",
            "bandwidth: -5",
            "p.yaml:4: tiers.fast.read.bandwidth: found '-5', expected a",
        ),
        ("bandwidth: 1000000", "bandwidth: 0", "p.yaml:4: tiers.fast.read.bandwidth: a tier without any"),
        ("threads: 2", "threads: 0", "p.yaml:4: tiers.fast.read.threads: found '0', expected a number"),
        ("version: 1", "version: 7", "p.yaml:1: version: found a profile of another version than 1"),
        (
            "  fast:",
            "  ssd:",
            "s.yaml:6: stack.volume.profile: p.yaml is of other tiers (ssd) than these (fast,",
        ),
    ] {
        fs::write(bench.path("p.yaml"), profile.replacen(from, to, 1)).unwrap();
        let said = bench.refuses("policy: { adaptive: { } }\nprofile: p.yaml");
        assert!(said.contains(message) && said.contains("\n  help: "), "{to}: {said}");
    }
    fs::write(bench.path("p.yaml"), profile).unwrap();
    bench.mounted("policy: { static: { } }\nprofile: p.yaml", || bench.write("file", 4, 0));
}

/// The expected tier of a file's range by a rule for one variable.
type Expected = (&'static str, usize, &'static str);

/// A variable, a condition that depends on it, and the expected tiers of files
/// below a directory of its name.
type Case = (&'static str, &'static str, &'static [Expected]);

const CASES: [Case; 15] = [
    (
        "program",
        "path == \"program/yes\" ? program.startsWith(\"tiers\") : program == \"other\"",
        &[("yes", 0, "slow"), ("no", 0, "fast")],
    ),
    ("thread_name", "thread_name == \"writer\"", &[("yes", 0, "slow"), ("no", 0, "fast")]),
    ("path", "path == \"path/yes\"", &[("yes", 0, "slow"), ("no", 0, "fast")]),
    ("size", "size > 64KiB && size <= 128KiB", &[("two", 0, "fast"), ("two", 1, "slow"), ("two", 2, "fast")]),
    ("age", "path == \"age/yes\" ? age < 1h : age > 1h", &[("yes", 0, "slow"), ("no", 0, "fast")]),
    ("owner", "owner == 4711", &[("yes", 0, "slow"), ("no", 0, "fast")]),
    ("uid", "uid == 4711", &[("yes", 0, "slow"), ("no", 0, "fast")]),
    ("gid", "gid in [1, 4712]", &[("yes", 0, "slow"), ("no", 0, "fast")]),
    ("thread", "thread == THREAD", &[("yes", 0, "slow"), ("no", 0, "fast")]),
    (
        "stream",
        "path == \"stream/yes\" ? stream == \"\" : stream != \"\"",
        &[("yes", 0, "slow"), ("no", 0, "fast")],
    ),
    (
        "offset",
        "offset >= 64KiB && offset < 128KiB",
        &[("of", 0, "fast"), ("of", 1, "slow"), ("of", 2, "fast")],
    ),
    ("length", "length == 777", &[("yes", 0, "slow"), ("no", 0, "fast")]),
    ("sync", "sync", &[("yes", 0, "slow"), ("no", 0, "fast")]),
    ("direct", "direct", &[("yes", 0, "slow"), ("no", 0, "fast")]),
    ("append", "append && offset > 0", &[("of", 1, "fast"), ("of", 3, "slow")]),
];

impl Bench {
    /// Writes the files of the cases.
    fn write_cases(&self) {
        let path = |name: &str| self.path("m").join(name);
        for (variable, ..) in CASES {
            fs::create_dir(path(variable)).unwrap();
            fs::set_permissions(path(variable), Permissions::from_mode(0o777)).unwrap();
        }
        for name in ["path/yes", "path/no", "age/yes", "age/no", "owner/no", "uid/no", "gid/no", "stream/yes"]
        {
            fs::write(path(name), "x").unwrap();
        }
        let writer = std::thread::Builder::new().name("writer".to_owned());
        let yes = path("thread_name/yes");
        // The thread is there until its name was looked at.
        let write = move || {
            let file = fs::File::create(yes).unwrap();
            file.write_all_at(b"x", 0).unwrap();
            file.sync_all().unwrap();
        };
        writer.spawn(write).unwrap().join().unwrap();
        for name in
            ["stream/no", "sync/no", "direct/no", "thread/yes", "program/yes", "program/no", "thread_name/no"]
        {
            fs::write(path(name), "x").unwrap();
        }
        fs::write(path("length/yes"), [7; 777]).unwrap();
        fs::write(path("length/no"), [7; 778]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| fs::write(path("thread/no"), "x").unwrap()).join().unwrap()
        });
        let file = fs::File::create(path("owner/yes")).unwrap();
        std::os::unix::fs::fchown(&file, Some(4711), None).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        for (name, uid, gid) in [("uid/yes", 4711, 0), ("gid/yes", 0, 4712)] {
            let mut shell = Command::new("sh");
            shell.args(["-c", "printf x > \"$0\""]).arg(path(name)).uid(uid).gid(gid);
            assert!(shell.status().unwrap().success(), "{name}");
        }
        self.write("size/two", 3, 0);
        self.write("offset/of", 3, 0);
        self.write("sync/yes", 1, OFlags::SYNC.bits().cast_signed());
        self.write("direct/yes", 1, OFlags::DIRECT.bits().cast_signed());
        let file = fs::File::create(path("append/of")).unwrap();
        for at in [3, 1] {
            write_back(&file, &[7; RANGE], at * RANGE as u64);
        }
    }

    /// The tiers of a file's ranges; holes have none.
    fn tiers_with_holes(&self, name: &str) -> Vec<String> {
        let mut tiers = self.tiers(name);
        tiers.resize(4, "nowhere".into());
        tiers
    }
}

#[test]
fn every_variable_of_a_condition_decides_where_data_goes() {
    let Some(bench) = Bench::of_three() else { return };
    // Another user has to reach the mount.
    fs::set_permissions(bench.path("."), Permissions::from_mode(0o755)).unwrap();
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let rule = |(variable, condition, _): &Case| {
        let condition = condition.replace("THREAD", &thread);
        format!("\n  - {{ when: 'path.startsWith(\"{variable}/\") && ({condition})', tier: slow }}")
    };
    let rules: String = CASES.iter().map(rule).collect();
    let settings = format!(
        "policy: {{ home-first: {{ }} }}\nmovers: {{ promote: false, demote: false }}\nrules:{rules}"
    );
    bench.mounted(&settings, || {
        bench.write_cases();
        for (variable, condition, expected) in CASES {
            for (file, range, tier) in expected {
                let tiers = bench.tiers_with_holes(&format!("{variable}/{file}"));
                assert_eq!(tiers[*range], *tier, "{condition}: {file}, range {range}: {tiers:?}");
            }
        }
    });
    // There are no others.
    let said = bench.refuses_now("policy: { adaptive: { } }\nrules: [ { when: 'qqqq', tier: fast } ]");
    let mut known: Vec<&str> = said.split_once("the variables are ").unwrap().1.trim().split(", ").collect();
    let mut cases = CASES.map(|(variable, ..)| variable);
    known.sort_unstable();
    cases.sort_unstable();
    assert_eq!(known, cases);
}

#[test]
fn every_policy_is_mounted_by_flags_and_used() {
    let Some(bench) = Bench::of_three() else { return };
    let tiers = ["--tier", "fast=a,weight=3", "--tier", "slow=b,weight=1", "--range", "64KiB", "m"];
    let mount = |policy: &'static str| [&["mount", "--policy", policy], &tiers[..]].concat();
    let said = bench.refused(&mount("qqqq"));
    assert!(
        said.starts_with("braid: --policy qqqq: there is no policy 'qqqq'\n  help: a policy is "),
        "{said}"
    );
    let known = said.split_once("a policy is ").unwrap().1.trim().replace(" or ", ", ");
    let flags = [
        "adaptive",
        "weighted",
        "static:threads=2",
        "dynamic:threads=2,threshold=40%,global-threshold=60%",
        "home-first:watermark=80%",
        "size:small=64KiB,sync=4KiB,large=slow",
    ];
    assert_eq!(known, flags.map(|flag| flag.split(':').next().unwrap()).join(", "));
    let data = pattern(3, 6 * RANGE + 77);
    for (at, policy) in flags.into_iter().enumerate() {
        bench.ok(&mount(policy));
        let (name, settings) = policy.split_once(':').unwrap_or((policy, ""));
        assert!(bench.status()["policy"].as_str().unwrap().starts_with(name), "{policy}");
        let file = format!("m/f{at}");
        write_ranges(&bench.path(&file), &data);
        assert!(fs::read(bench.path(&file)).unwrap() == data, "{policy}");
        let told = bench.ok(&["explain", &file]);
        assert!(
            told.contains("in all: ") && told.contains("placement: a new range of it would go to "),
            "{told}"
        );
        assert_eq!(bench.tiers(&format!("f{at}")).len(), 7, "{policy}: {told}");
        let dump = bench.ok(&["stack", "dump", "m"]);
        let settings: Vec<&str> = settings.split(',').collect();
        assert!(
            dump.contains(name)
                && settings
                    .iter()
                    .all(|setting| dump.contains(*setting) || dump.contains(&setting.replace('=', ": "))),
            "{policy}: {dump}"
        );
        bench.ok(&["umount", "m"]);
    }
    for (policy, message) in [
        ("static:threads=0", "--policy static:threads=0: threads: found '0', expected a number"),
        ("size:large=x", "there is no tier 'x'"),
        ("home-first:80%", "found '80%', expected a setting of the policy"),
        ("weighted:a=1", "unknown key"),
    ] {
        let said = bench.refused(&mount(policy));
        assert!(said.contains(message), "{policy}: {said}");
    }
}
