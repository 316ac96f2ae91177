//! What moves by itself, through the `braid` command: hot ranges to the faster
//! tier, cold ones off a full tier; heat across mounts; what `explain` and
//! `status` tell of it. Needs root and /dev/fuse; passed over without them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::fs::{Advice, XattrFlags};
use rustix::mount::MountFlags;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const RANGE: usize = 64 << 10;

/// What comes about by itself has so long to do so.
const PATIENCE: Duration = Duration::from_secs(90);

/// Two small tiers, each a file system in memory of its own, and a mount point.
struct Bed {
    dir: TempDir,
}

impl Bed {
    /// `None` where nothing can be mounted.
    fn new(settings: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("passed over: needs root and /dev/fuse");
            return None;
        }
        let bed = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["fast", "slow", "m"] {
            fs::create_dir(bed.path(name)).unwrap();
        }
        for (name, size) in [("fast", c"size=32m"), ("slow", c"size=96m")] {
            rustix::mount::mount("tmpfs", bed.path(name), "tmpfs", MountFlags::empty(), Some(size)).unwrap();
        }
        let tiers = "{ fast: { dir: fast, weight: 400 }, slow: { dir: slow, weight: 100 } }";
        let stack =
            format!("stack: {{ volume: {{ home: fast, range: 64KiB, tiers: {tiers}, {settings} }} }}\n");
        fs::write(bed.path("s.yaml"), stack).unwrap();
        bed.ok(&["mount", "s.yaml", "m"]);
        Some(bed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.current_dir(self.dir.path()).args(words).stdin(Stdio::null());
        if words[0] == "mount" {
            command.arg("--log-file").arg(self.path("log"));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.ok(words)).unwrap()
    }

    fn runs(&self, name: &str) -> Vec<Value> {
        self.json(&["explain", name, "--json"])["runs"].as_array().unwrap().clone()
    }

    /// Bytes of a file that are on a tier.
    fn on(&self, name: &str, tier: &str) -> u64 {
        let runs = self.runs(name);
        let there = runs.iter().filter(|run| run["tier"]["name"] == tier);
        there.map(|run| run["len"].as_u64().unwrap()).sum()
    }

    /// Ranges that a mover moved from one tier to the other.
    fn moved(&self, mover: &str, from: &str, to: &str) -> u64 {
        let status = self.json(&["status", "m", "--json"]);
        let counts = status["moves"].as_array().unwrap().iter();
        let mut counts =
            counts.filter(|count| count["mover"] == mover && count["from"] == from && count["to"] == to);
        counts.next().map_or(0, |count| count["ranges"].as_u64().unwrap())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.path("log")).unwrap_or_default());
            let braid = env!("CARGO_BIN_EXE_braid");
            let _ = Command::new(braid).current_dir(self.dir.path()).args(["umount", "--lazy", "m"]).output();
        }
        for tier in ["fast", "slow"] {
            let _ = rustix::mount::unmount(self.path(tier), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// `len` bytes that differ from place to place.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ (at >> 11) as u8 ^ seed).collect()
}

/// Writes a file a range at a time.
fn write(path: &Path, data: &[u8]) {
    let file = File::create(path).unwrap();
    for (at, chunk) in data.chunks(RANGE).enumerate() {
        file.write_all_at(chunk, (at * RANGE) as u64).unwrap();
    }
}

/// Reads all of a file from its tiers, whatever the kernel has of it.
fn read(path: &Path) -> Vec<u8> {
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    fs::read(path).unwrap()
}

/// Fails unless a file has these contents.
#[track_caller]
fn same(path: &Path, data: &[u8]) {
    let found = read(path);
    let differs = found.iter().zip(data).position(|(a, b)| a != b);
    let (length, shown) = (found.len(), path.display());
    assert!(
        length == data.len() && differs.is_none(),
        "{shown}: {length} bytes and not {}, which differ from {differs:?} on",
        data.len()
    );
}

/// Does something again and again until what is to come about has.
#[track_caller]
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !step() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn hot_ranges_go_to_the_faster_tier_and_stay_known_across_mounts() {
    let settings = "policy: { size: { small: 64KiB, large: slow } }, \
                    movers: { promote: true, demote: false, bandwidth: 200MiB/s }, heat: { budget: 1MiB }";
    let Some(bed) = Bed::new(settings) else { return };
    let (hot, cold) = (pattern(1, 40 * RANGE), pattern(2, 40 * RANGE));
    write(&bed.path("m/hot"), &hot);
    write(&bed.path("m/cold"), &cold);
    assert!(bed.on("m/cold", "slow") > 30 * RANGE as u64);
    until("what is read again and again is promoted", || {
        same(&bed.path("m/hot"), &hot);
        bed.on("m/hot", "fast") == hot.len() as u64
    });
    assert!(bed.on("m/cold", "slow") > 30 * RANGE as u64, "what nobody reads stays");
    assert!(bed.moved("promote", "slow", "fast") > 30);

    let runs = bed.runs("m/hot");
    let last = runs.last().unwrap();
    assert_eq!((&last["reason"], &last["now"]), (&"promoted: it is in use".into(), &"stays".into()));
    let (heat, since) = (last["heat"].as_u64().unwrap(), last["since"].as_u64().unwrap());
    assert!(heat >= 33, "{last}");
    let status = bed.json(&["status", "m", "--json"]);
    let ino = fs::metadata(bed.path("m/hot")).unwrap().ino();
    let hottest = status["hottest"].as_array().unwrap();
    let hot_file = hottest.iter().find(|file| file["ino"] == ino).unwrap();
    assert_eq!((&hot_file["path"], hot_file["heat"].as_f64().unwrap() > 1.0), (&"hot".into(), true));
    assert!(hot_file["tier_names"].as_array().unwrap().contains(&"fast".into()), "{hot_file}");
    for tier in status["tiers"].as_array().unwrap() {
        assert!(tier["read_latency_total_ns"]["ops"].as_u64().unwrap() > 0, "{tier}");
        assert!(
            tier["read_latency_total_ns"]["p99"].as_u64() >= tier["read_latency_total_ns"]["p50"].as_u64()
        );
        assert!(tier["mover_limit"].as_f64().is_some() && tier["device"].is_null(), "{tier}");
    }
    let text = bed.ok(&["explain", "m/hot"]);
    assert!(text.contains("SINCE") && text.contains("HEAT") && text.contains("NOW"), "{text}");
    assert!(text.contains("placement: a new range of it would go to slow"), "{text}");

    bed.ok(&["umount", "m"]);
    assert!(bed.path("fast/.braid/heat").is_file());
    assert!(bed.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
    bed.ok(&["mount", "s.yaml", "m"]);
    let last = bed.runs("m/hot").pop().unwrap();
    assert!(last["heat"].as_u64().unwrap() > 0, "{last}");
    assert!(last["since"].as_u64().unwrap() <= since, "{last}");
    same(&bed.path("m/hot"), &hot);
    same(&bed.path("m/cold"), &cold);

    // What is damaged is forgotten, and keeps nobody from mounting.
    bed.ok(&["umount", "m"]);
    fs::write(bed.path("fast/.braid/heat"), "BRAIDHOT and no more").unwrap();
    bed.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bed.runs("m/cold").last().unwrap()["heat"], 0);
    same(&bed.path("m/cold"), &cold);
    bed.ok(&["umount", "m"]);
    assert!(bed.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
}

#[test]
fn a_tier_at_its_watermark_gives_what_is_cold() {
    let settings = "policy: { size: { small: 1MiB, large: fast } }, \
                    movers: { promote: false, watermark_high: 80%, watermark_low: 50%, bandwidth: 500MiB/s }";
    let Some(bed) = Bed::new(settings) else { return };
    let files: Vec<(String, Vec<u8>)> = (0..7).map(|at| (format!("m/f{at}"), pattern(at, 4 << 20))).collect();
    // A large plain file, written natively before: nothing is known of its use.
    for (name, data) in &files {
        write(&bed.path(name), data);
    }
    until("the full tier is relieved", || {
        let status = bed.json(&["status", "m", "--json"]);
        let fast = &status["tiers"][0];
        let used = fast["used"].as_f64().unwrap() / fast["total"].as_f64().unwrap();
        used < 0.55 && bed.moved("demote", "fast", "slow") > 0
    });
    assert!(bed.on("m/f0", "slow") > 0, "what was used least lately goes first");
    let reasons: Vec<Value> = files
        .iter()
        .flat_map(|(name, _)| bed.runs(name))
        .filter(|run| run["tier"]["name"] == "slow")
        .map(|run| run["reason"].clone())
        .collect();
    assert!(reasons.iter().all(|reason| *reason == "demoted: its tier ran full and it was not in use"));
    for (name, data) in &files {
        same(&bed.path(name), data);
    }
    bed.ok(&["umount", "m"]);
    assert!(bed.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
}

#[test]
fn what_is_not_remembered_is_searched_for() {
    let settings = "policy: { size: { small: 1MiB, large: fast } }, heat: { budget: 0 }, \
                    movers: { promote: false, watermark_high: 60%, watermark_low: 40%, bandwidth: 500MiB/s }";
    let Some(bed) = Bed::new(settings) else { return };
    let data = pattern(3, 4 << 20);
    fs::create_dir(bed.path("m/d")).unwrap();
    for at in 0..6 {
        write(&bed.path(&format!("m/d/f{at}")), &data);
    }
    until("the full tier is relieved", || {
        let status = bed.json(&["status", "m", "--json"]);
        let fast = &status["tiers"][0];
        fast["used"].as_f64().unwrap() / fast["total"].as_f64().unwrap() < 0.45
    });
    assert!(!bed.path("fast/.braid/heat").exists());
    for at in 0..6 {
        same(&bed.path(&format!("m/d/f{at}")), &data);
    }
    bed.ok(&["umount", "m"]);
    assert!(bed.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
}

#[test]
fn home_first_evicts_what_was_used_least_lately_and_promotes_on_access() {
    let Some(bed) = Bed::new("policy: { home-first: { watermark: 60% } }") else { return };
    let data = pattern(5, 1 << 20);
    let names: Vec<String> = (0..28).map(|at| format!("m/f{at}")).collect();
    for name in &names {
        write(&bed.path(name), &data);
    }
    let first = &names[0];
    until("home is relieved of what was used least lately", || bed.on(first, "slow") > 0);
    until("what is accessed comes back", || {
        same(&bed.path(first), &data);
        bed.on(first, "fast") == data.len() as u64
    });
    assert!(bed.moved("demote", "fast", "slow") > 0 && bed.moved("promote", "slow", "fast") > 0);
    let text = bed.ok(&["status", "m"]);
    assert!(
        text.contains("demoted from fast to slow: ") && text.contains("promoted from slow to fast: "),
        "{text}"
    );
    for name in &names {
        same(&bed.path(name), &data);
    }
    bed.ok(&["umount", "m"]);
    assert!(bed.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
}

#[test]
fn what_is_pinned_is_left_where_it_is() {
    let settings = "policy: { size: { small: 64KiB, large: slow } }, movers: { bandwidth: 200MiB/s }";
    let Some(bed) = Bed::new(settings) else { return };
    let data = pattern(4, 20 * RANGE);
    for name in ["pinned", "free"] {
        write(&bed.path("m").join(name), &data);
    }
    let on_home = bed.path("fast/pinned");
    rustix::fs::setxattr(&on_home, "trusted.braid.pin", b"slow", XattrFlags::empty()).unwrap();
    until("what may be promoted is", || {
        read(&bed.path("m/pinned"));
        read(&bed.path("m/free"));
        bed.on("m/free", "fast") == data.len() as u64
    });
    assert!(bed.on("m/pinned", "slow") > 15 * RANGE as u64);
    assert!(bed.runs("m/pinned").iter().all(|run| run["now"] == "stays: pinned"));
    bed.ok(&["umount", "m"]);
}
