//! Indexes that no file leads to.

use super::lost_attr::check_lost_attr;
use super::recheck::recheck;
use crate::file::HomeFile;
use crate::file::comparison::Comparison;
use crate::file::raw_index::{RawIndex, index_path};
use crate::findings::When;
use crate::id_attr::AttrState;
use crate::namespace::References;
use crate::progress::ProgressReporter;
use crate::report::Problem;
use crate::target::CheckTarget;
use crate::tree::{is_missing, remove_if_there};
use braid_contract::{ObjectId, Result};
use braid_format::Header;
use braid_home::{Home, Seen};
use std::collections::{HashMap, HashSet};

/// Judges the indexes that no file leads to. Adds to `kept` the ids whose data
/// is not to be removed, and to the references those of restored files.
pub(crate) fn check_orphan_indexes(
    comparison: &mut Comparison<'_>,
    marked: &HashSet<ObjectId>,
    references: &mut References,
    kept: &mut HashSet<ObjectId>,
    progress: &mut ProgressReporter<'_>,
) -> Result<()> {
    let target = comparison.target;
    let mut orphans = comparison.listings.indexes.ids.clone();
    orphans.retain(|id| !references.contains(*id));
    progress.phase("indexes", Some(orphans.len() as u64))?;
    recheck(target, marked, &mut orphans, progress)?;
    let mut pass = OrphanIndexes { comparison, marked, kept };
    let mut headers = Vec::new();
    for id in orphans {
        progress.step()?;
        headers.extend(pass.header(id));
    }
    let inodes: HashSet<u64> = headers.iter().map(|header| header.ino).collect();
    let files = files_by_ino(target, &inodes, progress)?;
    for header in &headers {
        match files.get(&header.ino).filter(|file| file.is_of(header)) {
            Some(file) => {
                pass.kept.insert(header.id);
                check_lost_attr(header, file, references, pass.comparison)?;
            }
            None => pass.without_file(header, references.is_incomplete),
        }
    }
    Ok(())
}

/// The files with these inode numbers.
fn files_by_ino(
    target: &CheckTarget<'_>,
    inodes: &HashSet<u64>,
    progress: &mut ProgressReporter<'_>,
) -> Result<HashMap<u64, HomeFile>> {
    let mut found = HashMap::new();
    if inodes.is_empty() {
        return Ok(found);
    }
    progress.phase("orphans", None)?;
    let home = Home::open(target.home.root())?;
    home.walk_below(&[], &mut |seen| {
        if let Seen::File(path, fd, identity) = seen {
            progress.step()?;
            if inodes.contains(&identity.ino()) {
                found.insert(identity.ino(), HomeFile::new(path, fd, identity));
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// The pass over orphan indexes.
struct OrphanIndexes<'o, 'c> {
    comparison: &'o mut Comparison<'c>,
    marked: &'o HashSet<ObjectId>,
    /// Ids whose data is not to be removed although no file leads to it.
    kept: &'o mut HashSet<ObjectId>,
}

impl OrphanIndexes<'_, '_> {
    /// Counts the ranges of an index, and answers its header, if that identifies
    /// the file and the index is not recovery's to judge.
    fn header(&mut self, id: ObjectId) -> Option<Header> {
        let target = self.comparison.target;
        let opened = RawIndex::open(&*target.braid, id);
        let counted = opened.and_then(|index| match index {
            Some(index) => self.comparison.count(&index).map(|()| Some(index.header)),
            None => Ok(None),
        });
        let why = match counted {
            Ok(None) => return None,
            Ok(Some(_)) if self.marked.contains(&id) && !target.is_mounted() => return None,
            Ok(Some(Ok(header))) if header.id == id && header.volume == target.volume => {
                return Some(header);
            }
            Ok(Some(Ok(_))) => "its header is that of another index".to_owned(),
            Ok(Some(Err(error))) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.without_header(id, &why);
        None
    }

    fn without_header(&mut self, id: ObjectId, why: &str) {
        self.kept.insert(id);
        let what = format!("an index that no file leads to, and that does not tell whose it was: {why}");
        let problem = Problem::leak("index-orphan-damaged", what).id(id);
        let problem = problem.tier(&self.comparison.target.home_name);
        let repair = "nothing is done: it may be all that is left of a file";
        self.comparison.findings.found(problem.repair(repair));
    }

    /// Reports an index whose inode is gone or was used again, and removes it.
    fn without_file(&mut self, header: &Header, is_incomplete: bool) {
        let (id, target) = (header.id, self.comparison.target);
        let what = "an index that no file leads to; the file that it names is gone";
        let problem = Problem::leak("index-orphan", what).id(id).tier(&target.home_name);
        if is_incomplete || self.kept.contains(&id) {
            self.kept.insert(id);
            let repair =
                "nothing is done: a file that could not be looked at, or one that was copied, may need it";
            self.comparison.findings.found(problem.repair(repair));
            return;
        }
        let when = if is_surely_gone(target, header) { When::Now } else { When::Unmounted };
        let problem = problem.repair("removes it, and its objects");
        let at = self.comparison.findings.mend(problem, when, || {
            remove_objects(target, id)?;
            target.change_entries(|| remove_if_there(&*target.braid, &index_path(id)))
        });
        if !self.comparison.findings.is_repaired(at) {
            self.kept.insert(id);
        }
    }
}

/// Whether the file that a header names is gone for sure. On a mounted volume, a
/// file may be renamed from a directory that is still to be read to one that has
/// been: only its handle decides.
fn is_surely_gone(target: &CheckTarget<'_>, header: &Header) -> bool {
    let Some(handle) = &header.handle else { return false };
    match target.home.open_handle(handle) {
        Ok(Some(fd)) => target.home.identify(&*fd).is_ok_and(|identity| {
            let attr = AttrState::read(target, &*fd, &identity);
            matches!(attr, AttrState::Own(attr) if attr.id != header.id)
        }),
        Ok(None) => false,
        Err(error) => is_missing(&error),
    }
}

fn remove_objects(target: &CheckTarget<'_>, id: ObjectId) -> Result<()> {
    for store in target.tiers.iter().filter_map(|tier| tier.store.as_ref()) {
        store.remove(&[id])?;
    }
    Ok(())
}
