//! How movers open files: from a record of heat, or an entry of a walk through
//! the namespace.

use super::shared::Movers;
use crate::heat::key_of;
use braid_contract::{Access, Errno, Fd, FileKind, NativeHandle, Result};
use braid_core::Core;
use braid_core::file::{end_use_entering, file_of, range_size_in};
use braid_core::live::{File, Layout};
use braid_core::namespace::{InodeRef, found};
use braid_format::FileKey;
use braid_home::Identity;
use braid_tiers::Tier;
use std::sync::Arc;

/// A file in use by a mover, until it is dropped.
pub(super) struct Reached<'v> {
    core: &'v Core,
    pub(super) file: Arc<File>,
    pub(super) key: FileKey,
    _found: InodeRef<'v>,
}

impl Drop for Reached<'_> {
    fn drop(&mut self) {
        if let Err(error) = end_use_entering(self.core, &self.file) {
            tracing::warn!(ino = self.key.ino, %error, "closing a file that was moved");
        }
    }
}

impl Movers {
    /// Opens the file of a record of heat. `ESTALE` if it is gone, or can't be
    /// opened again.
    pub(super) fn reach(&self, key: FileKey) -> Result<Reached<'_>> {
        if let Ok(inode) = self.core.inodes.get(braid_contract::InodeId(key.ino))
            && key_of(&inode) == key
        {
            return self.use_inode(InodeRef::known(inode));
        }
        let handle = self.heat.table().file(key).and_then(|heat| heat.handle.clone());
        let fd = match &handle {
            Some(handle) => self.core.home.open_handle(handle)?.ok_or(Errno::ESTALE)?,
            None => return Err(Errno::ESTALE.into()),
        };
        let identity = self.core.home.identify(&*fd)?;
        self.reach_found(&identity, fd)
    }

    /// Opens a file that was found in the namespace.
    pub(super) fn reach_found(&self, identity: &Identity, fd: Fd) -> Result<Reached<'_>> {
        if identity.kind() != FileKind::Regular || identity.attr.nlink == 0 {
            return Err(Errno::ESTALE.into());
        }
        self.use_inode(found(&self.core, identity, fd))
    }

    fn use_inode<'v>(&'v self, found: InodeRef<'v>) -> Result<Reached<'v>> {
        let file = file_of(&self.core, &found.inode)?;
        file.opened(false)?;
        Ok(Reached { core: &self.core, key: key_of(&found.inode), file, _found: found })
    }

    /// The tier that a range is on; home for all of a plain file, `None` if the
    /// range does not exist.
    pub(super) fn tier_of_range(&self, file: &File, range: u32) -> Result<Option<Arc<Tier>>> {
        let id = match &*file.layout.read() {
            Layout::Plain => Some(self.core.tiers.home().id),
            Layout::Spread(spread) => {
                let within = spread.range_size().start_of(range.into()) < spread.size();
                spread.index.entry(range.into())?.filter(|_| within).map(|entry| entry.tier)
            }
        };
        id.map(|id| self.core.tiers.get(id)).transpose()
    }

    /// The ranges to move for these records of heat: a plain file, which has a
    /// single record, moves as a whole.
    pub(super) fn ranges_to_move(&self, file: &File, ranges: &[u32]) -> Result<Vec<u32>> {
        let layout = file.layout.read();
        match &*layout {
            Layout::Spread(_) => Ok(ranges.to_vec()),
            Layout::Plain => {
                let (size, ranges) = (file.home_size()?, range_size_in(&self.core, file, &layout)?);
                let all = u32::try_from(ranges.count(size)).unwrap_or(0);
                Ok((0..all).collect())
            }
        }
    }
}

/// The key of a file found in the namespace.
pub(super) fn key_of_found(identity: &Identity) -> FileKey {
    let generation = identity.handle.as_ref().map_or(0, NativeHandle::generation);
    FileKey { ino: identity.ino(), generation }
}

impl Movers {
    /// Opens a file for `status`. `None` where no descriptor can be had; an
    /// error if the file is gone.
    pub(crate) fn look_at(&self, key: FileKey) -> Result<Option<Fd>> {
        if let Ok(inode) = self.core.inodes.get(braid_contract::InodeId(key.ino))
            && key_of(&inode) == key
        {
            let fd = self.core.inodes.open(&self.core.home, &inode, Access::Path)?;
            // The descriptor may stay open for long.
            return if fd.stat()?.attr.nlink > 0 { Ok(Some(fd)) } else { Err(Errno::ENOENT.into()) };
        }
        let handle = self.heat.table().file(key).and_then(|file| file.handle.clone());
        handle.map_or(Ok(None), |handle| self.core.home.open_handle(&handle))
    }
}
