//! Path walks, as in a kernel, and opening.

use super::{Direct, Slot, UMASK, kind_of, os};
use crate::op::{OpenSpec, Path};
use crate::outcome::{Answer, Kind};
use braid_contract::{Entry, InodeId, OpenFlags, OpenRequest, SetAttr};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const NAME_MAX: usize = 255;
const LINKS_MAX: usize = 40;

/// The result of a path walk: a directory, a name in it, and its inode.
pub(super) struct Found {
    pub(super) parent: InodeId,
    /// Empty for the sequence's own directory.
    pub(super) name: OsString,
    pub(super) entry: Option<Entry>,
}

impl Direct {
    /// The entry of the sequence's own directory.
    fn own(&mut self) -> Result<Entry, Errno> {
        let attr = os(self.fs.getattr(&self.caller, self.root, None))?;
        Ok(Entry { attr, generation: 0 })
    }

    /// The inode that a name leads to, if there is one.
    pub(super) fn child(&mut self, parent: InodeId, name: &OsStr) -> Result<Option<Entry>, Errno> {
        let found = self.fs.lookup(&self.caller, parent, name);
        match self.noted(found) {
            Err(Errno::NOENT) => Ok(None),
            entry => entry.map(Some),
        }
    }

    /// Walks a path. Only its last name may be absent.
    pub(super) fn walk(&mut self, path: &Path, follow: bool) -> Result<Found, Errno> {
        let mut names: VecDeque<Vec<u8>> = path.0.iter().map(crate::Name::bytes).collect();
        let own = self.own()?;
        let mut found = Found { parent: self.root, name: OsString::new(), entry: Some(own) };
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            let dir = found.entry.ok_or(Errno::NOENT)?;
            if kind_of(dir.attr.kind) != Kind::Dir {
                return Err(Errno::NOTDIR);
            }
            if name.len() > NAME_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            let entry = self.child(dir.attr.ino, OsStr::from_bytes(&name))?;
            if let Some(link) = entry
                && kind_of(link.attr.kind) == Kind::Symlink
                && (follow || !names.is_empty())
            {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP);
                }
                let target = os(self.fs.readlink(&self.caller, link.attr.ino))?;
                let parts = target.split(|byte| *byte == b'/').filter(|part| *part != b".");
                parts.rev().for_each(|part| names.push_front(part.to_vec()));
                // The target is looked up from the link's directory.
                found = Found { parent: dir.attr.ino, name: OsString::new(), entry: Some(dir) };
                continue;
            }
            found = Found { parent: dir.attr.ino, name: OsString::from_vec(name), entry };
        }
        Ok(found)
    }

    /// The inode that a path leads to.
    pub(super) fn find(&mut self, path: &Path, follow: bool) -> Result<Entry, Errno> {
        self.walk(path, follow)?.entry.ok_or(Errno::NOENT)
    }

    /// Where a new name goes; `EEXIST` if something has it.
    pub(super) fn free_name(&mut self, path: &Path) -> Result<Found, Errno> {
        let found = self.walk(path, false)?;
        if found.entry.is_some() { Err(Errno::EXIST) } else { Ok(found) }
    }

    pub(super) fn open(&mut self, slot: u8, path: &Path, spec: OpenSpec, mode: u16) -> Result<Answer, Errno> {
        if spec.create && spec.directory {
            return Err(Errno::INVAL);
        }
        let exclusive = spec.create && spec.exclusive;
        let flags = OpenSpec { direct: spec.direct && self.common.direct && !spec.append, ..spec };
        let found = self.walk(path, !spec.no_follow && !exclusive)?;
        let open = OpenFlags {
            read: flags.access.reads(),
            write: flags.access.writes(),
            direct: flags.direct,
            sync: false,
        };
        let opened = match found.entry {
            Some(_) if exclusive => return Err(Errno::EXIST),
            Some(entry) => match self.open_existing(&entry, flags, open)? {
                Some(opened) => opened,
                None => return Ok(Answer::Fifo),
            },
            None if !spec.create => return Err(Errno::NOENT),
            None => {
                let mode = 0o100_000 | u32::from(mode) & 0o7777;
                let made =
                    self.fs.create(&self.caller, found.parent, &found.name, mode, UMASK, true, open.into());
                let (entry, opened) = os(made)?;
                self.looked_up.push(entry.attr.ino);
                Slot { ino: entry.attr.ino, handle: opened.handle, kind: Kind::File, flags, position: 0 }
            }
        };
        let before = self.slots.get_mut(usize::from(slot)).ok_or(Errno::BADF)?.replace(opened);
        // Kept for as long as it is open.
        if opened.ino != self.root
            && let Some(at) = self.looked_up.iter().position(|ino| *ino == opened.ino)
        {
            self.looked_up.swap_remove(at);
        }
        before.map_or(Ok(()), |before| self.release(before))?;
        Ok(Answer::Unit)
    }

    /// Opens an existing file, and truncates it on request; `None` for a named
    /// pipe, which only the kernel handles.
    fn open_existing(
        &mut self,
        entry: &Entry,
        flags: OpenSpec,
        open: OpenFlags,
    ) -> Result<Option<Slot>, Errno> {
        let (ino, kind) = (entry.attr.ino, kind_of(entry.attr.kind));
        let slot = |handle| Some(Slot { ino, handle, kind, flags, position: 0 });
        match kind {
            Kind::Symlink if flags.directory => Err(Errno::NOTDIR),
            Kind::Symlink => Err(Errno::LOOP),
            Kind::Dir if flags.create || flags.access.writes() || flags.truncate => Err(Errno::ISDIR),
            Kind::Dir if flags.direct => Err(Errno::INVAL),
            Kind::Dir => Ok(slot(os(self.fs.open_dir(&self.caller, ino))?)),
            _ if flags.directory => Err(Errno::NOTDIR),
            Kind::Fifo if !flags.access.reads() => Err(Errno::NXIO),
            Kind::Fifo if flags.direct => Err(Errno::INVAL),
            Kind::Fifo => Ok(None),
            _ => {
                let request = OpenRequest { flags: open, ..OpenRequest::default() };
                let handle = os(self.fs.open(&self.caller, ino, request))?.handle;
                if flags.truncate {
                    let changes = SetAttr { size: Some(0), ..SetAttr::default() };
                    os(self.fs.setattr(&self.caller, ino, None, &changes))?;
                }
                Ok(slot(handle))
            }
        }
    }

    pub(super) fn close(&mut self, slot: u8) -> Result<Answer, Errno> {
        let place = self.slots.get_mut(usize::from(slot)).ok_or(Errno::BADF)?;
        let open = place.take().ok_or(Errno::BADF)?;
        self.release(open)?;
        Ok(Answer::Unit)
    }

    fn release(&mut self, slot: Slot) -> Result<(), Errno> {
        // The sequence's own directory was not looked up for it.
        if slot.ino != self.root {
            self.looked_up.push(slot.ino);
        }
        if slot.kind == Kind::Dir {
            return os(self.fs.release_dir(slot.handle));
        }
        os(self.fs.flush(&self.caller, slot.handle)).and(os(self.fs.release(slot.handle)))
    }
}
