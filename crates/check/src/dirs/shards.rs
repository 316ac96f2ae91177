//! A directory of shards, with the indexes or objects in it.

use super::{BraidDir, foreign_file};
use crate::findings::{Findings, When};
use crate::progress::ProgressReporter;
use crate::report::Problem;
use crate::tree::{dir_if_there, look, move_between};
use braid_contract::{Fd, FileKind, ObjectId, Result, Shown};
use braid_home::names_in;
use std::collections::HashSet;
use std::ffi::OsStr;

/// The indexes, or the objects of a tier.
#[derive(Default)]
pub(crate) struct Listing {
    /// Ids of regular files in their place.
    pub(crate) ids: HashSet<ObjectId>,
    /// Ids whose place holds something else.
    pub(crate) irregular: HashSet<ObjectId>,
}

/// The files in a directory of shards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShardedKind {
    Index,
    Object,
}

impl ShardedKind {
    /// The name of the directory in `.braid`.
    fn dir(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Object => "data",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Object => "object",
        }
    }

    fn code_irregular(self) -> &'static str {
        match self {
            Self::Index => "index-not-a-file",
            Self::Object => "object-not-a-file",
        }
    }

    fn code_misplaced(self) -> &'static str {
        match self {
            Self::Index => "index-misplaced",
            Self::Object => "object-misplaced",
        }
    }
}

/// The listing of a directory of shards, under way.
pub(crate) struct ShardLister<'c, 'p> {
    pub(crate) braid: &'c BraidDir<'c>,
    pub(crate) kind: ShardedKind,
    pub(crate) findings: &'c mut Findings,
    pub(crate) progress: &'c mut ProgressReporter<'p>,
    /// Irregular ids of all directories, also of those that can't be read to
    /// the end.
    pub(crate) irregular: &'c mut HashSet<ObjectId>,
}

impl ShardLister<'_, '_> {
    /// Lists all shards, and moves misplaced files to the right ones.
    pub(crate) fn list(mut self) -> Result<Listing> {
        let mut listing = Listing::default();
        let name = self.kind.dir();
        let Some(dir) = dir_if_there(&**self.braid.fd, name)? else {
            let problem = Problem::damage("directory-missing", format!(".braid/{name} is missing"));
            let problem = problem.tier(self.braid.tier).repair("makes it");
            self.findings.mend(problem, When::Unmounted, || self.braid.fd.ensure_dir_at(name));
            return Ok(listing);
        };
        let mut misplaced = Vec::new();
        for entry in names_in(&*dir)? {
            let shown = format!(".braid/{name}/{}", entry.shown());
            let Some((fd, stat)) = look(&*dir, &entry)? else { continue };
            let is_dir = stat.attr.kind == FileKind::Directory;
            match entry.to_str().filter(|entry| is_dir && is_shard(entry)) {
                Some(shard) => {
                    self.braid.guard(&fd, &stat, &shown, self.findings);
                    self.shard(&dir, shard, &mut listing, &mut misplaced)?;
                }
                None => _ = self.findings.found(foreign_file(&shown, self.braid.tier)),
            }
        }
        for (shard, id) in misplaced {
            self.misplaced(&dir, &shard, id, &mut listing);
        }
        Ok(listing)
    }

    fn shard(
        &mut self,
        dir: &Fd,
        shard: &str,
        listing: &mut Listing,
        misplaced: &mut Vec<(String, ObjectId)>,
    ) -> Result<()> {
        let Some(opened) = dir_if_there(&**dir, shard)? else { return Ok(()) };
        for name in names_in(&*opened)? {
            let shown = format!(".braid/{}/{shard}/{}", self.kind.dir(), name.shown());
            let Some((fd, stat)) = look(&*opened, &name)? else { continue };
            self.progress.step()?;
            let Some(id) = name.to_str().and_then(|name| name.parse::<ObjectId>().ok()) else {
                self.findings.found(foreign_file(&shown, self.braid.tier));
                continue;
            };
            self.braid.guard(&fd, &stat, &shown, self.findings);
            match (stat.attr.kind, id.shard() == shard) {
                (FileKind::Regular, true) => _ = listing.ids.insert(id),
                (FileKind::Regular, false) => misplaced.push((shard.to_owned(), id)),
                _ => self.irregular(&shown, id, listing),
            }
        }
        Ok(())
    }

    fn irregular(&mut self, shown: &str, id: ObjectId, listing: &mut Listing) {
        listing.irregular.insert(id);
        self.irregular.insert(id);
        let what = format!("{shown} is not a regular file");
        let problem = Problem::damage(self.kind.code_irregular(), what).id(id).tier(self.braid.tier);
        let repair = "nothing is done: put the file there by hand, if it can be found";
        self.findings.found(problem.repair(repair));
    }

    fn misplaced(&mut self, dir: &Fd, shard: &str, id: ObjectId, listing: &mut Listing) {
        let (noun, name) = (self.kind.noun(), self.kind.dir());
        let what = format!("the {noun} is in .braid/{name}/{shard}, where nothing looks for it");
        let problem = Problem::damage(self.kind.code_misplaced(), what).id(id).tier(self.braid.tier);
        if listing.ids.contains(&id) || listing.irregular.contains(&id) {
            self.findings.found(problem.repair("nothing is done: there is one in the right place too"));
            return;
        }
        let at = self.findings.mend(problem.repair("moves it to where it belongs"), When::Now, || {
            move_between(&**dir, shard, &id.shard(), OsStr::new(&id.to_string()))
        });
        if self.findings.is_repaired(at) {
            listing.ids.insert(id);
        }
    }
}

fn is_shard(name: &str) -> bool {
    name.len() == 2 && name.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
