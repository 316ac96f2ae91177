//! The references from the namespace to indexes and objects.

pub(crate) mod beside_users;
mod contested;
pub(crate) mod files;

use crate::file::HomeFile;
use crate::findings::ProblemRef;
use braid_contract::ObjectId;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// A file whose id attribute can't be believed.
pub(crate) struct DoubtedAttr {
    pub(crate) ino: u64,
    pub(crate) path: PathBuf,
    pub(crate) problem: ProblemRef,
    /// A later version of Braid may have written it.
    pub(crate) is_newer: bool,
}

/// The file that has an id.
struct IdHolder {
    /// One of its paths.
    path: PathBuf,
    ino: u64,
}

/// The references from the namespace to indexes and objects.
#[derive(Default)]
pub(crate) struct References {
    /// Regular files that were looked at, by name.
    pub(crate) files: u64,
    holders: HashMap<ObjectId, IdHolder>,
    pub(crate) doubted: Vec<DoubtedAttr>,
    /// Ids in attributes that were copied from another file: data that they name
    /// may be the last of that file.
    pub(crate) copied: HashSet<ObjectId>,
    /// Part of the namespace could not be looked at.
    pub(crate) is_incomplete: bool,
}

impl References {
    /// Whether a file has this id.
    pub(crate) fn contains(&self, id: ObjectId) -> bool {
        self.holders.contains_key(&id)
    }

    pub(crate) fn insert(&mut self, id: ObjectId, file: &HomeFile) {
        self.holders.insert(id, IdHolder { path: file.path.clone(), ino: file.ino() });
    }

    fn holder(&self, id: ObjectId) -> Option<&IdHolder> {
        self.holders.get(&id)
    }

    /// The path of the file with this id, if it has this inode number.
    fn holder_by_ino(&self, id: ObjectId, ino: u64) -> Option<&Path> {
        self.holder(id).filter(|holder| holder.ino == ino).map(|holder| holder.path.as_path())
    }

    /// The doubt about the attribute of an inode.
    pub(crate) fn doubt(&self, ino: u64) -> Option<&DoubtedAttr> {
        self.doubted.iter().find(|doubt| doubt.ino == ino)
    }
}
