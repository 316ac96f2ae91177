//! Files that an index names, and that do not carry its id.

use crate::file::comparison::Comparison;
use crate::file::raw_index::RawIndex;
use crate::file::tally::ranges_placed;
use crate::file::{CheckedFile, HomeFile, begins_in};
use crate::findings::{ProblemRef, When};
use crate::id_attr::AttrState;
use crate::namespace::References;
use crate::report::Problem;
use crate::target::CheckTarget;
use braid_contract::{Access, Result, XattrMode};
use braid_format::{Header, IdAttr, IdKind};
use std::ffi::OsStr;

/// Judges a file that an orphan index names: its attribute was damaged or lost,
/// unless the file was emptied and written again.
pub(super) fn check_lost_attr(
    header: &Header,
    file: &HomeFile,
    references: &mut References,
    comparison: &mut Comparison<'_>,
) -> Result<()> {
    let (id, target) = (header.id, comparison.target);
    let attr = AttrState::read(target, &*file.fd, &file.identity);
    let mut reported = None;
    let is_lost = match &attr {
        AttrState::Damaged(_) | AttrState::Foreign(_) => {
            reported = references.doubt(file.ino()).filter(|doubt| !doubt.is_newer);
            if reported.is_none() {
                return Ok(());
            }
            true
        }
        AttrState::Failed(_) => return Ok(()),
        AttrState::Copied(attr) if attr.id == id => true,
        AttrState::Own(attr) => is_id_of_another(target, attr, file)?,
        AttrState::None | AttrState::Copied(_) => looks_spread(target, header, file)?,
    };
    if !is_lost {
        let what =
            "an index names this file, which does not carry its id, and seems to have been written since";
        let problem = Problem::leak("index-unused", what).path(&file.path).id(id);
        let repair = "nothing is done: the index and its objects may be all that is left of what was in it";
        comparison.findings.found(problem.repair(repair));
        return Ok(());
    }
    let reported = reported.map(|doubt| doubt.problem);
    restore_attr(header, file, reported, references, comparison)
}

/// Gives a file the id of its index, and compares it. `reported` is the problem
/// of its damaged attribute, if it has one.
fn restore_attr(
    header: &Header,
    file: &HomeFile,
    reported: Option<ProblemRef>,
    references: &mut References,
    comparison: &mut Comparison<'_>,
) -> Result<()> {
    let (id, target) = (header.id, comparison.target);
    let attr = IdAttr { kind: IdKind::Spread, id, ino: file.ino(), btime_ns: file.identity.btime_ns() };
    let what = "it does not carry its id, although an index names it: it shows what is in its home file only";
    let problem = Problem::damage("id-lost", what).path(&file.path).id(id);
    let problem = problem.repair("gives it the id of that index");
    let restored = comparison.findings.attempt(problem, When::Unmounted, || {
        let fd = file.fd.reopen(Access::Read)?;
        let value = attr.encode(target.home.seal());
        file.fd.set_xattr(OsStr::new(target.attr_name()), &value, XattrMode::Set)?;
        fd.sync(false)
    });
    let is_restored = restored.repaired;
    match reported {
        Some(at) => {
            let reported = comparison.findings.get_mut(at);
            (reported.id, reported.repair, reported.repaired) =
                (restored.id, restored.repair, restored.repaired);
        }
        None => _ = comparison.findings.found(restored),
    }
    if is_restored {
        comparison.findings.settle("id-shared", &file.path);
        // Its ranges were counted as those of an orphan.
        if let Some(index) = RawIndex::open(&*target.braid, id)? {
            comparison.totals.subtract(&ranges_placed(&index, target)?);
        }
        comparison.totals.spread_files += 1;
        references.insert(id, file);
        comparison.check(&CheckedFile { home: file.clone(), attr, in_use: false, is_marked: false })?;
    }
    Ok(())
}

/// Whether the id that a file carries is that of another one, which the index
/// with that id names.
fn is_id_of_another(target: &CheckTarget<'_>, attr: &IdAttr, file: &HomeFile) -> Result<bool> {
    let Some(index) = RawIndex::open(&*target.braid, attr.id)? else { return Ok(false) };
    Ok(index.header.is_ok_and(|header| header.id == attr.id && !file.is_of(&header)))
}

/// Whether a plain file looks like a spread one: as long as its index says, and
/// with holes where the data is elsewhere. A file that was emptied and written
/// again does not.
fn looks_spread(target: &CheckTarget<'_>, header: &Header, file: &HomeFile) -> Result<bool> {
    let Some(index) = RawIndex::open(&*target.braid, header.id)? else { return Ok(false) };
    let Ok(size) = index.size()? else { return Ok(false) };
    if size != file.size() || size == 0 {
        return Ok(false);
    }
    let home = file.fd.reopen(Access::Read)?;
    let (mut elsewhere, mut with_data) = (0, 0);
    index.for_each(|raw| {
        let bytes = header.range_size.bytes_of(raw.range..raw.range + 1, size);
        let Ok(entry) = raw.entry else { return Ok(()) };
        if !bytes.is_empty() && entry.tier != target.home_id {
            elsewhere += 1;
            with_data += u64::from(begins_in(home.next_data(bytes.start)?, &bytes));
        }
        Ok(())
    })?;
    Ok(elsewhere > 0 && with_data == 0)
}
