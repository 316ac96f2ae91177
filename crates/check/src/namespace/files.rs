//! The pass over the files of the namespace: reads their id attributes, and
//! compares those that have one.

use super::beside_users::beside_users;
use super::contested::{check_contested, id_shared};
use super::{DoubtedAttr, References};
use crate::file::comparison::{Comparison, IndexInode};
use crate::file::raw_index::RawIndex;
use crate::file::{CheckedFile, HomeFile};
use crate::id_attr::AttrState;
use crate::progress::ProgressReporter;
use crate::report::Problem;
use braid_contract::{Errno, Error, Fd, ObjectId, Result};
use braid_format::{FormatError, IdAttr};
use braid_home::{Home, Seen};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Looks at the files at and below `paths`, or at all files if there are none.
pub(crate) fn check_files(
    comparison: &mut Comparison<'_>,
    marked: &HashSet<ObjectId>,
    paths: &[PathBuf],
    progress: &mut ProgressReporter<'_>,
) -> Result<References> {
    progress.phase("files", None)?;
    let target = comparison.target;
    let home = Home::open(target.home.root())?;
    let references = References::default();
    let mut walk = FileWalk { comparison, marked, references, contested: Vec::new() };
    home.walk_below(paths, &mut |seen| {
        match seen {
            Seen::Failed(path, error) => walk.not_readable(path, &error),
            Seen::File(path, fd, identity) => {
                walk.references.files += 1;
                progress.step()?;
                match target.mounted {
                    Some(core) => {
                        beside_users(core, fd, identity, |in_use| walk.visit_if_named(path, fd, in_use))?;
                    }
                    None => walk.visit(HomeFile::new(path, fd, identity), false)?,
                }
            }
        }
        Ok(())
    })?;
    let FileWalk { comparison, references, contested, .. } = walk;
    for file in contested {
        check_contested(&file, &references, comparison)?;
    }
    Ok(references)
}

/// The walk through the namespace.
struct FileWalk<'w, 'c> {
    comparison: &'w mut Comparison<'c>,
    marked: &'w HashSet<ObjectId>,
    references: References,
    /// Files whose index names another inode: they are judged when all inodes
    /// are known.
    contested: Vec<CheckedFile>,
}

impl FileWalk<'_, '_> {
    /// Looks at a file that may have been changed or removed since its name was
    /// read.
    fn visit_if_named(&mut self, path: &Path, fd: &Fd, in_use: bool) -> Result<()> {
        let identity = self.comparison.target.home.identify(&**fd)?;
        if identity.attr.nlink == 0 {
            return Ok(());
        }
        self.visit(HomeFile::new(path, fd, &identity), in_use)
    }

    fn visit(&mut self, file: HomeFile, in_use: bool) -> Result<()> {
        match AttrState::read(self.comparison.target, &*file.fd, &file.identity) {
            AttrState::None => {}
            AttrState::Own(attr) => {
                let path = file.path.clone();
                let is_marked = self.marked.contains(&attr.id);
                let checked = self.with_id(CheckedFile { home: file, attr, in_use, is_marked });
                checked.or_else(|error| self.not_compared(&path, attr.id, error))?;
            }
            AttrState::Copied(attr) => self.copied(&file, attr),
            AttrState::Damaged(error) => {
                let is_newer = matches!(error, FormatError::Newer(_));
                let repair = if is_newer {
                    "nothing is done: use the newer Braid"
                } else {
                    "makes it anew, if an index names this file"
                };
                let problem = Problem::damage("id-damaged", format!("{error}"));
                self.doubted(&file, problem.repair(repair), is_newer);
            }
            AttrState::Foreign(why) => {
                let what = format!("its id attribute is not to be believed: {why}; it can't be used");
                let problem = Problem::damage("id-foreign", what);
                self.doubted(&file, problem.repair("makes it anew, if an index names this file"), false);
            }
            AttrState::Failed(error) => self.not_readable(&file.path, &error),
        }
        Ok(())
    }

    fn not_readable(&mut self, path: &Path, error: &Error) {
        self.references.is_incomplete = true;
        let problem = Problem::damage("not-readable", format!("it can't be looked at: {error}")).path(path);
        let repair = "nothing is done, and nothing that may belong to it is removed";
        self.comparison.findings.found(problem.repair(repair));
    }

    /// Reports an index or home file that can't be read to the end. That is
    /// damage of one file, and does not end the check.
    fn not_compared(&mut self, path: &Path, id: ObjectId, error: Error) -> Result<()> {
        if error.errno() == Errno::EINTR {
            return Err(error);
        }
        let what = format!("it can't be compared with its index: {error}");
        let problem = Problem::damage("index-unusable", what).path(path).id(id);
        let repair = "nothing is done: what can't be read can't be checked";
        self.comparison.findings.found(problem.repair(repair));
        Ok(())
    }

    fn copied(&mut self, file: &HomeFile, attr: IdAttr) {
        self.references.copied.insert(attr.id);
        let what = "its id attribute was copied from another file, and is ignored";
        let problem = Problem::legal("id-copied", what).path(&file.path).id(attr.id);
        self.comparison.findings.found(problem);
    }

    /// Reports an attribute that can't be believed, once for each inode.
    fn doubted(&mut self, file: &HomeFile, problem: Problem, is_newer: bool) {
        if self.references.doubt(file.ino()).is_some() {
            return;
        }
        let problem = self.comparison.findings.found(problem.path(&file.path));
        let doubt = DoubtedAttr { ino: file.ino(), path: file.path.clone(), problem, is_newer };
        self.references.doubted.push(doubt);
    }

    /// Looks at a file with an id.
    fn with_id(&mut self, file: CheckedFile) -> Result<()> {
        self.comparison.totals.spread_files += 1;
        let Some(holder) = self.references.holder(file.id()) else { return self.first_with_id(file) };
        if holder.ino == file.home.ino() {
            // This is another name of the same file.
            return Ok(());
        }
        // Of two inodes with an id, the one that the index names owns it.
        let index = RawIndex::open(&*self.comparison.target.braid, file.id())?;
        let header = index.and_then(|index| index.header.ok());
        if header.is_some_and(|header| header.ino == file.home.ino()) {
            // The first one is contested, and reported after the walk.
            return self.first_with_id(file);
        }
        self.comparison.findings.found(id_shared(&file, &holder.path));
        Ok(())
    }

    fn first_with_id(&mut self, file: CheckedFile) -> Result<()> {
        self.references.insert(file.id(), &file.home);
        if self.comparison.check(&file)? == IndexInode::Other {
            self.contested.push(file);
        }
        Ok(())
    }
}
