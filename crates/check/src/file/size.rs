//! The size in an index, and that of the home file.

use super::IndexedFile;
use super::tally::Tally;
use crate::findings::Findings;
use crate::report::Problem;
use braid_contract::Result;
use braid_format::{RangeSize, SIZE_AT, entry_at};

/// The size of the file. One that is damaged is set as the home inode and the
/// objects tell.
pub(super) fn check_size(of: IndexedFile<'_>, range_size: RangeSize, findings: &mut Findings) -> Result<u64> {
    let IndexedFile { target, file, index } = of;
    let error = match index.size()? {
        Ok(size) => return Ok(size),
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
