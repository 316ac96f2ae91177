//! One spread file, against its index and its objects.

use super::Check;
use super::inference::corrected;
use super::raw_index::{RawEntry, RawIndex};
use super::report::Problem;
use braid_contract::{Fd, ObjectId, Result, TierId};
use braid_format::{Entry, FormatError, Header, IdAttr, IdKind, RangeSize};
use braid_home::Identity;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why nothing beyond the size is taken away: if the size were wrong, that
/// would be all that is left.
pub(super) const SIZES_DIFFER: &str =
    "nothing is done: the home inode has another size; using the file makes them agree";

/// A spread file that is looked at.
pub(super) struct Subject {
    pub(super) path: PathBuf,
    pub(super) fd: Fd,
    pub(super) identity: Identity,
    pub(super) attr: IdAttr,
}

impl Subject {
    pub(crate) fn new(path: &Path, fd: &Fd, identity: &Identity, attr: IdAttr) -> Self {
        Self { path: path.to_owned(), fd: Fd::clone(fd), identity: identity.clone(), attr }
    }

    /// A problem of this file.
    pub(crate) fn of(&self, problem: Problem) -> Problem {
        problem.path(&self.path).id(self.attr.id)
    }
}

/// What a file's entries say.
pub(super) struct Tally {
    /// Size of the file in bytes.
    pub(super) size: u64,
    /// How long its ranges are.
    pub(super) ranges: RangeSize,
    /// Tiers that hold ranges of it, as bits.
    pub(super) tiers: u64,
    /// Entries that can be believed, and others, below the size.
    pub(super) sound: u64,
    pub(super) bad: Vec<RawEntry>,
    /// Entries at or after the size.
    pub(super) beyond: u64,
    /// Ranges on a tier that the volume does not have (any more), with its
    /// number.
    pub(super) nowhere: Vec<(u64, TierId)>,
    /// End of the last range that home holds, in bytes.
    pub(super) home_end: u64,
    /// The tier of the last range.
    pub(super) last: Option<TierId>,
    /// Ranges that the index places, below the size or not, by tier.
    pub(super) placed: Placed,
}

/// How many ranges an index places, by the tier's number.
pub(super) type Placed = BTreeMap<TierId, u64>;

impl Tally {
    fn new(size: u64, ranges: RangeSize) -> Self {
        Self {
            size,
            ranges,
            tiers: 0,
            sound: 0,
            bad: Vec::new(),
            beyond: 0,
            nowhere: Vec::new(),
            home_end: 0,
            last: None,
            placed: Placed::new(),
        }
    }

    /// The bytes of ranges, as far as the file goes.
    pub(super) fn bytes_of(&self, ranges: Range<u64>) -> Range<u64> {
        self.ranges.bytes_of(ranges, self.size)
    }
}

impl Check<'_> {
    /// Another file that has the id and this inode number.
    pub(super) fn shared_with(&self, id: ObjectId, ino: u64) -> Option<PathBuf> {
        self.live.get(&id).filter(|(_, other)| *other == ino).map(|(path, _)| path.clone())
    }

    pub(super) fn spread_file(&mut self, subject: Subject, strangers: &mut Vec<Subject>) -> Result<()> {
        let id = subject.attr.id;
        self.report.spread_files += 1;
        let ino = subject.identity.ino();
        if let Some((other, other_ino)) = self.live.get(&id).cloned() {
            // Another name of the same file has been looked at.
            if other_ino != ino {
                self.second_of_id(subject, &other, strangers)?;
            }
            return Ok(());
        }
        self.only_of_id(subject, strangers)
    }

    fn only_of_id(&mut self, subject: Subject, strangers: &mut Vec<Subject>) -> Result<()> {
        let id = subject.attr.id;
        self.live.insert(id, (subject.path.clone(), subject.identity.ino()));
        if subject.attr.kind == IdKind::Emptied {
            let what = "truncating it to nothing was not finished; its next use finishes it";
            self.found(subject.of(Problem::legal("emptying", what)));
            return match RawIndex::open(&*self.target.braid, id) {
                Ok(Some(index)) => self.count_ranges(&index),
                _ => Ok(()),
            };
        }
        if let Some(whole) = subject.attr.kind.whole() {
            return self.whole_file(&subject, whole);
        }
        let index = match RawIndex::open(&*self.target.braid, id) {
            Ok(Some(index)) if !index.is_cut() => index,
            Ok(found) => {
                return if self.target.is_gone(&subject.fd) {
                    Ok(())
                } else {
                    self.index_lost(&subject, found.is_some())
                };
            }
            Err(error) => {
                self.found(subject.of(Problem::damage("index-unusable", format!("its index: {error}"))));
                return Ok(());
            }
        };
        if self.header(&subject, &index)? {
            strangers.push(subject);
        }
        Ok(())
    }

    /// A second inode with the same id. The one that the index names owns it.
    fn second_of_id(&mut self, subject: Subject, other: &Path, strangers: &mut Vec<Subject>) -> Result<()> {
        let id = subject.attr.id;
        let header = RawIndex::open(&*self.target.braid, id)?.and_then(|index| index.header.ok());
        if header.is_some_and(|header| header.ino == subject.identity.ino()) {
            // The first one is put aside as a stranger, and told of then.
            self.only_of_id(subject, strangers)
        } else {
            self.id_shared(&subject.path, &subject.attr, other);
            Ok(())
        }
    }

    /// Looks at the header, and on if the file can be read. Answers whether the
    /// header names another inode: then it is to be seen whose the index is.
    fn header(&mut self, subject: &Subject, index: &RawIndex) -> Result<bool> {
        let id = subject.attr.id;
        let what = match &index.header {
            Err(FormatError::Newer(version)) => {
                let what = format!("its index has format version {version}, which this Braid does not know");
                let problem = subject.of(Problem::damage("index-newer", what));
                self.found(problem.repair("nothing is done: use the newer Braid"));
                return Ok(false);
            }
            Err(error) => format!("the header of its index is damaged: {error}"),
            Ok(header) if header.id != id => format!("the header of its index is that of {}", header.id),
            Ok(header) => return self.own_header(subject, index, header),
        };
        match self.inferred_ranges(subject, index)? {
            Some(ranges) => {
                self.new_header(subject, index, (0, ranges), what)?;
                self.compare(subject, index, ranges)?;
            }
            None => {
                let problem = subject.of(Problem::damage("index-header", what));
                self.found(problem.repair("nothing is done: nothing tells how long its ranges are"));
                self.count_ranges(index)?;
            }
        }
        Ok(false)
    }

    /// The same for a header that is sound and has the file's id.
    fn own_header(&mut self, subject: &Subject, index: &RawIndex, header: &Header) -> Result<bool> {
        if header.volume != self.target.volume {
            let what = format!("the header of its index names volume {}", header.volume);
            self.new_header(subject, index, (header.plain_size, header.range_size), what)?;
        } else if header.ino != subject.identity.ino() {
            return Ok(true);
        } else if !is_of(header, &subject.identity) {
            self.other_inode(subject, index, header)?;
            return Ok(false);
        }
        self.compare(subject, index, header.range_size)?;
        Ok(false)
    }

    /// The index names another inode, which does not have the id: the header is
    /// wrong, and recovery would take the file for removed.
    pub(super) fn other_inode(&mut self, subject: &Subject, index: &RawIndex, header: &Header) -> Result<()> {
        let what = format!("its index names inode {}, or another one that had its number", header.ino);
        if self.is_unproven(subject) {
            let repair = "nothing is done: the file's owner may have given it the id of another file";
            self.found(subject.of(Problem::damage("index-of-other-file", what)).repair(repair));
            return Ok(());
        }
        self.new_header(subject, index, (header.plain_size, header.range_size), what)?;
        self.compare(subject, index, header.range_size)
    }

    fn new_header(
        &mut self,
        subject: &Subject,
        index: &RawIndex,
        (plain_size, ranges): (u64, RangeSize),
        what: String,
    ) -> Result<()> {
        let tally = self.tally(index, u64::MAX, ranges)?;
        let problem = subject.of(Problem::damage("index-header", what));
        let own = tally.sound > 0 || tally.bad.is_empty() && index.size()?.is_ok_and(|size| size > 0);
        if !own {
            self.found(problem.repair("nothing is done: its entries are not this file's"));
            return Ok(());
        }
        let problem = problem.repair("makes the header anew from the file's inode");
        self.mend(problem, self.when_unused(), |check| {
            index.write_header(&*check.target.braid, &check.header_of(subject, plain_size, ranges))
        });
        Ok(())
    }

    /// The header that the index of a file must have.
    pub(crate) fn header_of(&self, subject: &Subject, plain_size: u64, ranges: RangeSize) -> Header {
        Header {
            volume: self.target.volume,
            id: subject.attr.id,
            range_size: ranges,
            ino: subject.identity.ino(),
            btime_ns: subject.identity.btime_ns(),
            plain_size,
            handle: subject.identity.handle.clone(),
        }
    }

    /// Goes through the entries of a file of `size` bytes.
    pub(super) fn tally(&self, index: &RawIndex, size: u64, ranges: RangeSize) -> Result<Tally> {
        let mut tally = Tally::new(size, ranges);
        let reserved = index.reserved()?;
        index.for_each(|raw| {
            if let Ok(entry) = raw.entry {
                *tally.placed.entry(entry.tier).or_default() += 1;
            }
            if ranges.start_of(raw.range) >= size {
                tally.beyond += u64::from(ranges.start_of(raw.range) >= reserved);
                return Ok(());
            }
            match raw.entry {
                Ok(entry) => self.count_in(&mut tally, raw.range, entry),
                Err(_) => tally.bad.push(raw),
            }
            Ok(())
        })?;
        Ok(tally)
    }

    fn count_in(&self, tally: &mut Tally, range: u64, entry: Entry) {
        tally.sound += 1;
        tally.last = Some(entry.tier);
        if !self.target.is_tier(entry.tier) {
            tally.nowhere.push((range, entry.tier));
            return;
        }
        tally.tiers |= braid_tiers::bit(entry.tier);
        if entry.tier == self.target.home_id {
            tally.home_end = tally.bytes_of(range..range + 1).end;
        }
    }

    /// Compares entries, words and objects.
    fn compare(&mut self, subject: &Subject, index: &RawIndex, ranges: RangeSize) -> Result<()> {
        let size = match index.size()? {
            Ok(size) => size,
            Err(error) => self.size_damaged(subject, index, ranges, &error)?,
        };
        let tally = self.tally(index, size, ranges)?;
        self.report.ranges += tally.sound;
        self.count_placed(&tally.placed);
        self.bad_entries(subject, index, &tally)?;
        self.entries_nowhere(subject, &tally);
        self.words(subject, index, &tally)?;
        self.objects_of(subject, index, &tally)?;
        if !self.in_use && !self.marked.contains(&subject.attr.id) {
            self.beyond(subject, index, &tally);
            self.home_file(subject, index, &tally)?;
        }
        Ok(())
    }

    /// Counts all ranges that an index places, for the saved counts.
    pub(super) fn count_ranges(&mut self, index: &RawIndex) -> Result<()> {
        let placed = self.placed_by(index)?;
        self.count_placed(&placed);
        Ok(())
    }

    /// How many ranges an index places on each tier, however long they are.
    pub(super) fn placed_by(&self, index: &RawIndex) -> Result<Placed> {
        Ok(self.tally(index, u64::MAX, self.target.range_size)?.placed)
    }

    pub(super) fn count_placed(&mut self, placed: &Placed) {
        for (tier, ranges) in placed {
            if let Some(count) = self.counted.get_mut(usize::from(tier.0)) {
                *count += ranges;
            }
        }
    }

    /// Entries that can't be believed: reading those ranges fails.
    fn bad_entries(&mut self, subject: &Subject, index: &RawIndex, tally: &Tally) -> Result<()> {
        let mut mended: Vec<(u64, Option<Entry>)> = Vec::new();
        for raw in &tally.bad {
            let mut entry = corrected(index.words, raw, |tier| self.target.is_tier(tier));
            if entry.is_none() && self.findings.may_repair(self.when_unused()) {
                entry = self.inferred(subject, index, &tally.bytes_of(raw.range..raw.range + 1))?;
            }
            mended.push((raw.range, entry));
        }
        let together = |a: &(u64, Option<Entry>), b: &(u64, Option<Entry>)| {
            b.0 == a.0 + 1 && a.1.is_some() == b.1.is_some()
        };
        for run in mended.chunk_by(together) {
            let bytes = tally.bytes_of(run[0].0..run[0].0 + run.len() as u64);
            let what = format!("{} of its index entries are damaged: those bytes can't be read", run.len());
            let problem = subject.of(Problem::damage("entry-damaged", what)).bytes(bytes);
            if run[0].1.is_none() {
                let repair =
                    "makes an entry anew if one tier alone has data there; otherwise nothing is done";
                self.found(problem.repair(repair));
                continue;
            }
            let words = run.iter().filter_map(|(range, entry)| {
                Some((braid_format::entry_at(*range), index.words.encode_entry(*range, (*entry)?)))
            });
            let words: Vec<(u64, u64)> = words.collect();
            let problem = problem.repair("makes the entries anew: what they said can be told");
            self.mend(problem, self.when_unused(), |check| index.store(&*check.target.braid, &words));
        }
        Ok(())
    }

    /// Entries that name a tier which the volume does not have.
    fn entries_nowhere(&mut self, subject: &Subject, tally: &Tally) {
        let together = |a: &(u64, TierId), b: &(u64, TierId)| b.0 == a.0 + 1 && a.1 == b.1;
        for run in tally.nowhere.chunk_by(together) {
            let bytes = tally.bytes_of(run[0].0..run[0].0 + run.len() as u64);
            let number = run[0].1;
            let lost = self.target.lost_name(number).map(str::to_owned);
            let problem = match &lost {
                Some(name) => {
                    let what = format!("these bytes were on tier {name}, which was lost");
                    Problem::damage("entry-lost-tier", what).tier(name)
                }
                None => {
                    self.names_unknown_tier = true;
                    let what =
                        format!("these bytes are on tier number {number}, which the volume does not have");
                    Problem::damage("entry-unknown-tier", what)
                }
            };
            let repair = "nothing is done: they stay unreadable; write them anew, or remove the file";
            self.found(subject.of(problem).bytes(bytes).repair(repair));
        }
    }

    fn beyond(&mut self, subject: &Subject, index: &RawIndex, tally: &Tally) {
        if tally.beyond == 0 {
            return;
        }
        let what = format!("{} index entries lie beyond its size", tally.beyond);
        let problem = subject.of(Problem::legal("entries-beyond-size", what));
        if subject.identity.size() != tally.size {
            self.found(problem.repair(SIZES_DIFFER));
            return;
        }
        let problem = problem.repair("clears them");
        let first = tally.ranges.count(tally.size.max(index.reserved().unwrap_or(0)));
        self.mend(problem, self.when_unused(), |check| {
            check.target.change_entries(|| index.clear_from(&*check.target.braid, first))
        });
    }
}

/// Whether an index was made for this inode.
pub(super) fn is_of(header: &Header, identity: &Identity) -> bool {
    let same_handle = match (&header.handle, &identity.handle) {
        (Some(one), Some(other)) => one == other,
        // Without a handle, the number has to do.
        _ => true,
    };
    identity.is(header.ino, header.btime_ns) && same_handle
}
