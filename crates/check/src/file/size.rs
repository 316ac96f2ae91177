//! The size in an index, and that of the home file.

use super::IndexedFile;
use super::tally::Tally;
use crate::findings::Findings;
use crate::report::Problem;
use braid_contract::{Result, TierId};
use braid_format::{GROWS_TO_AT, RangeSize, SIZE_AT, entry_at};

/// The size of the file: that in its index or, where the index says that it may
/// be behind, that of the last part. A damaged one is set from the home inode
/// and the objects.
pub(super) fn check_size(of: IndexedFile<'_>, range_size: RangeSize, findings: &mut Findings) -> Result<u64> {
    let IndexedFile { target, file, index } = of;
    let error = match index.size()? {
        Ok(size) => return Ok(size.max(check_growth(of, range_size, size, findings)?)),
        Err(error) => error,
    };
    let size = estimated_size(of, range_size)?;
    let what = format!("its size can't be believed ({error}): it can't be read");
    let problem = file.of(Problem::damage("size-damaged", what));
    let problem =
        problem.repair(format!("takes the size of {size} bytes from the home inode and the objects"));
    let word = index.words.encode_size(SIZE_AT, size);
    findings.mend(problem, file.when_unused(), || index.store(&*target.braid, &[(SIZE_AT, word)]));
    Ok(size)
}

/// The end of the last part, if the file may have grown there since its index
/// was made durable; 0 if not. Whether it may is believed if the word that says
/// so is damaged.
fn check_growth(
    of: IndexedFile<'_>,
    range_size: RangeSize,
    size: u64,
    findings: &mut Findings,
) -> Result<u64> {
    let IndexedFile { target, file, index } = of;
    let end = match index.grows_to()? {
        Ok(end) => end,
        Err(error) => {
            let end = range_size.round_up(size.max(1));
            let what = format!("whether it goes on past its size: {error}");
            let repair = "takes it to go on as far as its last part reaches";
            let problem = file.of(Problem::damage("growth-damaged", what).repair(repair));
            let word = index.words.encode_size(GROWS_TO_AT, end);
            findings
                .mend(problem, file.when_unused(), || index.store(&*target.braid, &[(GROWS_TO_AT, word)]));
            end
        }
    };
    let Some(last) = range_size.grown_range(size, end) else { return Ok(0) };
    let entry = index.words.decode_entry(last, index.word(entry_at(last))?).ok().flatten();
    Ok(entry.map_or(0, |entry| part_size(of, entry.tier).min(end)))
}

/// The size of the file's part on a tier; 0 if it has none that can be asked.
fn part_size(of: IndexedFile<'_>, tier: TierId) -> u64 {
    let IndexedFile { target, file, .. } = of;
    if tier == target.home_id {
        return file.home.size();
    }
    let store = target.tiers.iter().find(|it| it.id == tier).and_then(|it| it.store.as_ref());
    store.and_then(|store| store.stat(file.id()).ok()).map_or(0, |stat| stat.size)
}

/// The end of the home file, or of an object that owns where it ends.
fn estimated_size(of: IndexedFile<'_>, range_size: RangeSize) -> Result<u64> {
    let IndexedFile { target, file, index } = of;
    let mut size = file.home.size();
    for tier in &target.tiers {
        let Some(store) = &tier.store else { continue };
        let end = store.stat(file.id()).map_or(0, |stat| stat.size);
        if end > size {
            let range = range_size.range_of(end - 1);
            let entry = index.words.decode_entry(range, index.word(entry_at(range))?);
            if entry.ok().flatten().is_some_and(|entry| entry.tier == tier.id) {
                size = end;
            }
        }
    }
    Ok(size)
}

/// Checks the size of the home file. It follows that of the file, and may be
/// behind or ahead after a crash; but synced bytes must not be cut off.
pub(super) fn check_home_file(of: IndexedFile<'_>, tally: &Tally, findings: &mut Findings) -> Result<()> {
    let home_size = of.file.home.size();
    let synced = of.index.synced_size()?.unwrap_or(0).min(tally.size);
    let held_to = tally.home_end.min(synced);
    if home_size < held_to {
        let what =
            format!("its home file ends at {home_size}, within what it holds: the rest reads as zeros");
        let problem = of.file.of(Problem::damage("home-file-cut", what)).bytes(home_size..held_to);
        findings.found(problem.repair("nothing is done: what was cut off is lost"));
    } else if home_size != tally.size {
        let what = format!("its home inode says {home_size} bytes, and its index {}", tally.size);
        let problem = of.file.of(Problem::legal("size-differs", what));
        findings.found(problem.repair("nothing is done: its next use sets the home inode right"));
    }
    Ok(())
}
