//! The objects of a spread file, on each tier other than home.

use super::tally::Tally;
use super::{CheckedFile, IndexedFile, SIZES_DIFFER, STAYS_UNREADABLE};
use crate::dirs::listings::Listings;
use crate::findings::Findings;
use crate::report::Problem;
use crate::target::TargetTier;
use crate::tree::is_missing;
use braid_contract::{Error, ObjectStat, Result, Store, TierId};
use braid_format::durable_at;
use braid_tiers::{bit, cut_object};
use std::ops::Range;

/// Compares the objects with the ranges that the tiers hold.
pub(super) fn check_objects(
    of: IndexedFile<'_>,
    tally: &Tally,
    listings: &Listings,
    findings: &mut Findings,
) -> Result<()> {
    let id = of.file.id();
    for (tier, listing) in listings.by_tier(of.target) {
        let Some(store) = tier.store.as_deref() else { continue };
        let stat = match store.stat(id) {
            Ok(stat) => Some(stat).filter(|_| !listing.irregular.contains(&id)),
            Err(error) if is_missing(&error) => None,
            Err(error) => {
                findings.found(unreadable(of.file, tier, &error));
                continue;
            }
        };
        let held = tally.tiers & bit(tier.id) != 0;
        let durable = check_durable(of, tier, store, stat.is_some(), findings)?;
        match stat {
            None if held => report_missing(of, tally, tier, durable, findings)?,
            None => {}
            Some(stat) => {
                if of.file.is_settled() {
                    check_length(of.file, tally.size, (tier, store), stat, findings);
                }
                if !held {
                    findings.found(unowned(of.file, tier, stat));
                }
            }
        }
    }
    Ok(())
}

/// Whether the object was durable at some time. A damaged flag says yes: lost
/// bytes must not read as zeros.
fn check_durable(
    of: IndexedFile<'_>,
    tier: &TargetTier,
    store: &dyn Store,
    exists: bool,
    findings: &mut Findings,
) -> Result<bool> {
    let IndexedFile { target, file, index } = of;
    let error = match index.durable(tier.id)? {
        Ok(durable) => return Ok(durable),
        Err(error) => error,
    };
    let what = format!("whether its object was ever made durable: {error}");
    let problem = file.of(Problem::damage("durable-damaged", what)).tier(&tier.name);
    let problem = problem.repair("takes it for durable, after making it so");
    findings.mend(problem, file.when_unused(), || {
        if exists {
            store.sync(&[file.id()], false)?;
        }
        let at = durable_at(tier.id);
        index.store(&*target.braid, &[(at, index.words.encode_flag(at))])
    });
    Ok(true)
}

/// Reports the ranges on a tier that has no object of the file.
fn report_missing(
    of: IndexedFile<'_>,
    tally: &Tally,
    tier: &TargetTier,
    durable: bool,
    findings: &mut Findings,
) -> Result<()> {
    if of.target.is_gone(&of.file.home.fd) {
        return Ok(());
    }
    for bytes in stretches_on(of, tally, tier.id)? {
        findings.found(missing(of.file, tier, durable, bytes));
    }
    Ok(())
}

/// The stretches of a file that a tier holds.
fn stretches_on(of: IndexedFile<'_>, tally: &Tally, tier: TierId) -> Result<Vec<Range<u64>>> {
    let mut stretches: Vec<Range<u64>> = Vec::new();
    of.index.for_each(|raw| {
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

/// Reports an object that is longer than the file, of `size` bytes, and cuts it.
pub(super) fn check_length(
    file: &CheckedFile,
    size: u64,
    (tier, store): (&TargetTier, &dyn Store),
    stat: ObjectStat,
    findings: &mut Findings,
) {
    if stat.size <= size {
        return;
    }
    let what = format!("its object has {} bytes, {} more than the file", stat.size, stat.size - size);
    let problem = file.of(Problem::legal("object-too-long", what)).tier(&tier.name);
    if file.home.size() != size {
        findings.found(problem.repair(SIZES_DIFFER));
        return;
    }
    findings.mend(problem.repair("cuts it"), file.when_unused(), || {
        cut_object(store, file.id(), size)?;
        store.sync(&[file.id()], true)
    });
}

/// The problem of an object that the tier can't examine.
pub(super) fn unreadable(file: &CheckedFile, tier: &TargetTier, error: &Error) -> Problem {
    file.of(Problem::damage("object-unreadable", format!("its object: {error}"))).tier(&tier.name)
}

/// The problem of bytes whose object is missing.
pub(super) fn missing(file: &CheckedFile, tier: &TargetTier, durable: bool, bytes: Range<u64>) -> Problem {
    let problem = if durable {
        let what = "its object on this tier is missing: those bytes are lost and can't be read";
        Problem::damage("object-missing", what).repair(STAYS_UNREADABLE)
    } else {
        let what = "what it had on this tier was never synced and did not survive: it reads as zeros";
        Problem::legal("object-never-synced", what)
    };
    file.of(problem).tier(&tier.name).bytes(bytes)
}

/// The problem of an object on a tier that holds no range of the file.
pub(super) fn unowned(file: &CheckedFile, tier: &TargetTier, stat: ObjectStat) -> Problem {
    let what = format!("it has an object of {} bytes there, and no range", stat.allocated);
    file.of(Problem::legal("object-unowned", what)).tier(&tier.name)
}
