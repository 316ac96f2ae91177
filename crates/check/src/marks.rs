//! Marks, intents and saved counts.

use super::report::Problem;
use super::tree::dir_if_there;
use super::{Check, When};
use braid_contract::{Result, Shown, counted};
use braid_format::{Mark, SavedCounts};
use braid_home::{RECORD, copy_begun, names_in};

impl Check<'_> {
    /// Takes in which files are marked.
    pub(super) fn marks(&mut self) -> Result<()> {
        let home = self.target.home_name.clone();
        let whole = self.options.paths.is_empty();
        match dir_if_there(&*self.target.braid, "open")? {
            Some(open) => {
                for name in names_in(&*open)? {
                    match Mark::parse(&name) {
                        Some(mark) => {
                            self.marked.insert(mark.id);
                        }
                        None if whole => self.foreign(&format!(".braid/open/{}", name.shown()), &home),
                        None => {}
                    }
                }
            }
            None if whole => {
                let problem = Problem::damage("directory-missing", ".braid/open is missing").tier(&home);
                self.mend(problem.repair("makes it"), When::Unmounted, |check| {
                    check.target.braid.ensure_dir_at("open")
                });
            }
            None => {}
        }
        if !self.marked.is_empty() && !self.is_mounted() {
            let count = self.marked.len() as u64;
            let what = format!("not unmounted cleanly: {} in use or being removed", counted(count, "file"));
            self.found(
                Problem::note("not-clean", what).tier(&home).repair("recovers them, as the next mount does"),
            );
        }
        if whole { self.intents() } else { Ok(()) }
    }

    fn intents(&mut self) -> Result<()> {
        let home = self.target.home_name.clone();
        let Some(intent) = dir_if_there(&*self.target.braid, "intent")? else { return Ok(()) };
        for name in names_in(&*intent)? {
            if name == RECORD && self.home_copy() {
                continue;
            }
            let what = format!(".braid/intent/{} tells of an operation that is not known", name.shown());
            let repair = "nothing is done: a later version of Braid may know it";
            self.found(Problem::note("intent-unknown", what).tier(&home).repair(repair));
        }
        Ok(())
    }

    /// Tells of a replacement of home that did not come to its end; answers
    /// whether the record is one of that.
    fn home_copy(&mut self) -> bool {
        let Ok(Some(copy)) = copy_begun(&self.target.home.root()) else { return false };
        let home = self.target.home_name.clone();
        let what = format!("the home tier was being copied to {copy}, and that was not completed");
        let repair = "gives the copy up, as the next mount does";
        self.found(Problem::note("home-copy", what).tier(&home).repair(repair));
        true
    }

    /// The counts that a clean unmount saved.
    pub(crate) fn counts(&mut self) -> Result<()> {
        if self.is_mounted() {
            return Ok(());
        }
        let Some(bytes) = self.target.braid.read_small("counts", SavedCounts::LEN + 1)? else {
            return Ok(());
        };
        let what = match SavedCounts::decode(&bytes) {
            Err(_) => "the saved counts of ranges are damaged".to_owned(),
            // Of a damaged index, nobody knows what it counts for.
            Ok(_) if self.findings.has_damage() => return Ok(()),
            Ok(saved) if saved.0 == self.counted => return Ok(()),
            Ok(saved) => {
                let pairs = saved.0.iter().zip(&self.counted).enumerate();
                let wrong = pairs.filter(|(_, (saved, counted))| saved != counted);
                let wrong =
                    wrong.map(|(tier, (saved, counted))| format!("tier {tier}: {saved} for {counted}"));
                let wrong = wrong.collect::<Vec<_>>().join(", ");
                format!("the saved counts of ranges are not those of the indexes ({wrong})")
            }
        };
        let home = self.target.home_name.clone();
        let repair = "removes them: the next mount counts anew";
        let problem = Problem::note("counts-wrong", what).tier(&home).repair(repair);
        self.mend(problem, When::Unmounted, |check| check.target.braid.ensure_gone_at("counts"));
        Ok(())
    }
}
