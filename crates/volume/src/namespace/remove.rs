//! Removing and replacing names. The home name goes first, with the home file
//! system's atomicity; what a spread file has elsewhere goes later, when the
//! removal is durable (ordering rule 4).

use super::Identity;
use crate::Volume;
use crate::format::IdAttr;
use braid_contract::{Access, Fd, InodeId, NativeFd, ObjectId, RenameMode, Result};
use std::ffi::OsStr;

/// The directory that a removed name was in: once it is synced, the removal is
/// durable.
pub(crate) type Parent = Fd;

/// A spread file whose name is about to go.
struct Victim {
    fd: Fd,
    ino: InodeId,
    id: ObjectId,
}

impl Volume {
    pub(crate) fn remove_name(&self, parent: InodeId, name: &OsStr) -> Result<()> {
        let dir = self.dir_for(parent, name)?;
        let (ino, victim) = self.victim(&*dir, name)?;
        if let Err(error) = dir.remove_at(name, false) {
            self.spare(victim)?;
            return Err(error);
        }
        self.inodes.release_path(ino);
        self.bury(victim, &dir)
    }

    pub(crate) fn remove_dir(&self, parent: InodeId, name: &OsStr) -> Result<()> {
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
        let from = self.dir_for(parent, name)?;
        let to = self.dir_for(new_parent, new_name)?;
        let replaced = match mode {
            RenameMode::Replace => self.victim(&*to, new_name).ok(),
            RenameMode::NoReplace | RenameMode::Exchange => None,
        };
        if let Err(error) = from.rename_at(name, &*to, new_name, mode) {
            self.spare(replaced.and_then(|(_, victim)| victim))?;
            return Err(error);
        }
        if let Some((ino, victim)) = replaced {
            self.inodes.release_path(ino);
            self.bury(victim, &to)?;
        }
        self.name_changed(&*to, new_name)?;
        if mode == RenameMode::Exchange { self.name_changed(&*from, name) } else { Ok(()) }
    }

    /// A file got this name: its next `fsync` makes that durable too, as native
    /// file systems do.
    pub(super) fn name_changed(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<()> {
        // It may be gone again.
        let Ok((_, identity)) = self.identify_name(dir, name) else { return Ok(()) };
        let inode = self.inodes.get(self.home.public_ino(identity.ino()));
        let live = inode.ok().and_then(|inode| inode.file.lock().upgrade());
        live.map_or(Ok(()), |file| file.inode_is_set(false, self.tiers.home().id))
    }

    /// Looks at what `name` leads to. If it is a spread file, it is marked
    /// before its name goes, so that a crash on the way is found.
    fn victim(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<(InodeId, Option<Victim>)> {
        let (fd, identity) = self.identify_name(dir, name)?;
        let ino = self.home.public_ino(identity.ino());
        match self.spread_id(&*fd, &identity) {
            Some(id) => {
                match self.index.mark(id) {
                    // A full home tier must not keep a file from being removed.
                    Err(error) if !error.is_full() => return Err(error),
                    _ => {}
                }
                Ok((ino, Some(Victim { fd, ino, id })))
            }
            None => Ok((ino, None)),
        }
    }

    /// The name stays after all.
    fn spare(&self, victim: Option<Victim>) -> Result<()> {
        victim.map_or(Ok(()), |victim| self.index.unmark(victim.id))
    }

    /// A damaged attribute must not keep a file from being removed: what it
    /// left behind is for the check to find.
    fn spread_id(&self, fd: &dyn NativeFd, identity: &Identity) -> Option<ObjectId> {
        self.home.id_attr(fd, identity).ok().flatten().map(|attr: IdAttr| attr.id)
    }

    /// The name is gone. If it was the last one, the file's data is removed
    /// when the last open is gone too.
    fn bury(&self, victim: Option<Victim>, parent: &Fd) -> Result<()> {
        let Some(victim) = victim else { return Ok(()) };
        if victim.fd.stat()?.attr.nlink > 0 {
            // Another name came in between, or the rename was of one link to
            // another of the same file.
            return self.index.unmark(victim.id);
        }
        // What syncs the directory later needs a descriptor that can.
        // Where that can't be had, the file's own end tells that it is to be
        // waited for the whole file system.
        let parent: Parent = parent.reopen(Access::Directory).unwrap_or(victim.fd);
        let live = self.inodes.get(victim.ino).ok().and_then(|inode| inode.file.lock().upgrade());
        match live {
            Some(file) => self.last_name_gone(&file, victim.id, parent),
            None => self.reaper.add(self, victim.id, parent),
        }
        Ok(())
    }
}
