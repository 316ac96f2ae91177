//! A volume over three tiers with files on them, and queries about it.

use super::sample::{RANGE, Sample, content};
use crate::arena;
use braid_tests_support::error::{Context, Result, ensure, fail};
use braid_tests_support::lab::{Kind, Lab, Mount, Stack, Tier};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The tier that gets into trouble.
pub(super) const BAD: &str = "slow";
/// The samples' name for the replaced bad tier.
pub(super) const LOST: &str = "slow, lost";
const TIERS: [&str; 3] = ["home", BAD, "other"];
const MIB_EACH: u64 = 96;

/// Time limit after which a case gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of files on a tier: first and last of each stretch.
pub(super) type Stretches = BTreeMap<String, Vec<(u64, u64)>>;

/// A mounted volume with files whose contents and places are known.
pub(super) struct Bench {
    pub(super) lab: Lab,
    pub(super) mount: Mount,
    pub(super) samples: Vec<Sample>,
    /// The tier whose ranges are unavailable during trouble: [`BAD`] or
    /// [`LOST`].
    pub(super) bad: &'static str,
    /// Where the log of this case begins.
    logged: u64,
    made: u64,
}

impl Bench {
    /// A fresh volume; `name` tells its log from others.
    pub(super) fn new(name: &str) -> Result<Self> {
        let mut lab = Lab::for_suite(&format!("faults-{name}"))?;
        let mut tiers = Vec::new();
        for tier in TIERS {
            tiers.push(Tier::new(tier, &lab.file_system(tier, Kind::Ext4, MIB_EACH)?, 100));
        }
        let stack = Stack::new(arena::WEIGHTED, arena::RANGE, tiers);
        let logged = fs::metadata(lab.daemon_log()).map_or(0, |found| found.len());
        let mount = lab.volume("mnt", &stack)?;
        let mut bench = Self { lab, mount, samples: Vec::new(), bad: BAD, logged, made: 0 };
        for (seed, ranges) in (1..).zip([1, 1, 2, 2, 3, 3, 5, 8, 16]) {
            let sample = Sample::write(bench.mount.point.join(format!("sample{seed}")), seed, ranges)?;
            bench.samples.push(sample);
        }
        bench.look_at_places()?;
        let on_bad = bench.samples.iter().filter(|sample| sample.is_on(BAD)).count();
        ensure(on_bad >= 3 && on_bad < bench.samples.len(), || {
            format!("{on_bad} of {} files are on {BAD}", bench.samples.len())
        })?;
        Ok(bench)
    }

    /// Learns which range is on which tier.
    pub(super) fn look_at_places(&mut self) -> Result<()> {
        for at in 0..self.samples.len() {
            self.samples[at].tiers = self.tiers_of(&self.samples[at])?;
        }
        Ok(())
    }

    fn tiers_of(&self, sample: &Sample) -> Result<Vec<String>> {
        let explained = self.json(&["explain", "--json"], &sample.path)?;
        let mut tiers = vec![String::new(); sample.len()];
        for run in explained["runs"].as_array().into_iter().flatten() {
            let name = run["tier"]["name"].as_str().unwrap_or_default();
            let (offset, len) = (run["offset"].as_u64().unwrap_or(0), run["len"].as_u64().unwrap_or(0));
            for range in offset / RANGE..(offset + len).div_ceil(RANGE) {
                tiers[usize::try_from(range).unwrap_or(0)] = name.to_owned();
            }
        }
        Ok(tiers)
    }

    /// The directory of a tier.
    pub(super) fn tier_dir(&self, name: &str) -> PathBuf {
        self.lab.path().join(name)
    }

    /// Arms faults on the bad tier, in place of earlier ones.
    pub(super) fn arm(&self, faults: &[&str]) -> Result<()> {
        self.lab.braid().args(["drill", BAD]).args(faults).arg(&self.mount.point).quiet()
    }

    /// Lifts all faults.
    pub(super) fn lift(&self) -> Result<()> {
        self.lab.braid().args(["drill", BAD, "--clear"]).arg(&self.mount.point).quiet()
    }

    /// Number of operations that met the fault `rule` of the bad tier.
    pub(super) fn hits(&self, rule: &str) -> Result<u64> {
        let drill = self.json(&["drill", "--json"], &self.mount.point)?;
        let tiers = drill["tiers"].as_array().into_iter().flatten();
        let faults = tiers.flat_map(|tier| tier["faults"].as_array().into_iter().flatten());
        let hits = faults.filter(|fault| fault["rule"] == rule).find_map(|fault| fault["hits"].as_u64());
        hits.map_or_else(|| fail(format!("{rule} is not armed: {drill}")), Ok)
    }

    /// The JSON answer of a `braid` command.
    pub(super) fn json(&self, words: &[&str], path: &std::path::Path) -> Result<Value> {
        let text = self.lab.braid().args(words).arg(path).read()?;
        serde_json::from_str(&text).context(words.join(" "))
    }

    /// The bad tier in `status`.
    pub(super) fn bad_tier(&self) -> Result<Value> {
        let status = self.status()?;
        let tiers = status["tiers"].as_array().into_iter().flatten();
        tiers.into_iter().find(|tier| tier["name"] == BAD).cloned().map_or_else(|| fail("no bad tier"), Ok)
    }

    /// The output of `status`.
    pub(super) fn status(&self) -> Result<Value> {
        self.json(&["status", "--json"], &self.mount.point)
    }

    /// Waits until the bad tier is in this state, by polling.
    pub(super) fn wait_for_state(&self, state: &str) -> Result<()> {
        wait_until(&format!("tier {BAD} is {state}"), || {
            let tier = self.bad_tier()?;
            Ok(if tier["state"] == state { Ok(()) } else { Err(tier.to_string()) })
        })
    }

    /// Fails unless the daemon has logged a line with this text since the case
    /// began.
    pub(super) fn expect_log(&self, what: &str) -> Result<()> {
        wait_until(&format!("the log says {what:?}"), || {
            let log = self.log()?;
            Ok(if log.contains(what) { Ok(()) } else { Err(braid_tests_support::sh::tail(&log, 10)) })
        })
    }

    /// The daemon's log since the case began.
    pub(super) fn log(&self) -> Result<String> {
        let path = self.lab.daemon_log();
        let mut file = fs::File::open(&path).at(&path)?;
        file.seek(SeekFrom::Start(self.logged))?;
        let mut text = String::new();
        file.read_to_string(&mut text).at(&path)?;
        Ok(text)
    }

    /// Checks every file: ranges on `bad` answer `EIO`, all others the written
    /// data.
    pub(super) fn check(&self, bad: Option<&str>) -> Result<()> {
        self.samples.iter().try_for_each(|sample| sample.check(bad))
    }

    /// The stretches that should be reported for a tier.
    pub(super) fn stretches_on(&self, tier: &str) -> Stretches {
        let mut all = Stretches::new();
        for sample in self.samples.iter().filter(|sample| sample.is_on(tier)) {
            let list = all.entry(sample.name()).or_default();
            for range in sample.ranges_on(tier) {
                let (first, last) = (range as u64 * RANGE, (range as u64 + 1) * RANGE - 1);
                match list.last_mut() {
                    Some((_, end)) if *end + 1 == first => *end = last,
                    _ => list.push((first, last)),
                }
            }
        }
        all
    }

    /// `status --affected` must list exactly the ranges on the bad tier, all in
    /// this state.
    pub(super) fn expect_affected(&self, state: &str) -> Result<()> {
        let text = self.lab.braid().args(["status", "--affected", "--json"]).arg(&self.mount.point).read()?;
        let mut told = Stretches::new();
        for line in text.lines() {
            let file: Value = serde_json::from_str(line).context("status --affected")?;
            let list = told.entry(file["path"].as_str().unwrap_or_default().to_owned()).or_default();
            for run in file["runs"].as_array().into_iter().flatten() {
                let right = run["state"] == state && run["tier"]["name"] == BAD;
                ensure(right, || format!("status --affected: {run}, expected {state}"))?;
                let (offset, len) = (run["offset"].as_u64().unwrap_or(0), run["len"].as_u64().unwrap_or(0));
                list.push((offset, offset + len - 1));
            }
        }
        let expected = self.stretches_on(self.bad);
        ensure(told == expected, || format!("status --affected: {told:?}, expected {expected:?}"))
    }

    /// While the bad tier is in trouble: ranges elsewhere can be written, and
    /// files and directories be created, renamed and removed.
    pub(super) fn others_go_on(&mut self) -> Result<()> {
        for sample in &mut self.samples {
            for range in 0..sample.len() {
                if sample.tiers[range] != self.bad {
                    sample.rewrite(range).context(format!("{}: range {range}", sample.path.display()))?;
                }
            }
            if !sample.is_on(self.bad) {
                sample.sync().at(&sample.path)?;
            }
        }
        let dir = self.mount.point.join("dir");
        fs::create_dir(&dir).at(&dir)?;
        self.made += 1;
        let (path, renamed) = (dir.join("new"), self.mount.point.join(format!("made{}", self.made)));
        let mut new = Sample::write(path, 1000 + self.made, 6).context("a new file")?;
        fs::rename(&new.path, &renamed).at(&renamed)?;
        new.path = renamed;
        fs::remove_dir(&dir).at(&dir)?;
        new.tiers = self.tiers_of(&new)?;
        ensure(!new.is_on(self.bad), || format!("a new file was given ranges on {BAD}: {:?}", new.tiers))?;
        new.check(None)?;
        let plain = self.mount.point.join("plain");
        fs::write(&plain, content(7, 5000)).at(&plain)?;
        ensure(fs::read(&plain).at(&plain)? == content(7, 5000), || "a plain file differs".into())?;
        fs::remove_file(&plain).at(&plain)?;
        self.samples.push(new);
        Ok(())
    }

    /// Files without a range on the bad tier are read, and all are listed.
    pub(super) fn others_are_read(&self) -> Result<()> {
        for sample in self.samples.iter().filter(|sample| !sample.is_on(self.bad)) {
            sample.check(None)?;
        }
        let names = fs::read_dir(&self.mount.point).at(&self.mount.point)?.count();
        ensure(names >= self.samples.len(), || format!("{names} names are listed"))?;
        // Archivers treat a file without blocks as one without data.
        self.samples.iter().try_for_each(|sample| {
            let blocks = fs::metadata(&sample.path).at(&sample.path)?.blocks();
            ensure(blocks > 0, || format!("{} has no blocks", sample.path.display()))
        })
    }

    /// Replaces the bad tier by an empty file system of this name.
    pub(super) fn replace(&mut self, name: &str) -> Result<()> {
        let dir = self.lab.file_system(name, Kind::Ext4, MIB_EACH)?;
        let replace = self.lab.braid().args(["tier", "replace", BAD]).arg(&dir).arg(&self.mount.point);
        let said = replace.read()?;
        let now = format!("tier {BAD} is at {} now", dir.display());
        let told = said.contains(&now) && said.contains("mnt.yaml says so");
        ensure(told, || format!("tier replace said:\n{said}"))?;
        for tier in self.samples.iter_mut().flat_map(|sample| &mut sample.tiers).filter(|tier| *tier == BAD) {
            *tier = LOST.to_owned();
        }
        self.bad = LOST;
        Ok(())
    }

    /// Rewrites the files that had data on the lost tier.
    pub(super) fn begin_lost_anew(&mut self) -> Result<()> {
        let bad = self.bad;
        self.samples.iter_mut().filter(|sample| sample.is_on(bad)).try_for_each(Sample::begin_anew)
    }

    /// Checks that the stack file names the replacement.
    pub(super) fn stack_followed_to(&self, name: &str) -> Result<()> {
        let stack = &self.mount.stack;
        let text = fs::read_to_string(stack).at(stack)?;
        let (from, to) = (self.tier_dir(BAD), self.tier_dir(name));
        let says = |dir: &std::path::Path| text.contains(&format!("{},", dir.display()));
        ensure(says(&to) && !says(&from), || text.clone())
    }

    /// The tier is back: without a remount, everything can be read and written,
    /// and new files use it again.
    pub(super) fn all_is_well(&mut self) -> Result<()> {
        self.wait_for_state("online")?;
        let tier = self.bad_tier()?;
        ensure(tier["trouble"].is_null(), || format!("trouble is left: {tier}"))?;
        self.check(None)?;
        for sample in &mut self.samples {
            for range in 0..sample.len() {
                sample.rewrite(range).context(format!("{}: range {range}", sample.path.display()))?;
            }
            sample.sync().at(&sample.path)?;
        }
        self.made += 1;
        let mut new =
            Sample::write(self.mount.point.join(format!("made{}", self.made)), 1000 + self.made, 6)?;
        new.tiers = self.tiers_of(&new)?;
        ensure(new.is_on(BAD), || format!("{BAD} is not used again: {:?}", new.tiers))?;
        self.samples.push(new);
        self.look_at_places()?;
        self.check(None)?;
        let affected = self.lab.braid().args(["status", "--affected"]).arg(&self.mount.point).read()?;
        ensure(affected == "no file is affected\n", || affected.clone())
    }

    /// Then a remount and the check find nothing.
    pub(super) fn finish(mut self) -> Result<()> {
        let mount = self.mount.clone();
        self.lab.unmount(&mount)?;
        self.lab.fsck(&mount)?;
        self.lab.mount(&mount)?;
        self.check(None).context("after a remount")?;
        self.lab.unmount(&mount)
    }
}

/// Polls until the answer is yes; `no` describes another one.
pub(super) fn wait_until(
    what: &str,
    mut ask: impl FnMut() -> Result<std::result::Result<(), String>>,
) -> Result<()> {
    let begun = Instant::now();
    loop {
        match ask()? {
            Ok(()) => return Ok(()),
            Err(last) if begun.elapsed() > PATIENCE => {
                return fail(format!("waited {} s until {what}; at last: {last}", PATIENCE.as_secs()));
            }
            // There is no event for this.
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
        braid_tests_support::sh::uninterrupted()?;
    }
}
