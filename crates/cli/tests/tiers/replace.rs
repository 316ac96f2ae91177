//! Replacing and emptying healthy tiers on a mounted volume, and moving home by
//! a job, through the `braid` command. Needs root and /dev/fuse; skipped
//! without them.

use crate::common::{Bench, RANGE, is_empty, is_well, pattern, stack, until, write_ranges};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A mounted volume with more empty directories beside it.
fn mounted() -> Option<Bench> {
    let bench = Bench::new()?;
    for name in ["c", "new"] {
        fs::create_dir(bench.path(name)).unwrap();
    }
    bench.ok(&["mount", "s.yaml", "m"]);
    Some(bench)
}

/// As [`mounted`], without modules on the volume, so that the kernel may use
/// passthrough for plain files.
fn mounted_plainly() -> Option<Bench> {
    let bench = Bench::new()?;
    fs::create_dir(bench.path("new")).unwrap();
    let stack = "mount: { cache: passthrough }\nstack:\n  volume:\n    home: fast\n    policy: { weighted: { } }\n    range: 64KiB\n    tiers:\n      \
                 fast: { dir: a, weight: 1 }\n      slow: { dir: b, weight: 1 }\n";
    fs::write(bench.path("s.yaml"), stack).unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    Some(bench)
}

/// Creates a file of 16 ranges, each written by itself, so that they are dealt.
fn put(bench: &Bench, name: &str, seed: u64) -> (File, Vec<u8>) {
    let data = pattern(seed, 16 * RANGE);
    let path = bench.path(name);
    write_ranges(&path, &data);
    (File::options().read(true).write(true).open(path).unwrap(), data)
}

#[track_caller]
fn has(file: &File, data: &[u8]) {
    let mut found = vec![0; data.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == data, "the contents changed");
}

#[test]
fn a_tier_that_is_well_is_replaced_under_programs_that_use_it() {
    let Some(bench) = mounted() else { return };
    let (file, data) = put(&bench, "m/f", 1);
    let (gone, gone_data) = put(&bench, "m/gone", 2);
    fs::remove_file(bench.path("m/gone")).unwrap();
    let before = (bench.ranges_on("slow"), bench.ranges_on("fast"));
    assert!(before.0 > 0);
    let end = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut turn = 10;
            while !end.load(Ordering::Relaxed) {
                let (file, data) = put(&bench, "m/w", turn);
                has(&file, &data);
                turn += 1;
            }
            turn
        });
        let replaced = bench.braid(&["tier", "replace", "slow", "archive=c,weight=2", "m"]);
        end.store(true, Ordering::Relaxed);
        let turns = writer.join().unwrap();
        has(&File::open(bench.path("m/w")).unwrap(), &pattern(turns - 1, 16 * RANGE));
        let error = String::from_utf8(replaced.stderr).unwrap();
        assert!(replaced.status.success(), "{error}");
        String::from_utf8(replaced.stdout).unwrap()
    });
    for part in
        ["tier archive is at ", "replace slow by archive: done", "slow is not part of the volume any more"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(bench.tier("slow").is_null() && is_empty(&bench.path("b")));
    has(&file, &data);
    has(&gone, &gone_data);
    let runs = bench.json(&["explain", "m/f", "--json"]);
    assert!(runs.to_string().contains("archive") && !runs.to_string().contains("slow"), "{runs}");
    drop((file, gone));
    assert!(said.ends_with("/s.yaml says so\n"), "{said}");
    assert!(!stack(&bench).contains("slow") && stack(&bench).contains("archive: {"), "{}", stack(&bench));
    bench.ok(&["umount", "m"]);
    is_well(&bench);
    bench.ok(&["mount", "s.yaml", "m"]);
    has(&File::open(bench.path("m/f")).unwrap(), &data);
    assert_eq!(bench.state("archive"), "online");
    bench.ok(&["umount", "m"]);
}

/// Starts to replace `slow`, so slowly that one range is moved.
fn begin(bench: &Bench) -> u64 {
    let begun =
        bench.ok(&["tier", "replace", "slow", "archive=c,weight=1", "m", "--bandwidth", "1", "--background"]);
    assert!(begun.contains("job 1: replace slow by archive"), "{begun}");
    bench.until(1, |job| job["done"]["ranges"] == 1);
    1
}

#[test]
fn a_replacement_goes_on_after_the_daemon_was_killed() {
    let Some(bench) = mounted() else { return };
    let (file, data) = put(&bench, "m/f", 1);
    drop(file);
    let id = begin(&bench);
    assert!(stack(&bench).contains("archive") && stack(&bench).contains("slow"));
    bench.kill();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.state("slow"), "draining");
    assert!(bench.ranges_on("slow") > 0);
    assert!(["queued", "running"].contains(&bench.job(id)["state"].as_str().unwrap()));
    put(&bench, "m/g", 2);
    bench.ok(&["job", "set", "1", "bandwidth=none"]);
    bench.ok(&["job", "wait", "1"]);
    assert!(bench.tier("slow").is_null() && is_empty(&bench.path("b")));
    assert!(!stack(&bench).contains("slow"), "{}", stack(&bench));
    has(&File::open(bench.path("m/f")).unwrap(), &data);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn a_replacement_that_is_cancelled_leaves_both_tiers_in_use() {
    let Some(bench) = mounted() else { return };
    let (file, data) = put(&bench, "m/f", 1);
    begin(&bench);
    for (words, said) in [
        (&["tier", "evacuate", "slow", "m"][..], "job 1 evacuates tier slow already"),
        (&["tier", "evacuate", "archive", "m"], "job 1 moves data to tier archive: cancel it first"),
        (&["tier", "replace", "slow", "third=new", "m"], "job 1 evacuates tier slow already"),
    ] {
        let (_, found) = bench.fails(words);
        assert!(found.contains(said), "{words:?}: {found}");
    }
    assert!(is_empty(&bench.path("new")));
    bench.ok(&["job", "cancel", "1"]);
    assert_eq!((bench.state("slow").as_str(), bench.state("archive").as_str()), ("online", "online"));
    let before = bench.ranges_on("slow");
    put(&bench, "m/g", 2);
    assert!(bench.ranges_on("slow") > before);
    bench.kill();
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.state("slow"), "online");
    // The reverse is possible.
    bench.ok(&["tier", "remove", "archive", "m"]);
    assert!(bench.tier("archive").is_null() && !stack(&bench).contains("archive"));
    drop(file);
    has(&File::open(bench.path("m/f")).unwrap(), &data);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn what_can_not_replace_a_tier_is_refused_and_nothing_changes() {
    let Some(bench) = mounted() else { return };
    put(&bench, "m/f", 1);
    let held = bench.ranges_on("slow") * RANGE as u64;
    let before = stack(&bench);
    let numbers = format!("tier slow holds {held} bytes, and the other tiers have room for 0 bytes");
    bench.ok(&["tier", "set", "fast", "reserve=1000TiB", "./m"]);
    let set = stack(&bench);
    for (words, said) in [
        (&["slow", "archive=c,reserve=1000TiB"][..], format!("{numbers} (fast 0 bytes, archive 0 bytes)")),
        (&["slow", "c"], "tier slow is online: what is on it would be lost".into()),
        (&["slow", "c"], "braid tier replace TIER NAME=DIR".into()),
        (&["slow", "fast=c"], "there is a tier 'fast' already".into()),
        (&["slow", "archive=c,wight=2"], "did you mean 'weight'".into()),
        (&["slow", "archive=c,readonly=true"], "tier archive can't be read only".into()),
        (&["slow", "archive=b"], "tier 'slow' is at".into()),
        (&["slow", "archive=none"], "o such".into()),
        (&["slwo", "archive=c"], "did you mean 'slow'".into()),
        (&["fast", "archive=c"], "tier fast is home, which keeps its name".into()),
        (&["slow", "c", "--background"], "--background and --bandwidth are for what is moved".into()),
    ] {
        let (_, found) = bench.fails(&[&["tier", "replace"], words, &["m"]].concat());
        assert!(found.contains(&said), "{words:?}: {found}");
        assert!(!found.contains("os error") || said == "o such", "{words:?}: {found}");
        assert!(is_empty(&bench.path("c")), "{words:?}");
    }
    assert_eq!(bench.ok(&["job", "list"]), "there are no jobs\n");
    assert_eq!((stack(&bench), bench.state("slow").as_str()), (set, "online"));
    bench.ok(&["tier", "set", "fast", "reserve=default", "./m"]);
    assert_eq!(stack(&bench), before);
    bench.ok(&["umount", "m"]);
    // A tier that the policy names is needed.
    fs::write(bench.path("s.yaml"), before.replace("weighted: { }", "size: { large: slow }")).unwrap();
    bench.ok(&["mount", "s.yaml", "m"]);
    let (_, said) = bench.fails(&["tier", "replace", "slow", "archive=c", "m"]);
    let expected = "braid: the policy names tier slow\n  help: change the policy in the stack file, and mount \
                    anew, first\n";
    assert_eq!(said, expected);
    bench.ok(&["umount", "m"]);
}

#[test]
fn what_is_advised_follows_from_the_reason_and_not_from_names() {
    let Some(bench) = Bench::bare(&["a", "b", "policy-job", "x", "y", "m"]) else { return };
    bench.ok(&["mount", "--tier", "x=x", "--tier", "y=y", "m"]);
    bench.ok(&["umount", "m"]);
    bench.write_stack(
        "stack: { volume: { home: fast, range: 64KiB, policy: { weighted: { } },\n  \
         tiers: { fast: { dir: a, weight: 1 }, policy-disk: { dir: b, weight: 1 } } } }\n",
    );
    bench.ok(&["mount", "s.yaml", "m"]);
    put(&bench, "m/f", 1);
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m", "--without", "policy-disk"]);
    let shown = |name: &str| bench.path(name).canonicalize().unwrap().display().to_string();
    for (words, says) in [
        (
            &["tier", "replace", "policy-disk", "new=policy-job", "m"][..],
            "braid: tier policy-disk is absent: what is on it can't be read, so it can only be replaced\n  \
             help: an empty directory takes its place: braid tier replace policy-disk DIR\n"
                .to_owned(),
        ),
        (
            &["tier", "replace", "fast", "x", "m"],
            format!(
                "braid: {}: the directory is a tier already, of this or another volume\n  \
                 help: name an empty directory on a native file system\n",
                shown("x")
            ),
        ),
        (
            &["tier", "remove", "fast", "m", "--no-evacuate"],
            "braid: tier fast is the home tier, which holds the names of all files\n  help: the home tier stays; \
             only its directory is replaced: braid tier replace HOME DIR\n"
                .to_owned(),
        ),
        (
            &["tier", "evacuate", "policy-disk", "m"],
            "braid: tier policy-disk is absent: what is on it can't be read, so it can only be replaced\n"
                .to_owned(),
        ),
    ] {
        assert_eq!(bench.refused(words), says, "{words:?}");
    }
    bench.ok(&["umount", "m"]);
}

#[test]
fn files_that_are_open_without_a_name_do_not_keep_a_tier() {
    let Some(bench) = mounted() else { return };
    let (first, mut data) = put(&bench, "m/first", 1);
    let again = File::options().read(true).write(true).open(bench.path("m/first")).unwrap();
    let (second, other) = put(&bench, "m/second", 2);
    for name in ["m/first", "m/second"] {
        fs::remove_file(bench.path(name)).unwrap();
    }
    let held = bench.ranges_on("slow");
    assert!(held > 0);
    let (_, said) = bench.fails(&["tier", "remove", "slow", "m", "--no-evacuate"]);
    assert!(said.contains(&format!("{held} ranges")), "{said}");
    let job = bench.json(&["tier", "remove", "slow", "m", "--json"]);
    assert_eq!(
        (&job["state"], &job["done"]["ranges"], &job["total"]["ranges"]),
        (&"done".into(), &held.into(), &held.into())
    );
    assert!(bench.tier("slow").is_null() && is_empty(&bench.path("b")));
    has(&second, &other);
    again.write_all_at(b"changed", 3 * RANGE as u64 - 3).unwrap();
    data[3 * RANGE - 3..][..7].copy_from_slice(b"changed");
    has(&first, &data);
    first.sync_all().unwrap();
    drop((first, again, second));
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn a_name_that_is_given_again_is_of_a_tier_that_takes_data() {
    let Some(bench) = mounted() else { return };
    put(&bench, "m/f", 1);
    bench.ok(&["tier", "evacuate", "slow", "m"]);
    assert_eq!(bench.state("slow"), "draining");
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.state("slow"), "draining");
    bench.ok(&["tier", "remove", "slow", "m", "--no-evacuate"]);
    bench.ok(&["tier", "add", "slow=c,weight=3", "m"]);
    assert_eq!(bench.state("slow"), "online");
    bench.ok(&["umount", "m"]);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.state("slow"), "online");
    put(&bench, "m/g", 2);
    assert!(bench.ranges_on("slow") > 0);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

/// A file with passthrough.
fn held(bench: &Bench) -> File {
    fs::write(bench.path("m/held"), "held").unwrap();
    // The kernel uses passthrough once the file has no other open.
    until("it is closed", || bench.status()["open_files"] == 0);
    File::open(bench.path("m/held")).unwrap()
}

/// Starts a job that moves home and waits for a file with passthrough.
fn waiting(bench: &Bench) -> File {
    let held = held(bench);
    let job = bench.json(&["tier", "replace", "fast", "new", "m", "--background", "--json"]);
    let id = job["id"].as_u64().unwrap();
    bench.until(id, |job| job["phase"] == "waiting");
    held
}

#[test]
fn a_job_that_moves_home_is_shown_and_waited_for_and_the_stack_file_follows() {
    let Some(bench) = mounted_plainly() else { return };
    let (file, data) = put(&bench, "m/f", 1);
    drop(file);
    let held = waiting(&bench);
    let shown = bench.ok(&["job", "show", "1"]);
    assert!(shown.contains(": running, waiting for 1 file in use\n"), "{shown}");
    let listed = bench.ok(&["job", "list"]);
    assert!(listed.contains("replace home by /") && listed.contains("/new"), "{listed}");
    for (words, said) in [
        (&["job", "pause", "1"][..], "it can't be paused"),
        (&["tier", "replace", "fast", "new", "m"], "job 1 replaces home already"),
        (&["fsck", "m"], "the home tier is being replaced"),
    ] {
        let (_, found) = bench.fails(words);
        assert!(found.contains(said), "{words:?}: {found}");
    }
    bench.ok(&["job", "set", "1", "bandwidth=100MiB/s"]);
    drop(held);
    let ended = bench.json(&["job", "wait", "1", "--json"]);
    assert_eq!(ended["jobs"][0]["state"], "done");
    assert!(
        ended["jobs"][0]["done"]["bytes"].as_u64().unwrap() > 0
            && ended["jobs"][0]["done"]["files"].as_u64().unwrap() >= 2,
        "{ended}"
    );
    assert!(bench.home_is_at("new"));
    assert!(stack(&bench).contains("/new"), "the stack file follows: {}", stack(&bench));
    has(&File::open(bench.path("m/f")).unwrap(), &data);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.job(1)["state"], "done");
    has(&File::open(bench.path("m/f")).unwrap(), &data);
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_job_tells_that_the_stack_file_could_not_follow() {
    let Some(bench) = mounted() else { return };
    let (file, data) = put(&bench, "m/f", 1);
    drop(file);
    begin(&bench);
    let (text, path) = (stack(&bench), bench.path("s.yaml"));
    fs::remove_file(&path).unwrap();
    bench.make_dir("s.yaml");
    let why_not = "/s.yaml was not changed: it can't be read: Is a directory";
    bench.ok(&["job", "set", "1", "bandwidth=none"]);
    let (waited, shown) = (bench.ok(&["job", "wait", "1"]), bench.ok(&["job", "show", "1"]));
    for said in [waited, shown] {
        for part in ["tier slow is not part of the volume any more\n", why_not, "\n  take out  slow\n"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let told = |at: usize| bench.json(&["job", "list", "--json"])["jobs"][at]["stack_file"].clone();
    assert_eq!((&told(0)["written"], &told(0)["by_hand"][0]), (&false.into(), &"take out  slow".into()));
    let begun = bench.json(&["tier", "replace", "fast", "new", "m", "--background", "--json"]);
    assert_eq!(begun["stack_file"], Value::Null);
    let said = bench.ok(&["job", "wait", "2"]);
    let home = bench.path("new").canonicalize().unwrap();
    for part in [&format!("home is at {} now\n", home.display()), why_not, "\n  set for fast  dir: "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Also by a command without a job of its own.
    put(&bench, "m/g", 2);
    let said = bench.ok(&["tier", "replace", "archive", "third=b", "m"]);
    for part in [why_not, "\n  add  third: { dir: ", "\n  take out  archive\n"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    bench.ok(&["umount", "m"]);
    fs::remove_dir(&path).unwrap();
    let text = text.replace("dir: a,", "dir: new,").replace("  slow: { dir: b,", "  third: { dir: b,");
    let text: String =
        text.lines().filter(|line| !line.contains("archive:")).map(|line| format!("{line}\n")).collect();
    bench.write_stack(&text);
    bench.ok(&["mount", "s.yaml", "m"]);
    assert_eq!(bench.job(1)["stack_file"], Value::Null);
    assert!(bench.home_is_at("new"));
    has(&File::open(bench.path("m/f")).unwrap(), &data);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn a_job_that_moves_home_can_be_cancelled_and_started_again() {
    let Some(bench) = mounted_plainly() else { return };
    let held = waiting(&bench);
    bench.ok(&["job", "cancel", "1"]);
    until("the copy is removed", || is_empty(&bench.path("new")));
    assert!(bench.home_is_at("a"));
    assert_eq!(bench.job(1)["state"], "cancelled");
    drop(held);
    fs::write(bench.path("m/more"), "more").unwrap();
    let mut said = String::new();
    until("the job has let go of the directory, which was empty before", || {
        let output = bench.braid(&["tier", "replace", "fast", "new", "m"]);
        said = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        let refused = error.contains("job 1 replaces home already, or removes what it copied");
        assert!(output.status.success() || refused, "{error}");
        output.status.success()
    });
    assert!(said.contains("operations held up for") && said.contains("/s.yaml says so"), "{said}");
    assert!(bench.home_is_at("new"));
    assert_eq!(fs::read(bench.path("m/more")).unwrap(), b"more");
    let states: Vec<Value> = (1..=2).map(|id| bench.job(id)["state"].clone()).collect();
    assert_eq!(states, ["cancelled", "done"]);
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn a_job_that_moves_home_has_failed_after_the_daemon_was_killed_or_the_volume_unmounted() {
    let Some(bench) = mounted_plainly() else { return };
    for (id, end) in [(1, "kill"), (2, "umount")] {
        let held = waiting(&bench);
        match end {
            "kill" => {
                bench.kill();
                drop(held);
            }
            _ => {
                drop(bench.ok(&["umount", "--lazy", "m"]));
                drop(held);
                // The daemon ends when the file is closed.
                until("the volume is free", || bench.braid(&["mount", "s.yaml", "m"]).status.success());
                bench.ok(&["umount", "m"]);
            }
        }
        bench.ok(&["mount", "s.yaml", "m"]);
        let job = bench.job(id);
        assert_eq!(job["state"], "failed", "{job}");
        assert!(job["message"].as_str().unwrap().contains("home is where it was"), "{job}");
        until("the copy is removed", || is_empty(&bench.path("new")));
        assert!(bench.home_is_at("a"));
        assert_eq!(fs::read(bench.path("m/held")).unwrap(), b"held");
    }
    bench.ok(&["umount", "m"]);
    is_well(&bench);
}

#[test]
fn ctrl_c_leaves_the_job_that_moves_home_running() {
    let Some(bench) = mounted_plainly() else { return };
    let held = held(&bench);
    let (mut child, mut said) = replacing_held(&bench);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(rest.contains("job 1 goes on in the background"), "{rest}");
    assert_eq!(bench.job(1)["state"], "running");
    drop(held);
    bench.ok(&["job", "wait", "1"]);
    assert!(bench.home_is_at("new"));
    bench.ok(&["umount", "m"]);
}

/// A daemon that is stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn daemon_of(bench: &Bench) -> Self {
        let pid = Pid::from_raw(i32::try_from(bench.status()["pid"].as_i64().unwrap()).unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).unwrap();
    }
}

#[test]
fn a_second_ctrl_c_ends_a_command_that_gets_no_answer() {
    let Some(bench) = mounted_plainly() else { return };
    let held = held(&bench);
    let (mut child, _said) = replacing_held(&bench);
    let stopped = Stopped::daemon_of(&bench);
    let mut ended = None;
    until("the command ends", || {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    drop(stopped);
    // An answer may have been on its way when the first one arrived.
    let status = ended.unwrap().code();
    assert!([Some(130), Some(1)].contains(&status), "{status:?}");
    assert_eq!(bench.job(1)["state"], "running");
    drop(held);
    bench.ok(&["job", "wait", "1"]);
    assert!(bench.home_is_at("new"));
    bench.ok(&["umount", "m"]);
}

/// A command that waits for a held file, and has said so.
fn replacing_held(bench: &Bench) -> (Child, BufReader<ChildStderr>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.current_dir(bench.path("")).args(["tier", "replace", "fast", "new", "m"]).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("waiting for 1 file open by passthrough"), "{line}");
    (child, said)
}
