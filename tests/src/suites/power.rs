//! Power is repeatedly cut in a virtual machine under a mixed load;
//! acknowledged data must be there when it is on again.
//!
//! One boot does two things: it checks the state after the last cut, and makes
//! the load for the next one. `power/guest.rs` runs in the machine, as a
//! command of this same program; the machine is `lab/lab`. Every line that the
//! guest prints has left the machine when the print returns, so an
//! acknowledgement outlives the cut.

pub(super) mod guest;
mod machine;
mod part;
mod records;
mod rocksdb;
mod shape;
mod sqlite;

use crate::report::Report;
use crate::trial::{Suite, Trial, Turn};
use braid_testkit::SplitMix;
use braid_tests_support::error::{Context, Failure, Result, ensure, fail};
use braid_tests_support::lab::Lab;
use braid_tests_support::options::Options;
use braid_tests_support::paths;
use braid_tests_support::sh::tail;
use machine::{Boot, Heard, Moment};
use serde_json::{Value, json};
use shape::Shape;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Named in the list of suites.
pub(super) const SUITE: Suite = Suite {
    name: "power",
    about: "power cuts in a virtual machine under SQLite, RocksDB and synced writers (only when named)",
    on_request: true,
    on_directories: true,
    turn: Turn::Machine,
    trials,
};

/// The argument of `--on` for the parts of the load on native file systems.
const NATIVE: &str = "native";
/// The argument of `--on` for a log file system.
const LOG: &str = "log";

fn trials(options: &Options) -> Vec<Trial> {
    let shapes = match options.on.clone() {
        None => Shape::volumes(),
        Some(on) if on == Path::new(NATIVE) => Shape::natives(),
        Some(on) if on == Path::new(LOG) => vec![Shape::log()],
        Some(kept) => {
            let title = format!("what {} holds", kept.display());
            return vec![Trial::case(&title, move || check_kept(&kept)).by_root()];
        }
    };
    let cuts = options.iterations.unwrap_or_else(|| options.scale(20, 200, 1000));
    let (count, seed) = (shapes.len() as u64, options.seed);
    let tally = Arc::new(Mutex::new(Tally::default()));
    let trial = |(shape, number): (&Shape, u64)| {
        // The first ones get the remainder.
        let share = cuts / count + u64::from(number < cuts % count);
        let random = SplitMix::new(seed.wrapping_mul(1 << 20) + number);
        let (shape, tally) = (*shape, Arc::clone(&tally));
        let title = format!("volume {}: {}", number + 1, shape.name());
        (share > 0).then(|| Trial::new(&title, move |report| run(shape, share, random, &tally, report)))
    };
    let volumes = shapes.iter().zip(0..).filter_map(trial);
    let liar = Trial::case("a disk that lies about its flushes is noticed", move || liar(seed));
    volumes.chain([liar]).map(Trial::by_root).collect()
}

/// The cuts of one volume; reports the totals of all volumes so far.
fn run(shape: Shape, cuts: u64, random: SplitMix, tally: &Mutex<Tally>, report: &mut Report) -> Result<()> {
    machine::set_up()?;
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    run_volume(shape, cuts, random, &mut tally, report)?;
    report.print(&format!("power: {tally}"));
    Ok(())
}

/// Cuts the power of one volume so many times. One that has failed is kept,
/// and the rest is done with a new one.
fn run_volume(
    shape: Shape,
    cuts: u64,
    mut random: SplitMix,
    tally: &mut Tally,
    report: &mut Report,
) -> Result<()> {
    let mut volume = None;
    let mut has_spread = false;
    for cut in 1..=cuts {
        let title = format!("{}, cut {cut} of {cuts}", shape.name());
        let mut current = match volume.take() {
            Some(volume) => volume,
            None => Volume::new(shape, false)?,
        };
        let last = cut == cuts;
        let mut is_good = false;
        report.case(&title, || {
            let mut found = current.round(&mut random, tally)?;
            if last && found.is_empty() {
                found = current.check()?;
            }
            tally.add(&found);
            ensure(found.is_empty(), || current.failure(&found))?;
            is_good = true;
            Ok(())
        })?;
        has_spread |= current.has_spread;
        if is_good {
            tally.cuts += 1;
            volume = Some(current);
        }
    }
    if !has_spread && shape.is_volume() && cuts > 1 {
        report.fail(&shape.name(), "no file was ever spread: this tests nothing");
    }
    Ok(())
}

/// The checks must fail on a native file system whose disk breaks its promises.
/// It may keep them by chance.
fn liar(seed: u64) -> Result<()> {
    const ROUNDS: u64 = 5;
    machine::set_up()?;
    let mut random = SplitMix::new(seed);
    for _ in 0..ROUNDS {
        let mut volume = Volume::new(Shape::natives()[0], true)?;
        let mut found = volume.round(&mut random, &mut Tally::default())?;
        ensure(found.is_empty(), || found.join("\n  "))?;
        found = volume.check()?;
        if !found.is_empty() {
            return std::fs::remove_dir_all(&volume.kept).at(&volume.kept);
        }
    }
    fail(format!("nothing was lost in {ROUNDS} rounds"))
}

/// Repeats the check of a failed round, from its kept images.
fn check_kept(kept: &Path) -> Result<()> {
    machine::set_up()?;
    let job = std::fs::read_to_string(kept.join("job.json")).at(kept)?;
    let mut job: Value = serde_json::from_str(&job).context("job.json")?;
    job["load"] = json!(false);
    let mut lab = Lab::new("power")?;
    let images = lab.dir("images")?;
    shape::copy_images(&kept.join("images"), &images)?;
    // Beside the logs of the failure.
    let logs = kept.join("again");
    std::fs::create_dir_all(&logs).at(&logs)?;
    let heard = Boot::new(&mut lab, &images, &logs, false)?.run(&job, 0, &Moment::never())?;
    ensure(heard.findings.is_empty(), || heard.findings.join("\n  "))
}

/// The totals of all cuts.
#[derive(Default)]
struct Tally {
    cuts: u64,
    acknowledged: u64,
    losses: u64,
    databases: u64,
    fsck: u64,
    other: u64,
}

impl Tally {
    fn add(&mut self, findings: &[String]) {
        for finding in findings {
            match finding.split([' ', ':']).next() {
                Some("lost") => self.losses += 1,
                Some("database") => self.databases += 1,
                Some("fsck") => self.fsck += 1,
                _ => self.other += 1,
            }
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cuts, acknowledged, losses, databases, fsck, other } = self;
        write!(
            f,
            "{cuts} cuts, {acknowledged} acknowledged records, {losses} losses, \
             {databases} corrupt databases, {fsck} fsck findings, {other} other failures"
        )
    }
}

/// A volume whose machine loses power.
struct Volume {
    lab: Lab,
    images: PathBuf,
    shape: Shape,
    /// The images from before the last boot, with its job and its logs.
    kept: PathBuf,
    /// The expectation of the next check: see [`guest`].
    expect: Value,
    boots: Vec<String>,
    /// Some check of fsck has seen a spread file.
    has_spread: bool,
    /// Its disks lie about flushes.
    lies: bool,
}

impl Volume {
    fn new(shape: Shape, lies: bool) -> Result<Self> {
        let logs = paths::target().join("logs/power");
        std::fs::create_dir_all(&logs).at(&logs)?;
        let lab = Lab::new("power")?;
        let images = lab.dir("images")?;
        shape.make_images(&images)?;
        let free = (0..).map(|n| logs.join(n.to_string())).find(|path| !path.exists());
        let kept = free.ok_or_else(|| Failure("no free name".into()))?;
        Ok(Self { lab, images, shape, kept, expect: Value::Null, boots: Vec::new(), has_spread: false, lies })
    }

    /// Boots, lets the guest check and load, and cuts the power.
    fn round(&mut self, random: &mut SplitMix, tally: &mut Tally) -> Result<Vec<String>> {
        let seed = random.next_u64() >> 12;
        let moment = Moment::random(random, !self.expect.is_null());
        let job = self.job(seed, true, random.below(4) > 0);
        let heard = self.boot(&job, seed, &moment)?;
        tally.acknowledged += heard.acknowledged();
        if let Some(state) = heard.state {
            self.expect = json!({ "state": state, "seed": seed, "acks": heard.acks });
        }
        Ok(heard.findings)
    }

    /// Boots and only checks.
    fn check(&mut self) -> Result<Vec<String>> {
        let job = self.job(0, false, true);
        Ok(self.boot(&job, 0, &Moment::never())?.findings)
    }

    /// The guest's job.
    fn job(&self, seed: u64, load: bool, remount: bool) -> Value {
        json!({
            "stack": self.shape.stack(), "log": self.shape.log_device(), "tiers": self.shape.tiers(), "expect": self.expect,
            "seed": seed, "load": load, "remount": remount,
        })
    }

    /// The findings, and the guest's other output.
    fn failure(&self, found: &[String]) -> String {
        let said = std::fs::read_to_string(self.kept.join("guest.log")).unwrap_or_default();
        format!("{}\n{}\n  kept in {}", found.join("\n  "), tail(&said, 20), self.kept.display())
    }

    fn boot(&mut self, job: &Value, seed: u64, moment: &Moment) -> Result<Heard> {
        let _ = std::fs::remove_dir_all(&self.kept);
        std::fs::create_dir_all(&self.kept).at(&self.kept)?;
        shape::copy_images(&self.images, &self.kept.join("images"))?;
        std::fs::write(self.kept.join("job.json"), job.to_string()).at(&self.kept)?;
        let mut heard =
            Boot::new(&mut self.lab, &self.images, &self.kept, self.lies)?.run(job, seed, moment)?;
        self.has_spread |= heard.spread > 0;
        if let Some(boot) = &heard.boot {
            if self.boots.contains(boot) {
                heard.findings.push(format!("machine booted twice with the id {boot}"));
            }
            self.boots.push(boot.clone());
        }
        if heard.findings.is_empty() {
            std::fs::remove_dir_all(&self.kept).at(&self.kept)?;
        }
        Ok(heard)
    }
}
