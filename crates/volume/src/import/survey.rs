//! The survey of an import, which changes nothing.

use super::types::ImportSurvey;
use super::walk::{Visitor, WalkEntry, walk};
use braid_contract::{Error, Fd, FileKind, Result};
use braid_core::Core;
use std::path::Path;

/// Conflicts that are listed by name.
const NAMED_MAX: usize = 1000;

/// Counts, without changing anything.
struct ImportSurveyor(ImportSurvey);

impl ImportSurveyor {
    fn conflict(&mut self, path: &Path) {
        self.0.conflicts += 1;
        if self.0.named.len() < NAMED_MAX {
            self.0.named.push(path.to_owned());
        }
    }
}

impl Visitor for ImportSurveyor {
    fn leaf(&mut self, met: &WalkEntry<'_>) -> Result<()> {
        match (met.at_home, met.attr.kind) {
            (Some(_), _) => self.conflict(met.path),
            (None, FileKind::Regular) => {
                self.0.files += 1;
                self.0.bytes += met.attr.size;
            }
            (None, _) => self.0.others += 1,
        }
        Ok(())
    }

    fn enter(&mut self, met: &WalkEntry<'_>) -> Result<bool> {
        let merges = met.at_home.is_none_or(|kind| kind == FileKind::Directory);
        if merges {
            self.0.dirs += 1;
        } else {
            self.conflict(met.path);
        }
        Ok(merges)
    }

    fn leave(&mut self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn failed(&mut self, path: &Path, error: &Error) -> Result<()> {
        self.0.failed.push((path.to_owned(), error.to_string()));
        Ok(())
    }
}

pub(super) fn survey(core: &Core, root: &Fd) -> Result<ImportSurvey> {
    let mut surveyor = ImportSurveyor(ImportSurvey::default());
    walk(core, root, &mut surveyor)?;
    Ok(surveyor.0)
}
