//! The marks of files that may be ahead of their home inodes.

use braid_contract::{Context, NativeFd, NativeHandle, ObjectId, RenameMode, Result};
use braid_format::Mark;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;

/// Most spare ids at a time, with durable marks.
const SPARE_MAX: usize = 64;

/// A mark that one process hands to the next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct HandedMark {
    id: ObjectId,
    /// How often this process marked the file.
    count: u32,
    /// Its name, if that is not the id alone.
    name: Option<String>,
    /// Its file is to be recovered.
    #[serde(default)]
    unrecovered: bool,
}

/// All existing marks.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// How often each file is marked.
    counts: HashMap<ObjectId, u32>,
    /// Names of marks that do not consist of the id alone.
    names: HashMap<ObjectId, String>,
    /// Marks of files that are to be recovered: found when the volume was opened, or left since.
    unrecovered: HashSet<ObjectId>,
}

impl Marks {
    fn name(&self, id: ObjectId) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// Adds a mark that was found.
    pub(super) fn enter(&mut self, name: &OsStr) -> Option<Mark> {
        let mark = Mark::parse(name)?;
        self.unrecovered.insert(mark.id);
        if mark.handle.is_some() {
            self.names.insert(mark.id, name.to_str()?.to_owned());
        }
        Some(mark)
    }

    /// Has the next open recover a file that this process marked.
    pub(super) fn leave(&mut self, id: ObjectId) {
        self.unrecovered.insert(id);
    }

    /// The file is as this process knows it: there is nothing to be recovered.
    pub(super) fn is_known(&mut self, id: ObjectId) {
        if self.counts.contains_key(&id) {
            self.unrecovered.remove(&id);
        }
    }

    /// Whether a mark was [left](Self::leave), or found when the volume was opened, and still
    /// exists.
    pub(super) fn is_left(&self, id: ObjectId) -> bool {
        self.unrecovered.contains(&id)
    }

    /// Marks a file; answers whether that created a mark.
    pub(crate) fn mark(
        &mut self,
        open: &dyn NativeFd,
        id: ObjectId,
        handle: Option<&NativeHandle>,
    ) -> Result<bool> {
        let count = self.counts.get(&id).copied().unwrap_or(0);
        if count == 0 {
            if !self.unrecovered.contains(&id) && handle.is_some() {
                self.names.insert(id, Mark::name(id, handle));
            }
            if let Err(error) = open.ensure_file_at(&self.name(id)) {
                if !self.unrecovered.contains(&id) {
                    self.names.remove(&id);
                }
                return Err(error).context("marking a file");
            }
        }
        self.counts.insert(id, count + 1);
        Ok(count == 0)
    }

    /// Makes a spare mark that of this inode.
    pub(super) fn give(
        &mut self,
        open: &dyn NativeFd,
        id: ObjectId,
        handle: Option<&NativeHandle>,
    ) -> Result<()> {
        let name = Mark::name(id, handle);
        let bare = id.to_string();
        if name != bare {
            let (old, new) = (OsStr::new(&bare), OsStr::new(&name));
            open.rename_at(old, open, new, RenameMode::Replace).context("marking a file")?;
            self.names.insert(id, name);
        }
        self.counts.insert(id, 1);
        Ok(())
    }

    /// Removes one mark, or `all` of them, also that of a file to be recovered.
    pub(crate) fn unmark(&mut self, open: &dyn NativeFd, id: ObjectId, all: bool) -> Result<()> {
        match self.counts.get_mut(&id) {
            Some(count) if *count > 1 && !all => {
                *count -= 1;
                Ok(())
            }
            // What a crash left of the file is not known yet: only this mark leads there.
            _ if !all && self.unrecovered.contains(&id) => {
                self.counts.remove(&id);
                Ok(())
            }
            _ => {
                let name = self.name(id);
                self.counts.remove(&id);
                self.names.remove(&id);
                self.unrecovered.remove(&id);
                open.ensure_gone_at(&name).context("unmarking a file")
            }
        }
    }

    /// All marks, for the process that takes over.
    pub(super) fn hand_over(&self) -> Vec<HandedMark> {
        let mark = |id: &ObjectId| HandedMark {
            id: *id,
            count: self.counts.get(id).copied().unwrap_or(0),
            name: self.names.get(id).cloned(),
            unrecovered: self.unrecovered.contains(id),
        };
        let others = self.unrecovered.iter().filter(|id| !self.counts.contains_key(id));
        self.counts.keys().chain(others).map(mark).collect()
    }

    /// Takes over the marks of an earlier process.
    pub(super) fn take_over(&mut self, marks: Vec<HandedMark>) {
        for HandedMark { id, count, name, unrecovered } in marks {
            if count > 0 {
                self.counts.insert(id, count);
            }
            if unrecovered {
                self.unrecovered.insert(id);
            }
            name.map(|name| self.names.insert(id, name));
        }
    }

    /// Switches to another directory, where all names consist of the id alone.
    pub(super) fn switch_root(&mut self) {
        self.names.clear();
    }
}

/// Spare ids for files that will leave home. Their marks are durable already, so
/// that leaving needs no sync of them.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<Spare>);

#[derive(Debug, Default)]
struct Spare {
    ids: Vec<ObjectId>,
    /// Number of ids that were created the last time.
    batch: usize,
}

impl Spares {
    /// Takes one; if there is none, creates more with `make_id`.
    pub(super) fn take(
        &self,
        open: &dyn NativeFd,
        make_id: &dyn Fn() -> Result<ObjectId>,
    ) -> Result<ObjectId> {
        let mut spare = self.0.lock();
        if let Some(id) = spare.ids.pop() {
            return Ok(id);
        }
        let batch = (spare.batch * 2).clamp(1, SPARE_MAX);
        let mut ids = Vec::with_capacity(batch);
        for _ in 0..batch {
            let id = make_id()?;
            match open.ensure_file_at(&id.to_string()) {
                Ok(()) => ids.push(id),
                Err(error) if ids.is_empty() => return Err(error).context("marking a file"),
                Err(_) => break,
            }
        }
        if let Err(error) = open.sync(false) {
            ids.iter().for_each(|id| drop(open.ensure_gone_at(&id.to_string())));
            return Err(error).context("syncing .braid/open");
        }
        spare.batch = batch;
        spare.ids = ids;
        spare.ids.pop().ok_or_else(|| braid_contract::Errno::ENOSPC.into())
    }

    /// Removes unused spare marks.
    pub(super) fn clear(&self, open: &dyn NativeFd) -> Result<()> {
        std::mem::take(&mut self.0.lock().ids)
            .into_iter()
            .try_for_each(|id| open.ensure_gone_at(&id.to_string()))
    }
}
