//! The check of a volume that is not mounted: every file against its index,
//! every index against the objects, and everything that nobody refers to.

use crate::config::VolumeConfig;
use crate::format::IdKind;
use crate::index::Index;
use crate::namespace::Identity;
use crate::open::OpenError;
use crate::tiers::Backend;
use crate::{Volume, tiers};
use braid_contract::{Errno, Fd, ObjectId, Result};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Regular files in the namespace.
    pub files: u64,
    /// Those that are spread.
    pub spread_files: u64,
    /// Ranges that they have.
    pub ranges: u64,
    /// Objects on all tiers.
    pub objects: u64,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// Something that is wrong.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The file concerned, below the volume's root, if one is.
    pub path: Option<PathBuf>,
    /// The object id concerned.
    pub id: Option<ObjectId>,
    /// What is wrong with it.
    pub what: String,
    /// Whether it was put right.
    pub repaired: bool,
}

/// Checks a volume that is not mounted. With `repair`, what can be put right
/// without losing data is; without, nothing is changed. `progress` is told
/// what is being done.
///
/// # Errors
/// An [`OpenError`] if the volume can't be opened at all.
pub fn check(
    config: VolumeConfig,
    repair: bool,
    progress: &mut dyn FnMut(&str),
) -> std::result::Result<CheckReport, OpenError> {
    let volume = Volume::open_for_check(config)?;
    let mut check = Check {
        volume: &volume,
        repair,
        report: CheckReport::default(),
        spared: HashSet::new(),
        unreadable: HashSet::new(),
        live: HashMap::new(),
    };
    progress("checking files");
    check.files()?;
    progress("checking indexes");
    check.indexes()?;
    progress("checking objects");
    check.objects()?;
    progress("checking marks");
    check.marks()?;
    Ok(check.report)
}

struct Check<'a> {
    volume: &'a Volume,
    repair: bool,
    report: CheckReport,
    /// Ids whose data is not to be removed although no file leads to it.
    spared: HashSet<ObjectId>,
    /// Inodes whose id attribute can't be read.
    unreadable: HashSet<u64>,
    /// Files that the namespace leads to, by id, with one of their paths.
    live: HashMap<ObjectId, (PathBuf, u64)>,
}

impl Check<'_> {
    fn files(&mut self) -> Result<()> {
        let volume = self.volume;
        volume.home.walk(&mut |path, fd, identity| {
            self.report.files += 1;
            self.file(path, fd, identity)
        })
    }

    fn file(&mut self, path: &Path, fd: &Fd, identity: &Identity) -> Result<()> {
        let attr = match self.volume.home.id_attr(&**fd, identity) {
            Ok(None) => {
                // Data that a copied attribute names may be all that is left
                // of its file: it is never taken for nobody's.
                let copied = self.volume.home.any_id_attr(&**fd, identity)?;
                self.spared.extend(copied.map(|attr| attr.id));
                return Ok(());
            }
            Ok(Some(attr)) => attr,
            Err(error) => {
                self.unreadable.insert(identity.ino());
                self.found(Some(path), None, format!("its id attribute can't be believed: {error}"));
                return Ok(());
            }
        };
        self.report.spread_files += 1;
        if let Some((other, ino)) = self.live.get(&attr.id) {
            if *ino != identity.ino() {
                let what = format!("it has the same id as {}", other.display());
                self.found(Some(path), Some(attr.id), what);
            }
            return Ok(());
        }
        self.live.insert(attr.id, (path.to_owned(), identity.ino()));
        if attr.kind == IdKind::Emptied {
            self.found(
                Some(path),
                Some(attr.id),
                "truncating it to nothing was not finished; mounting finishes it".into(),
            );
            return Ok(());
        }
        match self.volume.index.open_index(attr.id) {
            Ok(index) => self.index_of(path, identity, &index),
            Err(error) => {
                self.found(Some(path), Some(attr.id), format!("its index can't be used: {error}"));
                Ok(())
            }
        }
    }

    fn index_of(&mut self, path: &Path, identity: &Identity, index: &Index) -> Result<()> {
        let (id, header) = (index.id(), index.header());
        if header.volume != self.volume.id || header.range_size != self.volume.range_size {
            self.found(Some(path), Some(id), "its index is of another volume".into());
        }
        if header.ino != identity.ino() {
            self.found(Some(path), Some(id), format!("its index belongs to inode {}", header.ino));
        }
        let size = match index.size() {
            Ok(size) => size,
            Err(error) => {
                self.found(Some(path), Some(id), error.to_string());
                return Ok(());
            }
        };
        let marked = self.volume.index.marked()?.contains(&id);
        if !marked && identity.size() != size {
            let what = format!("its size is {size} by its index and {} by its home inode", identity.size());
            self.found(Some(path), Some(id), what);
        }
        let count = size.div_ceil(u64::from(self.volume.range_size));
        let mut held = 0;
        let mut problems = Vec::new();
        let mut beyond = 0;
        let mut ranges = 0;
        index.for_each(0, |range, entry| {
            ranges += 1;
            match entry {
                Ok(_) if range >= count => beyond += 1,
                Ok(entry) if self.volume.tiers.get(entry.tier).is_err() => {
                    problems.push(format!(
                        "range {range} is on tier number {}, which the volume does not have",
                        entry.tier
                    ));
                }
                Ok(entry) => held |= tiers::bit(entry.tier),
                Err(error) => problems.push(format!("range {range}: {error}")),
            }
            Ok(())
        })?;
        self.report.ranges += ranges;
        for what in problems {
            self.found(Some(path), Some(id), what);
        }
        if beyond > 0 && !marked {
            self.entries_beyond(path, index, count, beyond)?;
        }
        self.objects_of(path, id, held, size)
    }

    fn entries_beyond(&mut self, path: &Path, index: &Index, count: u64, beyond: u64) -> Result<()> {
        self.found(Some(path), Some(index.id()), format!("{beyond} index entries lie beyond its size"));
        if self.repair {
            index.clear_from(count)?;
            index.sync()?;
            self.repaired();
        }
        Ok(())
    }

    /// Each tier that holds ranges of the file must have its object.
    fn objects_of(&mut self, path: &Path, id: ObjectId, held: u64, size: u64) -> Result<()> {
        let volume = self.volume;
        for tier in volume.tiers.iter().filter(|tier| held & tiers::bit(tier.id) != 0) {
            let Backend::Store(store) = &tier.backend else { continue };
            match store.stat(id) {
                Ok(stat) if stat.size > size && !volume.index.marked()?.contains(&id) => {
                    self.found(
                        Some(path),
                        Some(id),
                        format!("its object on tier {} is longer than the file", tier.name),
                    );
                }
                Ok(_) => {}
                Err(error) if error.errno() == Errno::ENOENT => {
                    self.found(Some(path), Some(id), format!("its object on tier {} is missing", tier.name));
                }
                Err(error) => return Err(error.context(format!("tier {}", tier.name))),
            }
        }
        Ok(())
    }

    fn indexes(&mut self) -> Result<()> {
        let mut orphans = Vec::new();
        self.volume.index.list(&mut |id| {
            if !self.live.contains_key(&id) {
                orphans.push(id);
            }
            Ok(())
        })?;
        let marked = self.volume.index.marked()?;
        // What is marked, the next mount removes.
        for id in orphans.into_iter().filter(|id| !marked.contains(id)) {
            self.spare_if_in_doubt(id);
            self.found(None, Some(id), "an index that no file leads to".into());
            if self.repair && !self.spared.contains(&id) {
                self.volume.remove_data(&[id])?;
                self.volume.index.unmark_gone(id)?;
                self.repaired();
            }
        }
        Ok(())
    }

    /// An index whose header can't be read, or that belongs to an inode whose
    /// attribute can't, may be that of a file that can still be saved.
    fn spare_if_in_doubt(&mut self, id: ObjectId) {
        let doubtful = match self.volume.index.open_index(id) {
            Ok(index) => self.unreadable.contains(&index.header().ino),
            Err(_) => true,
        };
        if doubtful {
            self.spared.insert(id);
        }
    }

    fn objects(&mut self) -> Result<()> {
        let volume = self.volume;
        let marked = volume.index.marked()?;
        for (tier, store) in volume.tiers.stores() {
            let mut orphans = Vec::new();
            store.list(&mut |id| {
                self.report.objects += 1;
                if !self.live.contains_key(&id) && !marked.contains(&id) {
                    orphans.push(id);
                }
            })?;
            for id in orphans {
                self.found(None, Some(id), format!("an object on tier {} that no file leads to", tier.name));
                if self.repair && !self.spared.contains(&id) {
                    store.remove(&[id])?;
                    self.repaired();
                }
            }
        }
        Ok(())
    }

    /// A mark that leads to nothing is harmless, and taken away by a mount.
    fn marks(&mut self) -> Result<()> {
        if self.repair {
            self.volume.recover()?;
        }
        Ok(())
    }

    fn found(&mut self, path: Option<&Path>, id: Option<ObjectId>, what: String) {
        self.report.problems.push(Problem { path: path.map(Path::to_owned), id, what, repaired: false });
    }

    /// The problem that was found last is put right.
    fn repaired(&mut self) {
        if let Some(problem) = self.report.problems.last_mut() {
            problem.repaired = true;
        }
    }
}
