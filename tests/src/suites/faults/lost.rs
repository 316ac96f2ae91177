//! A tier is destroyed while files are written and read, and replaced.

use super::bench::{BAD, Bench, LOST};
use super::device::shut_down;
use super::sample::{Sample, open_direct};
use crate::load::{Phase, load};
use crate::trial::Case;
use braid_testkit::SplitMix;
use braid_tests_support::error::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::mpsc::Sender;

/// The cases.
pub(super) const CASES: &[Case] = &[
    ("a tier is destroyed under load, and replaced by an empty one", destroyed),
    ("only a tier that is lost is replaced, by an empty directory", refusals),
];

/// Threads that write and read, each its own files.
const WRITERS: u64 = 4;
/// Operations before the tier is destroyed, and after.
const ENOUGH: usize = 600;

fn destroyed() -> Result<()> {
    let mut bench = Bench::new("destroyed")?;
    let dir = bench.tier_dir(BAD);
    let mut loads: Vec<Load> = (0..WRITERS).map(|number| Load::new(&bench.mount.point, number)).collect();
    load(&mut loads, Load::work, (ENOUGH, ENOUGH), || shut_down(&dir))?;
    for load in loads {
        bench.samples.extend(load.samples);
    }
    bench.look_at_places()?;
    bench.wait_for_state("failing")?;
    bench.expect_log("takes no new ranges tier=slow")?;
    exactly_lost(&bench)?;
    bench.expect_affected("failing")?;
    bench.others_go_on()?;

    bench.replace("replacement")?;
    bench.expect_log("tier was replaced; what was on it is lost")?;
    let status = bench.status()?;
    ensure(status["lost_tiers"][0]["name"] == BAD, || status.to_string())?;
    exactly_lost(&bench)?;
    bench.expect_affected("lost")?;
    bench.others_go_on()?;
    fsck_tells_exactly(&bench)?;

    bench.begin_lost_anew()?;
    bench.all_is_well()?;
    bench.stack_followed_to("replacement")?;
    bench.finish()
}

/// Each range on the bad tier answers `EIO`, each other one its last
/// acknowledged data.
fn exactly_lost(bench: &Bench) -> Result<()> {
    ensure(bench.samples.iter().any(|sample| sample.is_on(bench.bad)), || "nothing is lost".into())?;
    bench.check(Some(bench.bad))
}

/// The check of the mounted volume reports exactly the files that lost data.
fn fsck_tells_exactly(bench: &Bench) -> Result<()> {
    let checked = bench.lab.braid().args(["fsck", "--json"]).arg(&bench.mount.point).output()?;
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    for line in text.lines() {
        let problem: serde_json::Value = serde_json::from_str(line).context(format!("fsck said {text}"))?;
        if problem["severity"] != "damage" {
            continue;
        }
        let path = problem["path"].as_str().unwrap_or_default().trim_start_matches('/');
        *told.entry(path.to_owned()).or_default() += problem["len"].as_u64().unwrap_or(0);
    }
    let stretches = bench.stretches_on(LOST).into_iter();
    let len = |list: Vec<(u64, u64)>| list.iter().map(|(first, last)| last + 1 - first).sum();
    let expected: BTreeMap<String, u64> = stretches.map(|(path, list)| (path, len(list))).collect();
    ensure(told == expected, || format!("fsck tells of {told:?}, expected {expected:?}"))
}

/// One thread's files.
struct Load {
    dir: std::path::PathBuf,
    number: u64,
    samples: Vec<Sample>,
    random: SplitMix,
}

impl Load {
    fn new(dir: &Path, number: u64) -> Self {
        Self { dir: dir.to_owned(), number, samples: Vec::new(), random: SplitMix::new(77 + number) }
    }

    /// Creates, overwrites, reads and syncs files. Before the destruction, all
    /// of it must succeed; afterwards, a file whose creation failed is given
    /// up, and a range whose write failed is lost or unchanged.
    fn work(&mut self, done: &Sender<()>, phase: &Phase) -> Result<()> {
        while !phase.is_over() {
            let result = self.one();
            if !phase.is_failing() {
                result?;
            }
            // The receiver is gone once it has counted enough.
            let _ = done.send(());
        }
        Ok(())
    }

    fn one(&mut self) -> Result<()> {
        let count = self.samples.len() as u64;
        if count < 4 || count < 24 && self.random.below(20) == 0 {
            let name = format!("load{}-{count}", self.number);
            let ranges = 1 + self.random.below(12) as usize;
            let path = self.dir.join(name);
            let made = Sample::write(path.clone(), 5000 + self.number * 100 + count, ranges);
            if made.is_err() {
                std::fs::remove_file(&path).at(&path)?;
            }
            self.samples.push(made?);
            return Ok(());
        }
        let at = self.random.below(count) as usize;
        let sample = &mut self.samples[at];
        let range = self.random.below(sample.len() as u64) as usize;
        match self.random.below(4) {
            0 => sample.sync().at(&sample.path),
            1 => {
                let file = open_direct(&sample.path)?;
                let told = sample.check_range(&file, range);
                ensure(told == Ok(true), || format!("{}: range {range}: {told:?}", sample.path.display()))
            }
            _ => sample.rewrite(range).at(&sample.path),
        }
    }
}

fn refusals() -> Result<()> {
    let bench = Bench::new("refusals")?;
    let dir = |name: &str| bench.lab.dir(name);
    let empty = dir("empty")?;
    let refused = |tier: &str, dir: &Path, reason: &str| -> Result<()> {
        let replace = bench.lab.braid().args(["tier", "replace"]).arg(tier).arg(dir).arg(&bench.mount.point);
        let output = replace.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure(output.status.code() == Some(1) && said.contains(reason) && said.contains("help: "), || {
            format!("{tier} by {}: expected {reason:?}, said {said:?}", dir.display())
        })
    };
    refused(BAD, &empty, "tier slow is online: what is on it would be lost")?;
    refused("slwo", &empty, "did you mean 'slow'?")?;
    bench.arm(&["all:EIO"])?;
    bench.check(Some(BAD))?;
    bench.wait_for_state("failing")?;
    refused(BAD, &bench.tier_dir("other"), "tier 'other' is at")?;
    refused(BAD, &bench.tier_dir(BAD), "a tier of a volume that is mounted now")?;
    refused(BAD, &bench.mount.point, "is in a mounted Braid file system")?;
    refused(BAD, &bench.mount.stack, "is not a directory")?;
    let used = dir("used")?;
    std::fs::DirBuilder::new().mode(0o700).create(used.join(".braid")).at(&used)?;
    let label = ".braid/label";
    std::fs::copy(bench.tier_dir("other").join(label), used.join(label)).at(&used)?;
    refused(BAD, &used, "is tier other of this volume")?;
    ensure(std::fs::read_dir(&empty).at(&empty)?.next().is_none(), || "something was made".into())?;
    bench.lift()?;
    bench.wait_for_state("online")?;
    bench.check(None)?;
    bench.finish()
}
