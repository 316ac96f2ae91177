//! Movers through the `braid` command: hot ranges to the faster tier, cold ones
//! off a full tier; heat across mounts; `explain` and `status` about it. Needs
//! root and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, pattern, read_anew, stack, until, write_ranges};
use rustix::fs::XattrFlags;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

impl Bench {
    /// Two small tiers, each a file system in memory of its own, mounted with
    /// these settings of the volume.
    fn small(settings: &str) -> Option<Self> {
        let mut bench = Self::bare(&["m"])?;
        for (name, size) in [("fast", c"size=32m"), ("slow", c"size=96m")] {
            bench.make_tmpfs(name, size);
        }
        let tiers = "{ fast: { dir: fast, weight: 400 }, slow: { dir: slow, weight: 100 } }";
        bench.write_stack(&format!(
            "stack: {{ volume: {{ home: fast, range: 64KiB, tiers: {tiers}, {settings} }} }}\n"
        ));
        bench.ok(&["mount", "s.yaml", "m"]);
        Some(bench)
    }

    /// Bytes of a file that are on a tier.
    fn bytes_on(&self, name: &str, tier: &str) -> u64 {
        let runs = self.runs(name);
        let there = runs.iter().filter(|run| run["tier"]["name"] == tier);
        there.map(|run| run["len"].as_u64().unwrap()).sum()
    }

    /// Ranges that a mover moved from one tier to the other.
    fn moved(&self, mover: &str, from: &str, to: &str) -> u64 {
        let status = self.status();
        let counts = status["moves"].as_array().unwrap().iter();
        let mut counts =
            counts.filter(|count| count["mover"] == mover && count["from"] == from && count["to"] == to);
        counts.next().map_or(0, |count| count["ranges"].as_u64().unwrap())
    }
}

/// Fails unless a file has these contents.
#[track_caller]
fn same(path: &Path, data: &[u8]) {
    let found = read_anew(path);
    let differs = found.iter().zip(data).position(|(a, b)| a != b);
    let (length, shown) = (found.len(), path.display());
    assert!(
        length == data.len() && differs.is_none(),
        "{shown}: {length} bytes and not {}, which differ from {differs:?} on",
        data.len()
    );
}

#[test]
fn hot_ranges_go_to_the_faster_tier_and_stay_known_across_mounts() {
    let settings = "policy: { size: { small: 64KiB, large: slow } }, \
                    movers: { promote: true, demote: false, bandwidth: 200MiB/s }, heat: { budget: 1MiB }";
    let Some(bench) = Bench::small(settings) else { return };
    let (hot, cold) = (pattern(1, 40 * RANGE), pattern(2, 40 * RANGE));
    write_ranges(&bench.path("m/hot"), &hot);
    write_ranges(&bench.path("m/cold"), &cold);
    assert!(bench.bytes_on("m/cold", "slow") > 30 * RANGE as u64);
    // Except for its end, which keeps it a spread file.
    let in_use = 39 * RANGE;
    until("what is read again and again is promoted", || {
        let mut found = vec![0; in_use];
        let file = fs::File::open(bench.path("m/hot")).unwrap();
        // From the tiers only.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == hot[..in_use]);
        bench.bytes_on("m/hot", "fast") == in_use as u64
    });
    assert!(bench.bytes_on("m/cold", "slow") > 30 * RANGE as u64, "what is not read stays");
    assert!(bench.moved("promote", "slow", "fast") > 30);

    let promoted = || {
        let runs = bench.runs("m/hot").into_iter();
        runs.rev().find(|run| run["reason"] == "promoted: it is in use").unwrap()
    };
    let last = promoted();
    assert_eq!(last["now"], "stays");
    let (heat, since) = (last["heat"].as_u64().unwrap(), last["since"].as_u64().unwrap());
    assert!(heat >= 33, "{last}");
    let status = bench.status();
    let ino = fs::metadata(bench.path("m/hot")).unwrap().ino();
    let hottest = status["hottest"].as_array().unwrap();
    let hot_file = hottest.iter().find(|file| file["ino"] == ino).unwrap();
    assert_eq!(
        (&hot_file["path"], (33..=100).contains(&hot_file["heat"].as_u64().unwrap())),
        (&"hot".into(), true)
    );
    assert!(hot_file["tier_names"].as_array().unwrap().contains(&"fast".into()), "{hot_file}");
    for tier in status["tiers"].as_array().unwrap() {
        assert!(tier["read_latency_total_ns"]["ops"].as_u64().unwrap() > 0, "{tier}");
        assert!(
            tier["read_latency_total_ns"]["p99"].as_u64() >= tier["read_latency_total_ns"]["p50"].as_u64()
        );
        assert!(tier["mover_limit"].as_f64().is_some() && tier["device"].is_null(), "{tier}");
    }
    let text = bench.ok(&["explain", "m/hot"]);
    assert!(text.contains("SINCE") && text.contains("HEAT") && text.contains("NOW"), "{text}");
    assert!(text.contains("placement: a new range of it would go to slow"), "{text}");

    bench.ok(&["umount", "m"]);
    assert!(bench.path("fast/.braid/heat").is_file());
    assert!(bench.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
    bench.ok(&["mount", "s.yaml", "m"]);
    let last = promoted();
    assert!(last["heat"].as_u64().unwrap() > 0, "{last}");
    assert!(last["since"].as_u64().unwrap() <= since, "{last}");
    same(&bench.path("m/hot"), &hot);
    same(&bench.path("m/cold"), &cold);

    // Damaged heat is dropped, and does not prevent a mount.
    bench.ok(&["umount", "m"]);
    fs::write(bench.path("fast/.braid/heat"), "BRAIDHOT and no more").unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.runs("m/cold").last().unwrap()["heat"], 0);
    same(&bench.path("m/cold"), &cold);
    bench.unmount_clean();
}

/// The movers in `job list`.
fn standing(bench: &Bench) -> Vec<Value> {
    bench.json(&["job", "list", "--json"])["jobs"].as_array().unwrap().clone()
}

#[test]
fn movers_are_jobs_that_stand() {
    let settings = "policy: { size: { small: 64KiB, large: slow } }, movers: { bandwidth: 200MiB/s }";
    let Some(bench) = Bench::small(settings) else { return };
    let jobs = standing(&bench);
    let ids: Vec<&str> = jobs.iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["promote", "demote"]);
    assert_eq!((&jobs[1]["state"], &jobs[1]["tier_bandwidth"]), (&"idle".into(), &(200 << 20).into()));
    let said = bench.ok(&["job", "show", "demote"]);
    let told = "job demote: demote what is cold from full tiers: idle\nmoved: 0 B, 0 ranges\n\
                at most on each tier: 200 MiB/s\n";
    assert_eq!(said, told);
    assert!(bench.ok(&["top", "m", "--once"]).contains("promote what is in use"));

    // A paused mover moves nothing, though there is much to move.
    assert!(bench.ok(&["job", "pause", "promote"]).ends_with(": paused\n"));
    let said = bench.refused(&["job", "pause", "promote"]);
    assert_eq!(said, "braid: job promote is paused, not running or idle\n");
    let data = pattern(7, 20 * RANGE);
    write_ranges(&bench.path("m/f"), &data);
    let was = bench.bytes_on("m/f", "fast");
    until("it is hot", || {
        same(&bench.path("m/f"), &data);
        bench.runs("m/f").iter().all(|run| run["heat"].as_u64().unwrap() >= 67)
    });
    let runs = bench.runs("m/f");
    assert!(runs.iter().all(|run| run["now"] == "stays"), "{runs:?}");
    assert_eq!((bench.bytes_on("m/f", "fast"), bench.moved("promote", "slow", "fast")), (was, 0));

    // Slowed down to almost nothing, it moves one range and waits.
    bench.ok(&["job", "set", "promote", "bandwidth=1"]);
    assert!(bench.ok(&["job", "resume", "promote"]).contains("job promote: promote what is in use: "));
    until("one range is moved", || {
        same(&bench.path("m/f"), &data);
        bench.json(&["job", "show", "promote", "--json"])["done"]["ranges"] == 1
    });
    assert_eq!(bench.moved("promote", "slow", "fast"), 1);
    assert!(bench.ok(&["job", "show", "promote"]).contains("\nat most: 1 B/s\nat most on each tier: "));
    bench.ok(&["job", "set", "promote", "bandwidth=none"]);
    until("the rest follows", || {
        same(&bench.path("m/f"), &data);
        bench.bytes_on("m/f", "fast") == data.len() as u64
    });

    for (words, says) in [
        (
            &["job", "cancel", "promote"][..],
            "job promote stands, and does not end: pause it (braid job pause promote)",
        ),
        (
            &["job", "wait", "promote"],
            "job promote stands, and does not end\n  help: pause it: braid job pause promote",
        ),
        (
            &["job", "show", "demote", "--follow"],
            "job demote stands, and does not end\n  help: look at it: braid top",
        ),
        (&["job", "resume", "demote"], "job demote is idle, not paused"),
        (&["job", "set", "demote", "guard=off"], "job demote is always guarded"),
    ] {
        let said = bench.refused(words);
        assert!(said.contains(says), "{words:?}: {said}");
    }
    // The next mount goes by the stack file.
    bench.ok(&["job", "pause", "demote"]);
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(standing(&bench).iter().all(|job| job["state"] != "paused" && job["done"]["ranges"] == 0));
    bench.unmount_clean();
}

#[test]
fn a_tier_at_its_watermark_gives_what_is_cold() {
    let settings = "policy: { size: { small: 1MiB, large: fast } }, \
                    movers: { promote: false, watermark_high: 80%, watermark_low: 50%, bandwidth: 500MiB/s }";
    let Some(bench) = Bench::small(settings) else { return };
    let files: Vec<(String, Vec<u8>)> = (0..5).map(|at| (format!("m/f{at}"), pattern(at, 4 << 20))).collect();
    // A large plain file, written natively before: its use is unknown.
    for (name, data) in &files {
        write_ranges(&bench.path(name), data);
        // Uses count by epochs, of which a fast machine writes several files in one.
        let uptime = || bench.status()["uptime_seconds"].as_f64().unwrap();
        let written = uptime();
        until("another epoch has begun", || uptime() > written + 0.4);
    }
    until("the full tier is relieved", || {
        let status = bench.status();
        let fast = &status["tiers"][0];
        let used = fast["used"].as_f64().unwrap() / fast["total"].as_f64().unwrap();
        used < 0.55 && bench.moved("demote", "fast", "slow") > 0
    });
    assert!(bench.bytes_on("m/f0", "slow") > 0, "what was used least lately goes first");
    let reasons: Vec<Value> = files
        .iter()
        .flat_map(|(name, _)| bench.runs(name))
        .filter(|run| run["tier"]["name"] == "slow")
        .map(|run| run["reason"].clone())
        .collect();
    assert!(reasons.iter().all(|reason| *reason == "demoted: its tier ran full and it was not in use"));
    for (name, data) in &files {
        same(&bench.path(name), data);
    }
    bench.unmount_clean();
}

#[test]
fn what_is_not_remembered_is_searched_for() {
    let settings = "policy: { size: { small: 1MiB, large: fast } }, heat: { budget: 0 }, \
                    movers: { promote: false, watermark_high: 60%, watermark_low: 40%, bandwidth: 500MiB/s }";
    let Some(bench) = Bench::small(settings) else { return };
    let data = pattern(3, 4 << 20);
    fs::create_dir(bench.path("m/d")).unwrap();
    for at in 0..6 {
        write_ranges(&bench.path(&format!("m/d/f{at}")), &data);
    }
    until("the full tier is relieved", || {
        let status = bench.status();
        let fast = &status["tiers"][0];
        fast["used"].as_f64().unwrap() / fast["total"].as_f64().unwrap() < 0.45
    });
    assert!(!bench.path("fast/.braid/heat").exists());
    for at in 0..6 {
        same(&bench.path(&format!("m/d/f{at}")), &data);
    }
    bench.unmount_clean();
}

#[test]
fn home_first_evicts_what_was_used_least_lately_and_promotes_on_access() {
    let Some(bench) = Bench::small("policy: { home-first: { watermark: 60% } }") else { return };
    let data = pattern(5, 1 << 20);
    let names: Vec<String> = (0..28).map(|at| format!("m/f{at}")).collect();
    for name in &names {
        write_ranges(&bench.path(name), &data);
    }
    let first = &names[0];
    until("home is relieved of what was used least lately", || bench.bytes_on(first, "slow") > 0);
    until("what is accessed comes back", || {
        same(&bench.path(first), &data);
        bench.bytes_on(first, "fast") == data.len() as u64
    });
    assert!(bench.moved("demote", "fast", "slow") > 0 && bench.moved("promote", "slow", "fast") > 0);
    let text = bench.ok(&["status", "m"]);
    assert!(
        text.contains("demoted from fast to slow: ") && text.contains("promoted from slow to fast: "),
        "{text}"
    );
    for name in &names {
        same(&bench.path(name), &data);
    }
    bench.unmount_clean();
}

#[test]
fn a_rule_s_policy_brings_its_movers_for_its_files_alone() {
    let settings = "policy: weighted, movers: { bandwidth: 200MiB/s }, \
                    rules: [ { when: 'path.matches(\"cached/**\")', policy: home-first } ]";
    let Some(bench) = Bench::small(settings) else { return };
    fs::create_dir(bench.path("m/cached")).unwrap();
    let names = ["m/cached/f", "m/other"];
    for name in names {
        write_ranges(&bench.path(name), &pattern(3, 20 * RANGE));
        bench.ok(&["move", name, "--to", "slow"]);
        assert!(bench.bytes_on(name, "slow") >= 19 * RANGE as u64);
    }
    let planned = |name: &str| {
        let runs = bench.runs(name);
        runs.iter().map(|run| run["now"].as_str().unwrap().to_owned()).collect::<Vec<String>>()
    };
    let before = bench.bytes_on("m/other", "slow");
    until("what a rule gives to home-first is promoted", || {
        names.iter().for_each(|name| same(&bench.path(name), &pattern(3, 20 * RANGE)));
        bench.bytes_on(names[0], "slow") == 0
    });
    assert_eq!(bench.bytes_on("m/other", "slow"), before);
    assert!(planned("m/other").iter().all(|verdict| verdict == "stays"), "{:?}", planned("m/other"));
    bench.unmount_clean();
}

#[test]
fn what_is_pinned_is_left_where_it_is() {
    let settings = "policy: { size: { small: 64KiB, large: slow } }, movers: { bandwidth: 200MiB/s }";
    let Some(bench) = Bench::small(settings) else { return };
    let data = pattern(4, 20 * RANGE);
    for name in ["pinned", "free"] {
        write_ranges(&bench.path("m").join(name), &data);
    }
    let on_home = bench.path("fast/pinned");
    rustix::fs::setxattr(&on_home, "trusted.braid.pin", b"slow", XattrFlags::empty()).unwrap();
    until("what may be promoted is", || {
        read_anew(&bench.path("m/pinned"));
        read_anew(&bench.path("m/free"));
        bench.bytes_on("m/free", "fast") == data.len() as u64
    });
    assert!(bench.bytes_on("m/pinned", "slow") > 15 * RANGE as u64);
    assert!(bench.runs("m/pinned").iter().all(|run| run["now"] == "stays: pinned"));
    bench.ok(&["umount", "m"]);
}

#[test]
fn the_threshold_says_how_much_use_is_enough() {
    let settings = |threshold: &str, monitor: bool| {
        format!(
            "policy: {{ size: {{ small: 64KiB, large: slow }} }}, monitor: {monitor}, \
             movers: {{ demote: false, heat_threshold: {threshold}, latency_factor: 5, bandwidth: 200MiB/s }}"
        )
    };
    let Some(bench) = Bench::small(&settings("100%", false)) else { return };
    let data = pattern(6, 12 * RANGE);
    write_ranges(&bench.path("m/f"), &data);
    same(&bench.path("m/f"), &data);
    let runs = bench.runs("m/f");
    let last = runs.last().unwrap();
    assert_eq!((&last["tier"]["name"], &last["now"]), (&"slow".into(), &"stays".into()), "{last}");
    // Monitoring is off.
    for tier in bench.status()["tiers"].as_array().unwrap() {
        assert_eq!(
            (&tier["write_latency_total_ns"]["ops"], &tier["threads"]),
            (&0.into(), &0.into()),
            "{tier}"
        );
    }
    bench.ok(&["umount", "m"]);
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    bench.write_stack(
        &text
            .replace("heat_threshold: 100%", "heat_threshold: 0%")
            .replace("monitor: false", "monitor: true"),
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    until("a single use is enough", || {
        same(&bench.path("m/f"), &data);
        bench.bytes_on("m/f", "fast") == data.len() as u64
    });
    assert!(bench.status()["tiers"][1]["read_latency_total_ns"]["ops"].as_u64().unwrap() > 0);
    bench.unmount_clean();
}

#[test]
fn a_monitor_that_is_off_sees_nothing_from_the_first_operation_on() {
    let Some(bench) = Bench::new() else { return };
    bench.write_stack(
        &stack(&bench).replace("range: 64KiB", "range: 64KiB\n      epoch: 60s\n      monitor: false"),
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    write_ranges(&bench.path("m/f"), &pattern(7, 8 * RANGE));
    for tier in bench.status()["tiers"].as_array().unwrap() {
        // Bytes are still counted: placement needs them.
        assert!(tier["write_bytes"].as_u64() > Some(0), "{tier}");
        assert_eq!(
            (&tier["write_latency_total_ns"]["ops"], &tier["threads"]),
            (&0.into(), &0.into()),
            "{tier}"
        );
    }
    bench.unmount_clean();
}
