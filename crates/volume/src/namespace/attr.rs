//! Attributes: the home inode's, corrected by what is ahead of it.

use super::inodes::Shape;
use super::{Identity, Inode};
use crate::Volume;
use crate::file::File;
use crate::plant::Plant;
use braid_contract::{Attr, FileKind, HandleId, InodeId, ObjectId, Result};
use std::sync::Arc;

impl Volume {
    pub(crate) fn get_attr(&self, ino: InodeId, handle: Option<HandleId>) -> Result<Attr> {
        let inode = self.inodes.get(ino)?;
        match handle.and_then(|handle| self.handles.file(handle).ok()) {
            Some(open) => self.attr_of_file(&inode, &open.file),
            None => self.attr_now(&inode),
        }
    }

    /// Attributes of an inode as they are now.
    pub(crate) fn attr_now(&self, inode: &Arc<Inode>) -> Result<Attr> {
        // An open file answers even when its last name is gone.
        let live = inode.file.lock().upgrade();
        match live {
            Some(file) => self.attr_of_file(inode, &file),
            None => {
                let identity = self.home.identify(&*self.inodes.path(&self.home, inode)?)?;
                self.attr_at_rest(inode, &identity)
            }
        }
    }

    /// Attributes of an inode that was just looked at.
    pub(crate) fn attr_from(&self, inode: &Arc<Inode>, identity: &Identity) -> Result<Attr> {
        let live = inode.file.lock().upgrade();
        match live.filter(|_| inode.kind == FileKind::Regular) {
            Some(file) => self.attr_of_file(inode, &file),
            None => self.attr_at_rest(inode, identity),
        }
    }

    /// Attributes of a file that nobody uses.
    fn attr_at_rest(&self, inode: &Arc<Inode>, identity: &Identity) -> Result<Attr> {
        let attr = Attr { ino: inode.ino, ..identity.attr };
        if inode.kind != FileKind::Regular || inode.shape() == Shape::Plain {
            return Ok(attr);
        }
        // What is behind the inode now is cheaper to ask than to open.
        let fd = self.inodes.path(&self.home, inode)?;
        match self.home.id_attr(&*fd, identity)? {
            None => {
                inode.set_shape(Shape::Plain);
                Ok(attr)
            }
            Some(_) => self.attr_of_file(inode, &*self.file_of(inode)?),
        }
    }

    /// The home inode's, with what is ahead of it and with the space that the
    /// file takes elsewhere.
    fn attr_of_file(&self, inode: &Inode, file: &File) -> Result<Attr> {
        // Looked at before: what becomes plain brings it to the home inode
        // first.
        let ahead = file.ahead();
        let mut attr = Attr { ino: inode.ino, ..file.data().stat()?.attr };
        if let Some(ahead) = ahead {
            attr.size = ahead.size;
            attr.mtime = ahead.mtime.unwrap_or(attr.mtime);
            attr.ctime = ahead.mtime.map_or(attr.ctime, |mtime| attr.ctime.max(mtime));
            attr.blocks += self.blocks_elsewhere(ahead.id);
            if self.planted(Plant::LinksAreForgotten) {
                attr.nlink = 1;
            }
        }
        Ok(attr)
    }

    /// Units of 512 bytes that a file takes on tiers other than home; a tier
    /// that can't tell at present counts nothing.
    fn blocks_elsewhere(&self, id: ObjectId) -> u64 {
        self.tiers
            .stores()
            .filter_map(|(_, store)| store.stat(id).ok())
            .map(|stat| stat.allocated / 512)
            .sum()
    }
}
