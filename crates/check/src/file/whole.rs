//! A whole file, compared with its object.

use super::entries::no_such_tier;
use super::objects::{check_length, missing, unowned, unreadable};
use super::raw_index::{RawIndex, index_path};
use super::tally::Totals;
use super::{CheckedFile, STAYS_UNREADABLE};
use crate::dirs::listings::Listings;
use crate::dirs::shards::Listing;
use crate::findings::Findings;
use crate::report::Problem;
use crate::target::{CheckTarget, TargetTier};
use crate::tree::{is_missing, remove_if_there};
use braid_contract::{Access, Errno, FallocateMode, Result, SetTime, TierId};
use braid_core::live::keeping_capability;
use braid_format::WholeAttr;

/// Checks a file whose attribute says that all of it is in one object.
pub(super) fn check_whole(
    target: &CheckTarget<'_>,
    file: &CheckedFile,
    whole: WholeAttr,
    listings: &Listings,
    findings: &mut Findings,
    totals: &mut Totals,
) -> Result<()> {
    let ranges = whole.range_size.count(file.home.size());
    totals.ranges += ranges;
    totals.add(&[(whole.tier, ranges)].into());
    match listings.by_tier(target).find(|(tier, _)| tier.id == whole.tier) {
        Some(on) => check_object(target, file, whole, on, findings),
        None => {
            totals.names_unknown_tier |=
                whole.tier != target.home_id && target.lost_name(whole.tier).is_none();
            let problem = file.of(no_tier(target, whole.tier));
            findings.found(problem.bytes(0..file.home.size()).repair(STAYS_UNREADABLE));
        }
    }
    // Users or recovery may still need the leftovers of an unsettled file.
    if file.is_settled() {
        check_other_objects(target, file, whole.tier, findings);
        check_home_data(target, file, findings)?;
        check_leftover_index(target, file, findings)?;
    }
    Ok(())
}

fn check_object(
    target: &CheckTarget<'_>,
    file: &CheckedFile,
    whole: WholeAttr,
    (tier, listing): (&TargetTier, &Listing),
    findings: &mut Findings,
) {
    let Some(store) = tier.store.as_deref() else { return };
    let size = file.home.size();
    match store.stat(file.id()) {
        Ok(stat) if !listing.irregular.contains(&file.id()) => {
            if !file.is_settled() {
                return;
            }
            check_length(file, size, (tier, store), stat, findings);
            if stat.size < size {
                let what = format!("its object ends at {}: the rest reads as zeros", stat.size);
                findings.found(file.of(Problem::legal("object-short", what)).tier(&tier.name));
            }
        }
        Err(error) if !is_missing(&error) => {
            findings.found(unreadable(file, tier, &error));
        }
        _ if target.is_gone(&file.home.fd) => {}
        _ => _ = findings.found(missing(file, tier, whole.durable, 0..size)),
    }
}

/// The problem of a whole file on a tier that can't have objects.
fn no_tier(target: &CheckTarget<'_>, tier: TierId) -> Problem {
    if tier == target.home_id && target.lost_name(tier).is_none() {
        let what = "its attribute says that its data is in an object on the home tier";
        return Problem::damage("entry-unknown-tier", what);
    }
    no_such_tier(target, tier)
}

/// Removes objects on tiers that the file is not on.
fn check_other_objects(target: &CheckTarget<'_>, file: &CheckedFile, own: TierId, findings: &mut Findings) {
    let id = file.id();
    for tier in target.tiers.iter().filter(|tier| tier.id != own) {
        let Some(store) = &tier.store else { continue };
        if let Ok(stat) = store.stat(id) {
            let problem = unowned(file, tier, stat).repair("removes it");
            findings.mend(problem, file.when_unused(), || store.remove(&[id]));
        }
    }
}

/// Frees data in the home file, which the file does not show.
fn check_home_data(target: &CheckTarget<'_>, file: &CheckedFile, findings: &mut Findings) -> Result<()> {
    if file.home.identity.attr.blocks == 0 {
        return Ok(());
    }
    let home = file.home.fd.reopen(Access::Read)?;
    match home.next_data(0) {
        Ok(Some(_)) => {}
        Err(error) if error.errno() != Errno::ENXIO => return Err(error),
        _ => return Ok(()),
    }
    let what = "its home file has data that is not the file's";
    let problem = file.of(Problem::legal("home-file-unowned", what)).tier(&target.home_name);
    let (size, mtime) = (file.home.size(), file.home.identity.attr.mtime);
    findings.mend(problem.repair("frees it"), file.when_unused(), || {
        let home = file.home.fd.reopen(Access::Write)?;
        let all = size.next_multiple_of(4096).max(4096);
        keeping_capability(&*file.home.fd, || home.allocate(FallocateMode::PunchHole, 0, all))?;
        home.set_times(None, Some(SetTime::At(mtime)))
    });
    Ok(())
}

/// Removes an index that the file was about to get, and that does not count.
fn check_leftover_index(target: &CheckTarget<'_>, file: &CheckedFile, findings: &mut Findings) -> Result<()> {
    if RawIndex::open(&*target.braid, file.id())?.is_none() {
        return Ok(());
    }
    let what = "an index of a file whose attribute says that it has none";
    let problem = file.of(Problem::leak("index-unused", what)).tier(&target.home_name);
    findings.mend(problem.repair("removes it"), file.when_unused(), || {
        remove_if_there(&*target.braid, &index_path(file.id()))
    });
    Ok(())
}
