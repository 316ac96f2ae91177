//! Braid's own state on the home tier: indexes without a file, marks, the
//! volume table, and all else in `.braid`.

use super::copier::Copier;
use braid_contract::{Access, Errno, NativeFd, ObjectId, Result};
use braid_home::names_in;
use braid_home::{INTENT, LIMBO, RECORD};
use braid_index::ids_in;
use std::collections::HashSet;
use std::ffi::OsStr;

/// Entries that the new home has of its own, or that are copied otherwise.
const NOT_COPIED: [&str; 8] = ["label", "volume", "index", "open", "counts", "ballast", INTENT, LIMBO];

impl Copier<'_> {
    /// Copies all of it. Nothing changes meanwhile.
    pub(super) fn copy_state(&mut self) -> Result<()> {
        self.copy_indexes_of_nobody()?;
        // The handles in marks have no meaning on the new home.
        for mark in self.core.index.marked()? {
            self.dirs.open.ensure_file_at(&mark.id.to_string())?;
        }
        let (old, new) = (self.core.home.braid()?, self.braid.clone());
        self.copy_names(&*old, &*new, &|name| {
            NOT_COPIED.iter().any(|own| name == *own) || name.as_encoded_bytes().ends_with(b".new")
        })?;
        if let Ok(old) = old.open_at(OsStr::new(INTENT), Access::Directory) {
            let new = new.open_at(OsStr::new(INTENT), Access::Directory)?;
            self.copy_names(&*old, &*new, &|name| name == RECORD)?;
        }
        self.copy_pending()?;
        self.braid.replace_small("volume", &self.core.table.lock().encode())
    }

    fn copy_names(
        &mut self,
        old: &dyn NativeFd,
        new: &dyn NativeFd,
        without: &dyn Fn(&OsStr) -> bool,
    ) -> Result<()> {
        for name in names_in(old)? {
            if !without(&name) {
                self.place(old, new, &name)?;
            }
        }
        Ok(())
    }

    /// Copies the indexes of removed files that still have objects; removes
    /// those of files that were removed since they were copied.
    fn copy_indexes_of_nobody(&self) -> Result<()> {
        let mut wanted = HashSet::new();
        self.core.index.list(&mut |id| {
            wanted.insert(id);
            Ok(())
        })?;
        for id in self.copied_indexes()? {
            if !wanted.remove(&id) {
                self.dirs.index.ensure_gone_at(&braid_format::index_path(id))?;
            }
        }
        // Copies made while they were files may be out of date.
        wanted.extend(self.core.removals.ids());
        wanted.into_iter().try_for_each(|id| self.copy_index(id, None))
    }

    fn copied_indexes(&self) -> Result<Vec<ObjectId>> {
        let mut ids = Vec::new();
        for shard in names_in(&*self.dirs.index)? {
            match self.dirs.index.open_at(&shard, Access::Directory) {
                Ok(shard) => ids.extend(ids_in(&*shard)?),
                Err(error) if error.errno() == Errno::ENOTDIR => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ids)
    }
}
