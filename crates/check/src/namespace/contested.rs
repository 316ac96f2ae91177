//! Files whose index names another inode.

use super::References;
use crate::file::CheckedFile;
use crate::file::comparison::Comparison;
use crate::file::raw_index::RawIndex;
use crate::report::Problem;
use braid_contract::{Result, Shown};
use braid_format::Header;
use std::path::Path;

/// Judges a file whose index names another inode, after all files have been
/// looked at: if the other inode has the same id, it owns the data.
pub(super) fn check_contested(
    file: &CheckedFile,
    references: &References,
    comparison: &mut Comparison<'_>,
) -> Result<()> {
    let Some(index) = RawIndex::open(&*comparison.target.braid, file.id())? else { return Ok(()) };
    // The header was valid when the file was compared; there is no more to do if
    // it no longer is.
    let Ok(header) = &index.header else { return Ok(()) };
    if let Some(owner) = references.holder_by_ino(file.id(), header.ino) {
        comparison.findings.found(id_shared(file, owner));
    } else if is_inode_of_other(header, file, references, comparison) {
        let what = "its index names another file, which exists and does not carry its id";
        let problem = file.of(Problem::damage("index-of-other-file", what));
        let repair = "nothing is done: whose data it is is not known";
        comparison.findings.found(problem.repair(repair));
    } else {
        comparison.compare_with_wrong_inode(file, &index, header)?;
    }
    Ok(())
}

/// Whether the inode that a header names exists, and is not this file's.
fn is_inode_of_other(
    header: &Header,
    file: &CheckedFile,
    references: &References,
    comparison: &Comparison<'_>,
) -> bool {
    let Some(handle) = &header.handle else { return references.doubt(header.ino).is_some() };
    let home = &comparison.target.home;
    let opened = home.open_handle(handle).ok().flatten();
    let identity = opened.and_then(|fd| home.identify(&*fd).ok());
    identity.is_some_and(|other| other.ino() != file.home.ino() && other.attr.nlink > 0)
}

/// The problem of a file with the id of another one.
pub(super) fn id_shared(file: &CheckedFile, owner: &Path) -> Problem {
    let what = format!("it has the id of {}, whose data it shows in place of its own", owner.shown());
    let repair = "nothing is done: which data it should have is not known; copy what you need and remove it";
    file.of(Problem::damage("id-shared", what)).repair(repair)
}
