//! One boot of the virtual machine: the output of the guest, and the moment of
//! the power cut.

use braid_testkit::SplitMix;
use braid_tests_support::error::{Context, Failure, Result};
use braid_tests_support::lab::Lab;
use braid_tests_support::paths;
use braid_tests_support::sh::{cmd, terminate, uninterrupted};
use braid_tests_support::tools::build_braid;
use rustix::process::Signal;
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Packages that the guest needs besides the kernel.
const PACKAGES: &[&str] = &["coreutils", "fuse3", "rocksdb-tools", "sqlite3"];

/// Status of `lab/lab run` after a power cut.
const NO_POWER: i32 = 137;

/// Time limit of a boot.
const SECONDS: u64 = 300;

fn lab() -> PathBuf {
    paths::root().join("lab/lab")
}

/// Builds the guest, if it is not there.
pub(super) fn set_up() -> Result<()> {
    cmd(lab()).env("LAB_CACHE", cache()).arg("setup").args(PACKAGES).run()
}

fn cache() -> PathBuf {
    std::env::var_os("LAB_CACHE").map_or_else(|| paths::target().join("lab"), PathBuf::from)
}

/// The moment of the power cut.
pub(super) struct Moment {
    /// Acknowledgements to wait for, or none to cut while the guest recovers.
    acknowledgements: Option<u64>,
    /// Additional time.
    then: Duration,
}

impl Moment {
    /// No power cut.
    pub(super) fn never() -> Self {
        Self { acknowledgements: Some(u64::MAX), then: Duration::ZERO }
    }

    /// A random moment under load; one in eight while the guest recovers, if
    /// there is anything to recover.
    pub(super) fn random(random: &mut SplitMix, recovers: bool) -> Self {
        let under_load = 20 + random.below(200);
        let early = random.below(8) == 0 && recovers;
        let micros = random.below(if early { 2_000_000 } else { 100_000 });
        Self { acknowledgements: (!early).then_some(under_load), then: Duration::from_micros(micros) }
    }
}

/// The output of a boot.
#[derive(Default)]
pub(super) struct Heard {
    /// The kernel's id of the boot.
    pub(super) boot: Option<String>,
    /// Findings: a word for the kind, then text.
    pub(super) findings: Vec<String>,
    /// The state after all checks.
    pub(super) state: Option<Value>,
    /// The last number that each part of the load acknowledged.
    pub(super) acks: Map<String, Value>,
    /// Number of spread files seen by fsck.
    pub(super) spread: u64,
    /// Total number of acknowledgements.
    count: u64,
    stage: String,
}

impl Heard {
    /// Number of acknowledgements received.
    pub(super) fn acknowledged(&self) -> u64 {
        self.count
    }

    fn line(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "boot" => self.boot = Some(rest.to_owned()),
            "stage" => rest.clone_into(&mut self.stage),
            "finding" => self.findings.push(rest.to_owned()),
            "state" => self.state = serde_json::from_str(rest).ok(),
            "spread" => self.spread = rest.parse().unwrap_or(0),
            "ack" => self.acknowledge(rest),
            _ => self.findings.push(format!("machine said {line}")),
        }
    }

    fn acknowledge(&mut self, rest: &str) {
        if let Some((who, Ok(number))) = rest.split_once(' ').map(|(who, n)| (who, n.parse::<u64>())) {
            self.acks.insert(who.to_owned(), number.into());
            self.count += 1;
        }
    }
}

/// A machine to boot, with these disks.
pub(super) struct Boot {
    command: Command,
    log: PathBuf,
}

impl Boot {
    /// Prepares everything. The images are all files of a directory.
    pub(super) fn new(lab_dir: &mut Lab, images: &Path, logs: &Path, lies: bool) -> Result<Self> {
        let files = guest_files(lab_dir)?;
        let mut command = Command::new(lab());
        command.env("LAB_CACHE", cache()).arg("run").arg("--files").arg(files);
        command.args(lies.then_some("--lie")).arg("--timeout").arg(SECONDS.to_string());
        command.arg("--console").arg(logs.join("console.log"));
        let mut paths: Vec<_> = std::fs::read_dir(images)
            .at(images)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::result::Result<_, _>>()?;
        // By name, which is the order of the tiers.
        paths.sort();
        for path in paths {
            let is_pmem = path.extension().is_some_and(|extension| extension == "pmem");
            command.arg(if is_pmem { "--pmem" } else { "--disk" }).arg(path);
        }
        Ok(Self { command, log: logs.join("guest.log") })
    }

    /// Boots, gives the guest its job, reads its output, and cuts the power.
    pub(super) fn run(mut self, job: &Value, seed: u64, moment: &Moment) -> Result<Heard> {
        let log = std::fs::File::create(&self.log).at(&self.log)?;
        self.command.arg("--seed").arg(seed.to_string()).args(["--", "exec", "/files/suites", "power-guest"]);
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        uninterrupted()?;
        let mut child = self.command.spawn().at(&lab())?;
        let heard = converse(&mut child, job, moment);
        if heard.is_err() {
            terminate(child.id(), Signal::TERM);
        }
        let status = child.wait()?;
        let mut heard = heard?;
        let expected = if job["load"] == true { NO_POWER } else { 0 };
        // A finding of the guest ends it as well.
        if status.code() != Some(expected) && heard.findings.is_empty() {
            heard.findings.push(format!("machine ended with {status} while {}", heard.stage));
        }
        Ok(heard)
    }
}

/// Braid's programs that run in the guest.
fn guest_files(lab: &mut Lab) -> Result<PathBuf> {
    let dir = lab.path().join("files");
    if dir.exists() {
        return Ok(dir);
    }
    build_braid()?;
    let dir = lab.dir("files")?;
    let own = std::env::current_exe()?;
    for (from, name) in [(paths::braid(), "braid"), (own, "suites")] {
        cmd("strip").arg("-o").arg(dir.join(name)).arg(from).quiet()?;
    }
    Ok(dir)
}

fn converse(child: &mut Child, job: &Value, moment: &Moment) -> Result<Heard> {
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Failure("the machine has no input or output".into()));
    };
    writeln!(stdin, "{job}").context("the guest's job")?;
    let (said, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(std::result::Result::ok) {
            // The receiver is gone: the child is being ended.
            let _ = said.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    let heard = listen(&lines, child.id(), moment);
    if heard.is_ok() {
        // There are no more lines, so it is ending.
        let _ = reader.join();
    }
    heard
}

/// Reads the output to the end, and cuts the power in time.
fn listen(lines: &Receiver<String>, child: u32, moment: &Moment) -> Result<Heard> {
    let mut heard = Heard::default();
    let mut cut_at: Option<Instant> = None;
    let mut is_cut = false;
    loop {
        let wait = match cut_at {
            Some(at) if !is_cut => at.saturating_duration_since(Instant::now()),
            _ => Duration::from_secs(1),
        };
        match lines.recv_timeout(wait) {
            Ok(line) => heard.line(&line),
            Err(RecvTimeoutError::Disconnected) => return Ok(heard),
            Err(RecvTimeoutError::Timeout) => uninterrupted()?,
        }
        if cut_at.is_none() && is_time(&heard, moment) {
            cut_at = Some(Instant::now() + moment.then);
        }
        if !is_cut && cut_at.is_some_and(|at| at <= Instant::now()) {
            terminate(child, Signal::USR1);
            is_cut = true;
        }
    }
}

fn is_time(heard: &Heard, moment: &Moment) -> bool {
    match moment.acknowledgements {
        Some(enough) => heard.count >= enough,
        None => heard.stage == "recovering",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guest_says_is_understood() {
        let mut heard = Heard::default();
        for line in ["boot x", "stage loading", "ack a 1", "ack a 2", "ack b 7", "finding lost it", "what"] {
            heard.line(line);
        }
        assert_eq!((heard.boot.as_deref(), heard.count), (Some("x"), 3));
        assert_eq!(Value::Object(heard.acks), serde_json::json!({ "a": 2, "b": 7 }));
        assert_eq!(heard.findings, ["lost it", "machine said what"]);
    }

    #[test]
    fn power_is_cut_after_enough_acknowledgements_or_while_it_recovers() {
        let moment = |acknowledgements| Moment { acknowledgements, then: Duration::ZERO };
        let heard = |count, stage: &str| Heard { count, stage: stage.into(), ..Heard::default() };
        assert!(is_time(&heard(3, "loading"), &moment(Some(3))));
        assert!(!is_time(&heard(2, "loading"), &moment(Some(3))));
        assert!(is_time(&heard(0, "recovering"), &moment(None)));
        assert!(!is_time(&heard(9, "loading"), &Moment::never()));
    }
}
