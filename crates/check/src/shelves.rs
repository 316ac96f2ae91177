//! What is in the tiers' `.braid` directories: indexes and objects, and what
//! does not belong there or is in the wrong place.

use super::report::Problem;
use super::tree::{dir_if_there, look, move_between};
use super::{Check, When};
use braid_contract::{Errno, Error, Fd, FileKind, NativeStat, ObjectId, Result, Shown};
use braid_home::TEMPORARIES;
use braid_home::names_in;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

/// The files of one directory of shards.
#[derive(Default)]
pub(crate) struct Shelf {
    /// Regular files in their place.
    pub(super) ids: HashSet<ObjectId>,
    /// Names in their place that are something else.
    pub(super) odd: HashSet<ObjectId>,
}

/// Names in `.braid` of a home tier and of another one.
const HOME_NAMES: &[&str] = &[
    "label", "volume", "index", "open", "counts", "ballast", "intent", "limbo", "heat", "jobs", "import",
    "README",
];
const DATA_NAMES: &[&str] = &["label", "data", "README"];

/// Everybody but the owner, and of those everybody who could change something.
const OTHERS: u16 = 0o077;
pub(super) const OTHERS_WRITE: u16 = 0o022;

/// A directory of shards.
struct Place<'p> {
    /// The tier's `.braid`.
    braid: &'p Fd,
    /// `index` or `data`.
    name: &'static str,
    /// What is in it: `index` or `object`.
    thing: &'static str,
    tier: &'p str,
}

impl Check<'_> {
    /// Looks through all tiers' directories.
    pub(super) fn shelves(&mut self) -> Result<()> {
        if !self.options.paths.is_empty() {
            return Ok(());
        }
        self.progress.phase("objects", None)?;
        let (home, braid) = (self.target.home_name.clone(), Fd::clone(&self.target.braid));
        let owner = if self.target.user_xattr { braid.stat()?.attr.uid } else { 0 };
        self.guard(&braid, &braid.stat()?, OTHERS, owner, ".braid", &home);
        self.names(&braid, HOME_NAMES, owner, &home)?;
        self.jobs(&braid, owner, &home)?;
        self.indexes =
            self.shelf(&Place { braid: &braid, name: "index", thing: "index", tier: &home }, owner)?;
        for at in 0..self.target.tiers.len() {
            let tier = &self.target.tiers[at];
            let (name, root, store) = (tier.name.clone(), tier.root.clone(), tier.store.clone());
            let looked_at = match (root, store) {
                (_, None) => Ok(Shelf::default()),
                (Some(root), _) => self.data_tier(&root, owner, &name),
                (None, Some(store)) => {
                    let mut shelf = Shelf::default();
                    let listed = store.list(&mut |id| {
                        shelf.ids.insert(id);
                    });
                    listed.map(|()| shelf)
                }
            };
            self.objects[at] = looked_at.or_else(|error| self.not_listed(&name, error))?;
            self.report.objects += self.objects[at].ids.len() as u64;
        }
        Ok(())
    }

    /// What is on a tier in trouble is not known, and nobody's orphan.
    fn not_listed(&mut self, tier: &str, error: Error) -> Result<Shelf> {
        if error.errno() == Errno::EINTR {
            return Err(error);
        }
        let problem = Problem::damage("tier-unreadable", format!("what is on it can't be listed: {error}"));
        self.found(problem.tier(tier).repair("nothing is done: check again when the tier can be read"));
        Ok(Shelf::default())
    }

    fn data_tier(&mut self, root: &Fd, owner: u32, tier: &str) -> Result<Shelf> {
        let Some(braid) = dir_if_there(&**root, ".braid")? else { return Ok(Shelf::default()) };
        self.guard(&braid, &braid.stat()?, OTHERS, owner, ".braid", tier);
        self.names(&braid, DATA_NAMES, owner, tier)?;
        self.shelf(&Place { braid: &braid, name: "data", thing: "object", tier }, owner)
    }

    /// The names in `.braid` itself.
    fn names(&mut self, braid: &Fd, known: &[&str], owner: u32, tier: &str) -> Result<()> {
        for name in names_in(&*dot(braid)?)? {
            let Some((fd, stat)) = look(&**braid, &name)? else { continue };
            let shown = format!(".braid/{}", name.shown());
            if known.iter().any(|known| name == *known) {
                self.guard(&fd, &stat, OTHERS_WRITE, owner, &shown, tier);
            } else if is_temporary(&name) {
                self.temporary(braid, &name, &shown, tier);
            } else {
                self.foreign(&shown, tier);
            }
        }
        Ok(())
    }

    /// A file that was to replace another one when a crash came.
    pub(super) fn temporary(&mut self, braid: &Fd, name: &OsStr, shown: &str, tier: &str) {
        // Beside users, it may be on the way to its place.
        if self.is_mounted() {
            return;
        }
        let problem = Problem::note("temporary", format!("{shown} was left by a crash"))
            .tier(tier)
            .repair("removes it");
        self.mend(problem, When::Unmounted, |_| braid.remove_at(name, false));
    }

    pub(super) fn foreign(&mut self, shown: &str, tier: &str) {
        let what = format!("{shown} is not Braid's");
        self.found(
            Problem::note("foreign-file", what).tier(tier).repair("nothing is done: remove it by hand"),
        );
    }

    /// Reports what others than the owner may get at.
    pub(crate) fn guard(
        &mut self,
        fd: &Fd,
        stat: &NativeStat,
        mask: u16,
        owner: u32,
        shown: &str,
        tier: &str,
    ) {
        let attr = &stat.attr;
        if !matches!(attr.kind, FileKind::Regular | FileKind::Directory) {
            return;
        }
        if attr.uid != owner {
            let what = format!("{shown} belongs to user {} and not to {owner}", attr.uid);
            let problem = Problem::damage("owner", what).tier(tier).repair("gives it to the right user");
            self.mend(problem, When::Now, |_| fd.set_owner(Some(owner), None));
        }
        if attr.mode & mask != 0 {
            let what = format!("{shown} has mode {:04o}: others than its owner get at it", attr.mode);
            let problem = Problem::damage("mode", what).tier(tier).repair("takes that permission away");
            self.mend(problem, When::Now, |_| fd.set_mode(u32::from(attr.mode & !mask)));
        }
    }

    fn shelf(&mut self, place: &Place<'_>, owner: u32) -> Result<Shelf> {
        let mut shelf = Shelf::default();
        let Some(dir) = dir_if_there(&**place.braid, place.name)? else {
            let what = format!(".braid/{} is missing", place.name);
            let problem = Problem::damage("directory-missing", what).tier(place.tier).repair("makes it");
            self.mend(problem, When::Unmounted, |_| place.braid.ensure_dir_at(place.name));
            return Ok(shelf);
        };
        let mut misplaced = Vec::new();
        for name in names_in(&*dir)? {
            let shown = format!(".braid/{}/{}", place.name, name.shown());
            let Some((fd, stat)) = look(&*dir, &name)? else { continue };
            match name
                .to_str()
                .filter(|_| stat.attr.kind == FileKind::Directory)
                .filter(|name| is_shard(name))
            {
                Some(shard) => {
                    self.guard(&fd, &stat, OTHERS_WRITE, owner, &shown, place.tier);
                    self.shard(&dir, shard, place, owner, &mut shelf, &mut misplaced)?;
                }
                None => self.foreign(&shown, place.tier),
            }
        }
        for (shard, id) in misplaced {
            self.misplaced(&dir, &shard, id, place, &mut shelf);
        }
        Ok(shelf)
    }

    fn shard(
        &mut self,
        dir: &Fd,
        shard: &str,
        place: &Place<'_>,
        owner: u32,
        shelf: &mut Shelf,
        misplaced: &mut Vec<(String, ObjectId)>,
    ) -> Result<()> {
        let Some(opened) = dir_if_there(&**dir, shard)? else { return Ok(()) };
        for name in names_in(&*opened)? {
            let shown = format!(".braid/{}/{shard}/{}", place.name, name.shown());
            let Some((fd, stat)) = look(&*opened, &name)? else { continue };
            self.progress.step()?;
            let Some(id) = name.to_str().and_then(|name| name.parse::<ObjectId>().ok()) else {
                self.foreign(&shown, place.tier);
                continue;
            };
            self.guard(&fd, &stat, OTHERS_WRITE, owner, &shown, place.tier);
            match (stat.attr.kind, id.shard() == shard) {
                (FileKind::Regular, true) => {
                    shelf.ids.insert(id);
                }
                (FileKind::Regular, false) => misplaced.push((shard.to_owned(), id)),
                _ => self.not_a_file(&shown, id, place, shelf),
            }
        }
        Ok(())
    }

    fn not_a_file(&mut self, shown: &str, id: ObjectId, place: &Place<'_>, shelf: &mut Shelf) {
        shelf.odd.insert(id);
        // Nothing of what it stands for may be taken for nobody's.
        self.spared.insert(id);
        let code = if place.thing == "index" { "index-not-a-file" } else { "object-not-a-file" };
        let problem = Problem::damage(code, format!("{shown} is not a regular file")).id(id).tier(place.tier);
        self.found(problem.repair("nothing is done: put the file there by hand, if it can be found"));
    }

    fn misplaced(&mut self, dir: &Fd, shard: &str, id: ObjectId, place: &Place<'_>, shelf: &mut Shelf) {
        let code = if place.thing == "index" { "index-misplaced" } else { "object-misplaced" };
        let what =
            format!("the {} is in .braid/{}/{shard}, where nobody looks for it", place.thing, place.name);
        let problem = Problem::damage(code, what).id(id).tier(place.tier);
        if shelf.ids.contains(&id) || shelf.odd.contains(&id) {
            self.found(problem.repair("nothing is done: there is one in the right place too"));
            return;
        }
        let problem = problem.repair("moves it to where it belongs");
        let at = self.mend(problem, When::Now, |_| {
            move_between(&**dir, shard, &id.shard(), OsStr::new(&id.to_string()))
        });
        if self.findings.is_repaired(at) {
            shelf.ids.insert(id);
        }
    }
}

/// A descriptor of its own to read the directory by.
fn dot(dir: &Fd) -> Result<Fd> {
    dir.open_at(OsStr::new("."), braid_contract::Access::Directory)
}

fn is_shard(name: &str) -> bool {
    name.len() == 2 && name.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_temporary(name: &OsString) -> bool {
    TEMPORARIES.iter().any(|temporary| name == temporary)
}
