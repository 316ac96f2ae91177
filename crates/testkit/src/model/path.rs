//! Path walks, and opening.

use super::{Ino, Inode, Model, ROOT, Slot, UMASK};
use crate::op::{OpenSpec, Path};
use crate::outcome::{Answer, Kind, Time};
use rustix::io::Errno;
use std::collections::VecDeque;

const NAME_MAX: usize = 255;
const LINKS_MAX: usize = 40;

/// The result of a path walk: a directory, a name in it, and its inode.
pub(super) struct Found {
    pub(super) parent: Ino,
    pub(super) name: Vec<u8>,
    pub(super) ino: Option<Ino>,
}

impl Model {
    /// Walks a path. Only its last name may be absent.
    pub(super) fn walk(&self, path: &Path, follow: bool) -> Result<Found, Errno> {
        let mut names: VecDeque<Vec<u8>> = path.0.iter().map(crate::Name::bytes).collect();
        let mut found = Found { parent: ROOT, name: Vec::new(), ino: Some(ROOT) };
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            let dir = found.ino.ok_or(Errno::NOENT)?;
            let inode = self.inode(dir)?;
            if inode.kind != Kind::Dir {
                return Err(Errno::NOTDIR);
            }
            if name.len() > NAME_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            let ino = inode.entries.get(&name).copied();
            if let Some(link) = ino.map(|ino| self.inode(ino)).transpose()?
                && link.kind == Kind::Symlink
                && (follow || !names.is_empty())
            {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP);
                }
                for name in link.target.0.iter().rev() {
                    names.push_front(name.bytes());
                }
                // The target is looked up from the link's directory.
                found = Found { parent: dir, name: Vec::new(), ino: Some(dir) };
                continue;
            }
            found = Found { parent: dir, name, ino };
        }
        Ok(found)
    }

    /// The inode that a path leads to.
    pub(super) fn find(&self, path: &Path, follow: bool) -> Result<Ino, Errno> {
        self.walk(path, follow)?.ino.ok_or(Errno::NOENT)
    }

    /// Makes an inode with one name, which is free.
    pub(super) fn add(&mut self, found: &Found, kind: Kind, mode: u16) -> Result<Ino, Errno> {
        let parent = self.inode(found.parent)?;
        let inherits = parent.mode & 0o2000 != 0;
        let (uid, mut gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mut mode = mode & !UMASK;
        if inherits {
            gid = parent.gid;
            if kind == Kind::Dir {
                mode |= 0o2000;
            }
        }
        let mut inode = Inode::new(kind, mode, uid, gid);
        inode.parent = found.parent;
        let ino = self.next;
        self.next += 1;
        let parent = self.inode_mut(found.parent)?;
        parent.mtime = Time::Recent;
        parent.entries.insert(found.name.clone(), ino);
        if kind == Kind::Dir {
            inode.nlink = 2;
            parent.nlink += 1;
        }
        self.inodes.insert(ino, inode);
        Ok(ino)
    }

    pub(super) fn open(
        &mut self,
        slot: u8,
        path: &Path,
        flags: OpenSpec,
        mode: u16,
    ) -> Result<Answer, Errno> {
        if flags.create && flags.directory {
            return Err(Errno::INVAL);
        }
        let exclusive = flags.create && flags.exclusive;
        let found = self.walk(path, !flags.no_follow && !exclusive)?;
        let ino = match found.ino {
            Some(_) if exclusive => return Err(Errno::EXIST),
            Some(ino) => {
                if let Some(answer) = self.open_existing(ino, flags)? {
                    return Ok(answer);
                }
                ino
            }
            None if !flags.create => return Err(Errno::NOENT),
            None => self.add(&found, Kind::File, mode & 0o7777)?,
        };
        let before = self.slots[usize::from(slot)].take();
        let direct = flags.direct && self.common.direct && !flags.append;
        self.slots[usize::from(slot)] = Some(Slot { ino, flags: OpenSpec { direct, ..flags }, position: 0 });
        if let Some(before) = before {
            self.forget(before.ino);
        }
        Ok(Answer::Unit)
    }

    /// Checks that an inode may be opened so, and truncates it if asked. An
    /// answer means that there is nothing to do but to open it.
    fn open_existing(&mut self, ino: Ino, flags: OpenSpec) -> Result<Option<Answer>, Errno> {
        let direct = flags.direct && self.common.direct && !flags.append;
        let inode = self.inode_mut(ino)?;
        match inode.kind {
            Kind::Symlink if flags.directory => Err(Errno::NOTDIR),
            Kind::Symlink => Err(Errno::LOOP),
            Kind::Dir if flags.create || flags.access.writes() || flags.truncate => Err(Errno::ISDIR),
            Kind::Dir if direct => Err(Errno::INVAL),
            Kind::Dir => Ok(None),
            _ if flags.directory => Err(Errno::NOTDIR),
            // The other end of a named pipe is never open.
            Kind::Fifo if !flags.access.reads() => Err(Errno::NXIO),
            Kind::Fifo if direct => Err(Errno::INVAL),
            Kind::Fifo => Ok(Some(Answer::Fifo)),
            _ => {
                if flags.truncate {
                    inode.data.clear();
                    inode.mtime = Time::Recent;
                }
                Ok(None)
            }
        }
    }
}
