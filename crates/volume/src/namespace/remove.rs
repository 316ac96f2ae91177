//! Removing and replacing names. The home name goes first, with the home file
//! system's atomicity; what a spread file has elsewhere goes later, when the
//! removal is durable (ordering rule 4).

use crate::Volume;
use braid_contract::{Access, Errno, Fd, FileKind, InodeId, NativeFd, ObjectId, RenameMode, Result};
use braid_format::WholeAttr;
use std::ffi::OsStr;

/// What has to be synced for a removal to be durable: the directory that the
/// name was in, or the file that was emptied; `None` for the whole of the home
/// file system.
pub(crate) type DurabilityDependency = Option<Fd>;

/// What loses a name.
struct Displaced {
    ino: InodeId,
    /// It has other names.
    has_others: bool,
    /// What else goes, if it is a spread file.
    orphan: Option<Orphan>,
}

/// A spread file whose name is about to go.
struct Orphan {
    fd: Fd,
    ino: InodeId,
    id: ObjectId,
    /// It is a whole file, of this size.
    whole: Option<WholeAttr>,
    size: u64,
}

impl Volume {
    pub(crate) fn remove_name(&self, parent: InodeId, name: &OsStr) -> Result<()> {
        let _alone = self.names.alone_in(parent);
        let dir = self.dir_for(parent, name)?;
        let displaced = self.displaced(&*dir, name)?;
        let others = displaced.has_others.then_some(displaced.ino);
        let prepared = others.map_or(Ok(()), |ino| self.name_will_change(ino));
        if let Err(error) = prepared.and_then(|()| dir.remove_at(name, false)) {
            self.spare(displaced.orphan)?;
            return Err(error);
        }
        self.name_gone(displaced, &dir)
    }

    pub(crate) fn remove_dir(&self, parent: InodeId, name: &OsStr) -> Result<()> {
        let _alone = self.names.alone_in(parent);
        let dir = self.dir_for(parent, name)?;
        let removed =
            self.identify_name(&*dir, name).map(|(_, identity)| self.home.public_ino(identity.ino()));
        dir.remove_at(name, true)?;
        if let Ok(ino) = removed {
            self.inodes.release_path(ino);
        }
        Ok(())
    }

    pub(crate) fn rename_name(
        &self,
        (parent, name): (InodeId, &OsStr),
        (new_parent, new_name): (InodeId, &OsStr),
        mode: RenameMode,
    ) -> Result<()> {
        let _alone = self.names.alone_in_both(parent, new_parent);
        let from = self.dir_for(parent, name)?;
        let to = self.dir_for(new_parent, new_name)?;
        let replaced = match mode {
            RenameMode::Replace => match self.displaced(&*to, new_name) {
                Err(error) if error.errno() == Errno::EUCLEAN => return Err(error),
                // There is nothing of that name, or the rename itself tells.
                displaced => displaced.ok(),
            },
            RenameMode::NoReplace | RenameMode::Exchange => None,
        };
        let moved = self.named(&*from, name);
        let back = if mode == RenameMode::Exchange { self.named(&*to, new_name) } else { None };
        let others =
            replaced.as_ref().filter(|displaced| displaced.has_others).map(|displaced| displaced.ino);
        let mut changed = [moved, back, others].into_iter().flatten();
        let prepared = changed.try_for_each(|ino| self.name_will_change(ino));
        if let Err(error) = prepared.and_then(|()| from.rename_at(name, &*to, new_name, mode)) {
            self.spare(replaced.and_then(|displaced| displaced.orphan))?;
            return Err(error);
        }
        if let Some(displaced) = replaced {
            self.name_gone(displaced, &to)?;
        }
        [moved, back].into_iter().flatten().try_for_each(|ino| self.name_changed(ino))
    }

    /// The inode that `name` leads to, if it does.
    fn named(&self, dir: &dyn NativeFd, name: &OsStr) -> Option<InodeId> {
        let (_, identity) = self.identify_name(dir, name).ok()?;
        Some(self.home.public_ino(identity.ino()))
    }

    /// A file is about to get or lose a name.
    fn name_will_change(&self, ino: InodeId) -> Result<()> {
        self.inodes.get(ino).map_or(Ok(()), |inode| self.inode_will_change(&inode))
    }

    /// A file got a name: its next `fsync` makes that durable too, as native
    /// file systems do.
    fn name_changed(&self, ino: InodeId) -> Result<()> {
        self.inodes.get(ino).map_or(Ok(()), |inode| self.inode_changed(&inode))
    }

    /// Looks at what `name` leads to. If it is a spread file, it is marked
    /// before its name goes, so that a crash on the way is found. One that can't
    /// be used, since attribute and index do not agree or one of them is missing
    /// or damaged, keeps its name until somebody has looked: `EUCLEAN`.
    fn displaced(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<Displaced> {
        let (fd, identity) = self.identify_name(dir, name)?;
        let ino = self.home.public_ino(identity.ino());
        let has_others = identity.kind() == FileKind::Regular && identity.attr.nlink > 1;
        let Some(attr) = self.home.id_attr(&*fd, &identity)? else {
            return Ok(Displaced { ino, has_others, orphan: None });
        };
        let id = attr.id;
        let whole = attr.kind.whole();
        if whole.is_none() {
            self.check_index_of(&*fd, &identity, id)?;
        }
        match self.index.mark(id, whole.and(identity.handle.as_ref())) {
            // A full home tier must not keep a file from being removed.
            Err(error) if !error.is_full() => return Err(error),
            _ => {}
        }
        Ok(Displaced { ino, has_others, orphan: Some(Orphan { fd, ino, id, whole, size: identity.size() }) })
    }

    /// The name is gone.
    fn name_gone(&self, displaced: Displaced, parent: &Fd) -> Result<()> {
        self.inodes.release_path(displaced.ino);
        self.freed.note();
        if displaced.has_others {
            self.reaper.lost_a_name(self, displaced.ino);
        }
        self.reclaim_orphans(displaced.orphan, parent)
    }

    /// The name stays after all.
    fn spare(&self, orphan: Option<Orphan>) -> Result<()> {
        orphan.map_or(Ok(()), |orphan| self.index.unmark(orphan.id))
    }

    /// The name is gone. If it was the last one, the file's data is removed
    /// when the last open is gone too.
    fn reclaim_orphans(&self, orphan: Option<Orphan>, parent: &Fd) -> Result<()> {
        let Some(orphan) = orphan else { return Ok(()) };
        if orphan.fd.stat()?.attr.nlink > 0 {
            // Another name came in between, or the rename was of one link to
            // another of the same file.
            return self.index.unmark(orphan.id);
        }
        // What syncs the directory later needs a descriptor that can. Where
        // that can't be had, or another name's removal may not be durable
        // either, the whole file system is synced.
        let depends_on = match self.reaper.had_other_names(orphan.ino) {
            true => None,
            false => parent.reopen(Access::Directory).ok(),
        };
        let live = self.inodes.get(orphan.ino).ok().and_then(|inode| inode.file.lock().upgrade());
        match live {
            Some(file) => self.last_name_gone(&file, orphan.id, depends_on),
            None => {
                if let Some(whole) = orphan.whole {
                    let ranges = whole.range_size.count(orphan.size);
                    (0..ranges).for_each(|_| self.tiers.count_range(Some(whole.tier), None));
                }
                self.reaper.add(self, orphan.id, depends_on);
            }
        }
        Ok(())
    }
}
