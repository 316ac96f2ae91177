//! Attributes: the home inode's, corrected by what is ahead of it.

use super::inodes::Shape;
use super::{Identity, Inode};
use crate::Volume;
use crate::file::{Ahead, File};
use braid_contract::{Attr, FileKind, HandleId, InodeId, Result};
use std::sync::Arc;

impl Volume {
    pub(crate) fn get_attr(&self, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
        let inode = self.inodes.get(ino)?;
        match handle.and_then(|handle| self.handles.file(handle).ok()) {
            Some(open) => {
                let identity = self.home.identify(&**open.file.data())?;
                self.attr_with(&inode, &identity, Some(&open.file))
            }
            None => self.attr_now(&inode),
        }
    }

    /// Attributes of an inode as they are now.
    pub(crate) fn attr_now(&self, inode: &Arc<Inode>) -> Result<Attr> {
        // An open file answers even when its last name is gone.
        let live = inode.file.lock().upgrade();
        let identity = match &live {
            Some(file) => self.home.identify(&**file.data())?,
            None => self.home.identify(&*self.inodes.path(&self.home, inode)?)?,
        };
        self.attr_with(inode, &identity, live.as_ref())
    }

    /// Attributes of an inode that was just looked at.
    pub(crate) fn attr_from(&self, inode: &Arc<Inode>, identity: &Identity) -> Result<Attr> {
        let live = inode.file.lock().upgrade();
        self.attr_with(inode, identity, live.as_ref())
    }

    fn attr_with(&self, inode: &Arc<Inode>, identity: &Identity, live: Option<&Arc<File>>) -> Result<Attr> {
        let mut attr = Attr { ino: inode.ino, ..identity.attr };
        if inode.kind != FileKind::Regular || live.is_none() && inode.shape() == Shape::Plain {
            return Ok(attr);
        }
        match live {
            Some(file) => self.correct_attr(file, &mut attr)?,
            None => {
                // What is behind the inode now is cheaper to ask than to open.
                let fd = self.inodes.path(&self.home, inode)?;
                match self.home.id_attr(&*fd, identity)? {
                    None => inode.set_shape(Shape::Plain),
                    Some(_) => self.correct_attr(&*self.file_of(inode)?, &mut attr)?,
                }
            }
        }
        Ok(attr)
    }

    /// Applies what is ahead of the home inode, and adds up the space.
    fn correct_attr(&self, file: &File, attr: &mut Attr) -> Result<()> {
        if let Some(ahead) = file.ahead() {
            attr.size = ahead.size;
            attr.mtime = ahead.mtime.unwrap_or(attr.mtime);
            attr.ctime = ahead.mtime.map_or(attr.ctime, |mtime| attr.ctime.max(mtime));
            attr.blocks += self.blocks_elsewhere(&ahead);
        }
        Ok(())
    }

    /// Units of 512 bytes that a file takes on tiers other than home; a tier
    /// that can't tell at present counts nothing.
    fn blocks_elsewhere(&self, ahead: &Ahead) -> u64 {
        self.tiers
            .stores()
            .filter(|(tier, _)| ahead.whole.is_none_or(|whole| whole == tier.id))
            .filter_map(|(_, store)| store.stat(ahead.id).ok())
            .map(|stat| stat.allocated / 512)
            .sum()
    }
}
