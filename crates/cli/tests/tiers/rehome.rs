//! Replacing the home tier under a mount in use, through the `braid` command.
//! Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, is_empty, kill_and_wait, pattern, stack, until};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

impl Bench {
    fn with_new_home() -> Option<Self> {
        let bench = Self::bare(&["a", "b", "m", "new"])?;
        bench.home_in("a");
        Some(bench)
    }

    /// Writes a stack file with home in this directory.
    fn home_in(&self, home: &str) {
        let stack = format!(
            "mount: {{ cache: passthrough }}\nstack:\n  volume:\n    home: fast\n    policy: {{ weighted: {{ }} }}\n    range: 64KiB\n    \
             tiers:\n      fast: {{ dir: {home}, weight: 1 }}\n      slow: {{ dir: b, weight: 1 }}\n"
        );
        self.write_stack(&stack);
    }
}

/// Writes, syncs, renames and reads back until stopped; each file holds the
/// pattern of the round that wrote it.
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
    let Some(bench) = Bench::with_new_home() else { return };
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
        let replaced = bench.braid(&["tier", "replace", "fast", "new", "m", "--json"]);
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
    let stack = stack(&bench);
    assert!(stack.contains("/new"), "the stack file follows: {stack}");
    bench.home_in("a");
    let said = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(said.contains("home has moved to") && said.contains("/new"), "{said}");
    fs::write(bench.path("s.yaml"), stack).unwrap();
    bench.ok(&["fsck", "s.yaml"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    for (name, rounds) in ["m/x", "m/y"].iter().zip(&done) {
        verify(&bench.path(name), *rounds);
    }
    bench.ok(&["umount", "m"]);
}

/// Starts a replacement that waits for a file with passthrough.
fn waiting(bench: &Bench) -> (std::process::Child, File) {
    fs::write(bench.path("m/held"), "held").unwrap();
    // The kernel releases the writer some time after its close; until then the
    // file is not passed through.
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    let held = File::open(bench.path("m/held")).unwrap();
    let mut command = bench.command(&["tier", "replace", "fast", "new", "m"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(said.contains("waiting for 1 file open by passthrough"), "{said}");
    (child, held)
}

#[test]
fn a_replacement_waits_for_passthrough_and_can_be_given_up() {
    let Some(bench) = Bench::with_new_home() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let (mut child, held) = waiting(&bench);
    let (status, beside) = bench.fails(&["fsck", "m"]);
    assert!(status == 8 && beside.contains("the home tier is being replaced"), "{beside}");
    // Ending the command does not end the job.
    child.kill().unwrap();
    child.wait().unwrap();
    bench.ok(&["job", "cancel", "1"]);
    until("the copy is removed", || is_empty(&bench.path("new")));
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
        let said = bench.refused(&["tier", "replace", "fast", dir, "m"]);
        assert!(why.split('|').any(|why| said.contains(why)), "{dir}: {said}");
    }
    fs::create_dir(bench.path("full")).unwrap();
    fs::write(bench.path("full/thing"), "x").unwrap();
    assert!(bench.refused(&["tier", "replace", "fast", "full", "m"]).contains("not empty"));
    // Progress goes to standard error.
    let replaced = bench.braid(&["tier", "replace", "fast", "new", "m"]);
    assert!(replaced.status.success(), "{}", String::from_utf8_lossy(&replaced.stderr));
    assert!(bench.home_is_at("new"));
    assert_eq!(fs::read(bench.path("m/held2")).unwrap(), b"goes on");
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_daemon_killed_in_the_middle_leaves_the_old_home() {
    let Some(bench) = Bench::with_new_home() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let (mut child, held) = waiting(&bench);
    kill_and_wait(i32::try_from(bench.status()["pid"].as_i64().unwrap()).unwrap());
    child.wait().unwrap();
    drop(held);
    bench.ok(&["umount", "m"]);
    bench.home_in("new");
    let said = bench.refused(&["mount", "s.yaml", "m"]);
    assert!(said.contains("an unfinished copy of the home tier at"), "{said}");
    bench.home_in("a");
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(fs::read(bench.path("m/held")).unwrap(), b"held");
    until("the copy is removed", || is_empty(&bench.path("new")));
    bench.ok(&["umount", "m"]);
    bench.ok(&["fsck", "s.yaml"]);
}
