//! Indexes and objects that no file leads to: those of files whose attribute
//! was lost, and those of nobody.

use super::file::{Subject, is_of};
use super::files::AttrFound;
use super::findings::ProblemRef;
use super::inference::begins_in;
use super::raw_index::{RawIndex, index_path};
use super::report::Problem;
use super::tree::is_missing;
use super::{Check, When};
use braid_contract::{Access, Fd, ObjectId, Result, Shown, XattrMode};
use braid_format::{Header, IdAttr, IdKind};
use braid_home::{Home, Identity, Seen};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::PathBuf;

/// A file that an orphan index names by its inode number.
struct Candidate {
    path: PathBuf,
    fd: Fd,
    identity: Identity,
}

impl Check<'_> {
    /// Judges the indexes that no file led to.
    pub(super) fn orphan_indexes(&mut self) -> Result<()> {
        let mut orphans: HashSet<ObjectId> =
            self.listings.indexes.ids.iter().filter(|id| !self.live.contains_key(id)).copied().collect();
        self.progress.phase("indexes", Some(orphans.len() as u64))?;
        if self.is_mounted() {
            self.look_again(&mut orphans)?;
        }
        let mut sound = Vec::new();
        for id in orphans {
            self.progress.step()?;
            sound.extend(self.orphan_header(id));
        }
        let wanted: HashSet<u64> = sound.iter().map(|header| header.ino).collect();
        let candidates = self.inodes(&wanted)?;
        for header in sound {
            match candidates.get(&header.ino).filter(|file| is_of(&header, &file.identity)) {
                Some(candidate) => self.lost_attr(&header, candidate)?,
                None => self.orphan_index(&header),
            }
        }
        Ok(())
    }

    /// Counts the ranges of an index that no file leads to, and answers its
    /// header, if that says whose it was, and it is not recovery's to judge.
    fn orphan_header(&mut self, id: ObjectId) -> Option<Header> {
        let opened = RawIndex::open(&*self.target.braid, id);
        let counted = opened.and_then(|index| match index {
            Some(index) => self.count_ranges(&index).map(|()| Some(index.header)),
            None => Ok(None),
        });
        let why = match counted {
            Ok(None) => return None,
            Ok(Some(_)) if self.marked.contains(&id) && !self.is_mounted() => return None,
            Ok(Some(Ok(header))) if header.id == id && header.volume == self.target.volume => {
                return Some(header);
            }
            Ok(Some(Ok(_))) => "its header is that of another index".to_owned(),
            Ok(Some(Err(error))) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.orphan_in_doubt(id, &why);
        None
    }

    fn orphan_in_doubt(&mut self, id: ObjectId, why: &str) {
        self.spared.insert(id);
        let what = format!("an index that no file leads to, and that does not tell whose it was: {why}");
        let home = self.target.home_name.clone();
        let repair = "nothing is done: it may be all that is left of a file";
        self.found(Problem::leak("index-orphan-damaged", what).id(id).tier(&home).repair(repair));
    }

    /// An index of an inode that is gone, or was used for something else.
    fn orphan_index(&mut self, header: &Header) {
        let id = header.id;
        let home = self.target.home_name.clone();
        let what = "an index that no file leads to; the file that it names is gone";
        let problem = Problem::leak("index-orphan", what).id(id).tier(&home);
        if self.incomplete || self.spared.contains(&id) {
            self.spared.insert(id);
            let repair =
                "nothing is done: a file that could not be looked at, or one that was copied, may need it";
            self.found(problem.repair(repair));
            return;
        }
        let when = if self.is_surely_gone(header) { When::Now } else { When::Unmounted };
        let at = self.mend(problem.repair("removes it, and its objects"), when, |check| {
            check.remove_objects(id)?;
            check.target.change_entries(|| {
                match check.target.braid.remove_at(OsStr::new(&index_path(id)), false) {
                    Err(error) if !is_missing(&error) => Err(error),
                    _ => Ok(()),
                }
            })
        });
        if !self.findings.is_repaired(at) {
            self.spared.insert(id);
        }
    }

    /// Beside users, a file may be renamed from where nobody has looked yet to
    /// where everybody has: only its handle tells for sure.
    fn is_surely_gone(&self, header: &Header) -> bool {
        let Some(handle) = &header.handle else { return false };
        match self.target.home.open_handle(handle) {
            Ok(Some(fd)) => match self.target.home.identify(&*fd) {
                Ok(identity) => {
                    matches!(self.attr_of(&*fd, &identity), AttrFound::Own(attr) if attr.id != header.id)
                }
                Err(_) => false,
            },
            Ok(None) => false,
            Err(error) => is_missing(&error),
        }
    }

    fn remove_objects(&self, id: ObjectId) -> Result<()> {
        for tier in &self.target.tiers {
            if let Some(store) = &tier.store {
                store.remove(&[id])?;
            }
        }
        Ok(())
    }

    /// The files with these inode numbers.
    fn inodes(&mut self, wanted: &HashSet<u64>) -> Result<HashMap<u64, Candidate>> {
        let mut found = HashMap::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        self.progress.phase("orphans", None)?;
        let home = Home::open(self.target.home.root())?;
        home.walk_below(&[], &mut |seen| {
            if let Seen::File(path, fd, identity) = seen {
                self.progress.step()?;
                if wanted.contains(&identity.ino()) {
                    let (path, identity) = (path.to_owned(), identity.clone());
                    let candidate = Candidate { path, fd: Fd::clone(fd), identity };
                    found.insert(candidate.identity.ino(), candidate);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// An index names a file that does not carry its id: the attribute was
    /// damaged or lost, unless the file was emptied and written again.
    fn lost_attr(&mut self, header: &Header, file: &Candidate) -> Result<()> {
        let id = header.id;
        self.spared.insert(id);
        let found = self.attr_of(&*file.fd, &file.identity);
        let (problem, sure) = match &found {
            AttrFound::Damaged(_) | AttrFound::Foreign(_) => {
                let doubt = self.doubts.iter().find(|doubt| doubt.ino == file.identity.ino());
                let Some(at) = doubt.filter(|doubt| !doubt.newer).map(|doubt| doubt.problem) else {
                    return Ok(());
                };
                (Some(at), true)
            }
            AttrFound::Failed(_) => return Ok(()),
            AttrFound::Copied(attr) if attr.id == id => (None, true),
            AttrFound::Own(_) => (None, self.shows_data_of_another(&found, file)?),
            AttrFound::None | AttrFound::Copied(_) => (None, self.looks_spread(header, file)?),
        };
        if !sure {
            let what =
                "an index names this file, which does not carry its id, and seems to have been written since";
            let problem = Problem::leak("index-unused", what).path(&file.path).id(id);
            let repair =
                "nothing is done: the index and its objects may be all that is left of what was in it";
            self.found(problem.repair(repair));
            return Ok(());
        }
        self.restore_attr(header, file, problem)
    }

    fn restore_attr(&mut self, header: &Header, file: &Candidate, told: Option<ProblemRef>) -> Result<()> {
        let (id, ino, btime_ns) = (header.id, file.identity.ino(), file.identity.btime_ns());
        let attr = IdAttr { kind: IdKind::Spread, id, ino, btime_ns };
        let set = || {
            let fd = file.fd.reopen(Access::Read)?;
            let name = OsStr::new(self.target.attr_name());
            file.fd.set_xattr(name, &attr.encode(self.target.home.seal()), XattrMode::Set)?;
            fd.sync(false)
        };
        let what =
            "it does not carry its id, although an index names it: it shows what is in its home file only";
        let problem = Problem::damage("id-lost", what).path(&file.path).id(id);
        let new =
            self.findings.attempt(problem.repair("gives it the id of that index"), When::Unmounted, set);
        let at = match told {
            // The damaged attribute was reported already.
            Some(at) => {
                let old = self.findings.get_mut(at);
                (old.id, old.repair, old.repaired) = (new.id, new.repair, new.repaired);
                at
            }
            None => self.found(new),
        };
        if self.findings.is_repaired(at) {
            self.findings.settle("id-shared", &file.path);
            let subject = Subject::new(&file.path, &file.fd, &file.identity, attr);
            self.uncount(id)?;
            self.spread_file(subject, &mut Vec::new())?;
        }
        Ok(())
    }

    /// Takes an orphan's ranges out of the counts, since they are counted
    /// again.
    fn uncount(&mut self, id: ObjectId) -> Result<()> {
        let Some(index) = RawIndex::open(&*self.target.braid, id)? else { return Ok(()) };
        for (tier, ranges) in self.placed_by(&index)? {
            if let Some(count) = self.counted.get_mut(usize::from(tier.0)) {
                *count -= ranges;
            }
        }
        Ok(())
    }

    /// Whether the id that a file carries is that of another one, which the
    /// index with that id names.
    fn shows_data_of_another(&self, found: &AttrFound, file: &Candidate) -> Result<bool> {
        let AttrFound::Own(attr) = found else { return Ok(false) };
        let Some(index) = RawIndex::open(&*self.target.braid, attr.id)? else { return Ok(false) };
        Ok(index.header.is_ok_and(|header| header.id == attr.id && !is_of(&header, &file.identity)))
    }

    /// Whether a plain file looks like one that is spread: as long as its index
    /// says, and with holes where that says that the data is elsewhere. A file
    /// that was emptied and written again does not.
    fn looks_spread(&self, header: &Header, file: &Candidate) -> Result<bool> {
        let Some(index) = RawIndex::open(&*self.target.braid, header.id)? else { return Ok(false) };
        let Ok(size) = index.size()? else { return Ok(false) };
        if size != file.identity.size() || size == 0 {
            return Ok(false);
        }
        let home = file.fd.reopen(Access::Read)?;
        let (mut elsewhere, mut with_data) = (0, 0);
        index.for_each(|raw| {
            let bytes = header.range_size.bytes_of(raw.range..raw.range + 1, size);
            let Ok(entry) = raw.entry else { return Ok(()) };
            if !bytes.is_empty() && entry.tier != self.target.home_id {
                elsewhere += 1;
                with_data += u64::from(begins_in(home.next_data(bytes.start)?, &bytes));
            }
            Ok(())
        })?;
        Ok(elsewhere > 0 && with_data == 0)
    }

    /// Judges the objects that neither a file nor an index leads to.
    pub(super) fn orphan_objects(&mut self) -> Result<()> {
        let all: u64 = self.listings.objects.iter().map(|shelf| shelf.ids.len() as u64).sum();
        self.progress.phase("orphans", Some(all))?;
        for at in 0..self.listings.objects.len() {
            let mut orphans = HashSet::new();
            for id in &self.listings.objects[at].ids {
                self.progress.step()?;
                // A removal that is under way keeps the index until the objects are
                // gone; so one without is not recovery's to judge.
                let in_use = self.is_mounted() && self.marked.contains(id);
                if !self.live.contains_key(id) && !in_use && !self.listings.indexes.ids.contains(id) {
                    orphans.insert(*id);
                }
            }
            if self.is_mounted() && !orphans.is_empty() {
                self.look_again(&mut orphans)?;
            }
            for id in orphans {
                self.orphan_object(at, id);
            }
        }
        Ok(())
    }

    fn orphan_object(&mut self, at: usize, id: ObjectId) {
        let tier = &self.target.tiers[at];
        let (name, Some(store)) = (tier.name.clone(), tier.store.clone()) else { return };
        let what = "an object that no file leads to";
        let problem = Problem::leak("object-orphan", what).id(id).tier(&name);
        let unresolved = self.doubts.iter().find(|doubt| !self.findings.is_repaired(doubt.problem));
        let kept = match unresolved {
            Some(doubt) => Some(format!("it may belong to {}", doubt.path.shown())),
            None if self.incomplete => Some("a file that could not be looked at may need it".to_owned()),
            None if self.spared.contains(&id) => Some("an attribute or an index still names it".to_owned()),
            None => None,
        };
        match kept {
            Some(why) => self.found(problem.repair(format!("nothing is done: {why}"))),
            None => self.mend(problem.repair("removes it"), When::Unmounted, |_| store.remove(&[id])),
        };
    }

    /// Takes out what is somebody's after all: beside users, files are made,
    /// renamed and removed meanwhile.
    fn look_again(&mut self, orphans: &mut HashSet<ObjectId>) -> Result<()> {
        let home = Home::open(self.target.home.root())?;
        if !orphans.is_empty() {
            home.walk_below(&[], &mut |seen| {
                if let Seen::File(_, fd, identity) = seen {
                    self.progress.step()?;
                    if let AttrFound::Own(attr) | AttrFound::Copied(attr) = self.attr_of(&**fd, identity) {
                        orphans.remove(&attr.id);
                    }
                }
                Ok(())
            })?;
        }
        let Some(core) = self.target.mounted else { return Ok(()) };
        let marked: HashSet<ObjectId> = core.index.marked()?.into_iter().map(|mark| mark.id).collect();
        let open = self.open_ids();
        orphans.retain(|id| !marked.contains(id) && !self.marked.contains(id) && !open.contains(id));
        let still_there = |id: &ObjectId| {
            let path = index_path(*id);
            let index = self.target.braid.open_at(OsStr::new(&path), Access::Path).is_ok();
            let stores = self.target.tiers.iter().filter_map(|tier| tier.store.as_ref());
            index || stores.into_iter().any(|store| store.stat(*id).is_ok())
        };
        orphans.retain(still_there);
        Ok(())
    }
}
