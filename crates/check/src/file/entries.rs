//! Index entries that are damaged, name a missing tier, or lie beyond the size.

use super::raw_index::RawEntry;
use super::tally::Tally;
use super::{IndexedFile, SIZES_DIFFER, STAYS_UNREADABLE, begins_in};
use crate::findings::Findings;
use crate::report::Problem;
use crate::target::CheckTarget;
use braid_contract::{Access, Errno, Result, TierId};
use braid_format::{Entry, Reason, Words, entry_at};
use braid_tiers::next_data;
use std::ops::Range;

/// Reports damaged entries, and recreates those that can be inferred.
pub(super) fn check_damaged(of: IndexedFile<'_>, tally: &Tally, findings: &mut Findings) -> Result<()> {
    let IndexedFile { target, file, index } = of;
    let mut inferred: Vec<(u64, Option<Entry>)> = Vec::new();
    for raw in &tally.damaged {
        let mut entry = corrected(index.words, raw, |tier| target.is_tier(tier));
        if entry.is_none() && findings.may_repair(file.when_unused()) {
            entry = entry_by_data(of, &tally.bytes_of(raw.range..raw.range + 1))?;
        }
        inferred.push((raw.range, entry));
    }
    let together =
        |a: &(u64, Option<Entry>), b: &(u64, Option<Entry>)| b.0 == a.0 + 1 && a.1.is_some() == b.1.is_some();
    for run in inferred.chunk_by(together) {
        let bytes = tally.bytes_of(run[0].0..run[0].0 + run.len() as u64);
        let what = format!("{} of its index entries are damaged: those bytes can't be read", run.len());
        let problem = file.of(Problem::damage("entry-damaged", what)).bytes(bytes);
        if run[0].1.is_none() {
            let repair = "makes an entry anew if one tier alone has data there; otherwise nothing is done";
            findings.found(problem.repair(repair));
            continue;
        }
        let words = run.iter().filter_map(|(range, entry)| {
            Some((entry_at(*range), index.words.encode_entry(*range, (*entry)?)))
        });
        let words: Vec<(u64, u64)> = words.collect();
        let problem = problem.repair("makes the entries anew: what they said can be told");
        findings.mend(problem, file.when_unused(), || index.store(&*target.braid, &words));
    }
    Ok(())
}

/// The entry that a word was before one of its bits was flipped. Its check has
/// 32 bits: no other entry is one bit away.
fn corrected(words: Words, raw: &RawEntry, is_tier: impl Fn(TierId) -> bool) -> Option<Entry> {
    let one_bit_away =
        (0..64).filter_map(|bit| words.decode_entry(raw.range, raw.word ^ 1 << bit).ok().flatten());
    one_bit_away.into_iter().find(|entry| is_tier(entry.tier))
}

/// The entry of the range of these bytes, if one tier alone has data in it, and
/// nothing of the file is missing anywhere.
fn entry_by_data(of: IndexedFile<'_>, bytes: &Range<u64>) -> Result<Option<Entry>> {
    let IndexedFile { target, file, index } = of;
    let mut with_data = Vec::new();
    let home = file.home.fd.reopen(Access::Read)?;
    if begins_in(home.next_data(bytes.start)?, bytes) {
        with_data.push(target.home_id);
    }
    for tier in &target.tiers {
        let Some(store) = &tier.store else { return Ok(None) };
        match next_data(&**store, file.id(), bytes.start) {
            Ok(data) if begins_in(data, bytes) => with_data.push(tier.id),
            Ok(_) => {}
            Err(error) if error.errno() == Errno::ENOENT && index.durable(tier.id)? == Ok(false) => {}
            // It may have had the data.
            Err(_) => return Ok(None),
        }
    }
    Ok(match with_data[..] {
        [tier] => Some(Entry { tier, reason: Reason::Policy, version: 0 }),
        _ => None,
    })
}

/// Reports entries that name a tier which the volume does not have. Answers
/// whether one of these tiers is unknown, and not just lost.
pub(super) fn check_tiers(of: IndexedFile<'_>, tally: &Tally, findings: &mut Findings) -> bool {
    let mut names_unknown_tier = false;
    for run in tally.nowhere.chunk_by(|a, b| b.0 == a.0 + 1 && a.1 == b.1) {
        let bytes = tally.bytes_of(run[0].0..run[0].0 + run.len() as u64);
        let tier = run[0].1;
        names_unknown_tier |= of.target.lost_name(tier).is_none();
        let problem = no_such_tier(of.target, tier);
        findings.found(of.file.of(problem).bytes(bytes).repair(STAYS_UNREADABLE));
    }
    names_unknown_tier
}

/// The problem of bytes on a tier that was lost, or is unknown.
pub(super) fn no_such_tier(target: &CheckTarget<'_>, tier: TierId) -> Problem {
    match target.lost_name(tier) {
        Some(name) => {
            let what = format!("these bytes were on tier {name}, which was lost");
            Problem::damage("entry-lost-tier", what).tier(name)
        }
        None => {
            let what = format!("these bytes are on tier number {tier}, which the volume does not have");
            Problem::damage("entry-unknown-tier", what)
        }
    }
}

/// Reports entries beyond the size, and clears them.
pub(super) fn check_beyond(of: IndexedFile<'_>, tally: &Tally, findings: &mut Findings) {
    let IndexedFile { target, file, index } = of;
    if tally.beyond == 0 {
        return;
    }
    let what = format!("{} index entries lie beyond its size", tally.beyond);
    let problem = file.of(Problem::legal("entries-beyond-size", what));
    if file.home.size() != tally.size {
        findings.found(problem.repair(SIZES_DIFFER));
        return;
    }
    let first = tally.range_size.count(tally.size.max(index.reserved().unwrap_or(0)));
    findings.mend(problem.repair("clears them"), file.when_unused(), || {
        target.change_entries(|| index.clear_from(&*target.braid, first))
    });
}
