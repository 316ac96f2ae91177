//! Policies and rules through the `braid` command: where `braid explain` says
//! that data went. Needs root and /dev/fuse; passed over without them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

struct Bench {
    dir: TempDir,
}

const RANGE: usize = 64 << 10;

impl Bench {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("passed over: needs root and /dev/fuse");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "m"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Some(Self { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the stack file with these lines in the volume's settings.
    fn stack(&self, settings: &str) {
        let indented: String = settings.lines().map(|line| format!("    {line}\n")).collect();
        let text = format!(
            "stack:\n  volume:\n    home: fast\n    range: 64KiB\n{indented}    tiers:\n      \
             fast: {{ dir: a, weight: 3 }}\n      slow: {{ dir: b, weight: 1 }}\n      disk: {{ dir: c, weight: 1 }}\n"
        );
        fs::write(self.path("s.yaml"), text).unwrap();
    }

    fn braid(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.current_dir(self.dir.path()).args(words).stdin(Stdio::null());
        if words[0] == "mount" {
            command.arg("--log-file").arg(self.path("log"));
        }
        command.output().unwrap()
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let output = self.braid(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What is said to a stack file with these settings, which is refused.
    #[track_caller]
    fn refused(&self, settings: &str) -> String {
        self.stack(settings);
        let output = self.braid(&["mount", "s.yaml", "m"]);
        assert_eq!(output.status.code(), Some(1), "{settings} was accepted");
        assert!(fs::read_dir(self.path("a")).unwrap().next().is_none(), "something was made");
        String::from_utf8(output.stderr).unwrap()
    }

    fn mounted(&self, settings: &str, work: impl FnOnce()) {
        self.stack(settings);
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
        (0..ranges).for_each(|at| file.write_all_at(&[7; RANGE], (at * RANGE) as u64).unwrap());
    }

    /// The tier and the reason of each range of a file.
    fn ranges(&self, name: &str) -> Vec<(String, String)> {
        let path = format!("m/{name}");
        let explained: serde_json::Value =
            serde_json::from_str(&self.ok(&["explain", &path, "--json"])).unwrap();
        let run = |run: &serde_json::Value| {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or("nowhere").to_owned();
            let one = (text(&run["tier"]["name"]), text(&run["reason"]));
            std::iter::repeat_n(one, run["ranges"].as_u64().unwrap() as usize)
        };
        explained["runs"].as_array().unwrap().iter().flat_map(run).collect()
    }

    fn tiers(&self, name: &str) -> Vec<String> {
        self.ranges(name).into_iter().map(|(tier, _)| tier).collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.braid(&["umount", "--lazy", "m"]);
        }
    }
}

#[test]
fn each_policy_places_as_it_says() {
    let Some(bench) = Bench::new() else { return };
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
        bench.write("synced", 10, rustix::fs::OFlags::DSYNC.bits().cast_signed());
        assert_eq!(count("synced", "fast"), 10);
    });
    bench.mounted("policy: { home-first: { watermark: 100% } }", || {
        bench.write("home", 10, 0);
        assert_eq!(count("home", "fast"), 10);
    });
}

#[test]
fn rules_go_before_the_policy_and_the_first_that_matches_counts() {
    let Some(bench) = Bench::new() else { return };
    let settings = r#"policy: { home-first: { } }
rules:
  - { when: 'path.matches("*.wal") && !sync', tier: slow, pin: true }
  - { when: 'path.matches("db/**")', tier: [ disk, slow ] }
  - { when: 'path.matches("*.dyn")', policy: { static: { threads: 1 } } }
  - { when: 'append && size > 128KiB && size <= 256KiB && uid == 0 && age < 1d', tier: slow }
  - { when: 'owner == 4711', policy: weighted }"#;
    bench.mounted(settings, || {
        let by_rule = |tier: &str| (tier.to_owned(), "placed by a rule".to_owned());
        // From the first byte on, and in a file of less than a range too.
        bench.write("db/x.wal", 3, 0);
        assert_eq!(bench.ranges("db/x.wal"), vec![by_rule("slow"); 3]);
        fs::write(bench.path("m/tiny.wal"), "x").unwrap();
        assert_eq!(bench.ranges("tiny.wal"), [by_rule("slow")]);
        bench.write("db/x.sst", 3, 0);
        assert_eq!(bench.ranges("db/x.sst"), vec![by_rule("disk"); 3]);
        bench.write("plain", 6, 0);
        assert_eq!(bench.tiers("plain"), ["fast", "fast", "slow", "slow", "fast", "fast"]);
        bench.write("x.dyn", 4, 0);
        assert_eq!(bench.tiers("x.dyn"), ["fast"; 4]);
        assert!(bench.ok(&["status", "m"]).contains("5 rules before it"));
    });
    // They may change from mount to mount; what is there stays.
    bench.mounted("policy: { weighted: { } }", || {
        assert_eq!(bench.tiers("db/x.wal"), ["slow"; 3]);
    });
}

#[test]
fn a_rule_gives_files_ranges_of_their_own_size_which_they_keep() {
    let Some(bench) = Bench::new() else { return };
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
        // As long as it fits into one of its ranges, it is plain.
        bench.write("a.big", 4, 0);
        assert_eq!((layout("a.big"), size("a.big")), ("plain".into(), 256 << 10));
        let said = "ranges: if it is spread now, of 256KiB; those of the volume are of 64KiB\n";
        assert!(text("a.big").contains(said), "{}", text("a.big"));
        bench.write("b.big", 40, 0);
        assert_eq!((layout("b.big"), size("b.big")), ("spread".into(), 256 << 10));
        assert!(text("b.big").contains("in ranges of 256KiB"), "{}", text("b.big"));
        assert!(text("b.big").contains("ranges: of 256KiB; those of the volume are of 64KiB\n"));
        // Ten ranges, of which the fast tier has three fifths.
        places = bench.tiers("b.big");
        assert_eq!(places.len(), 10);
        let fast = places.iter().filter(|tier| *tier == "fast").count();
        assert!((5..=7).contains(&fast), "{places:?}");
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
    // The rule is gone: what is spread keeps its ranges, and grows by them.
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
        // What is moved is moved by its own ranges.
        bench.ok(&["move", "m/b.big", "--to", "slow"]);
        assert_eq!((bench.tiers("b.big"), size("b.big")), (vec!["slow".to_owned(); 12], 256 << 10));
    });
    // What is written by a dump says the same.
    bench.mounted(settings, || {
        let dump = bench.ok(&["stack", "dump", "m"]);
        assert!(dump.contains("range: 256KiB") && dump.contains("range: 64KiB"), "{dump}");
    });
}

#[test]
fn wrong_rules_and_profiles_are_refused_before_anything_is_made() {
    let Some(bench) = Bench::new() else { return };
    let rule = |rule: &str| format!("policy: {{ weighted: {{ }} }}\nrules:\n  - {{ {rule} }}");
    for (text, message) in [
        (
            "when: 'sizes > 1', tier: fast",
            "s.yaml:7: stack.volume.rules.1.when: sizes > 1: there is no variable 'sizes'",
        ),
        ("when: 'size > \"a\"', tier: fast", "rules.1.when: size > \"a\": '>' compares a number with a text"),
        ("when: 'size >', tier: fast", "rules.1.when: size >: not an expression"),
        ("when: 'sync', tier: fats", "rules.1.tier: there is no tier 'fats'\n  help: did you mean 'fast'?"),
        ("when: 'sync', tier: [ ]", "rules.1.tier: the list is empty"),
        ("when: 'sync', policy: weihgted", "rules.1.policy: there is no policy 'weihgted'"),
        ("when: 'sync', policy: { size: { large: no } }", "rules.1.policy.size.large: there is no tier 'no'"),
        ("when: 'sync', teir: fast", "rules.1.teir: unknown key\n  help: did you mean 'tier'?"),
        ("when: 'sync'", "rules.1: the rule says nothing of where files go"),
        ("tier: fast", "rules.1: the key 'when' is missing"),
        ("when: 'sync', pin: perhaps", "rules.1.pin: found 'perhaps', expected true or false"),
        (
            "when: 'sync', range: 3MiB",
            "s.yaml:7: stack.volume.rules.1.range: a range of 3MiB is not a power of two from 64KiB to 64MiB\n  \
             help: write 2MiB or 4MiB",
        ),
        ("when: 'sync', range: 32KiB", "rules.1.range: a range of 32KiB is not a power of two"),
        ("when: 'sync', range: 128MiB", "rules.1.range: a range of 128MiB is not a power of two"),
        ("when: 'sync', range: 8M", "rules.1.range: found '8M', expected a size"),
        ("when: 'sync', range: [ 1MiB ]", "rules.1.range: found a list"),
        ("range: 1MiB", "rules.1: the key 'when' is missing"),
    ] {
        let said = bench.refused(&rule(text));
        assert!(said.contains(message), "{text}: {said}");
    }
    for (settings, message) in [
        ("policy: { adaptive: { threads: 1 } }", "policy.adaptive.threads: unknown key"),
        ("policy: { dynamic: { threshold: 0% } }", "at 0% every change would count"),
        ("policy: { static: { threads: 0 } }", "found '0', expected a number"),
        ("policy: { adaptive: { } }\nepoch: 1ms", "stack.volume.epoch: an epoch is 10ms to 60s long"),
        ("policy: { adaptive: { } }\nepoch: 5", "stack.volume.epoch: found '5', expected a duration"),
        ("policy: { adaptive: { } }\nprofile: none.yaml", "stack.volume.profile: none.yaml can't be read"),
    ] {
        let said = bench.refused(settings);
        assert!(said.contains(message), "{settings}: {said}");
    }
    let figures = "{ bandwidth: 1000000, latency_ns: 1000, threads: 2, degrades_at: null, points: [] }";
    let profile = format!("version: 1\ntiers:\n  fast:\n    read: {figures}\n    write: {figures}\n");
    fs::write(bench.path("p.yaml"), profile.replace("latency_ns", "latency")).unwrap();
    let said = bench.refused("policy: { adaptive: { } }\nprofile: p.yaml");
    assert!(said.contains("p.yaml:4: tiers.fast.read.latency: unknown key"), "{said}");
    fs::write(bench.path("p.yaml"), profile).unwrap();
    bench.mounted("policy: { static: { } }\nprofile: p.yaml", || bench.write("file", 4, 0));
}
