//! The home tier is replaced under a mount that is in use, through the `braid`
//! command. Needs root and /dev/fuse; passed over without them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;

struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("passed over: needs root and /dev/fuse");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "m", "new"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let bench = Self { dir };
        bench.write_stack("a");
        Some(bench)
    }

    fn write_stack(&self, home: &str) {
        let stack = format!(
            "stack:\n  volume:\n    home: fast\n    policy: {{ weighted: {{ }} }}\n    range: 64KiB\n    \
             tiers:\n      fast: {{ dir: {home}, weight: 1 }}\n      slow: {{ dir: b, weight: 1 }}\n"
        );
        fs::write(self.path("s.yaml"), stack).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.current_dir(self.dir.path()).args(words).stdin(Stdio::null());
        if words[0] == "mount" {
            command.arg("--log-file").arg(self.path("log"));
        }
        command
    }

    fn braid(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let output = self.braid(words);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, words: &[&str]) -> String {
        let output = self.braid(words);
        assert!(!output.status.success(), "{words:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    fn json(&self, words: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(words)).unwrap()
    }

    fn home_is_at(&self, name: &str) -> bool {
        let status = self.json(&["status", "m", "--json"]);
        Path::new(status["tiers"][0]["location"].as_str().unwrap()) == self.path(name).canonicalize().unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.braid(&["umount", "--lazy", "m"]);
        }
    }
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// Writes, syncs, renames and reads back until told to end; each file holds the
/// pattern of the round that it was written in.
fn work(dir: &Path, end: &AtomicBool, rounds: &AtomicU64) -> u64 {
    fs::create_dir(dir).unwrap();
    let log =
        File::options().create(true).truncate(true).read(true).write(true).open(dir.join("log")).unwrap();
    let mut round = 0;
    while !end.load(Ordering::Relaxed) {
        let data = pattern(round, 100_000 + (round % 7) as usize * 30_000);
        let (temporary, name) = (dir.join("new"), dir.join(format!("file{}", round % 5)));
        let mut file = File::create(&temporary).unwrap();
        file.write_all(&data).unwrap();
        file.sync_all().unwrap();
        fs::rename(&temporary, &name).unwrap();
        log.write_all_at(&round.to_le_bytes(), round * 8).unwrap();
        log.sync_data().unwrap();
        assert!(fs::read(&name).unwrap() == data, "round {round}");
        round += 1;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    round
}

fn verify(dir: &Path, rounds: u64) {
    for slot in 0..5 {
        let last = (0..rounds).rev().find(|round| round % 5 == slot).unwrap();
        let data = pattern(last, 100_000 + (last % 7) as usize * 30_000);
        assert!(fs::read(dir.join(format!("file{slot}"))).unwrap() == data, "{} {slot}", dir.display());
    }
    let log: Vec<u8> = (0..rounds).flat_map(u64::to_le_bytes).collect();
    assert!(fs::read(dir.join("log")).unwrap() == log);
}

#[test]
fn home_is_replaced_under_programs_that_go_on() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let open = File::options().create(true).truncate(true).read(true).write(true).open(bench.path("m/open"));
    let open = open.unwrap();
    let data = pattern(99, 700_000);
    open.write_all_at(&data, 0).unwrap();
    let number = open.metadata().unwrap().ino();
    fs::write(bench.path("m/gone"), "still here").unwrap();
    let gone = File::options().read(true).write(true).open(bench.path("m/gone")).unwrap();
    fs::remove_file(bench.path("m/gone")).unwrap();
    let (end, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let done: Vec<u64> = std::thread::scope(|scope| {
        let (bench, end, rounds) = (&bench, &end, &rounds);
        let start = |name: &str| {
            let dir = bench.path(name);
            scope.spawn(move || work(&dir, end, rounds))
        };
        let threads = ["m/x", "m/y"].map(start);
        let wait = |more: u64| {
            let until = rounds.load(Ordering::Relaxed) + more;
            while rounds.load(Ordering::Relaxed) < until && !threads.iter().any(|one| one.is_finished()) {
                std::thread::yield_now();
            }
        };
        wait(10);
        let replaced = bench.braid(&["tier", "replace", "m", "fast", "new", "--json"]);
        wait(10);
        end.store(true, Ordering::Relaxed);
        let error = String::from_utf8_lossy(&replaced.stderr).into_owned();
        assert!(replaced.status.success(), "{error}");
        let said: serde_json::Value = serde_json::from_slice(&replaced.stdout).unwrap();
        assert!(said["next_mount"].as_str().unwrap().contains("/new"), "{said}");
        threads.map(|thread| thread.join().unwrap()).to_vec()
    });
    assert!(bench.home_is_at("new"));
    assert_eq!(fs::metadata(bench.path("m/open")).unwrap().ino(), number);
    let mut found = vec![0; data.len()];
    open.read_exact_at(&mut found, 0).unwrap();
    assert!(found == data);
    let mut text = String::new();
    (&gone).read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), gone.metadata().unwrap().nlink()), ("still here", 0));
    drop((open, gone));
    for (name, rounds) in ["m/x", "m/y"].iter().zip(&done) {
        verify(&bench.path(name), *rounds);
    }
    bench.ok(&["umount", "m"]);
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    assert!(stack.contains("/new"), "the stack file follows: {stack}");
    bench.write_stack("a");
    let said = bench.fails(&["mount", "s.yaml", "m"]);
    assert!(said.contains("home has moved to") && said.contains("/new"), "{said}");
    fs::write(bench.path("s.yaml"), stack).unwrap();
    bench.ok(&["fsck", "s.yaml"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    for (name, rounds) in ["m/x", "m/y"].iter().zip(&done) {
        verify(&bench.path(name), *rounds);
    }
    bench.ok(&["umount", "m"]);
}

/// Starts a replacement that waits for a file that the kernel reads by itself.
fn waiting(bench: &Bench) -> (std::process::Child, File) {
    fs::write(bench.path("m/held"), "held").unwrap();
    let held = File::open(bench.path("m/held")).unwrap();
    let mut command = bench.command(&["tier", "replace", "m", "fast", "new"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(said.contains("waiting for 1 files that are open by passthrough"), "{said}");
    (child, held)
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_replacement_waits_for_passthrough_and_can_be_given_up() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let (mut child, held) = waiting(&bench);
    let beside = bench.fails(&["fsck", "m"]);
    assert!(beside.contains("the home tier is being replaced"), "{beside}");
    // To end the command leaves the job.
    child.kill().unwrap();
    child.wait().unwrap();
    bench.ok(&["job", "cancel", "1", "--mount", "m"]);
    while !is_empty(&bench.path("new")) {
        std::thread::yield_now();
    }
    assert!(bench.home_is_at("a"));
    fs::write(bench.path("m/held2"), "goes on").unwrap();
    drop(held);
    fs::write(bench.path("b-file"), "x").unwrap();
    for (dir, why) in [
        ("b", "overlap|inside|is a tier"),
        ("m", "native file system"),
        ("b-file", "not a directory"),
        ("none", "o such"),
    ] {
        let said = bench.fails(&["tier", "replace", "m", "fast", dir]);
        assert!(why.split('|').any(|why| said.contains(why)), "{dir}: {said}");
    }
    fs::create_dir(bench.path("full")).unwrap();
    fs::write(bench.path("full/thing"), "x").unwrap();
    assert!(bench.fails(&["tier", "replace", "m", "fast", "full"]).contains("not empty"));
    bench.ok(&["tier", "replace", "m", "fast", "new"]);
    assert!(bench.home_is_at("new"));
    assert_eq!(fs::read(bench.path("m/held2")).unwrap(), b"goes on");
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_daemon_killed_in_the_middle_leaves_the_old_home() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let (mut child, held) = waiting(&bench);
    let pid = bench.json(&["status", "m", "--json"])["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
    drop(held);
    bench.ok(&["umount", "m"]);
    bench.write_stack("new");
    let said = bench.fails(&["mount", "s.yaml", "m"]);
    assert!(said.contains("an unfinished copy of the home tier at"), "{said}");
    bench.write_stack("a");
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(fs::read(bench.path("m/held")).unwrap(), b"held");
    while !is_empty(&bench.path("new")) {
        std::thread::yield_now();
    }
    bench.ok(&["umount", "m"]);
    bench.ok(&["fsck", "s.yaml"]);
}
