//! The words of an index beside its size and entries.

use super::IndexedFile;
use super::tally::Tally;
use crate::findings::Findings;
use crate::report::Problem;
use braid_contract::{Result, TierId};
use braid_format::{GAPS_AT, OWNERS_AT, Owners, SYNCED_SIZE_AT};

/// Checks the words, and replaces damaged ones by values that lose nothing.
pub(super) fn check_words(of: IndexedFile<'_>, tally: &Tally, findings: &mut Findings) -> Result<()> {
    let IndexedFile { target, file, index } = of;
    let mut replace = |problem: Problem, at: u64, word: u64| {
        let store = || index.store(&*target.braid, &[(at, word)]);
        findings.mend(file.of(problem), file.when_unused(), store);
    };
    if let Err(error) = index.synced_size()? {
        let what = format!("its size at the last fsync: {error}");
        let repair = "takes all of the file for synced, so that nothing of it is cut after a crash";
        let problem = Problem::damage("synced-size-damaged", what).repair(repair);
        replace(problem, SYNCED_SIZE_AT, index.words.encode_size(SYNCED_SIZE_AT, tally.size));
    }
    if let Err(error) = index.gaps()? {
        let what = format!("whether holes in it are meant: {error}");
        let repair = "takes them for meant, so that nothing of it is cut after a crash";
        let problem = Problem::damage("gaps-damaged", what).repair(repair);
        replace(problem, GAPS_AT, index.words.encode_flag(GAPS_AT));
    }
    if let Some(wrong) = wrong_owners(of)? {
        let what = format!("which tiers own its size and times: {wrong}");
        let repair = "lets the tier of its last range own its size, and home its times";
        let problem = Problem::damage("owners-damaged", what).repair(repair);
        let home = target.home_id;
        let last = tally.last.filter(|tier| target.is_tier(*tier)).unwrap_or(home);
        let owners = Owners { size: last, mtime: home, atime: home, synced_mtime: home };
        replace(problem, OWNERS_AT, index.words.encode_owners(OWNERS_AT, owners));
    }
    Ok(())
}

/// Why the owners of size and times can't be right, if they can't.
fn wrong_owners(of: IndexedFile<'_>) -> Result<Option<String>> {
    let target = of.target;
    let owners = match of.index.owners(target.home_id)? {
        Ok(owners) => owners,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let known = |tier: &TierId| target.is_tier(*tier) || target.lost_name(*tier).is_some();
    let mut all = [owners.size, owners.mtime, owners.atime, owners.synced_mtime].into_iter();
    let unknown = all.find(|tier| !known(tier));
    Ok(unknown.map(|tier| format!("tier number {tier} is not the volume's")))
}
