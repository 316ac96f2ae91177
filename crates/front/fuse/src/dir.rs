//! Sinks that put directory entries into replies. Used by `ops`.

use crate::convert;
use crate::front::Front;
use braid_contract::{Caller, DirEntry, DirSink, Entry, FileKind, FileSystem, InodeId};
use fuser::{FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::time::Duration;

/// Takes names and kinds.
pub(crate) struct Names<'a> {
    pub(crate) reply: &'a mut ReplyDirectory,
    /// Whether some were taken.
    pub(crate) has_some: bool,
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) caller: &'a Caller,
    pub(crate) dir: InodeId,
}

impl DirSink for Names<'_> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let kind = entry.kind.map_or_else(|| self.find_kind(entry), convert::file_type);
        let full = self.reply.add(INodeNo(entry.ino.0), entry.next_offset.cast_unsigned(), kind, entry.name);
        self.has_some |= !full;
        !full
    }
}

impl Names<'_> {
    /// The kind of an entry whose directory does not have it. The reply needs
    /// one, and programs rely on it.
    fn find_kind(&self, entry: &DirEntry<'_>) -> FileType {
        if is_dot(entry) {
            return FileType::Directory;
        }
        match self.fs.lookup(self.caller, self.dir, entry.name) {
            Ok(found) => {
                self.fs.forget(found.attr.ino, 1);
                convert::file_type(found.attr.kind)
            }
            // Gone meanwhile: a lookup will find that out.
            Err(_) => convert::file_type(FileKind::Regular),
        }
    }
}

/// Takes names and attributes.
///
/// An entry that is refused was not taken: the file system counts no lookup
/// for it. `.` and `..` are passed with their own inode numbers; the kernel
/// shows the numbers and counts no lookup for these two names.
pub(crate) struct Entries<'a> {
    pub(crate) reply: &'a mut ReplyDirectoryPlus,
    pub(crate) front: &'a Front,
    /// Whether some were taken.
    pub(crate) has_some: bool,
}

impl DirSink for Entries<'_> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let (attr, generation, attr_ttl) = match &entry.entry {
            Some(Entry { attr, generation }) => {
                (convert::file_attr(attr), *generation, self.front.attr_ttl(attr))
            }
            None => {
                let mut attr = convert::negative_attr();
                let known = entry.kind.unwrap_or(FileKind::Regular);
                attr.kind = convert::file_type(if is_dot(entry) { FileKind::Directory } else { known });
                // Node number 0 makes the kernel look the name up itself.
                attr.ino = INodeNo(if is_dot(entry) { entry.ino.0 } else { 0 });
                (attr, 0, self.front.ttl)
            }
        };
        // A damaged entry must not be cached.
        let (attr_ttl, entry_ttl) =
            if entry.damaged { (Duration::ZERO, Duration::ZERO) } else { (attr_ttl, self.front.ttl) };
        let offset = entry.next_offset.cast_unsigned();
        let (ttls, generation) = ((&attr_ttl, &entry_ttl), Generation(generation));
        let full = self.reply.add(INodeNo(entry.ino.0), offset, entry.name, ttls, &attr, generation);
        self.has_some |= !full;
        !full
    }
}

fn is_dot(entry: &DirEntry<'_>) -> bool {
    entry.name == "." || entry.name == ".."
}
