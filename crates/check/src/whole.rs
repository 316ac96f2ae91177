//! Whole files, against their object.

use super::Check;
use super::file::Subject;
use super::raw_index::{RawIndex, index_path};
use super::report::Problem;
use super::tree::is_missing;
use braid_contract::{Access, Errno, FallocateMode, ObjectStat, Result, SetTime, Store, TierId};
use braid_format::WholeAttr;
use braid_tiers::cut_object;
use std::ffi::OsStr;
use std::sync::Arc;

impl Check<'_> {
    /// A file whose attribute says that all of it is in one object.
    pub(super) fn whole_file(&mut self, subject: &Subject, whole: WholeAttr) -> Result<()> {
        let ranges = whole.range_size.count(subject.identity.size());
        self.report.ranges += ranges;
        self.count_placed(&[(whole.tier, ranges)].into());
        // What is left of it is recovery's to judge.
        let settled = !self.in_use && !self.marked.contains(&subject.attr.id);
        let place = self.target.tiers.iter().position(|tier| tier.id == whole.tier);
        match place {
            Some(at) => self.whole_object(subject, whole, at, settled)?,
            None => self.whole_nowhere(subject, whole.tier),
        }
        if settled {
            self.other_objects(subject, whole.tier);
            self.left_on_home(subject)?;
            self.left_index(subject)?;
        }
        Ok(())
    }

    fn whole_object(&mut self, subject: &Subject, whole: WholeAttr, at: usize, settled: bool) -> Result<()> {
        let tier = &self.target.tiers[at];
        let name = tier.name.clone();
        let Some(store) = tier.store.clone() else { return Ok(()) };
        let odd = self.listings.objects[at].irregular.contains(&subject.attr.id);
        match store.stat(subject.attr.id) {
            Ok(stat) if !odd => {
                if settled {
                    self.whole_size(subject, &name, &store, stat);
                }
            }
            Err(error) if !is_missing(&error) => {
                let problem = Problem::damage("object-unreadable", format!("its object: {error}"));
                self.found(subject.of(problem).tier(&name));
            }
            _ if self.target.is_gone(&subject.fd) => {}
            _ => {
                let problem = if whole.durable {
                    let what = "its object on this tier is missing: those bytes are lost and can't be read";
                    let repair = "nothing is done: they stay unreadable; write them anew, or remove the file";
                    Problem::damage("object-missing", what).repair(repair)
                } else {
                    let what =
                        "what it had on this tier was never synced and did not survive: it reads as zeros";
                    Problem::legal("object-never-synced", what)
                };
                self.found(subject.of(problem).tier(&name).bytes(0..subject.identity.size()));
            }
        }
        Ok(())
    }

    fn whole_size(&mut self, subject: &Subject, name: &str, store: &Arc<dyn Store>, stat: ObjectStat) {
        let (id, size) = (subject.attr.id, subject.identity.size());
        if stat.size > size {
            let what = format!("its object has {} bytes, {} more than the file", stat.size, stat.size - size);
            let problem = subject.of(Problem::legal("object-too-long", what)).tier(name);
            self.mend(problem.repair("cuts it"), self.when_unused(), |_| {
                cut_object(&**store, id, size)?;
                store.sync(&[id], true)
            });
        } else if stat.size < size {
            let what = format!("its object ends at {}: the rest reads as zeros", stat.size);
            self.found(subject.of(Problem::legal("object-short", what)).tier(name));
        }
    }

    fn whole_nowhere(&mut self, subject: &Subject, tier: TierId) {
        let lost = self.target.lost_name(tier).map(str::to_owned);
        let problem = match &lost {
            Some(name) => {
                let what = format!("these bytes were on tier {name}, which was lost");
                Problem::damage("entry-lost-tier", what).tier(name)
            }
            None if tier == self.target.home_id => {
                let what = "its attribute says that its data is in an object on the home tier";
                Problem::damage("entry-unknown-tier", what)
            }
            None => {
                self.names_unknown_tier = true;
                let what = format!("these bytes are on tier number {tier}, which the volume does not have");
                Problem::damage("entry-unknown-tier", what)
            }
        };
        let repair = "nothing is done: they stay unreadable; write them anew, or remove the file";
        self.found(subject.of(problem).bytes(0..subject.identity.size()).repair(repair));
    }

    /// Objects of the file on tiers that it is not on.
    fn other_objects(&mut self, subject: &Subject, than: TierId) {
        let id = subject.attr.id;
        for at in 0..self.target.tiers.len() {
            let tier = &self.target.tiers[at];
            let (name, Some(store)) = (tier.name.clone(), tier.store.clone()) else { continue };
            if tier.id == than {
                continue;
            }
            if let Ok(stat) = store.stat(id) {
                let what = format!("it has an object of {} bytes there, and no range", stat.allocated);
                let problem = subject.of(Problem::legal("object-unowned", what)).tier(&name);
                self.mend(problem.repair("removes it"), self.when_unused(), |_| store.remove(&[id]));
            }
        }
    }

    /// Data in the home file, which has none to show.
    fn left_on_home(&mut self, subject: &Subject) -> Result<()> {
        if subject.identity.attr.blocks == 0 {
            return Ok(());
        }
        let home = subject.fd.reopen(Access::Read)?;
        match home.next_data(0) {
            Ok(Some(_)) => {}
            Err(error) if error.errno() != Errno::ENXIO => return Err(error),
            _ => return Ok(()),
        }
        let what = "its home file has data that is not the file's";
        let name = self.target.home_name.clone();
        let problem = subject.of(Problem::legal("home-file-unowned", what)).tier(&name);
        let (size, mtime) = (subject.identity.size(), subject.identity.attr.mtime);
        self.mend(problem.repair("frees it"), self.when_unused(), |_| {
            let home = subject.fd.reopen(Access::Write)?;
            home.allocate(FallocateMode::PunchHole, 0, size.next_multiple_of(4096).max(4096))?;
            home.set_times(None, Some(SetTime::At(mtime)))
        });
        Ok(())
    }

    /// The file was about to get an index, which does not count.
    fn left_index(&mut self, subject: &Subject) -> Result<()> {
        let id = subject.attr.id;
        if RawIndex::open(&*self.target.braid, id)?.is_none() {
            return Ok(());
        }
        let name = self.target.home_name.clone();
        let what = "an index of a file whose attribute says that it has none";
        let problem = subject.of(Problem::leak("index-unused", what)).tier(&name);
        self.mend(problem.repair("removes it"), self.when_unused(), |check| {
            match check.target.braid.remove_at(OsStr::new(&index_path(id)), false) {
                Err(error) if !is_missing(&error) => Err(error),
                _ => Ok(()),
            }
        });
        Ok(())
    }
}
