//! An index that was lost, made anew: a range is where data of it is.

use super::file::Subject;
use super::raw_index::index_path;
use super::report::Problem;
use super::{Check, When, is_missing};
use braid_contract::{Access, Errno, Error, Result, TierId};
use braid_format::{
    Entry, GAPS_AT, HEADER_LEN, RangeSize, Reason, SIZE_AT, SYNCED_SIZE_AT, Words, durable_at, entry_at,
};
use braid_tiers::{bit, next_data};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;

/// An entry that no tier can have, and that no flipped bit makes one: reading
/// its range fails.
const UNREADABLE: u64 = u64::MAX;

/// Longest file whose index is made anew, in ranges.
const RANGES_MAX: u64 = 1 << 24;

/// What is left of a file whose index is lost.
struct Remains {
    size: u64,
    /// How long its ranges are taken to be.
    range_size: RangeSize,
    /// Tiers with data in a range, as bits; each range has its place.
    ranges: BTreeMap<u64, u64>,
    /// Tiers other than home with an object.
    objects: Vec<TierId>,
}

impl Remains {
    /// Adds a stretch of data on a tier.
    fn add(&mut self, tier: TierId, data: &Range<u64>) {
        for range in self.range_size.ranges_of(data.start, data.end) {
            *self.ranges.entry(range).or_insert(0) |= bit(tier);
        }
    }

    /// Whether several tiers have data in the same range.
    fn is_ambiguous(&self) -> bool {
        self.ranges.values().any(|tiers| tiers.count_ones() > 1)
    }

    /// Ranges with data on one tier.
    fn clear(&self) -> usize {
        self.ranges.values().filter(|tiers| tiers.count_ones() == 1).count()
    }

    /// The bytes of ranges with data on several tiers, or on none: those may
    /// never have been written, or be lost.
    fn doubtful(&self) -> Vec<Range<u64>> {
        let ranges = self.ranges.iter().filter(|(_, tiers)| tiers.count_ones() != 1);
        let ranges: Vec<u64> = ranges.map(|(range, _)| *range).collect();
        let bytes = |run: &[u64]| self.range_size.bytes_of(run[0]..run[0] + run.len() as u64, self.size);
        ranges.chunk_by(|a, b| *b == a + 1).map(bytes).collect()
    }
}

impl Check<'_> {
    /// The index of a file is missing, or cut off in its header.
    pub(super) fn index_lost(&mut self, subject: &Subject, cut: bool) -> Result<()> {
        let (code, what) = match cut {
            true => ("index-cut", "its index is cut off in its header: it can't be read"),
            false => ("index-missing", "its index is missing: it can't be read"),
        };
        let problem = subject.of(Problem::damage(code, what));
        let mut doubtful: Vec<Range<u64>> = Vec::new();
        let repair = "makes it anew: each range is on the one tier that has data of it";
        let at = self.mend(problem.repair(repair), When::Unmounted, |check| {
            let remains = check.remains(subject)?;
            if remains.clear() == 0 || remains.objects.is_empty() {
                return Err(Error::new(Errno::EUCLEAN, "nothing tells on which tier its data is"));
            }
            check.change_placed(|| check.write_index(subject, &remains, cut))?;
            doubtful = remains.doubtful();
            Ok(())
        });
        for bytes in doubtful {
            let what = "several tiers have data of these bytes, or none, and nothing tells which is right: \
                        they can't be read";
            let repair = "nothing is done: write them anew, or remove the file";
            let problem = Problem::damage("entry-doubtful", what).bytes(bytes).repair(repair);
            self.found(subject.of(problem));
        }
        if self.report.problems[at].repaired {
            self.check_again(subject)?;
        }
        Ok(())
    }

    /// Counts what a new index places.
    fn check_again(&mut self, subject: &Subject) -> Result<()> {
        if let Some(index) = super::raw_index::RawIndex::open(&*self.ground.braid, subject.attr.id)? {
            self.indexes.ids.insert(subject.attr.id);
            let tally = self.tally(&index, u64::MAX, self.ground.range_size)?;
            self.report.ranges += tally.sound;
            self.count_placed(&tally.placed);
        }
        Ok(())
    }

    /// Looks for data of a file on all tiers. `EIO` if one of them can't tell.
    fn remains(&self, subject: &Subject) -> Result<Remains> {
        let id = subject.attr.id;
        let (mut size, mut objects, mut found) = (subject.identity.size(), Vec::new(), Vec::new());
        let home = subject.fd.reopen(Access::Read)?;
        let mut at = 0;
        while let Some(data) = home.next_data(at)?.map(span) {
            at = data.end;
            found.push((self.ground.home_id, data));
        }
        for tier in &self.ground.tiers {
            let store = tier.store.as_ref().ok_or_else(|| {
                Error::new(Errno::EIO, format!("tier {} is absent, and may have data of it", tier.name))
            })?;
            match store.stat(id) {
                Ok(stat) => size = size.max(stat.size),
                Err(error) if is_missing(&error) => continue,
                Err(error) => return Err(error),
            }
            objects.push(tier.id);
            at = 0;
            while let Some(data) = next_data(&**store, id, at)?.map(span) {
                at = data.end;
                found.push((tier.id, data));
            }
            store.sync(&[id], false)?;
        }
        let lay_out = |range_size: RangeSize| {
            let count = range_size.count(size);
            if count > RANGES_MAX {
                return Err(Error::new(Errno::EFBIG, "it is too long to be looked through"));
            }
            let ranges = (0..count).map(|range| (range, 0)).collect();
            let mut remains = Remains { size, range_size, ranges, objects: objects.clone() };
            found.iter().for_each(|(tier, data)| remains.add(*tier, data));
            Ok(remains)
        };
        // Nothing tells how long its ranges were: if a rule made them shorter
        // than the volume's, several tiers have data in one of those. Or one of
        // them has what a crash left, which only looks like a shorter range: no
        // sizes are tried that there were no rules for.
        let usual = lay_out(self.ground.range_size)?;
        if !usual.is_ambiguous() {
            return Ok(usual);
        }
        let shorter = RangeSize::all().filter(|size| *size < self.ground.range_size);
        let shorter = shorter.filter(|size| self.ground.range_sizes.contains(*size));
        let clear = shorter.filter_map(|size| lay_out(size).ok()).find(|remains| !remains.is_ambiguous());
        Ok(clear.unwrap_or(usual))
    }

    fn write_index(&self, subject: &Subject, remains: &Remains, cut: bool) -> Result<()> {
        let (id, braid) = (subject.attr.id, &self.ground.braid);
        let path = index_path(id);
        let index_dir = braid.open_at(OsStr::new("index"), Access::Directory)?;
        let file = if cut {
            braid.open_at(OsStr::new(&path), Access::ReadWrite)?
        } else {
            index_dir.ensure_dir_at(&id.shard())?;
            braid.create_at(OsStr::new(&path), 0o600)?
        };
        let words = Words::of(id);
        for (range, tiers) in &remains.ranges {
            let word = match tiers.count_ones() {
                1 => {
                    // One bit of 63: its place is a tier's number.
                    let tier = TierId(tiers.trailing_zeros() as u8);
                    words.encode_entry(*range, Entry { tier, reason: Reason::Policy, version: 0 })
                }
                _ => UNREADABLE,
            };
            file.write_all_at(entry_at(*range), &word.to_le_bytes())?;
        }
        // Home has no say in where its holes are: what was there is in it.
        let mut header = self.header_of(subject, 0, remains.range_size).encode();
        header.resize(HEADER_LEN, 0);
        let mut put =
            |at: u64, word: u64| header[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
        put(SIZE_AT, words.encode_size(SIZE_AT, remains.size));
        put(SYNCED_SIZE_AT, words.encode_size(SYNCED_SIZE_AT, remains.size));
        put(GAPS_AT, words.encode_flag(GAPS_AT));
        for tier in &remains.objects {
            put(durable_at(*tier), words.encode_flag(durable_at(*tier)));
        }
        file.write_all_at(0, &header)?;
        file.sync(false)?;
        index_dir.open_at(OsStr::new(&id.shard()), Access::Directory)?.sync(false)?;
        index_dir.sync(false)
    }
}

/// Where a stretch of data is; never nowhere.
fn span((start, end): (u64, u64)) -> Range<u64> {
    start..end.max(start + 1)
}
