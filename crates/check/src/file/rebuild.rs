//! A lost index, recreated: each range is on the tier that has data of it.

use super::CheckedFile;
use super::header::header_of;
use super::raw_index::{RawIndex, index_path};
use super::tally::{Tally, Totals};
use crate::findings::{Findings, When};
use crate::report::Problem;
use crate::target::CheckTarget;
use crate::tree::is_missing;
use braid_contract::{Access, Errno, Error, Fd, ObjectId, Result, TierId};
use braid_format::{
    Entry, GAPS_AT, HEADER_LEN, RangeSize, Reason, SIZE_AT, SYNCED_SIZE_AT, Words, durable_at, entry_at,
};
use braid_tiers::bit;
use braid_tiers::next_data;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;

/// An invalid entry, more than one flipped bit from a valid one: reading its
/// range fails.
const UNREADABLE: u64 = u64::MAX;

/// Longest file whose index is recreated, in ranges.
const RANGES_MAX: u64 = 1 << 24;

/// The data of a file whose index is lost, in ranges of a size.
struct Remains {
    size: u64,
    /// The size that its ranges are taken to have.
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

    /// Whether there are objects, and a range with data on one tier alone.
    fn tells(&self) -> bool {
        !self.objects.is_empty() && self.ranges.values().any(|tiers| tiers.count_ones() == 1)
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

/// Reports an index that is missing, or `cut` off in its header, and recreates
/// it.
pub(super) fn rebuild_index(
    target: &CheckTarget<'_>,
    file: &CheckedFile,
    cut: bool,
    findings: &mut Findings,
    totals: &mut Totals,
) -> Result<()> {
    let (code, what) = match cut {
        true => ("index-cut", "its index is cut off in its header: it can't be read"),
        false => ("index-missing", "its index is missing: it can't be read"),
    };
    let problem = file.of(Problem::damage(code, what));
    let problem = problem.repair("makes it anew: each range is on the one tier that has data of it");
    let mut doubtful: Vec<Range<u64>> = Vec::new();
    let at = findings.mend(problem, When::Unmounted, || {
        let remains = find_remains(target, file)?;
        if !remains.tells() {
            return Err(Error::new(Errno::EUCLEAN, "nothing tells on which tier its data is"));
        }
        target.change_entries(|| write_index(target, file, &remains, cut))?;
        doubtful = remains.doubtful();
        Ok(())
    });
    for bytes in doubtful {
        let what = "several tiers have data of these bytes, or none, and nothing tells which is right: \
                    they can't be read";
        let repair = "nothing is done: write them anew, or remove the file";
        let problem = Problem::damage("entry-doubtful", what).bytes(bytes).repair(repair);
        findings.found(file.of(problem));
    }
    if findings.is_repaired(at)
        && let Some(index) = RawIndex::open(&*target.braid, file.id())?
    {
        let tally = Tally::of(&index, target, u64::MAX, target.range_size)?;
        totals.ranges += tally.valid;
        totals.add(&tally.placed);
    }
    Ok(())
}

/// Looks for data of a file on all tiers. `EIO` if one of them can't show its
/// data.
fn find_remains(target: &CheckTarget<'_>, file: &CheckedFile) -> Result<Remains> {
    let id = file.id();
    let (mut size, mut objects, mut data) = (file.home.size(), Vec::new(), Vec::new());
    let home = file.home.fd.reopen(Access::Read)?;
    data_on(target.home_id, |at| home.next_data(at), &mut data)?;
    for tier in &target.tiers {
        let store = tier.store.as_ref().ok_or_else(|| {
            Error::new(Errno::EIO, format!("tier {} is absent, and may have data of it", tier.name))
        })?;
        match store.stat(id) {
            Ok(stat) => size = size.max(stat.size),
            Err(error) if is_missing(&error) => continue,
            Err(error) => return Err(error),
        }
        objects.push(tier.id);
        data_on(tier.id, |at| next_data(&**store, id, at), &mut data)?;
        store.sync(&[id], false)?;
    }
    lay_out_best(target, size, &objects, &data)
}

/// Collects the stretches of data on a tier.
fn data_on(
    tier: TierId,
    next: impl Fn(u64) -> Result<Option<(u64, u64)>>,
    data: &mut Vec<(TierId, Range<u64>)>,
) -> Result<()> {
    let mut at = 0;
    while let Some((start, end)) = next(at)? {
        // A tier may report an empty stretch, and the search must end.
        at = end.max(start + 1);
        data.push((tier, start..at));
    }
    Ok(())
}

/// The remains in ranges of the volume's size, or of a shorter one if several
/// tiers have data in the same range. Data left by a crash looks like a shorter
/// range too, so only sizes of rules are tried.
fn lay_out_best(
    target: &CheckTarget<'_>,
    size: u64,
    objects: &[TierId],
    data: &[(TierId, Range<u64>)],
) -> Result<Remains> {
    let lay_out = |range_size: RangeSize| {
        let count = range_size.count(size);
        if count > RANGES_MAX {
            return Err(Error::new(Errno::EFBIG, "it is too long to be looked through"));
        }
        let ranges = (0..count).map(|range| (range, 0)).collect();
        let mut remains = Remains { size, range_size, ranges, objects: objects.to_vec() };
        data.iter().for_each(|(tier, data)| remains.add(*tier, data));
        Ok(remains)
    };
    let usual = lay_out(target.range_size)?;
    if !usual.is_ambiguous() {
        return Ok(usual);
    }
    let shorter = RangeSize::all().filter(|size| *size < target.range_size);
    let shorter = shorter.filter(|size| target.range_sizes.contains(*size));
    let clear = shorter.filter_map(|size| lay_out(size).ok()).find(|remains| !remains.is_ambiguous());
    Ok(clear.unwrap_or(usual))
}

/// Writes the index, durably.
fn write_index(target: &CheckTarget<'_>, file: &CheckedFile, remains: &Remains, cut: bool) -> Result<()> {
    let (id, braid) = (file.id(), &target.braid);
    let path = index_path(id);
    let index_dir = braid.open_at(OsStr::new("index"), Access::Directory)?;
    let index = if cut {
        braid.open_at(OsStr::new(&path), Access::ReadWrite)?
    } else {
        index_dir.ensure_dir_at(&id.shard())?;
        braid.create_at(OsStr::new(&path), 0o600)?
    };
    write_entries(&index, id, remains)?;
    // With a plain size of 0, recovery takes no bytes for written at home before
    // the file was spread.
    let mut header = header_of(file, target.volume, 0, remains.range_size).encode();
    header.resize(HEADER_LEN, 0);
    for (at, word) in words_of(id, remains) {
        header[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
    }
    index.write_all_at(0, &header)?;
    index.sync(false)?;
    index_dir.open_at(OsStr::new(&id.shard()), Access::Directory)?.sync(false)?;
    index_dir.sync(false)
}

fn write_entries(index: &Fd, id: ObjectId, remains: &Remains) -> Result<()> {
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
        index.write_all_at(entry_at(*range), &word.to_le_bytes())?;
    }
    Ok(())
}

/// The words behind the header, by their place. All holes count as intended, so
/// that recovery cuts nothing.
fn words_of(id: ObjectId, remains: &Remains) -> Vec<(u64, u64)> {
    let words = Words::of(id);
    let durable = |tier: &TierId| (durable_at(*tier), words.encode_flag(durable_at(*tier)));
    let fixed = [
        (SIZE_AT, words.encode_size(SIZE_AT, remains.size)),
        (SYNCED_SIZE_AT, words.encode_size(SYNCED_SIZE_AT, remains.size)),
        (GAPS_AT, words.encode_flag(GAPS_AT)),
    ];
    fixed.into_iter().chain(remains.objects.iter().map(durable)).collect()
}
