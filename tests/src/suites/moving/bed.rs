//! A volume with loads on it, and the commands that move its data.

use super::loads::Load;
use crate::arena::RANGE;
use crate::load::load;
use crate::report::Report;
use braid_tests_support::error::{Context, Failure, Result, ensure, fail};
use braid_tests_support::lab::{Kind, Lab, Mount, Stack, Tier};
use braid_tests_support::sh::{Cmd, uninterrupted};
use serde_json::Value;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Rounds of all loads together, before and after an action.
pub(super) const ROUNDS: (usize, usize) = (3, 3);

/// Rate of a job that must not finish during a test: a range a second.
const SLOWLY: &str = "64KiB/s";

/// Time limit for events that happen by themselves: exceeding it is a failure,
/// not a measurement.
const PATIENCE: Duration = Duration::from_secs(300);

/// The volume, and its loads.
pub(super) struct Bed {
    pub(super) lab: Lab,
    pub(super) mount: Mount,
    pub(super) loads: Vec<Load>,
}

impl Bed {
    /// A volume of these tiers, home first: name, file system, MiB and weight.
    pub(super) fn set_up(tiers: &[(&str, Kind, u64, u32)], policy: &str) -> Result<Self> {
        let mut lab = Lab::for_suite("moving")?;
        let make = |(name, kind, mib, weight): &(&str, Kind, u64, u32)| {
            Ok(Tier::new(name, &lab.file_system(name, *kind, *mib)?, *weight))
        };
        let tiers = tiers.iter().map(make).collect::<Result<_>>()?;
        let stack = Stack::new(policy, RANGE, tiers);
        let mount = lab.volume("mnt", &stack)?;
        lab.unmount(&mount)?;
        lab.mount_by_child(&mount)?;
        let loads = Load::all(&mount.point)?;
        Ok(Self { lab, mount, loads })
    }

    /// Carries out a case: `what`, then the checks of all data and of the
    /// volume.
    pub(super) fn case(
        &mut self,
        report: &mut Report,
        title: &str,
        what: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        report.case(title, || {
            what(self)?;
            self.verify()?;
            self.braid(&["fsck"])
        })
    }

    /// Verifies all data that the loads saw acknowledged.
    pub(super) fn verify(&self) -> Result<()> {
        self.loads.iter().try_for_each(Load::verify)
    }

    /// Unmounts, and expects `braid fsck` to find nothing.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.lab.unmount(&self.mount)?;
        self.lab.fsck(&self.mount).map(drop)
    }

    /// Runs `what` beside the loads, none of which may notice.
    pub(super) fn beside_loads(&mut self, what: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        self.with_loads(ROUNDS, |bed, _| what(bed))
    }

    /// Runs `what` beside the loads. After its signal, they expect the volume
    /// to go away.
    pub(super) fn with_loads(
        &mut self,
        rounds: (usize, usize),
        what: impl FnOnce(&mut Self, &AtomicBool) -> Result<()>,
    ) -> Result<()> {
        let mut loads = std::mem::take(&mut self.loads);
        let gone = AtomicBool::new(false);
        let work = |load: &mut Load, done: &_, phase: &_| load.work(done, phase, &gone);
        let result = load(&mut loads, work, rounds, || what(self, &gone));
        self.loads = loads;
        result
    }

    /// A directory of the bed that is not on the volume.
    pub(super) fn dir(&self, name: &str) -> String {
        self.lab.path().join(name).display().to_string()
    }

    /// A file of the volume.
    pub(super) fn path(&self, name: &str) -> String {
        self.mount.point.join(name).display().to_string()
    }

    /// Runs a command for the mounted volume, named in the command's way unless
    /// it is among the words.
    pub(super) fn braid(&self, words: &[&str]) -> Result<()> {
        self.command(words).quiet()
    }

    /// The same with a JSON document as its answer.
    pub(super) fn json(&self, words: &[&str]) -> Result<Value> {
        let text = self.command(words).arg("--json").read()?;
        serde_json::from_str(&text).context(words.join(" "))
    }

    fn command(&self, words: &[&str]) -> Cmd {
        let command = self.lab.braid().args(words);
        match words {
            ["move" | "promote" | "demote" | "pin" | "unpin", ..] => command,
            _ => command.arg(&self.mount.point),
        }
    }

    /// Names of the tiers, home first.
    pub(super) fn tier_names(&self) -> Result<Vec<String>> {
        let status = self.json(&["status"])?;
        let tiers = status["tiers"].as_array().into_iter().flatten();
        Ok(tiers.filter_map(|tier| tier["name"].as_str().map(str::to_owned)).collect())
    }

    /// The directory that is home.
    pub(super) fn home(&self) -> Result<String> {
        let status = self.json(&["status"])?;
        let location = status["tiers"][0]["location"].as_str();
        location.map(str::to_owned).ok_or_else(|| Failure(format!("no home in {status}")))
    }

    /// Moves all of fio's files to one tier, so that emptying it or spreading
    /// them again has work to do.
    pub(super) fn gather_on(&self, tier: &str) -> Result<()> {
        self.braid(&["move", &self.path("fio"), "--to", tier])
    }

    /// Starts a job in the background; answers its number.
    pub(super) fn begin(&self, words: &[&str]) -> Result<u64> {
        let job = self.json(&[words, &["--background"]].concat())?;
        job["id"].as_u64().ok_or_else(|| Failure(format!("no job in {job}")))
    }

    /// Starts a job that is not done soon, and waits until it moves data.
    pub(super) fn begin_slowly(&self, words: &[&str]) -> Result<u64> {
        let id = self.begin(&[words, &["--bandwidth", SLOWLY]].concat())?;
        self.until(id, |job| job["done"]["bytes"].as_u64() > Some(0))?;
        Ok(id)
    }

    /// The entry of a job.
    pub(super) fn job(&self, id: u64) -> Result<Value> {
        self.json(&["job", "show", &id.to_string()])
    }

    /// Polls until the job is as `wanted`; fails if it ends otherwise.
    pub(super) fn until(&self, id: u64, wanted: impl Fn(&Value) -> bool) -> Result<()> {
        wait_for(&format!("job {id}"), || {
            let job = self.job(id)?;
            if wanted(&job) {
                return Ok(true);
            }
            ensure(!has_ended(&job), || format!("not as it should be: {job}")).map(|()| false)
        })
    }

    /// Cancels a job that is under way.
    pub(super) fn cancel(&self, id: u64) -> Result<()> {
        self.braid(&["job", "cancel", &id.to_string()])?;
        self.until(id, |job| job["state"] == "cancelled")
    }

    /// Lets a job go on as fast as it may, to its end, beside the loads. It is
    /// under way still.
    pub(super) fn finish_job(&mut self, id: u64) -> Result<()> {
        let job = self.job(id)?;
        ensure(!has_ended(&job), || format!("it is not under way: {job}"))?;
        let id = &id.to_string();
        self.beside_loads(|bed| {
            bed.braid(&["job", "set", id, "bandwidth=none"])?;
            bed.braid(&["job", "wait", id])
        })
    }
}

/// Whether this state of the job is final.
pub(super) fn has_ended(job: &Value) -> bool {
    ["done", "failed", "cancelled"].iter().any(|state| job["state"] == *state)
}

/// Polls for a condition without an event.
pub(super) fn wait_for(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        uninterrupted()?;
        if is_so().context(what)? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    fail(format!("{what}: nothing came of it within {} s", PATIENCE.as_secs()))
}
