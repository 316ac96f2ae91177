//! What a mount does first: it finishes what a crash left unfinished, and
//! learns how many ranges each tier holds.
//!
//! Only marked files are looked at: those that were in use, or being removed,
//! when the volume went down.

mod check;
mod counts;

pub use check::{CheckReport, Problem, check};

use crate::Volume;
use crate::format::{IdAttr, IdKind};
use crate::index::Index;
use crate::namespace::{Identity, proc_path, reopen};
use crate::tiers::cut_object;
use braid_contract::{Errno, ObjectId, Result, Timestamp};
use rustix::fs::{AtFlags, OFlags, Timespec, Timestamps};
use std::collections::HashMap;
use std::os::fd::OwnedFd;

/// A home inode that was found to carry an id.
struct Owner {
    fd: OwnedFd,
    identity: Identity,
    attr: IdAttr,
}

impl Volume {
    /// Recovers from whatever happened since the last clean unmount.
    pub(crate) fn recover(&self) -> Result<()> {
        let marked = self.index.marked()?;
        if !marked.is_empty() {
            tracing::info!(files = marked.len(), "recovering files that were in use");
            let mut by_id = match self.walk_if_needed(&marked) {
                Ok(by_id) => by_id,
                Err(error) => {
                    // A file that was not found must not be taken for removed.
                    tracing::error!(%error, "can't search the home tree; its files are recovered at a later mount");
                    return self.load_counts();
                }
            };
            for id in marked {
                // One file that can't be recovered must not keep the others
                // from being used. It keeps its mark, and is tried again.
                if let Err(error) = self.recover_file(id, &mut by_id) {
                    tracing::error!(file = %id, %error, "can't recover a file; run fsck");
                }
            }
        }
        self.load_counts()
    }

    /// Where handles can't be opened, the tree is searched once for the
    /// inodes that the marked files belong to.
    fn walk_if_needed(&self, marked: &[ObjectId]) -> Result<HashMap<ObjectId, OwnedFd>> {
        let mut found = HashMap::new();
        if self.home.opens_handles() {
            return Ok(found);
        }
        self.home.walk(&mut |_, fd, identity| {
            if let Ok(Some(attr)) = self.home.id_attr(fd, identity)
                && marked.contains(&attr.id)
            {
                found.insert(attr.id, rustix::io::fcntl_dupfd_cloexec(fd, 3)?);
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn recover_file(&self, id: ObjectId, by_id: &mut HashMap<ObjectId, OwnedFd>) -> Result<()> {
        let index = match self.index.open_index(id) {
            Ok(index) => Some(index),
            Err(error) if error.errno() == Errno::ENOENT => None,
            Err(error) => {
                // Damage is the check's to judge; the mark leads it there.
                tracing::error!(file = %id, %error, "can't recover a file; run fsck");
                return Ok(());
            }
        };
        let owner = self.find_owner(id, index.as_ref(), by_id)?;
        match (owner, index) {
            (Some(owner), index) if owner.attr.kind == IdKind::Emptied => {
                drop(index);
                self.finish_emptying(&owner)
            }
            (Some(owner), Some(index)) => self.recover_spread(&owner, &index),
            // No inode carries the id: the file was removed, or was never
            // spread to the end.
            (None, index) => {
                drop(index);
                self.remove_everywhere(&[id])
            }
            (Some(_), None) => {
                tracing::error!(file = %id, "a spread file has no index; run fsck");
                Ok(())
            }
        }
    }

    /// The home inode that carries the id, if it exists.
    fn find_owner(
        &self,
        id: ObjectId,
        index: Option<&Index>,
        by_id: &mut HashMap<ObjectId, OwnedFd>,
    ) -> Result<Option<Owner>> {
        let fd = match (by_id.remove(&id), index.and_then(|index| index.header().handle.as_ref())) {
            (Some(fd), _) => Some(fd),
            (None, Some(handle)) => match self.home.open_handle(handle) {
                Ok(fd) => fd,
                Err(error) if matches!(error.errno(), Errno::ESTALE | Errno::ENOENT) => None,
                Err(error) => return Err(error),
            },
            (None, None) => None,
        };
        let Some(fd) = fd else { return Ok(None) };
        let identity = self.home.identify(&fd)?;
        if identity.stat.stx_nlink == 0 {
            return Ok(None);
        }
        let attr = self.home.id_attr(&fd, &identity)?.filter(|attr| attr.id == id);
        Ok(attr.map(|attr| Owner { fd, identity, attr }))
    }

    /// A truncation to nothing had begun: it is finished.
    fn finish_emptying(&self, owner: &Owner) -> Result<()> {
        let fd = reopen(&owner.fd, OFlags::WRONLY)?;
        rustix::fs::ftruncate(&fd, 0)?;
        self.home.remove_id_attr(&fd)?;
        rustix::fs::fsync(&fd)?;
        self.remove_everywhere(&[owner.attr.id])
    }

    /// Removes what lies beyond the size, and brings the home inode up to date
    /// from the owners of size and times.
    fn recover_spread(&self, owner: &Owner, index: &Index) -> Result<()> {
        let size = index.size()?;
        index.clear_from(size.div_ceil(u64::from(self.range_size)))?;
        self.index.sync(index)?;
        for (tier, store) in self.tiers.stores() {
            cut_object(store.as_ref(), owner.attr.id, size).map_err(|error| tier.note_error(error))?;
        }
        let mtime = self.owned_mtime(owner, index)?;
        if owner.identity.size() != size {
            let fd = reopen(&owner.fd, OFlags::WRONLY)?;
            rustix::fs::ftruncate(&fd, size)?;
        }
        if let Some(mtime) = mtime {
            let spec = Timespec { tv_sec: mtime.secs, tv_nsec: mtime.nanos.into() };
            let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ };
            let times = Timestamps { last_access: omit, last_modification: spec };
            rustix::fs::utimensat(rustix::fs::CWD, proc_path(&owner.fd), &times, AtFlags::empty())?;
        }
        self.index.unmark_gone(owner.attr.id)
    }

    /// The modification time as its owner has it, if that is not home and is
    /// later than what home has.
    fn owned_mtime(&self, owner: &Owner, index: &Index) -> Result<Option<Timestamp>> {
        let tier = self.tiers.get(index.owners()?.mtime)?;
        let crate::tiers::Backend::Store(store) = &tier.backend else { return Ok(None) };
        let home = Timestamp {
            secs: owner.identity.stat.stx_mtime.tv_sec,
            nanos: owner.identity.stat.stx_mtime.tv_nsec,
        };
        let owned = store.stat(owner.attr.id).ok().map(|stat| stat.mtime);
        Ok(owned.filter(|mtime| *mtime > home))
    }
}
