//! The commands that move data, on real mounts: each command, jobs midway, a
//! killed daemon, and refusals.

use crate::common::{Bench, RANGE, pattern, until, write_ranges};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Ranges of the test file.
const RANGES: u64 = 16;

impl Bench {
    /// A volume of two tiers with equal weights, mounted, with a spread file
    /// and a plain one; `None` where nothing can be mounted.
    fn with_files() -> Option<Self> {
        let bench = Self::bare(&["a", "b", "c", "m"])?;
        bench.stack("fast: { dir: a, weight: 2 }", "slow: { dir: b, weight: 2 }");
        bench.ok(&["mount", "s.yaml", "m"]);
        fs::create_dir(bench.path("m/d")).unwrap();
        bench.put("m/d/big");
        fs::write(bench.path("m/d/small"), "small").unwrap();
        Some(bench)
    }

    /// Writes a file of [`RANGES`], each by itself, so that they are dealt.
    fn put(&self, name: &str) {
        write_ranges(&self.path(name), &data());
    }

    /// Writes the stack file.
    fn stack(&self, first: &str, others: &str) {
        let stack = format!(
            "stack:\n  volume:\n    home: fast\n    policy: {{ weighted: {{ }} }}\n    range: 64KiB\n    \
             jobs: 3\n    tiers:\n      {first}\n      {others}\n"
        );
        self.write_stack(&stack);
    }

    fn remount(&self) {
        self.ok(&["umount", "m"]);
        self.ok(&["mount", "s.yaml", "m"]);
    }

    /// Kills the daemon, and mounts again.
    fn kill_and_mount(&self) {
        self.kill();
        self.ok(&["mount", "s.yaml", "m"]);
    }

    /// Starts a job that moves one range and then waits for very long.
    fn stuck(&self, words: &[&str]) -> u64 {
        let words = [words, &["--bandwidth", "1", "--background", "--json"]].concat();
        let id = self.json(&words)["id"].as_u64().unwrap();
        self.until(id, |job| moved(job) == 1);
        id
    }

    fn is_whole(&self) {
        assert!(fs::read(self.path("m/d/big")).unwrap() == data(), "the contents changed");
        assert_eq!(fs::read_to_string(self.path("m/d/small")).unwrap(), "small");
    }

    /// Checks that all is well, mounted and unmounted.
    fn finish(&self) {
        self.is_whole();
        assert!(self.ok(&["fsck", "m"]).ends_with("no problems\n"));
        self.unmount_clean();
    }
}

fn data() -> Vec<u8> {
    pattern(1, RANGES as usize * RANGE)
}

fn moved(job: &Value) -> u64 {
    job["done"]["ranges"].as_u64().unwrap()
}

fn wait_for_end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn files_and_trees_move_where_they_are_told_to() {
    let Some(bench) = Bench::with_files() else { return };
    assert!(bench.on("m/d/big", "slow") > 0 && bench.on("m/d/big", "fast") > 0);
    let said = bench.ok(&["move", "m/d/big", "--to", "slow"]);
    assert!(said.starts_with("job 1: move d/big to slow: done: moved "), "{said}");
    assert_eq!(bench.on("m/d/big", "slow"), RANGES);
    assert!(bench.ok(&["explain", "m/d/big"]).contains("there by request"));
    let job = bench.json(&["move", "m/d", "--to", "slow", "--json", "--bandwidth", "1GiB/s"]);
    assert_eq!(
        (&job["state"], &job["done"]["files"], &job["bandwidth"]),
        (&"done".into(), &1.into(), &(1_u64 << 30).into())
    );
    assert_eq!(bench.on("m/d/small", "slow"), 1);
    bench.ok(&["move", "m", "--to", "fast"]);
    assert_eq!((bench.on("m/d/big", "slow"), bench.on("m/d/small", "slow")), (0, 0));

    let list = bench.json(&["job", "list", "--json"]);
    assert_eq!(list["jobs"].as_array().unwrap().len(), 3);
    assert!(bench.ok(&["job", "list"]).contains("move / to fast"));
    assert!(bench.ok(&["job", "show", "1"]).starts_with("job 1: move d/big to slow: done\nmoved: "));
    assert!(bench.ok(&["job", "wait", "1", "2", "3"]).contains("\njob 3: move / to fast: done: "));
    bench.finish();
}

#[test]
fn promotion_and_demotion_follow_the_weights() {
    let Some(bench) = Bench::with_files() else { return };
    let said = bench.refused(&["promote", "m/d"]);
    assert!(said.contains("no tier is known to be faster than another: give them weights"), "{said}");
    bench.stack("fast: { dir: a, weight: 3 }", "slow: { dir: b, weight: 1 }");
    bench.remount();
    bench.ok(&["demote", "m/d/big"]);
    assert_eq!(bench.on("m/d/big", "slow"), RANGES);
    bench.ok(&["promote", "m/d"]);
    assert_eq!(bench.on("m/d/big", "fast"), RANGES);
    // It is all on home.
    assert_eq!(bench.json(&["explain", "m/d/big", "--json"])["layout"], "plain");
    bench.finish();
}

#[test]
fn every_command_that_starts_a_job_takes_the_same_options() {
    let Some(bench) = Bench::with_files() else { return };
    bench.ok(&["umount", "m"]);
    let others = "slow: { dir: b, weight: 1 }\n      third: { dir: c, weight: 1 }";
    bench.stack("fast: { dir: a, weight: 3 }", others);
    bench.ok(&["mount", "s.yaml", "m"]);
    for words in [
        &["demote", "m/d", "--bandwidth", "1GiB/s", "--background", "--json"][..],
        &["promote", "m/d", "--bandwidth", "1GiB/s", "--background", "--json"],
        &["rebalance", "m", "--bandwidth", "1GiB/s", "--background", "--json"],
        &["tier", "remove", "third", "m", "--bandwidth", "1GiB/s", "--background", "--json"],
        &["pin", "m/d/big", "--to", "slow", "--bandwidth", "1GiB/s", "--background", "--json"],
        &["tier", "evacuate", "slow", "m", "--bandwidth", "1GiB/s", "--background", "--json"],
    ] {
        let job = bench.json(words);
        assert_eq!(job["bandwidth"], 1_u64 << 30, "{words:?}: {job}");
        let ended = bench.json(&["job", "wait", &job["id"].to_string(), "--json"]);
        assert_eq!(ended["jobs"][0]["state"], "done", "{words:?}: {ended}");
    }
    assert!(bench.tier("third").is_null() && bench.on("m/d/big", "fast") == RANGES);
    bench.finish();
}

#[test]
fn ranges_that_leave_different_tiers_do_not_wait_for_each_other() {
    let Some(bench) = Bench::with_files() else { return };
    bench.ok(&["umount", "m"]);
    bench.stack(
        "fast: { dir: a, weight: 4 }",
        "slow: { dir: b, weight: 2 }\n      third: { dir: c, weight: 2 }",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    for (at, words) in [&["move", "m/d/big", "--to", "fast"][..], &["promote", "m/d/big"]].iter().enumerate()
    {
        let file = format!("m/d/new{at}");
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "m/d/big" { &file } else { *word }).collect();
        bench.put(&file);
        let (stuck, others) = (bench.on(&file, "slow"), bench.on(&file, "third"));
        assert!(stuck > 0 && others > 0);
        bench.ok(&["drill", "slow", "read:hang", "./m"]);
        let id = bench.json(&[&words[..], &["--background", "--json"]].concat())["id"].as_u64().unwrap();
        bench.until(id, |job| moved(job) == others);
        assert_eq!((bench.on(&file, "slow"), bench.on(&file, "third")), (stuck, 0));
        bench.ok(&["drill", "slow", "--clear", "./m"]);
        bench.ok(&["job", "wait", &id.to_string()]);
        assert_eq!(bench.on(&file, "fast"), RANGES);
        assert!(fs::read(bench.path(&file)).unwrap() == data());
    }
    bench.finish();
}

#[test]
fn a_tier_that_was_added_gets_its_share_and_is_emptied_again() {
    let Some(bench) = Bench::with_files() else { return };
    bench.ok(&["umount", "m"]);
    bench.stack(
        "fast: { dir: a, weight: 2 }",
        "slow: { dir: b, weight: 2 }\n      third: { dir: c, weight: 4 }",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    bench.ok(&["rebalance", "m"]);
    // The order of tiers begins elsewhere for each file.
    assert!(bench.on("m/d/big", "third").abs_diff(RANGES / 2) <= 1);
    assert_eq!(bench.json(&["explain", "m/d/small", "--json"])["layout"], "plain");
    let again = bench.json(&["rebalance", "m", "--json"]);
    assert_eq!(moved(&again), 0);

    bench.ok(&["tier", "evacuate", "third", "m"]);
    assert_eq!(bench.on("m/d/big", "third"), 0);
    let third = |bench: &Bench| bench.json(&["status", "m", "--json"])["tiers"][2]["ranges"].clone();
    assert_eq!(third(&bench), 0);
    bench.remount();
    bench.put("m/new");
    assert_eq!(third(&bench), 0);
    let said = bench.refused(&["move", "m/new", "--to", "third"]);
    assert!(said.contains("tier third takes no new ranges: it is to be empty"), "{said}");
    bench.ok(&["tier", "evacuate", "third", "m", "--undo"]);
    let said = bench.refused(&["tier", "evacuate", "third", "m", "--undo"]);
    assert!(said.contains("tier third takes new ranges: it was not emptied"), "{said}");
    bench.ok(&["move", "m/new", "--to", "third"]);
    assert_eq!(third(&bench), RANGES);
    bench.finish();
}

#[test]
fn a_job_is_paused_resumed_slowed_down_and_cancelled() {
    let Some(bench) = Bench::with_files() else { return };
    let id = bench.stuck(&["tier", "evacuate", "slow", "m"]).to_string();
    let top = bench.json(&["top", "m", "--once", "--json"]);
    assert_eq!((&top["jobs"][0]["id"], &top["jobs"][0]["state"]), (&1.into(), &"running".into()));
    assert!(bench.ok(&["top", "m", "--once"]).contains("evacuate slow"));
    assert_eq!(bench.ok(&["job", "pause", &id]), format!("job {id}: evacuate slow: paused\n"));
    let said = bench.refused(&["job", "pause", &id]);
    assert_eq!(said, format!("braid: job {id} is paused, not queued or running\n"));
    let said = bench.refused(&["tier", "evacuate", "slow", "m"]);
    assert_eq!(said, format!("braid: job {id} evacuates tier slow already\n"));
    assert_eq!(bench.json(&["job", "resume", &id, "--json"])["id"].to_string(), id);
    bench.until(id.parse().unwrap(), |job| moved(job) == 2);
    assert!(bench.ok(&["job", "show", &id]).contains("at most: 1 B/s"));
    assert_eq!(bench.json(&["job", "set", &id, "bandwidth=2/s", "--json"])["bandwidth"], 2);
    assert_eq!(bench.json(&["job", "cancel", &id, "--json"])["state"], "cancelled");
    let said = bench.refused(&["job", "wait", &id]);
    assert!(said.contains(&format!("job {id}: evacuate slow: cancelled")), "{said}");
    let said = bench.refused(&["job", "resume", &id]);
    assert_eq!(said, format!("braid: job {id} is cancelled, not paused\n"));
    // The tier takes new data again.
    bench.is_whole();
    bench.put("m/new");
    assert!(bench.on("m/new", "slow") > 0);

    let id = bench.stuck(&["move", "m/d/big", "--to", "fast"]).to_string();
    bench.ok(&["job", "set", &id, "bandwidth=none"]);
    bench.ok(&["job", "wait", &id]);
    assert_eq!(bench.on("m/d/big", "slow"), 0);
    bench.finish();
}

#[test]
fn a_job_keeps_the_caps_of_the_tiers_and_may_be_let_off_the_guard() {
    let Some(bench) = Bench::with_files() else { return };
    bench.ok(&["umount", "m"]);
    bench.stack(
        "fast: { dir: a, weight: 2 }",
        "slow: { dir: b, weight: 2 }\n    movers: { promote: false, demote: false, bandwidth: 1MiB/s, job_floor: 2MiB/s }",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    let limits = |bench: &Bench| ["fast", "slow"].map(|tier| bench.tier(tier)["mover_limit"].clone());
    assert_eq!(limits(&bench), [f64::from(1 << 20), f64::from(1 << 20)], "movers are off, and jobs have it");
    bench.ok(&["move", "m/d/big", "--to", "fast"]);
    let begun = Instant::now();
    bench.ok(&["move", "m/d/big", "--to", "slow"]);
    // The first range does not wait; the others wait for those before them,
    // except for a burst of a tenth of a second.
    let least = Duration::from_secs_f64((RANGES - 1) as f64 * RANGE as f64 / f64::from(1 << 20) - 0.1);
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    assert_eq!(bench.on("m/d/big", "slow"), RANGES);

    let id = bench.stuck(&["move", "m/d/big", "--to", "fast"]).to_string();
    let told = bench.ok(&["job", "show", &id]);
    assert!(told.contains("at most: 1 B/s\nat most on each tier: 1.00 MiB/s\n"), "{told}");
    assert!(!told.contains("guard: off"), "{told}");
    let job = bench.json(&["job", "set", &id, "guard=off", "--json"]);
    assert_eq!((&job["guarded"], &job["tier_bandwidth"]), (&false.into(), &(1 << 20).into()));
    bench.kill_and_mount();
    let told = bench.ok(&["job", "show", &id]);
    assert!(told.contains("\nguard: off: applications may wait for it\n"), "{told}");
    bench.ok(&["job", "set", &id, "guard=on"]);
    assert_eq!(bench.job(id.parse().unwrap())["guarded"], true);
    bench.ok(&["job", "set", &id, "guard=off"]);
    // A job that waits for its own limit sees a pause at once.
    bench.ok(&["job", "pause", &id]);
    bench.ok(&["job", "resume", &id]);
    bench.ok(&["job", "set", &id, "bandwidth=none"]);
    bench.ok(&["job", "wait", &id]);
    assert_eq!(bench.on("m/d/big", "fast"), RANGES);
    bench.finish();
}

#[test]
fn a_job_goes_on_after_the_daemon_was_killed() {
    let Some(bench) = Bench::with_files() else { return };
    let running = bench.stuck(&["tier", "evacuate", "slow", "m"]);
    let paused = bench.stuck(&["move", "m/d/big", "--to", "fast"]);
    assert_eq!(bench.json(&["job", "pause", &paused.to_string(), "--json"])["state"], "paused");
    bench.kill_and_mount();
    bench.is_whole();
    assert_eq!(bench.job(paused)["state"], "paused");
    assert_eq!(bench.job(running)["bandwidth"], 1);
    bench.ok(&["job", "set", &running.to_string(), "bandwidth=none"]);
    let said = bench.ok(&["job", "wait", &running.to_string()]);
    assert!(said.contains("evacuate slow: done"), "{said}");
    assert_eq!((bench.on("m/d/big", "slow"), bench.on("m/d/big", "fast")), (0, RANGES));
    bench.ok(&["job", "cancel", &paused.to_string()]);
    bench.finish();
}

#[test]
fn jobs_that_are_killed_again_and_again_end_well() {
    let Some(bench) = Bench::with_files() else { return };
    for round in 0..6 {
        let to = if round % 2 == 0 { "slow" } else { "fast" };
        let words = ["move", "m/d", "--to", to, "--bandwidth", "2MiB/s", "--background", "--json"];
        let id = bench.json(&words)["id"].as_u64().unwrap();
        // At another place in each round.
        bench.until(id, |job| moved(job) >= round || job["state"] == "done");
        bench.kill_and_mount();
        bench.is_whole();
        bench.ok(&["job", "wait", &id.to_string()]);
        assert_eq!(bench.on("m/d/big", to), RANGES);
    }
    bench.finish();
}

#[test]
fn files_that_the_kernel_reads_by_itself_are_waited_for() {
    let Some(bench) = Bench::with_files() else { return };
    let open = fs::File::open(bench.path("m/d/small")).unwrap();
    let id = bench.json(&["move", "m/d", "--to", "slow", "--background", "--json"])["id"].as_u64().unwrap();
    // Without passthrough in the kernel, there is nothing to wait for.
    let job = bench.until(id, |job| job["waiting_for"] == 1 || job["state"] == "done");
    if job["state"] == "running" {
        assert!(bench.ok(&["job", "show", &id.to_string()]).contains("waiting for 1 file in use"));
        assert_eq!(bench.on("m/d/small", "slow"), 0);
    }
    drop(open);
    bench.ok(&["job", "wait", &id.to_string()]);
    assert_eq!((bench.on("m/d/small", "slow"), bench.on("m/d/big", "slow")), (1, RANGES));
    bench.finish();
}

#[test]
fn ctrl_c_leaves_the_job_running() {
    let Some(bench) = Bench::with_files() else { return };
    let mut command = bench.command(&["move", "m/d/big", "--to", "slow", "--bandwidth", "1"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the job is started", || {
        !bench.json(&["job", "list", "--json"])["jobs"].as_array().unwrap().is_empty()
    });
    bench.until(1, |job| moved(job) == 1);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let (status, said) = wait_for_end(child);
    assert_eq!(status, Some(1));
    assert!(
        said.contains("job 1 goes on in the background") && said.contains("braid job show 1 /"),
        "{said}"
    );
    assert_eq!(bench.job(1)["state"], "running");
    bench.ok(&["job", "cancel", "1"]);
    bench.finish();
}

#[test]
fn pinned_files_stay_where_they_are() {
    let Some(bench) = Bench::with_files() else { return };
    let said = bench.refused(&["pin", "m/d"]);
    assert!(said.contains("is a directory\n  help: add --recursive"), "{said}");
    assert_eq!(bench.ok(&["pin", "m/d", "--recursive"]), "pinned: 2 files\n");
    assert_eq!(bench.ok(&["pin", "m/d/big"]), "pinned: 1 file (1 were so already)\n");
    assert!(bench.ok(&["explain", "m/d/big"]).contains("\npinned: movers leave it where it is\n"));
    let said = bench.refused(&["move", "m/d/big", "--to", "slow"]);
    assert_eq!(said, "braid: d/big is pinned: unpin it first\n");
    let job = bench.json(&["move", "m/d", "--to", "slow", "--json"]);
    assert_eq!((&job["skipped"]["pinned"], moved(&job)), (&2.into(), 0));
    bench.remount();
    bench.ok(&["pin", "m/d/big", "--to", "slow"]);
    assert_eq!(bench.on("m/d/big", "slow"), RANGES);
    assert_eq!(bench.json(&["explain", "m/d/big", "--json"])["pin"]["tier"], "slow");
    assert_eq!(bench.json(&["unpin", "m/d", "--recursive", "--json"])["changed"], 2);
    bench.ok(&["move", "m/d/big", "--to", "fast"]);
    assert_eq!(bench.on("m/d/big", "fast"), RANGES);
    assert_eq!(bench.fails(&["pin", "m/d/big", "--background"]).0, 2);
    bench.finish();
}

#[test]
fn a_job_is_followed_to_its_end_and_not_changed_after_it() {
    let Some(bench) = Bench::with_files() else { return };
    let id = bench.stuck(&["move", "m/d/big", "--to", "slow"]).to_string();
    let follow = bench.start(&["job", "show", &id, "--follow"]);
    bench.ok(&["job", "set", &id, "bandwidth=none"]);
    let followed = follow.wait_with_output().unwrap();
    let told = String::from_utf8(followed.stdout).unwrap();
    assert!(
        followed.status.success() && told.contains(&format!("job {id}: move d/big to slow: done")),
        "{told}"
    );
    let before = bench.job(1);
    let done = "is done, not ";
    for (words, says) in [
        (&["job", "pause", &id][..], format!("braid: job {id} {done}queued or running\n")),
        (&["job", "resume", &id], format!("braid: job {id} {done}paused\n")),
        (&["job", "cancel", &id], format!("braid: job {id} {done}queued, running or paused\n")),
        (
            &["job", "set", &id, "bandwidth=1MiB/s"],
            format!("braid: job {id} {done}queued, running or paused\n"),
        ),
    ] {
        assert_eq!(bench.refused(words), says, "{words:?}");
    }
    assert_eq!(bench.job(1), before);
    // An unknown job is reported before any is awaited.
    assert_eq!(bench.refused(&["job", "wait", "1", "9"]), "braid: there is no job 9\n");
    bench.finish();
}

#[test]
fn what_can_not_be_done_is_refused_with_the_reason() {
    let Some(bench) = Bench::with_files() else { return };
    for (status, words, said) in [
        (1, &["job", "show", "7"][..], "there is no job 7"),
        (1, &["job", "wait", "7"], "there is no job 7"),
        (1, &["job", "pause", "7"], "there is no job 7"),
        (1, &["job", "resume", "7"], "there is no job 7"),
        (1, &["job", "cancel", "7"], "there is no job 7"),
        (1, &["job", "set", "7", "bandwidth=1MiB/s"], "there is no job 7"),
        (2, &["job", "set", "7", "bandwidth=fast"], "a rate is a size a second, such as 50MiB/s"),
        (2, &["job", "set", "7", "speed=1"], "'speed=1' can't be set"),
        (2, &["job", "set", "7", "guard=maybe"], "guard=maybe: neither yes nor no"),
        (1, &["job", "set", "7", "guard=off"], "there is no job 7"),
        (
            1,
            &["job", "pause", "demote"],
            "there is no job demote: the stack file has no movers: { demote: true }",
        ),
        (2, &["job", "show", "x"], "invalid value 'x'"),
        (2, &["move", "m/d", "--to", "slow", "--bandwidth", "0"], "to stop a job, use braid job pause"),
        (1, &["move", "m/d", "--to", "slwo"], "did you mean 'slow'"),
        (1, &["move", "m/none", "--to", "slow"], "m/none: No such file"),
        (1, &["move", "s.yaml", "--to", "slow"], "is not in a Braid file system"),
        (1, &["tier", "evacuate", "fast", "m"], "tier fast is home: it holds the names of all files"),
        (1, &["tier", "evacuate", "x", "m"], "there is no tier 'x'"),
        (1, &["pin", "m/d/big", "--to", "x"], "there is no tier 'x'"),
    ] {
        let (found, why) = bench.fails(words);
        assert!(found == status && why.contains(said), "{words:?}: {why}");
    }
    assert_eq!(bench.ok(&["job", "list"]), "there are no jobs\n");

    // There is no room, and nothing is changed.
    bench.stack("fast: { dir: a, weight: 2, reserve: 1000TiB }", "slow: { dir: b, weight: 2 }");
    bench.remount();
    let said = bench.refused(&["tier", "evacuate", "slow", "m"]);
    let numbers =
        "braid: tier slow holds 524288 bytes, and the other tiers have room for 0 bytes (fast 0 bytes)";
    assert!(said.starts_with(numbers), "{said}");
    let said = bench.refused(&["move", "m/d", "--to", "fast"]);
    assert!(said.contains("failed: tier fast has room for 0 bytes, and 524288 bytes in 1 file"), "{said}");
    assert_eq!(bench.on("m/d/big", "slow"), RANGES / 2);

    // The number of parallel jobs is checked like all of a stack file.
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    fs::write(bench.path("bad.yaml"), stack.replace("jobs: 3", "jobs: 99")).unwrap();
    let said = bench.refused(&["mount", "bad.yaml", "m"]);
    assert!(said.contains("bad.yaml:6: stack.volume.jobs: "), "{said}");
    bench.finish();
}

#[test]
fn moving_a_file_does_not_change_its_time() {
    let Some(bench) = Bench::with_files() else { return };
    let mtime = |name: &str| fs::metadata(bench.path(name)).unwrap().modified().unwrap();
    bench.put("m/d/other");
    let written = mtime("m/d/other");
    let set = std::time::SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_789);
    let file = fs::File::options().write(true).open(bench.path("m/d/big")).unwrap();
    file.set_modified(set).unwrap();
    drop(file);
    for to in ["slow", "fast", "slow"] {
        bench.ok(&["move", "m/d", "--to", to]);
        bench.remount();
        assert_eq!((mtime("m/d/big"), mtime("m/d/other")), (set, written), "to {to}");
        bench.ok(&["move", "m/d", "--to", if to == "slow" { "fast" } else { "slow" }]);
        bench.kill_and_mount();
        assert_eq!((mtime("m/d/big"), mtime("m/d/other")), (set, written), "killed, to {to}");
    }
    bench.unmount_clean();
    assert_eq!(mtime("a/d/big"), set);
}
