//! `braid top`, `braid status --watch` and `braid bench calibrate` through the
//! command. Needs root and /dev/fuse; skipped without them.

use crate::common::{Bench, RANGE, is_empty, pattern, until, write_ranges};
use braid_daemon::profile;
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Flags that make a calibration short.
const SHORT: [&str; 6] = ["--seconds", "0.1", "--threads-max", "2", "--size", "1MiB"];

fn calibrate<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["bench", "calibrate", "s.yaml"], &SHORT[..], more].concat()
}

fn tiers_of(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    profile::parse(&text, "p").unwrap().tiers.into_keys().collect()
}

#[test]
fn calibration_writes_a_profile_and_a_plot_and_leaves_nothing_else() {
    let Some(bench) = Bench::new() else { return };
    let told = bench.ok(&calibrate(&[]));
    for words in ["fast\nTHREADS ", "\nslow\nTHREADS ", "\nread: ", "\nwrite: ", "profile: s.profile.yaml\n"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(is_empty(&bench.path("a")) && is_empty(&bench.path("b")));
    let file = bench.path("s.profile.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let all = profile::parse(&text, "p").unwrap();
    assert_eq!(tiers_of(&file), ["fast", "slow"]);
    for figures in all.tiers.values().flat_map(|tier| [&tier.read, &tier.write]) {
        let threads: Vec<u32> = figures.points.iter().map(|point| point.threads).collect();
        assert_eq!(threads, [1, 2]);
        let best = figures.points.iter().map(|point| point.bandwidth).max();
        assert!(figures.latency_ns > 0 && Some(figures.bandwidth) == best && figures.bandwidth > 1);
    }
    let plot = fs::read_to_string(bench.path("s.profile.svg")).unwrap();
    assert!(plot.starts_with("<svg ") && plot.contains("fast") && plot.contains("slow"), "{plot}");

    // One tier again, to another file; the profile keeps the other tier.
    fs::copy(&file, bench.path("p.yaml")).unwrap();
    let measured =
        bench.json(&calibrate(&["--tiers", "slow", "--output", "p.yaml", "--svg", "p.svg", "--json"]));
    assert!(measured["tiers"]["slow"]["read"]["bandwidth"].as_u64() > Some(0));
    assert!(measured["tiers"].get("fast").is_none());
    let merged = profile::parse(&fs::read_to_string(bench.path("p.yaml")).unwrap(), "p").unwrap();
    assert_eq!(merged.tiers["fast"], all.tiers["fast"]);
    assert_ne!(merged.tiers["slow"], all.tiers["slow"]);
    assert!(bench.path("p.svg").exists());
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn calibration_beside_a_mounted_volume_says_so_and_does_no_harm() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let data: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(bench.path("m/f"), &data).unwrap();
    let output = bench.braid(&calibrate(&[]));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let expected = ["fast", "slow"].map(|tier| {
        format!("braid: tier '{tier}' is in use by a mounted volume: its figures are what that leaves\n")
    });
    assert_eq!(said, expected.concat());
    let names = fs::read_dir(bench.path("m")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["f"]);
    assert!(fs::read(bench.path("m/f")).unwrap() == data, "the contents changed");
    bench.ok(&["umount", "m"]);
    assert!(bench.ok(&["fsck", "s.yaml"]).ends_with("no problems\n"));
}

#[test]
fn what_can_not_be_calibrated_is_refused_with_place_and_reason() {
    let Some(bench) = Bench::new() else { return };
    fs::write(bench.path("w.yaml"), "stack: { volume: { home: a } }\n").unwrap();
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    fs::write(bench.path("gone.yaml"), text.replace("dir: b", "dir: gone")).unwrap();
    for (words, says) in [
        (
            calibrate(&["--tiers", "fast,slwo"]),
            "--tiers fast,slwo: there is no tier 'slwo'\n  help: did you mean 'slow'?",
        ),
        (
            [&["bench", "calibrate", "s.yaml", "--size", "900TiB"][..]].concat(),
            "s.yaml:8: stack.noop.volume.tiers.fast.dir: tier 'fast' has no room: 900 TiB are needed",
        ),
        (vec!["bench", "calibrate", "w.yaml"], "w.yaml:1: stack.volume: the key 'tiers' is missing"),
        (
            vec!["bench", "calibrate", "gone.yaml"],
            "gone.yaml:9: stack.noop.volume.tiers.slow.dir: there is no directory",
        ),
        (vec!["bench", "calibrate", "no.yaml"], "no.yaml: "),
        (calibrate(&["--output", "no/such"]), "no/such: can't be written: "),
        (calibrate(&["--svg", "a"]), "a: can't be written: "),
        (calibrate(&["--block", "1000"]), "--block 1000: can't be used"),
        (calibrate(&["--block", "many"]), "--block many: not a size"),
        (vec!["bench", "calibrate", "s.yaml", "--threads-max", "0"], "--threads-max 0: out of bounds"),
        (vec!["bench", "calibrate", "s.yaml", "--seconds", "-1"], "--seconds 0: out of bounds"),
        (vec!["bench", "calibrate", "s.yaml", "--size", "1MiB"], "--size 1MiB: too small"),
    ] {
        let (status, said) = bench.fails(&words);
        assert!(status == 1 && said.starts_with(&format!("braid: {says}")), "{words:?}: {said}");
    }
    assert!(is_empty(&bench.path("a")) && is_empty(&bench.path("b")));
    let left = fs::read_dir(bench.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().contains("profile")));
}

/// Whether the process has open files without names, with more than `bytes` in
/// them.
fn has_scratch(pid: u32, bytes: u64) -> bool {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let nameless = fds.flatten().filter(|fd| {
        fs::read_link(fd.path()).is_ok_and(|target| target.to_string_lossy().ends_with(" (deleted)"))
    });
    nameless.filter_map(|fd| fs::metadata(fd.path()).ok()).map(|found| found.len()).sum::<u64>() >= bytes
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_calibration_that_is_ended_leaves_nothing() {
    let Some(bench) = Bench::new() else { return };
    use rustix::process::Signal;
    for end in [Signal::INT, Signal::TERM, Signal::KILL] {
        let words = ["bench", "calibrate", "s.yaml", "--seconds", "600", "--size", "2MiB"];
        let mut child = bench.start(&words);
        // All files of the first tier exist: it is being measured.
        until("it is measured", || {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            has_scratch(child.id(), 2 << 20)
        });
        signal(&child, end);
        assert!(!child.wait().unwrap().success());
        assert!(is_empty(&bench.path("a")) && is_empty(&bench.path("b")));
        assert!(!bench.path("s.profile.yaml").exists());
    }
}

#[test]
fn top_prints_a_frame_or_json() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    fs::write(bench.path("m/f"), vec![1; 1 << 20]).unwrap();
    let point = bench.path("m").display().to_string();
    // Standard output is no terminal, which implies `--once`.
    for words in [&["top", "m", "--once"][..], &["top", "m"]] {
        let frame = bench.ok(words);
        assert!(frame.starts_with(&format!("{point}  policy weighted  ")), "{frame}");
        for part in [
            "\nTIER ",
            "\nfast* ",
            "\nslow ",
            " in flight",
            " threads",
            "\nTHREAD ",
            "\nJOB ",
            "\nHEAT ",
            "░",
        ] {
            assert!(frame.contains(part), "{part}: {frame}");
        }
        assert!(!frame.contains('\x1b'), "{frame}");
    }
    let status = bench.json(&["top", "m", "--once", "--json"]);
    assert_eq!(status["jobs"], serde_json::json!([]));
    assert_eq!((&status["tiers"][0]["name"], &status["mountpoint"]), (&"fast".into(), &point.into()));

    let mut child = bench.start(&["top", "m", "--json", "--interval", "0.1s"]);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(2);
    let written = |line: String| {
        let status: serde_json::Value = serde_json::from_str(&line).unwrap();
        status["tiers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tier| tier["write_bytes"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(lines.map(|line| written(line.unwrap())).collect::<Vec<_>>(), [1 << 20; 2]);
    assert!(child.wait().unwrap().success(), "it ends without a reader");
    bench.ok(&["umount", "m"]);

    assert_eq!(bench.fails(&["top", "m", "--interval", "0"]).0, 2);
    let (status, said) = bench.fails(&["top", "m"]);
    assert!(status == 1 && said.contains("is not in a Braid file system"), "{said}");
}

/// Ends threads, even if a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_busiest_threads_of_each_tier_are_told_to_root_and_the_owner() {
    let Some(bench) = Bench::new() else { return };
    // Another user has to reach the mount, and the command.
    fs::set_permissions(bench.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let (braid, mine) = (env!("CARGO_BIN_EXE_braid"), bench.path("braid"));
    fs::hard_link(braid, &mine).or_else(|_| fs::copy(braid, &mine).map(drop)).unwrap();
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    // The figures cover a second, however short an epoch is.
    bench.write_stack(&text.replace("range: 64KiB", "range: 64KiB\n      epoch: 10ms"));
    bench.ok(&["mount", "s.yaml", "m"]);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&ended);
        let (number, told) = mpsc::channel();
        for at in 0..10 {
            let (file, number, ended) = (bench.path(&format!("m/f{at}")), number.clone(), &ended);
            scope.spawn(move || {
                number.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                while !ended.load(Ordering::Relaxed) {
                    write_ranges(&file, &pattern(at, 12 * RANGE));
                }
            });
        }
        let writers: Vec<i64> = told.iter().take(10).map(i64::from).collect();
        let begun = Instant::now();
        let threads = loop {
            let status = bench.json(&["status", "m", "--json"]);
            let tiers = status["tiers"].as_array().unwrap().clone();
            let threads = |tier: &serde_json::Value| tier["busiest_threads"].as_array().unwrap().clone();
            if tiers.iter().all(|tier| threads(tier).len() == 8) {
                assert!(tiers.iter().all(|tier| tier["threads"].as_u64() >= Some(8)), "{status}");
                break tiers.iter().flat_map(threads).collect::<Vec<_>>();
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{status}");
        };
        let program = fs::read_to_string("/proc/self/comm").unwrap();
        for thread in threads {
            let figure = |name: &str| thread[name].as_f64().unwrap();
            assert!(writers.contains(&thread["thread"].as_i64().unwrap()), "{writers:?} {thread}");
            assert_eq!(thread["program"], program.trim_end(), "{thread}");
            let (rate, ops) = (figure("write_rate"), figure("write_op_rate"));
            assert!(ops > 0.0 && rate > 0.0 && rate <= ops * RANGE as f64 * 1.001, "{thread}");
            // The average in flight is operations a second times seconds.
            let under_way = ops * figure("write_latency_ns") / 1e9;
            assert!(under_way > 0.0 && figure("in_flight") >= under_way * 0.999, "{thread}");
            assert_eq!(
                (figure("read_rate"), figure("read_op_rate"), figure("read_latency_ns")),
                (0.0, 0.0, 0.0)
            );
        }
        let frame = bench.ok(&["top", "m", "--once"]);
        let (_, shown) = frame.split_once("\nTHREAD ").unwrap();
        let shown = shown.lines().nth(1).unwrap().split_whitespace().next().unwrap();
        assert!(writers.contains(&shown.parse().unwrap()), "{frame}");

        let mut other = Command::new(&mine);
        other.args(["status", "--json"]).arg(bench.path("m")).uid(4711).gid(4711);
        let output = other.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for tier in status["tiers"].as_array().unwrap() {
            assert_eq!(tier["busiest_threads"], serde_json::json!([]), "{tier}");
        }
    });
    bench.unmount_clean();
}

/// `braid top` on a terminal of its own, and the other end of that.
fn start_top(bench: &Bench) -> (OwnedFd, Child) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    unlockpt(&master).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let open = || fs::File::options().read(true).write(true).open(&name).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.arg("top").arg(bench.path("m")).env("TERM", "xterm");
    let child = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
    (master, child)
}

/// The output of `braid top` from the first frame to its end, which `end`
/// causes.
fn top_on_a_terminal(bench: &Bench, end: impl FnOnce(&mut fs::File, &Child)) -> String {
    let (master, mut child) = start_top(bench);
    let mut master = fs::File::from(master);
    let (mut shown, mut end) = (String::new(), Some(end));
    let mut piece = [0; 4096];
    // Reading fails once all of the other side is closed.
    while let Ok(got) = master.read(&mut piece) {
        shown.push_str(&String::from_utf8_lossy(&piece[..got]));
        if shown.contains("HOTTEST")
            && let Some(end) = end.take()
        {
            end(&mut master, &child);
        }
    }
    assert!(child.wait().unwrap().success(), "{shown}");
    shown
}

#[test]
fn top_draws_on_a_terminal_and_gives_it_back_however_it_ends() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let by_key = top_on_a_terminal(&bench, |keys, _| keys.write_all(b"q").unwrap());
    let by_signal = top_on_a_terminal(&bench, |_, child| signal(child, rustix::process::Signal::TERM));
    let by_unmount = top_on_a_terminal(&bench, |_, _| drop(bench.ok(&["umount", "m"])));
    for shown in [by_key, by_signal, by_unmount] {
        // The alternate screen, and back from it with the cursor.
        let (begin, rest) = shown.split_once("\x1b[?1049h").unwrap();
        assert!(begin.is_empty() && rest.contains("fast*") && rest.contains("quit"), "{shown}");
        assert!(rest.contains("\x1b[?1049l") && rest.trim_end().ends_with("\x1b[?25h"), "{shown}");
    }
}

/// `braid top` ends when its terminal is gone, or on request while its daemon
/// does not answer.
#[test]
fn top_ends_when_its_terminal_is_gone_and_when_it_is_told_to() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    for stop in [true, false] {
        let (master, mut child) = start_top(&bench);
        let mut master = fs::File::from(master);
        let (mut shown, mut piece) = (String::new(), [0; 4096]);
        while !shown.contains("HOTTEST") {
            let got = master.read(&mut piece).unwrap();
            shown.push_str(&String::from_utf8_lossy(&piece[..got]));
        }
        let pid = bench.status()["pid"].as_i64().unwrap();
        let daemon = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        if stop {
            rustix::process::kill_process(daemon, rustix::process::Signal::STOP).unwrap();
            signal(&child, rustix::process::Signal::TERM);
        } else {
            drop(master);
        }
        let status = child.wait().unwrap();
        rustix::process::kill_process(daemon, rustix::process::Signal::CONT).unwrap();
        assert!(status.success(), "{status}");
    }
    bench.ok(&["umount", "m"]);
}

#[test]
fn a_stack_that_names_the_profile_that_is_to_be_made_is_calibrated() {
    let Some(bench) = Bench::new() else { return };
    let text = fs::read_to_string(bench.path("s.yaml")).unwrap();
    bench.write_stack(&text.replace("range: 64KiB", "range: 64KiB\n      profile: s.profile.yaml"));
    assert!(bench.refused(&["mount", "s.yaml", "m"]).contains("s.profile.yaml can't be read"));
    bench.ok(&calibrate(&[]));
    // And again: an existing file is not checked.
    fs::write(bench.path("s.profile.yaml"), "version: 99\n").unwrap();
    bench.ok(&calibrate(&[]));
    bench.ok(&["mount", "s.yaml", "m"]);
    assert!(bench.tier("slow")["read_bandwidth"].as_f64() > Some(0.0));
    bench.ok(&["umount", "m"]);
}

#[test]
fn status_is_shown_again_until_nobody_reads_or_it_is_unmounted() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mount", "s.yaml", "m"]);
    let heads = |child: &mut Child| {
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..2 {
            lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("TIER ")).unwrap();
        }
        lines
    };
    let mut child = bench.start(&["status", "--watch", "0.1", "m"]);
    drop(heads(&mut child));
    assert!(child.wait().unwrap().success(), "it ends without a reader");

    let mut child = bench.start(&["status", "m", "--watch=0.1"]);
    let lines = heads(&mut child);
    bench.ok(&["umount", "m"]);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");

    bench.ok(&["mount", "s.yaml", "m"]);
    let mut child = bench.start(&["status", "m", "--watch", "0.1", "--json"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let status: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(status["tiers"][1]["name"], "slow");
    }
    bench.ok(&["umount", "m"]);
    let mut rest = String::new();
    lines.for_each(|line| rest.push_str(&line.unwrap()));
    assert!(child.wait().unwrap().success(), "{rest}");
    let (status, _) = bench.fails(&["status", "m", "--watch", "0"]);
    assert_eq!(status, 2);
}
