//! Rules beyond the first write: ranges that `braid rebalance` moves, the
//! output of `braid explain`, and pinned files.

use crate::common::{Bench, RANGE, pattern, read_anew, write_ranges};
use serde_json::{Value, json};
use std::fs;

/// Ranges of each file here.
const RANGES: usize = 40;

/// The volume's policy without rules: all data on home.
const HOME: &str = "policy: { home-first: { watermark: 100% } }\nmovers: { promote: false, demote: false }";

impl Bench {
    fn explained(&self, name: &str) -> (Value, String) {
        let path = format!("m/{name}");
        (self.json(&["explain", &path, "--json"]), self.ok(&["explain", &path]))
    }

    /// Number of a file's ranges on each of the three tiers.
    fn spread_over(&self, name: &str) -> [usize; 3] {
        let tiers = self.tiers(name);
        ["fast", "slow", "disk"].map(|tier| tiers.iter().filter(|found| *found == tier).count())
    }

    /// Writes a file of [`RANGES`] ranges in the mount; answers its contents.
    fn write_whole(&self, name: &str) -> Vec<u8> {
        let data = pattern(name.len() as u64, RANGES * RANGE);
        fs::create_dir_all(self.path("m").join(name).parent().unwrap()).unwrap();
        write_ranges(&self.path("m").join(name), &data);
        data
    }

    /// Writes these files with all on home, and rebalances them with other
    /// settings; a second rebalance finds nothing to move.
    fn rebalanced(&self, names: &[&str], settings: &str, look: impl FnOnce()) {
        let mut whole = Vec::new();
        self.mounted(HOME, || {
            whole = names.iter().map(|name| self.write_whole(name)).collect();
            assert!(names.iter().all(|name| self.spread_over(name) == [RANGES, 0, 0]));
        });
        self.mounted(settings, || {
            self.ok(&["rebalance", "m"]);
            look();
            let again = self.json(&["rebalance", "m", "--json"]);
            assert_eq!(again["done"]["ranges"], 0, "{again}");
            for (name, data) in names.iter().zip(&whole) {
                assert!(read_anew(&self.path("m").join(name)) == *data, "{name}");
            }
            names.iter().for_each(|name| fs::remove_file(self.path("m").join(name)).unwrap());
        });
    }

    /// Fails unless a file is dealt by the weights, 3 to 1 to 1. The order of
    /// tiers begins elsewhere for each file.
    #[track_caller]
    fn is_dealt_by_weight(&self, name: &str) {
        let found = self.spread_over(name);
        let wanted = [3, 1, 1].map(|weight| RANGES * weight / 5);
        assert!(found.iter().zip(wanted).all(|(found, wanted)| found.abs_diff(wanted) <= 2), "{found:?}");
    }
}

#[test]
fn rebalancing_gives_files_what_their_rule_wants() {
    let Some(bench) = Bench::of_three() else { return };
    let names = ["x.wal", "x.big", "x.even", "other"];
    let settings = r#"policy: { weighted: { } }
rules:
  - { when: 'path.matches("*.wal")', tier: slow }
  - { when: 'path.matches("*.big")', policy: { size: { small: 64KiB, large: disk } } }
  - { when: 'path.matches("*.even")', policy: adaptive }"#;
    bench.rebalanced(&names, settings, || {
        assert_eq!(bench.spread_over("x.wal"), [0, RANGES, 0]);
        assert_eq!(bench.spread_over("x.big"), [0, 0, RANGES]);
        bench.is_dealt_by_weight("x.even");
        bench.is_dealt_by_weight("other");
    });
    // The policy of the volume places files, and a rule deals them by weight.
    let settings = r#"policy: { size: { small: 64KiB, large: disk } }
rules: [ { when: 'path.matches("*.even")', policy: weighted } ]"#;
    bench.rebalanced(&["x.even", "other"], settings, || {
        bench.is_dealt_by_weight("x.even");
        assert_eq!(bench.spread_over("other"), [0, 0, RANGES]);
    });
    bench.rebalanced(&["other"], "policy: { size: { small: 64KiB } }", || bench.is_dealt_by_weight("other"));
}

#[test]
fn rebalancing_takes_the_first_tier_of_a_rule_that_has_room() {
    let Some(bench) = Bench::of_three() else { return };
    bench.mounted(HOME, || _ = bench.write_whole("x.wal"));
    bench.write_stack_of("policy: { weighted: { } }\nrules: [ { when: 'true', tier: [ disk, slow ] } ]");
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    bench.write_stack(&stack.replace("dir: c, weight: 1", "dir: c, weight: 1, reserve: 1000TiB"));
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.ok(&["rebalance", "m"]);
    assert_eq!(bench.spread_over("x.wal"), [0, RANGES, 0]);
    bench.unmount_clean();
    bench.write_stack(&stack);
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.ok(&["rebalance", "m"]);
    assert_eq!(bench.spread_over("x.wal"), [0, 0, RANGES]);
    bench.unmount_clean();
}

#[test]
fn explain_tells_the_rule_and_the_policy_that_count_now() {
    let Some(bench) = Bench::of_three() else { return };
    let wal = r#"{ when: 'path.matches("*.wal")', tier: [ slow, disk ] }"#;
    let dyn_ = r#"{ when: 'path.matches("*.dyn")', policy: { static: { threads: 1 } } }"#;
    let rules = |list: &[&str]| format!("{HOME}\nrules: [ {} ]", list.join(", "));
    let home = "home-first, watermark 100%";
    let wal_rule = |number: u64| json!({ "number": number, "when": "path.matches(\"*.wal\")", "tiers": ["slow", "disk"], "policy": null });
    bench.mounted(&rules(&[wal, dyn_]), || {
        for name in ["x.wal", "x.dyn", "other"] {
            bench.write(name, 3, 0);
        }
        let (told, text) = bench.explained("x.wal");
        assert_eq!((&told["rule"], &told["policy"]), (&wal_rule(1), &home.into()));
        let says = format!(
            "\nrule: number 1 holds for it now: path.matches(\"*.wal\"); it goes to slow, or else to disk\n\
             policy: the volume's: {home}\nplacement: a new range of it would go to slow\n"
        );
        assert!(text.contains(&says), "{text}");

        let (told, text) = bench.explained("x.dyn");
        let threads = "static, 1 threads saturate a tier unless more is known";
        let rule = json!({ "number": 2, "when": "path.matches(\"*.dyn\")", "tiers": [], "policy": threads });
        assert_eq!((&told["rule"], &told["policy"]), (&rule, &threads.into()));
        let says = format!(
            "\nrule: number 2 holds for it now: path.matches(\"*.dyn\")\npolicy: that of rule 2: {threads}\n"
        );
        assert!(text.contains(&says), "{text}");

        let (told, text) = bench.explained("other");
        assert_eq!((&told["rule"], &told["policy"]), (&Value::Null, &home.into()));
        assert!(text.contains(&format!("\npolicy: the volume's: {home}\n")), "{text}");
        assert!(!text.contains("\nrule: "), "{text}");
    });
    // The origin of the ranges does not matter any more.
    bench.mounted(&rules(&[dyn_, wal]), || {
        assert_eq!(bench.explained("x.wal").0["rule"], wal_rule(2));
    });
    bench.mounted(HOME, || {
        let (told, text) = bench.explained("x.wal");
        assert_eq!(told["rule"], Value::Null);
        assert!(text.contains("placed by rule 1") && !text.contains("\nrule: "), "{text}");
    });
}

#[test]
fn a_rule_that_pins_keeps_jobs_from_a_file() {
    let Some(bench) = Bench::of_three() else { return };
    let settings = "policy: { weighted: { } }\nrules: [ { when: 'path.matches(\"db/*.pin\")', pin: true } ]";
    let mut before = Vec::new();
    bench.mounted(settings, || {
        bench.write("db/x.pin", RANGES, 0);
        bench.write("db/free", RANGES, 0);
        before = bench.tiers("db/x.pin");
        let (told, text) = bench.explained("db/x.pin");
        assert!(text.contains("\npinned: movers leave it where it is\n"), "{text}");
        assert!(told["pin"].is_object() && bench.explained("db/free").0["pin"].is_null(), "{told}");
        assert!(bench.runs("m/db/x.pin").iter().all(|run| run["now"] == "stays: pinned"), "{told}");

        let job = bench.json(&["move", "m/db", "--to", "disk", "--json"]);
        assert_eq!((&job["state"], &job["skipped"]), (&"done".into(), &json!({ "pinned": 1 })));
        assert_eq!((bench.tiers("db/x.pin"), bench.spread_over("db/free")), (before.clone(), [0, 0, RANGES]));
        // It is skipped even when named itself.
        let job = bench.json(&["move", "m/db/x.pin", "--to", "disk", "--json"]);
        assert_eq!((&job["skipped"], &job["done"]["ranges"]), (&json!({ "pinned": 1 }), &0.into()));
        assert_eq!(bench.tiers("db/x.pin"), before);
    });
    // Without the rule, nothing pins it.
    bench.mounted("policy: { weighted: { } }", || {
        assert!(bench.explained("db/x.pin").0["pin"].is_null());
        bench.ok(&["move", "m/db", "--to", "disk"]);
        assert_eq!(bench.spread_over("db/x.pin"), [0, 0, RANGES]);
    });
}

#[test]
fn a_stream_that_a_rule_names_is_seen_by_the_rules_below() {
    let Some(bench) = Bench::of_three() else { return };
    let settings = format!(
        r#"{HOME}
rules:
  - {{ when: 'path.matches("*.wal") || path.matches("*-journal")', stream: logs }}
  - {{ when: 'stream == "logs" && path.matches("x*")', tier: slow }}
  - {{ when: 'stream == "logs"', tier: disk }}"#
    );
    bench.mounted(&settings, || {
        for (name, placed, rule) in [
            ("x.wal", [0, RANGES, 0], json!(2)),
            ("db-journal", [0, 0, RANGES], json!(3)),
            ("other", [RANGES, 0, 0], Value::Null),
        ] {
            bench.write_whole(name);
            assert_eq!(bench.spread_over(name), placed, "{name}");
            assert_eq!(bench.explained(name).0["rule"]["number"], rule, "{name}");
        }
    });
}
