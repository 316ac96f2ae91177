//! The daemon is restarted and killed while a job moves data: the job goes on,
//! or, if it was replacing home, home is at one of the two places.

use super::bed::{Bed, ROUNDS, has_ended, wait_for};
use crate::report::Report;
use braid_tests_support::error::{Context, Result, ensure};
use braid_tests_support::sh::uninterrupted;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Each of the cases, once.
pub(super) fn run(bed: &mut Bed, round: u64, report: &mut Report) -> Result<()> {
    let title = |amid: &str| format!("the daemon is killed in the midst of {amid}, round {round}");
    bed.case(report, &title("an evacuation"), |bed| {
        let job = bed.kill(Bed::evacuate_slowly)?;
        bed.finish_evacuation(job)
    })?;
    bed.case(report, &title("a rebalance"), |bed| {
        let job = bed.kill(|bed| {
            bed.gather_on("fourth")?;
            bed.begin_slowly(&["rebalance"])
        })?;
        bed.finish_job(job)
    })?;
    bed.case(report, &title("a copy of home"), |bed| {
        let dir = bed.new_dir(&format!("copy-{round}"))?;
        let home = bed.home()?;
        let job = bed.kill(|bed| {
            bed.gather_on("home")?;
            bed.begin_slowly(&["tier", "replace", "home", &dir])
        })?;
        bed.expect_home(job, &home, &dir, false)
    })?;
    bed.case(report, &title("the switch to another home"), |bed| {
        let (job, old, new) = bed.kill_at_switch(&format!("home-{round}"), &["switching", "cleaning up"])?;
        let moved = bed.home()? == new;
        bed.expect_home(job, &old, &new, moved)
    })?;
    bed.case(report, &title("what follows the switch"), |bed| {
        let (job, old, new) = bed.kill_at_switch(&format!("next-home-{round}"), &["cleaning up"])?;
        bed.expect_home(job, &old, &new, true)
    })
}

impl Bed {
    /// Starts to empty a tier with much data, which is not done soon.
    fn evacuate_slowly(&self) -> Result<u64> {
        self.gather_on("other")?;
        self.begin_slowly(&["tier", "evacuate", "other"])
    }

    /// The job continues by itself, and ends when it may.
    fn finish_evacuation(&mut self, job: u64) -> Result<()> {
        self.finish_job(job)?;
        let tiers = self.json(&["tier", "list"])?;
        let other = tiers["tiers"].as_array().into_iter().flatten().find(|tier| tier["name"] == "other");
        let state = other.map(|tier| tier["state"].clone()).unwrap_or_default();
        ensure(state == "draining", || format!("tier other is not empty: {tiers}"))?;
        self.braid(&["tier", "evacuate", "other", "--undo"])
    }

    /// The daemon ends and is started again.
    pub(super) fn restart_amid_evacuation(&mut self) -> Result<()> {
        let mut job = 0;
        self.beside_loads(|bed| {
            job = bed.evacuate_slowly()?;
            Ok(())
        })?;
        self.lab.unmount(&self.mount)?;
        self.lab.mount_by_child(&self.mount)?;
        self.verify()?;
        self.finish_evacuation(job)
    }

    /// Kills the daemon during the job that `begin` starts, under the loads,
    /// and starts it again; answers the job's number.
    fn kill(&mut self, begin: impl FnOnce(&Self) -> Result<u64>) -> Result<u64> {
        let home = self.home()?;
        let mut job = 0;
        self.with_loads((ROUNDS.0, 0), |bed, gone| {
            job = begin(bed)?;
            gone.store(true, Ordering::SeqCst);
            bed.lab.kill_daemon()
        })?;
        self.lab.clear_mount(&self.mount)?;
        self.mount_after_kill(&home)?;
        self.verify()?;
        Ok(job)
    }

    /// Kills the daemon as soon as a replacement of home is in one of these
    /// phases, or is done; answers the job's number, the old home and the new.
    fn kill_at_switch(&mut self, name: &str, phases: &[&str]) -> Result<(u64, String, String)> {
        let (old, new) = (self.home()?, self.new_dir(name)?);
        let job = self.kill(|bed| {
            let id = bed.begin(&["tier", "replace", "home", &new])?;
            let is_there = |job: &Value| has_ended(job) || phases.iter().any(|phase| job["phase"] == *phase);
            // It ends by itself, and the steps that are waited for are short.
            while !is_there(&bed.job(id)?) {
                uninterrupted()?;
            }
            Ok(id)
        })?;
        Ok((job, old, new))
    }

    /// Mounts again. If home has moved and the stack file did not follow, the
    /// message names the new place, and a user would write that into the file.
    fn mount_after_kill(&mut self, home: &str) -> Result<()> {
        let Err(refused) = self.lab.mount_by_child(&self.mount) else { return Ok(()) };
        let Some((_, rest)) = refused.0.split_once("home has moved to ") else { return Err(refused) };
        let to = rest.split(',').next().unwrap_or_default();
        let file = &self.mount.stack;
        let stack = std::fs::read_to_string(file).at(file)?.replace(home, to);
        std::fs::write(file, stack).at(file)?;
        self.lab.mount_by_child(&self.mount)
    }

    /// A new directory on the file system that tier `third` was on.
    fn new_dir(&self, name: &str) -> Result<String> {
        let dir = self.dir(&format!("third/{name}"));
        std::fs::create_dir(&dir).at(Path::new(&dir))?;
        Ok(dir)
    }

    /// After a replacement of home that was cut short: home moved, and the job
    /// is done; or it did not, the job has failed, and the copy goes.
    fn expect_home(&self, job: u64, old: &str, new: &str, moved: bool) -> Result<()> {
        let (home, job) = (self.home()?, self.job(job)?);
        let expected = if moved { (new, "done") } else { (old, "failed") };
        ensure((home.as_str(), job["state"].as_str().unwrap_or_default()) == expected, || {
            format!("home is at {home}, and the job is {job}")
        })?;
        if moved {
            return Ok(());
        }
        wait_for("what was copied", || {
            let mut left = std::fs::read_dir(new).at(Path::new(new))?;
            Ok(left.next().is_none())
        })
    }
}
