//! The guest in the virtual machine: this program, with the argument
//! `power-guest`.
//!
//! Its job comes as a line of JSON: the tiers and the stack file; the
//! expectation of the check, `expect` (none for a new volume): the `state`
//! found by the previous boot, the `seed` of its load, and the last numbers
//! (`acks`) that the load acknowledged. It answers by lines:
//!
//! * `boot ID`, `stage TEXT`: where it is;
//! * `finding KIND TEXT`: something is wrong; `lost`, `database`, `fsck`, ...;
//! * `state JSON`: all was checked, and this was found;
//! * `spread NUMBER`: fsck found nothing wrong, and so many spread files;
//! * `ack WHO NUMBER`: done, and where it is a commit or a synced write, safe.

use super::part::{Part, VOLUME, say};
use super::{records, rocksdb, sqlite};
use braid_tests_support::error::{Context, Failure, Result, fail};
use braid_tests_support::sh::cmd;
use serde_json::Value;
use std::path::Path;

const STACK: &str = "/tmp/stack.yaml";
const BRAID: &str = "/files/braid";

/// Does the job from standard input.
///
/// # Errors
/// The error, which is printed too.
pub fn run() -> Result<()> {
    let mut job = String::new();
    std::io::stdin().read_line(&mut job)?;
    let job: Value = serde_json::from_str(&job).context("the job")?;
    say(&format!("boot {}", std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim()));
    match (Guest { job }).work() {
        Ok(()) => Ok(()),
        Err(Failure(reason)) => {
            say(&format!("finding {}", one_line(&reason)));
            fail("the job is not done")
        }
    }
}

struct Guest {
    job: Value,
}

impl Guest {
    fn work(&self) -> Result<()> {
        say("stage mounting tiers");
        let is_new = self.job["expect"].is_null();
        let stack = self.job["stack"].as_str();
        std::fs::write(STACK, stack.unwrap_or_default())?;
        for tier in self.job["tiers"].as_array().into_iter().flatten() {
            let dir = tier["name"].as_str().filter(|_| stack.is_some()).unwrap_or("all");
            mount_tier(tier, &Path::new("/mnt").join(dir), is_new).context("native")?;
        }
        std::fs::create_dir_all(VOLUME)?;
        let parts = parts();
        say("stage recovering");
        let braid = self.braid();
        if let Some(braid) = &braid {
            braid.mount(is_new).context("recovery")?;
        }
        let states = if is_new { create(&parts)? } else { self.check(&parts)? };
        if let Some(braid) = braid.filter(|_| !is_new && self.job["remount"] == true) {
            say("stage unmounting");
            cmd(BRAID).args(["umount", VOLUME]).quiet().context("unmount")?;
            let checked = braid.check().context("fsck")?;
            say(&format!("spread {}", spread_files(&checked).unwrap_or(0)));
            braid.mount(false).context("remount")?;
        }
        say(&format!("state {}", Value::Array(states.clone())));
        if self.job["load"] != true {
            return Ok(());
        }
        say("stage loading");
        let seed = self.job["seed"].as_u64().unwrap_or(0);
        load(&parts, &states, seed)
    }

    /// Braid's file system at [`VOLUME`], unless that is a native one.
    fn braid(&self) -> Option<Braid<'_>> {
        match self.job["log"].as_str() {
            Some(device) => Some(Braid::Log(device)),
            None => self.job["stack"].as_str().map(|_| Braid::Volume),
        }
    }

    /// Every part checks its data, even after a finding of another one.
    fn check(&self, parts: &[Box<dyn Part>]) -> Result<Vec<Value>> {
        say("stage checking");
        let expect = &self.job["expect"];
        let seed = expect["seed"].as_u64().unwrap_or(0);
        let mut failed = None;
        let mut states = Vec::new();
        for (part, at) in parts.iter().zip(0..) {
            let name = part.name();
            let acknowledged = expect["acks"][&name].as_u64().unwrap_or(0);
            let state: &Value = &expect["state"][at];
            match part.check(state, seed, acknowledged) {
                Ok(state) => states.push(state),
                Err(reason) => {
                    let (kind, text) = reason.split_once(' ').unwrap_or((&reason, ""));
                    let reason = format!("{kind} {name}: {text}");
                    if let Some(reason) = failed.replace(reason) {
                        say(&format!("finding {}", one_line(&reason)));
                    }
                }
            }
        }
        failed.map_or(Ok(states), fail)
    }
}

fn parts() -> Vec<Box<dyn Part>> {
    vec![
        Box::new(records::Records(0)),
        Box::new(records::Records(1)),
        Box::new(sqlite::Database::Wal),
        Box::new(sqlite::Database::Rollback),
        Box::new(rocksdb::Database),
    ]
}

fn create(parts: &[Box<dyn Part>]) -> Result<Vec<Value>> {
    let states = parts.iter().map(|part| part.create()).collect();
    std::fs::File::open(VOLUME)?.sync_all()?;
    states
}

/// All parts at once, until the first one fails or the power goes.
fn load(parts: &[Box<dyn Part>], states: &[Value], seed: u64) -> Result<()> {
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for (part, state) in parts.iter().zip(states) {
            let ended = ended.clone();
            scope.spawn(move || {
                let result = part.load(state, seed);
                let reason = result.err().map_or_else(|| "ended".into(), |Failure(reason)| reason);
                // The receiver outlives all threads.
                let _ = ended.send(format!("load {}: {reason}", part.name()));
            });
        }
        let reason = end.recv().unwrap_or_default();
        say(&format!("finding {}", one_line(&reason)));
        // The others would go on for ever.
        std::process::exit(1)
    })
}

fn mount_tier(tier: &Value, dir: &Path, is_new: bool) -> Result<()> {
    let text = |key: &str| tier[key].as_str().unwrap_or_default();
    if is_new && tier["make"] == true {
        let name = text("device").replace("/dev/pmem", "namespace");
        // Without this, the memory has no page structures, and DAX needs them.
        cmd("ndctl")
            .args(["create-namespace", "-f", "-e", &format!("{name}.0"), "-m", "fsdax", "-M", "mem"])
            .quiet()?;
        cmd("mkfs.ext4").args(["-q", "-F", "-m", "0", "-b", "4096", text("device")]).quiet()?;
    }
    std::fs::create_dir_all(dir).at(dir)?;
    cmd("mount").args(["-t", text("kind"), "-o", text("options"), text("device")]).arg(dir).quiet()
}

/// A file system of Braid.
enum Braid<'a> {
    /// That of the stack file.
    Volume,
    /// A log file system on this device.
    Log(&'a str),
}

impl Braid<'_> {
    fn mount(&self, is_new: bool) -> Result<()> {
        let log = ["--log-file", "/tmp/braid.log"];
        match self {
            Self::Volume => {
                let create = is_new.then_some("--create");
                cmd(BRAID).arg("mount").args(create).args(log).args([STACK, VOLUME]).quiet()
            }
            Self::Log(device) => {
                if is_new {
                    cmd(BRAID).args(["log", "create", device]).quiet()?;
                }
                cmd(BRAID).args(["log", "mount"]).args(log).args([device, VOLUME]).quiet()
            }
        }
    }

    /// The output of its check, which finds no error.
    fn check(&self) -> Result<String> {
        match self {
            Self::Volume => cmd(BRAID).args(["fsck", STACK]).read(),
            Self::Log(device) => cmd(BRAID).args(["log", "check", device]).read(),
        }
    }
}

/// Reads `23 files, 10 of them spread over …`.
fn spread_files(checked: &str) -> Option<u64> {
    let (before, _) = checked.split_once(" of them spread")?;
    before.rsplit(' ').next()?.parse().ok()
}

fn one_line(text: &str) -> String {
    text.trim().replace('\n', " | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fsck_says_is_read() {
        let said = "23 files, 10 of them spread over 67 ranges in 10 objects\nno problems\n";
        assert_eq!(spread_files(said), Some(10));
        assert_eq!(spread_files("nothing"), None);
    }
}
