//! The header of an index, recreated from the inode.

use super::tally::Tally;
use super::{CheckedFile, IndexedFile};
use crate::findings::Findings;
use crate::report::Problem;
use braid_contract::{Result, VolumeId};
use braid_format::{Header, RangeSize};

/// The header that the index of a file must have.
pub(super) fn header_of(
    file: &CheckedFile,
    volume: VolumeId,
    plain_size: u64,
    range_size: RangeSize,
) -> Header {
    Header {
        volume,
        id: file.id(),
        range_size,
        ino: file.home.ino(),
        btime_ns: file.home.identity.btime_ns(),
        plain_size,
        handle: file.home.identity.handle.clone(),
    }
}

/// Reports a wrong header, and replaces it if the entries are the file's.
pub(super) fn replace_header(
    of: IndexedFile<'_>,
    (plain_size, range_size): (u64, RangeSize),
    what: String,
    findings: &mut Findings,
) -> Result<()> {
    let IndexedFile { target, file, index } = of;
    let tally = Tally::of(index, target, u64::MAX, range_size)?;
    let problem = file.of(Problem::damage("index-header", what));
    let is_own = tally.valid > 0 || tally.damaged.is_empty() && index.size()?.is_ok_and(|size| size > 0);
    if !is_own {
        findings.found(problem.repair("nothing is done: its entries are not this file's"));
        return Ok(());
    }
    let header = header_of(file, target.volume, plain_size, range_size);
    let problem = problem.repair("makes the header anew from the file's inode");
    findings.mend(problem, file.when_unused(), || index.write_header(&*target.braid, &header));
    Ok(())
}
