//! `braid trace record` and `braid placement simulate` through the command.
//! Recording needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, read_anew};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const RANGE: usize = 64 << 10;
/// A handwritten trace: a thread creates a file of four ranges.
const HAND_MADE: &str = r#"{"braid-trace":1,"braid":"0.1.0","volume":"0","range":65536,"policy":"weighted","began":1}
{"op":"file","at":0,"file":9,"path":"a.wal"}
{"op":"create","at":0,"took":10,"thread":1,"file":9,"write":true}
{"op":"write","at":1000000,"took":10,"thread":1,"file":9,"length":65536,"append":true}
{"op":"write","at":2000000,"took":10,"thread":1,"file":9,"offset":65536,"length":196608,"size":65536,"append":true}
{"op":"end","at":3000000,"ops":3,"why":"interrupted"}
"#;

/// A recording under way.
struct Recording {
    child: Child,
    errors: BufReader<std::process::ChildStderr>,
}

impl Recording {
    /// Starts one into `t`; it is under way when this returns.
    fn start(bench: &Bench, words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.current_dir(bench.path(".")).args(["trace", "record", "m"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        errors.read_line(&mut first).unwrap();
        assert!(first.starts_with("braid: recording "), "{first}");
        Self { child, errors }
    }

    /// Sends Ctrl-C.
    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Its number of sockets.
    fn sockets(&self) -> usize {
        let fds = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let link = |fd: std::io::Result<fs::DirEntry>| fs::read_link(fd.unwrap().path()).unwrap_or_default();
        fds.map(link).filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    }

    /// Waits for the end: exit status, standard output and standard error.
    fn wait(mut self) -> (i32, String, String) {
        let (mut told, mut errors) = (String::new(), String::new());
        self.errors.read_to_string(&mut errors).unwrap();
        self.child.stdout.take().unwrap().read_to_string(&mut told).unwrap();
        (self.child.wait().unwrap().code().unwrap(), told, errors)
    }

    #[track_caller]
    fn ended(self) -> Value {
        let (status, told, errors) = self.wait();
        assert_eq!(status, 0, "{errors}");
        serde_json::from_str(&told).unwrap()
    }
}

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines with this operation on a file.
fn ops<'a>(lines: &'a [Value], op: &str, path: &str) -> Vec<&'a Value> {
    let told = |line: &&Value| line["op"] == "file" && line["path"] == path;
    let files: Vec<&Value> = lines.iter().filter(told).map(|line| &line["file"]).collect();
    lines.iter().filter(|line| line["op"] == op && files.contains(&&line["file"])).collect()
}

/// The number of this thread.
fn thread() -> u64 {
    let link = fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn write(path: PathBuf, ranges: usize, flags: rustix::fs::OFlags) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).custom_flags(flags.bits().cast_signed()).open(path).unwrap();
    (0..ranges).for_each(|at| file.write_all_at(&[7; RANGE], (at * RANGE) as u64).unwrap());
}

#[test]
fn what_applications_do_is_recorded_and_can_be_simulated() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m", "--cache", "direct"]);
    write(bench.path("m/old"), 4, rustix::fs::OFlags::empty());
    let recording = Recording::start(&bench, &["--output", "t", "--json"]);
    write(bench.path("m/db/x.wal"), 3, rustix::fs::OFlags::DSYNC);
    write(bench.path("m/data"), 5, rustix::fs::OFlags::empty());
    bench.ok(&["status", "m"]);
    assert_eq!(read_anew(&bench.path("m/old")).len(), 4 * RANGE);
    let file = fs::OpenOptions::new().write(true).open(bench.path("m/data")).unwrap();
    file.set_len(RANGE as u64).unwrap();
    file.sync_all().unwrap();
    fs::remove_file(bench.path("m/data")).unwrap();
    // It is gone after its last close.
    drop(file);
    fs::rename(bench.path("m/db/x.wal"), bench.path("m/old")).unwrap();
    fs::metadata(bench.path("m/old")).unwrap();
    // The kernel does not wait for the notice of a close.
    while fs::read_to_string(bench.path("t")).unwrap().matches("\"op\":\"remove\"").count() < 2 {
        std::thread::yield_now();
    }
    recording.interrupt();
    let told = recording.ended();
    assert_eq!(
        (&told["ended"], &told["dropped"], &told["passthrough_opens"]),
        (&"interrupted".into(), &0.into(), &0.into())
    );

    let lines = lines(&bench.path("t"));
    assert_eq!((&lines[0]["braid-trace"], &lines[0]["range"]), (&1.into(), &RANGE.into()));
    let wal = ops(&lines, "write", "db/x.wal");
    let length = |ops: &[&Value]| ops.iter().map(|op| op["length"].as_u64().unwrap_or(0)).sum::<u64>();
    assert_eq!(length(&wal), 3 * RANGE as u64);
    assert!(
        wal.iter().all(|op| op["sync"] == true && op["append"] == true && op["thread"] == thread()),
        "{wal:?}"
    );
    let offsets: Vec<u64> = wal.iter().map(|op| op["offset"].as_u64().unwrap_or(0)).collect();
    assert!(offsets.is_sorted() && offsets[0] == 0, "{offsets:?}");
    assert!(wal.windows(2).all(|pair| pair[0]["at"].as_u64() < pair[1]["at"].as_u64()));
    let data = ops(&lines, "write", "data");
    assert_eq!(length(&data), 5 * RANGE as u64);
    assert!(data.iter().all(|op| op.get("sync").is_none()));
    assert_eq!(ops(&lines, "create", "data").len(), 1);
    assert_eq!(ops(&lines, "truncate", "data")[0]["size"], RANGE);
    assert_eq!(ops(&lines, "sync", "data").len(), 1);
    assert_eq!(ops(&lines, "remove", "data").len(), 1);
    assert_eq!(ops(&lines, "remove", "old").len(), 1);
    let read = ops(&lines, "read", "old");
    assert_eq!((length(&read), &read[0]["size"]), (4 * RANGE as u64, &(4 * RANGE).into()));
    let end = lines.last().unwrap();
    assert_eq!((&end["op"], &end["ops"], &end["why"]), (&"end".into(), &told["ops"], &"interrupted".into()));
    let all = lines.iter().skip(1).filter(|line| line["op"] != "file" && line["op"] != "end").count();
    assert_eq!(all as u64, told["ops"].as_u64().unwrap());
    bench.ok(&["umount", "m"]);

    // The devices need not exist.
    let stack = fs::read_to_string(bench.path("s.yaml")).unwrap();
    fs::write(bench.path("far.yaml"), stack.replace("dir: a", "dir: /no/a").replace("dir: b", "dir: /no/b"))
        .unwrap();
    let report = bench.json(&["placement", "simulate", "far.yaml", "--trace", "t", "--json"]);
    let policies = report["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 6);
    assert_eq!((&policies[0]["policy"], &policies[0]["own"]), (&"weighted".into(), &true.into()));
    for policy in policies {
        assert_eq!(policy["written_bytes"], 8 * RANGE, "{policy}");
        assert_eq!(policy["read_bytes"], 4 * RANGE, "{policy}");
        let before =
            policy["tiers"].as_array().unwrap().iter().map(|tier| tier["ranges_before"].as_u64().unwrap());
        assert_eq!(before.sum::<u64>(), 4, "{policy}");
    }
    let weighted = &policies[0]["tiers"];
    assert!(weighted[0]["ranges"].as_u64() > weighted[1]["ranges"].as_u64(), "{weighted}");
    let home_first = policies.iter().find(|policy| policy["policy"] == "home-first").unwrap();
    assert_eq!(home_first["tiers"][1]["ranges"], 0);
    // The throttle's slices only affect the time here.
    let throttled =
        bench.json(&["placement", "simulate", "far.yaml", "--trace", "t", "--throttled", "--json"]);
    assert_eq!(throttled["policies"].as_array().unwrap().len(), 6);
    assert_ne!(throttled["policies"][0]["seconds"], policies[0]["seconds"], "{throttled}");
    let text = bench.ok(&["placement", "simulate", "s.yaml", "--trace", "t", "--as-fast-as-possible"]);
    for words in ["weighted (stack)", "adaptive", "LAST BYTE", "tier fast: 2.86 MiB/s read", "policy "] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_recording_ends_as_it_is_told_and_takes_no_more_than_it_is_to() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m", "--cache", "direct"]);
    let recording = Recording::start(&bench, &["--output", "t1", "--duration", "100ms", "--json"]);
    assert_eq!(recording.ended()["ended"], "duration");

    // Only matching operations; without those of a parallel recording, and each
    // file once.
    let recording = Recording::start(&bench, &["--output", "t2", "--path", "db/*", "--json"]);
    for (words, says) in [
        (
            &["trace", "record", "m", "--output", "t3"][..],
            "the volume is being recorded already\n  help: end the `braid trace record`",
        ),
        (&["trace", "record", "m", "--output", "t1"][..], "t1: there is such a file already"),
        (&["trace", "record", "m", "--output", "m/t"][..], "m/t: it is in the volume that is to be recorded"),
        (&["trace", "record", "m", "--output", "no/t"][..], "no/t: can't be written"),
    ] {
        let (status, said) = bench.fails(words);
        assert!(status == 1 && said.contains(says), "{words:?}: {said}");
    }
    assert!(!bench.path("t3").exists());
    write(bench.path("m/db/x"), 2, rustix::fs::OFlags::empty());
    write(bench.path("m/other"), 2, rustix::fs::OFlags::empty());
    recording.interrupt();
    recording.ended();
    let lines2 = lines(&bench.path("t2"));
    assert!(!ops(&lines2, "write", "db/x").is_empty() && !lines2.iter().any(|line| line["path"] == "other"));
    let (status, said) = bench.fails(&["trace", "record", "m", "--output", "t4", "--path", "[a"]);
    assert!(status == 1 && said.contains("'[a' is not a pattern"), "{said}");
    assert!(!bench.path("t4").exists());

    // A file with a limit ends with a whole line.
    let recording = Recording::start(&bench, &["--output", "t5", "--size", "4096", "--json"]);
    write(bench.path("m/many"), 100, rustix::fs::OFlags::empty());
    let told = recording.ended();
    assert_eq!(told["ended"], "size");
    let lines5 = lines(&bench.path("t5"));
    assert!(fs::metadata(bench.path("t5")).unwrap().len() <= 4096);
    assert_eq!(
        (&lines5.last().unwrap()["why"], &lines5.last().unwrap()["ops"]),
        (&"size".into(), &told["ops"])
    );

    let recording = Recording::start(&bench, &["--output", "t6", "--json"]);
    write(bench.path("m/last"), 2, rustix::fs::OFlags::empty());
    bench.ok(&["umount", "m"]);
    assert_eq!(recording.ended()["ended"], "unmounted");
    assert!(!ops(&lines(&bench.path("t6")), "write", "last").is_empty());
    for (words, says) in [
        (&["trace", "record", "m", "--duration", "soon"][..], "--duration soon: not a duration"),
        (&["trace", "record", "m", "--size", "1"][..], "--size 1: can't be used"),
    ] {
        let (status, said) = bench.fails(words);
        assert!(status == 2 && said.contains(says), "{words:?}: {said}");
    }
}

/// A small file system, until this is dropped.
struct Small(PathBuf);

impl Small {
    fn mount(dir: PathBuf) -> Self {
        fs::create_dir(&dir).unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&dir).status();
        assert!(mount.unwrap().success());
        Self(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_recording_that_is_broken_off_leaves_whole_lines() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m", "--cache", "direct"]);
    let small = Small::mount(bench.path("small"));
    let recording = Recording::start(&bench, &["--output", "small/t"]);
    let file = fs::File::create(bench.path("m/f")).unwrap();
    (0..2000_u64).for_each(|at| file.write_all_at(b"x", at * 3).unwrap());
    let (status, _, said) = recording.wait();
    assert!(status == 1 && said.contains("small/t: can't be written: No space left on device"), "{said}");
    assert!(said.contains("it is good up to its last line"), "{said}");
    let text = fs::read_to_string(bench.path("small/t")).unwrap();
    assert!(text.ends_with('\n') && text.len() > RANGE / 2, "{}", text.len());
    let output =
        bench.braid(&["placement", "simulate", "s.yaml", "--trace", "small/t", "--policy", "weighted"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("small/t: the recording was broken off"), "{said}");
    drop(small);

    let recording = Recording::start(&bench, &["--output", "t"]);
    file.write_all_at(b"y", 0).unwrap();
    let pid = bench.json(&["status", "m", "--json"])["pid"].as_i64().unwrap();
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    let (status, _, said) = recording.wait();
    assert!(status == 1 && said.contains("the recording was broken off: "), "{said}");
    assert!(fs::read_to_string(bench.path("t")).unwrap().ends_with('\n'));
    bench.ok(&["umount", "m"]);

    // The same if the daemon is asked to end it, and dies first.
    bench.ok(&["mount", "s.yaml", "m", "--cache", "direct"]);
    let recording = Recording::start(&bench, &["--output", "u"]);
    let pid = bench.json(&["status", "m", "--json"])["pid"].as_i64().unwrap();
    let daemon = Pid::from_raw(pid as i32).unwrap();
    kill_process(daemon, Signal::STOP).unwrap();
    let sockets = recording.sockets();
    recording.interrupt();
    while recording.sockets() == sockets {
        std::thread::yield_now();
    }
    kill_process(daemon, Signal::KILL).unwrap();
    let (status, told, said) = recording.wait();
    assert!(status == 1 && told.is_empty() && said.contains("was broken off when it was to end: "), "{said}");
    assert!(said.contains("what was not fetched by then is missing, and u is good"), "{said}");
    let text = fs::read_to_string(bench.path("u")).unwrap();
    assert!(text.ends_with('\n') && !text.contains("\"op\":\"end\""), "{text}");
    bench.ok(&["umount", "m"]);
}

/// Records a read of a file on a new mount. Answers whether the open is
/// recorded as passthrough, whether the read is recorded, and the command's
/// output.
fn read_while_recorded(bench: &Bench, output: &str, option: &[&str]) -> (bool, bool, String) {
    bench.ok(&[&["mount", "s.yaml", "m"], option].concat());
    fs::write(bench.path("m/plain"), "x").unwrap();
    // A kernel without backing files says so at the first open.
    fs::read(bench.path("m/plain")).unwrap();
    let recording = Recording::start(bench, &["--output", output]);
    let mut file = fs::File::open(bench.path("m/plain")).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(file.read(&mut [0; 9]).unwrap(), 1);
    drop(file);
    recording.interrupt();
    let (status, told, _) = recording.wait();
    assert_eq!(status, 0);
    bench.ok(&["umount", "m"]);
    let lines = lines(&bench.path(output));
    let opens = ops(&lines, "open", "plain");
    assert_eq!(opens.len(), 1, "{lines:?}");
    (opens[0]["passthrough"] == true, !ops(&lines, "read", "plain").is_empty(), told)
}

#[test]
fn reads_by_passthrough_are_not_seen_and_that_is_told() {
    let Some(bench) = Bench::new() else { return };
    let (passed, seen, told) =
        read_while_recorded(&bench, "t", &["--cache", "passthrough", "--log-level", "debug"]);
    let log = fs::read_to_string(bench.path("log")).unwrap();
    let has = log.contains("FUSE_PASSTHROUGH") && !log.contains("the kernel refuses passthrough");
    assert_eq!((passed, seen), (has, !has), "{log}");
    assert_eq!(told.contains("1 open by passthrough"), has, "{told}");
    let (passed, seen, told) = read_while_recorded(&bench, "u", &["--cache", "direct"]);
    assert!(!passed && seen && !told.contains("passthrough"), "{told}");
}

#[test]
fn what_can_not_be_simulated_is_refused_with_place_and_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let stack = |slow: &str| {
        format!(
            "stack:\n  volume:\n    home: fast\n    policy: {{ home-first: {{ }} }}\n    rules: [ {{ when: \
             'path.matches(\"*.wal\")', tier: slow }} ]\n    tiers:\n      fast: {{ dir: /no/a, weight: 100 }}\n      \
             slow: {{ dir: /no/b{slow} }}\n"
        )
    };
    file("s.yaml", &stack(", weight: 10"));
    file("blind.yaml", &stack(""));
    file("t", HAND_MADE);
    file("foreign", "{\"hello\":1}\n");
    file("empty", "");
    file("newer", &HAND_MADE.replace("\"braid-trace\":1", "\"braid-trace\":2"));
    file("corrupt", &HAND_MADE.replace("\"length\":65536", "\"length\":-5"));
    file("idle", HAND_MADE.lines().next().map(|head| format!("{head}\n")).unwrap().as_str());
    let braid = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        let output =
            command.current_dir(dir.path()).args(["placement", "simulate"]).args(words).output().unwrap();
        let [told, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code().unwrap(), told, said)
    };
    for (words, says) in [
        (&["s.yaml", "--trace", "none"][..], "none: there is no such file\n  help: a trace is recorded by"),
        (&["s.yaml", "--trace", "foreign"][..], "foreign: not a trace of Braid"),
        (&["s.yaml", "--trace", "empty"][..], "empty: the file is empty"),
        (&["s.yaml", "--trace", "newer"][..], "newer: a trace of format version 2"),
        (&["s.yaml", "--trace", "corrupt"][..], "corrupt:4: not a line of a trace"),
        (&["s.yaml", "--trace", "idle"][..], "idle: no operation was recorded in it"),
        (&["no.yaml", "--trace", "t"][..], "no.yaml: there is no such file"),
        (
            &["blind.yaml", "--trace", "t"][..],
            "blind.yaml:8: stack.volume.tiers.slow: it is not known what tier 'slow' can do\n  help: measure it where the devices are: braid bench calibrate",
        ),
        (
            &["s.yaml", "--trace", "t", "--policy", "adaptve"][..],
            "--policy adaptve: there is no policy 'adaptve'\n  help: did you mean 'adaptive'?",
        ),
        (
            &["s.yaml", "--trace", "t", "--policy", "size:large=no"][..],
            "--policy size:large=no: large: there is no tier 'no'",
        ),
        (
            &["s.yaml", "--trace", "t", "--capacity", "fast=much"][..],
            "--capacity fast=much: 'much' is not a size",
        ),
    ] {
        let (status, told, said) = braid(words);
        assert!(
            status == 1 && told.is_empty() && said.starts_with(&format!("braid: {says}")),
            "{words:?}: {said}"
        );
    }
    let (status, told, said) =
        braid(&["s.yaml", "--trace", "t", "--policy", "home-first", "--policy", "weighted", "--json"]);
    assert!(status == 0 && said.is_empty(), "{said}");
    let report: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(report["policies"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&report["range_size"], &report["trace"]["ops"], &report["trace"]["complete"]),
        (&RANGE.into(), &3.into(), &true.into())
    );
    // The rule holds from the first byte on: 256 KiB at 10 MB/s.
    for policy in report["policies"].as_array().unwrap() {
        assert_eq!(policy["placed_by"], serde_json::json!({ "rule 1": 4 }));
        let seconds = policy["seconds"].as_f64().unwrap();
        assert!((0.026..0.029).contains(&seconds), "{policy}");
    }
    let words = ["placement", "simulate", "s.yaml", "--trace", "t", "--capacity", "fast=1MiB", "--json"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_braid")).current_dir(dir.path()).args(words).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let capacities = [&report["tiers"][0]["capacity"], &report["tiers"][1]["capacity"]];
    assert_eq!(capacities, [&Value::from(1 << 20), &Value::Null]);
}
