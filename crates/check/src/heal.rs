//! Words of an index, and objects, of a file that is looked at.

use super::Check;
use super::file::{SIZES_DIFFER, Subject, Tally};
use super::raw_index::RawIndex;
use super::report::Problem;
use super::tree::is_missing;
use braid_contract::{ObjectStat, Result, Store, TierId};
use braid_format::{FormatError, GAPS_AT, OWNERS_AT, Owners, RangeSize, SIZE_AT, SYNCED_SIZE_AT, durable_at};
use braid_tiers::{bit, cut_object};
use std::ops::Range;
use std::sync::Arc;

impl Check<'_> {
    /// Stores one word of an index anew.
    fn word(&mut self, subject: &Subject, index: &RawIndex, problem: Problem, at: u64, word: u64) {
        self.mend(subject.of(problem), self.when_unused(), |check| {
            index.store(&*check.target.braid, &[(at, word)])
        });
    }

    /// The size can't be believed; answers what it was, as the home inode and
    /// the objects tell.
    pub(super) fn size_damaged(
        &mut self,
        subject: &Subject,
        index: &RawIndex,
        ranges: RangeSize,
        error: &FormatError,
    ) -> Result<u64> {
        let size = self.estimated_size(subject, index, ranges)?;
        let problem = Problem::damage(
            "size-damaged",
            format!("its size can't be believed ({error}): it can't be read"),
        )
        .repair(format!("takes the size of {size} bytes from the home inode and the objects"));
        self.word(subject, index, problem, SIZE_AT, index.words.encode_size(SIZE_AT, size));
        Ok(size)
    }

    /// The end of the home file, or of an object that owns where it ends.
    fn estimated_size(&self, subject: &Subject, index: &RawIndex, ranges: RangeSize) -> Result<u64> {
        let mut size = subject.identity.size();
        for tier in &self.target.tiers {
            let Some(store) = &tier.store else { continue };
            let end = store.stat(subject.attr.id).map_or(0, |stat| stat.size);
            if end > size {
                let range = ranges.range_of(end - 1);
                let entry = index.words.decode_entry(range, index.word(braid_format::entry_at(range))?);
                if entry.ok().flatten().is_some_and(|entry| entry.tier == tier.id) {
                    size = end;
                }
            }
        }
        Ok(size)
    }

    /// The words beside the size.
    pub(super) fn words(&mut self, subject: &Subject, index: &RawIndex, tally: &Tally) -> Result<()> {
        let size = tally.size;
        if let Err(error) = index.synced_size()? {
            let problem =
                Problem::damage("synced-size-damaged", format!("its size at the last fsync: {error}"))
                    .repair("takes all of the file for synced, so that nothing of it is cut after a crash");
            let word = index.words.encode_size(SYNCED_SIZE_AT, size);
            self.word(subject, index, problem, SYNCED_SIZE_AT, word);
        }
        if let Err(error) = index.gaps()? {
            let problem = Problem::damage("gaps-damaged", format!("whether holes in it are meant: {error}"))
                .repair("takes them for meant, so that nothing of it is cut after a crash");
            self.word(subject, index, problem, GAPS_AT, index.words.encode_flag(GAPS_AT));
        }
        let wrong = match index.owners(self.target.home_id)? {
            Err(error) => Some(error.to_string()),
            Ok(owners) => {
                self.unknown_owner(owners).map(|tier| format!("tier number {tier} is not the volume's"))
            }
        };
        if let Some(wrong) = wrong {
            let home = self.target.home_id;
            let last = tally.last.filter(|tier| self.target.is_tier(*tier)).unwrap_or(home);
            let problem =
                Problem::damage("owners-damaged", format!("which tiers own its size and times: {wrong}"))
                    .repair("lets the tier of its last range own its size, and home its times");
            let owners = Owners { size: last, mtime: home, atime: home, synced_mtime: home };
            self.word(subject, index, problem, OWNERS_AT, index.words.encode_owners(OWNERS_AT, owners));
        }
        Ok(())
    }

    fn unknown_owner(&self, owners: Owners) -> Option<TierId> {
        let known = |tier: &TierId| self.target.is_tier(*tier) || self.target.lost_name(*tier).is_some();
        [owners.size, owners.mtime, owners.atime, owners.synced_mtime].into_iter().find(|tier| !known(tier))
    }

    /// What a file has on the tiers other than home.
    pub(super) fn objects_of(&mut self, subject: &Subject, index: &RawIndex, tally: &Tally) -> Result<()> {
        for at in 0..self.target.tiers.len() {
            let tier = &self.target.tiers[at];
            let (id, name) = (tier.id, tier.name.clone());
            let Some(store) = tier.store.clone() else { continue };
            let odd = self.listings.objects[at].irregular.contains(&subject.attr.id);
            let stat = match store.stat(subject.attr.id) {
                Ok(stat) => Some(stat).filter(|_| !odd),
                Err(error) if is_missing(&error) => None,
                Err(error) => {
                    let problem = Problem::damage("object-unreadable", format!("its object: {error}"));
                    self.found(subject.of(problem).tier(&name));
                    continue;
                }
            };
            let held = tally.tiers & bit(id) != 0;
            let durable = self.durable_flag(subject, index, id, stat.is_some(), &name, &store)?;
            match stat {
                None if held => self.object_missing(subject, index, tally, id, &name, durable)?,
                None => {}
                Some(stat) => self.object_there(subject, tally, &name, &store, stat, held),
            }
        }
        Ok(())
    }

    /// Whether the object was durable at some time. A flag that can't be
    /// believed says yes: what was lost must not read as zeros.
    fn durable_flag(
        &mut self,
        subject: &Subject,
        index: &RawIndex,
        tier: TierId,
        there: bool,
        name: &str,
        store: &Arc<dyn Store>,
    ) -> Result<bool> {
        let error = match index.durable(tier)? {
            Ok(durable) => return Ok(durable),
            Err(error) => error,
        };
        let what = format!("whether its object was ever made durable: {error}");
        let problem = subject.of(Problem::damage("durable-damaged", what)).tier(name);
        let problem = problem.repair("takes it for durable, after making it so");
        self.mend(problem, self.when_unused(), |check| {
            if there {
                store.sync(&[subject.attr.id], false)?;
            }
            let at = durable_at(tier);
            index.store(&*check.target.braid, &[(at, index.words.encode_flag(at))])
        });
        Ok(true)
    }

    /// The file has ranges on a tier, and no object there.
    fn object_missing(
        &mut self,
        subject: &Subject,
        index: &RawIndex,
        tally: &Tally,
        tier: TierId,
        name: &str,
        durable: bool,
    ) -> Result<()> {
        if self.target.is_gone(&subject.fd) {
            return Ok(());
        }
        for bytes in self.stretches_on(index, tally, tier)? {
            let problem = if durable {
                let what = "its object on this tier is missing: those bytes are lost and can't be read";
                let repair = "nothing is done: they stay unreadable; write them anew, or remove the file";
                Problem::damage("object-missing", what).repair(repair)
            } else {
                let what = "what it had on this tier was never synced and did not survive: it reads as zeros";
                Problem::legal("object-never-synced", what)
            };
            self.found(subject.of(problem).tier(name).bytes(bytes));
        }
        Ok(())
    }

    /// The stretches of a file that a tier holds.
    fn stretches_on(&self, index: &RawIndex, tally: &Tally, tier: TierId) -> Result<Vec<Range<u64>>> {
        let mut stretches: Vec<Range<u64>> = Vec::new();
        index.for_each(|raw| {
            let bytes = tally.bytes_of(raw.range..raw.range + 1);
            if bytes.is_empty() || !raw.entry.is_ok_and(|entry| entry.tier == tier) {
                return Ok(());
            }
            match stretches.last_mut() {
                Some(last) if last.end == bytes.start => last.end = bytes.end,
                _ => stretches.push(bytes),
            }
            Ok(())
        })?;
        Ok(stretches)
    }

    fn object_there(
        &mut self,
        subject: &Subject,
        tally: &Tally,
        name: &str,
        store: &Arc<dyn Store>,
        stat: ObjectStat,
        held: bool,
    ) {
        let (id, size) = (subject.attr.id, tally.size);
        if stat.size > size && !self.in_use && !self.marked.contains(&id) {
            let what = format!("its object has {} bytes, {} more than the file", stat.size, stat.size - size);
            let problem = subject.of(Problem::legal("object-too-long", what)).tier(name);
            if subject.identity.size() == size {
                self.mend(problem.repair("cuts it"), self.when_unused(), |_| {
                    cut_object(&**store, id, size)?;
                    store.sync(&[id], true)
                });
            } else {
                self.found(problem.repair(SIZES_DIFFER));
            }
        }
        if !held {
            let what = format!("it has an object of {} bytes there, and no range", stat.allocated);
            self.found(subject.of(Problem::legal("object-unowned", what)).tier(name));
        }
    }

    /// The home file of a file that nobody uses. Its size follows the file's,
    /// and may be behind or ahead after a crash; but what was synced to it must
    /// not be cut off.
    pub(super) fn home_file(&mut self, subject: &Subject, index: &RawIndex, tally: &Tally) -> Result<()> {
        let home_size = subject.identity.size();
        let synced = index.synced_size()?.unwrap_or(0).min(tally.size);
        let held_to = tally.home_end.min(synced);
        if home_size < held_to {
            let what =
                format!("its home file ends at {home_size}, within what it holds: the rest reads as zeros");
            let problem = subject.of(Problem::damage("home-file-cut", what)).bytes(home_size..held_to);
            self.found(problem.repair("nothing is done: what was cut off is lost"));
        } else if home_size != tally.size {
            let what = format!("its home inode says {home_size} bytes, and its index {}", tally.size);
            let problem = Problem::legal("size-differs", what);
            self.found(subject.of(problem).repair("nothing is done: its next use sets the home inode right"));
        }
        Ok(())
    }
}
