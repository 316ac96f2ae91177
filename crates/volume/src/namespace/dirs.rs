//! Reading directories.

use super::{BRAID_DIR, Home, Inode};
use crate::Volume;
use crate::sync::Mutex;
use braid_contract::{
    Access, Attr, DirEntry, DirSink, Entry, Errno, Fd, FileKind, HandleId, InodeId, NativeDirEntry, NativeFd,
    Result,
};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// An open directory.
#[derive(Debug)]
pub(crate) struct DirHandle {
    inode: Arc<Inode>,
    /// Locked while it is read: a descriptor has one place where reading is at.
    fd: Mutex<Fd>,
    /// What an earlier home directory had in it when it was replaced: whoever
    /// was in the middle of reading it goes on there.
    listing: Mutex<Option<Vec<Listed>>>,
}

/// An entry as it was read once.
#[derive(Clone, Debug)]
struct Listed {
    name: OsString,
    ino: InodeId,
    kind: u32,
    next_offset: i64,
}

impl DirHandle {
    fn new(inode: Arc<Inode>, fd: Fd) -> Self {
        Self { inode, fd: Mutex::new(fd), listing: Mutex::new(None) }
    }

    pub(crate) fn descriptor(&self) -> Fd {
        Fd::clone(&*self.fd.lock())
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// The same open of a directory that is at `fd` now.
    pub(crate) fn moved(&self, home: &Home, inode: Arc<Inode>, fd: Fd) -> Result<Self> {
        let mut listing = Vec::new();
        self.read_from(home, 0, &mut |entry, ino| {
            let NativeDirEntry { name, kind, next_offset, .. } = *entry;
            listing.push(Listed { name: name.to_owned(), ino, kind, next_offset });
            Ok(true)
        })?;
        Ok(Self { inode, fd: Mutex::new(fd), listing: Mutex::new(Some(listing)) })
    }

    /// Hands the entries after `offset`, and their inode numbers, to `visit`.
    fn read_from(
        &self,
        home: &Home,
        offset: i64,
        visit: &mut dyn FnMut(&NativeDirEntry<'_>, InodeId) -> Result<bool>,
    ) -> Result<()> {
        let mut listing = self.listing.lock();
        if offset == 0 {
            // Whoever begins anew reads what is there now.
            *listing = None;
        }
        let Some(entries) = &*listing else {
            let fd = self.fd.lock();
            return fd.read_dir(offset, &mut |entry| visit(entry, home.public_ino(entry.ino)));
        };
        let after = entries.iter().position(|entry| entry.next_offset == offset).map_or(0, |at| at + 1);
        for Listed { name, ino, kind, next_offset } in &entries[after..] {
            let entry = NativeDirEntry { name, ino: ino.0, kind: *kind, next_offset: *next_offset };
            if !visit(&entry, *ino)? {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.fd.lock().sync(false)
    }
}

impl Volume {
    pub(crate) fn open_directory(&self, ino: InodeId) -> Result<HandleId> {
        let inode = self.inodes.get(ino)?;
        let fd = self.inodes.open(&self.home, &inode, Access::Directory)?;
        Ok(self.handles.add_dir(DirHandle::new(inode, fd)))
    }

    /// Hands entries after `offset` to the sink. Offsets are the home file
    /// system's own cookies, which it keeps stable.
    pub(crate) fn read_directory(
        &self,
        handle: HandleId,
        offset: i64,
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let dir = self.handles.dir(handle)?;
        let at = Fd::clone(&*dir.fd.lock());
        dir.read_from(&self.home, offset, &mut |entry, ino| {
            if dir.inode.ino == InodeId::ROOT && entry.name == BRAID_DIR {
                return Ok(true);
            }
            self.list_entry(&*at, (entry, ino), plus, sink)
        })
    }

    /// Hands one entry to the sink; answers whether that took it.
    fn list_entry(
        &self,
        dir: &dyn NativeFd,
        (entry, ino): (&NativeDirEntry<'_>, InodeId),
        plus: bool,
        sink: &mut dyn DirSink,
    ) -> Result<bool> {
        let dots = entry.name == "." || entry.name == "..";
        let (looked_up, damaged) =
            if plus && !dots { self.entry_for_listing(dir, entry.name)? } else { (None, false) };
        let taken = sink.add(&DirEntry {
            ino: looked_up.map_or(ino, |entry| entry.attr.ino),
            next_offset: entry.next_offset,
            kind: FileKind::from_mode(entry.kind),
            name: entry.name,
            entry: looked_up,
            damaged,
        });
        if let Some(entry) = looked_up.filter(|_| !taken) {
            self.inodes.forget(entry.attr.ino, 1);
        }
        Ok(taken)
    }

    /// The entry of a name for `readdirplus`, and whether its file is damaged:
    /// then it is what the home inode says, and looking it up tells why. A name
    /// that went away meanwhile is listed without. A lack of descriptors or
    /// memory says nothing of the name.
    fn entry_for_listing(&self, dir: &dyn NativeFd, name: &OsStr) -> Result<(Option<Entry>, bool)> {
        match self.enter_name(dir, name) {
            Ok(entry) => Ok((Some(entry), false)),
            Err(error) if error.is_retryable() => Err(error),
            Err(error) if error.errno() == Errno::EUCLEAN => match self.identify_name(dir, name) {
                Ok((fd, identity)) => {
                    let inode = self.inodes.enter(&self.home, &identity, fd);
                    let attr = Attr { ino: inode.ino, ..identity.attr };
                    Ok((Some(Entry { attr, generation: inode.generation }), true))
                }
                Err(_) => Ok((None, true)),
            },
            Err(_) => Ok((None, false)),
        }
    }
}
