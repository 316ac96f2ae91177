//! Operations on names.

use super::path::Found;
use super::{Ino, Model, ROOT};
use crate::op::{Path, RenameMode};
use crate::outcome::{Answer, Bytes, Kind, Time};
use rustix::io::Errno;

impl Model {
    /// Where a new name goes; `EEXIST` if something has it.
    fn free_name(&self, path: &Path) -> Result<Found, Errno> {
        let found = self.walk(path, false)?;
        if found.ino.is_some() { Err(Errno::EXIST) } else { Ok(found) }
    }

    fn is_dir(&self, ino: Ino) -> bool {
        self.inodes.get(&ino).is_some_and(|inode| inode.kind == Kind::Dir)
    }

    pub(super) fn make_dir(&mut self, path: &Path, mode: u16) -> Result<Answer, Errno> {
        let found = self.free_name(path)?;
        self.add(&found, Kind::Dir, mode & 0o1777)?;
        Ok(Answer::Unit)
    }

    pub(super) fn make_chain(&mut self, depth: u8) -> Result<Answer, Errno> {
        let mut path = Path(Vec::new());
        let mut made = 0;
        for _ in 0..depth {
            path.0.push(crate::Name::D(9));
            match self.make_dir(&path, 0o755) {
                Ok(_) => made += 1,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Answer::Count(made))
    }

    pub(super) fn make_fifo(&mut self, path: &Path, mode: u16) -> Result<Answer, Errno> {
        let found = self.free_name(path)?;
        self.add(&found, Kind::Fifo, mode & 0o7777)?;
        Ok(Answer::Unit)
    }

    pub(super) fn symlink(&mut self, path: &Path, target: &Path) -> Result<Answer, Errno> {
        let found = self.free_name(path)?;
        let ino = self.add(&found, Kind::Symlink, 0o777)?;
        let inode = self.inode_mut(ino)?;
        inode.mode = 0o777;
        inode.data = target.bytes();
        inode.target = target.clone();
        Ok(Answer::Unit)
    }

    pub(super) fn read_link(&self, path: &Path) -> Result<Answer, Errno> {
        let inode = self.inode(self.find(path, false)?)?;
        match inode.kind {
            Kind::Symlink => Ok(Answer::Bytes(Bytes(inode.data.clone()))),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn read_dir(&self, path: &Path) -> Result<Answer, Errno> {
        let inode = self.inode(self.find(path, true)?)?;
        if inode.kind != Kind::Dir {
            return Err(Errno::NOTDIR);
        }
        let named =
            |(name, ino): (&Vec<u8>, &Ino)| Ok((name.escape_ascii().to_string(), self.inode(*ino)?.kind));
        Ok(Answer::Names(inode.entries.iter().map(named).collect::<Result<_, Errno>>()?))
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Result<Answer, Errno> {
        let ino = self.find(from, false)?;
        let found = self.free_name(to)?;
        if self.is_dir(ino) {
            return Err(Errno::PERM);
        }
        self.inode_mut(ino)?.nlink += 1;
        let parent = self.inode_mut(found.parent)?;
        parent.mtime = Time::Recent;
        parent.entries.insert(found.name, ino);
        Ok(Answer::Unit)
    }

    pub(super) fn unlink(&mut self, path: &Path) -> Result<Answer, Errno> {
        let found = self.walk(path, false)?;
        let ino = found.ino.ok_or(Errno::NOENT)?;
        if self.is_dir(ino) {
            return Err(Errno::ISDIR);
        }
        self.take_name(&found)?;
        self.drop_link(ino)?;
        Ok(Answer::Unit)
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> Result<Answer, Errno> {
        let found = self.walk(path, false)?;
        let ino = found.ino.ok_or(Errno::NOENT)?;
        let inode = self.inode(ino)?;
        if inode.kind != Kind::Dir {
            return Err(Errno::NOTDIR);
        }
        if !inode.entries.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.take_name(&found)?;
        self.drop_link(ino)?;
        Ok(Answer::Unit)
    }

    /// Takes a name out of its directory.
    fn take_name(&mut self, found: &Found) -> Result<(), Errno> {
        let parent = self.inode_mut(found.parent)?;
        parent.entries.remove(&found.name);
        parent.mtime = Time::Recent;
        Ok(())
    }

    /// Takes one link off an inode; a directory has only the one.
    fn drop_link(&mut self, ino: Ino) -> Result<(), Errno> {
        let inode = self.inode_mut(ino)?;
        if inode.kind == Kind::Dir {
            inode.nlink = 0;
            let parent = inode.parent;
            self.inode_mut(parent)?.nlink -= 1;
        } else {
            inode.nlink -= 1;
        }
        self.forget(ino);
        Ok(())
    }

    /// Whether `dir` is `ino` or below it.
    fn is_below(&self, mut dir: Ino, ino: Ino) -> Result<bool, Errno> {
        loop {
            if dir == ino {
                return Ok(true);
            }
            if dir == ROOT {
                return Ok(false);
            }
            dir = self.inode(dir)?.parent;
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, mode: RenameMode) -> Result<Answer, Errno> {
        let source = self.walk_parent(from)?;
        let target = self.walk_parent(to)?;
        let source = self.look_up(source)?;
        let ino = source.ino.ok_or(Errno::NOENT)?;
        let target = self.look_up(target)?;
        match (mode, target.ino) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        let exchange = mode == RenameMode::Exchange;
        if source.parent != target.parent {
            if self.is_below(target.parent, ino)? {
                return Err(Errno::INVAL);
            }
            if let Some(victim) = target.ino
                && self.is_below(source.parent, victim)?
            {
                return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY });
            }
        }
        match target.ino {
            Some(victim) if victim == ino => return Ok(Answer::Unit),
            Some(victim) if exchange => return self.exchange(&source, ino, &target, victim),
            Some(victim) => self.check_victim(ino, victim)?,
            None => {}
        }
        self.move_to(&source, ino, &target)
    }

    fn check_victim(&self, ino: Ino, victim: Ino) -> Result<(), Errno> {
        match (self.is_dir(ino), self.is_dir(victim)) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            (true, true) if !self.inode(victim)?.entries.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    fn move_to(&mut self, source: &Found, ino: Ino, target: &Found) -> Result<Answer, Errno> {
        self.take_name(source)?;
        if let Some(victim) = target.ino {
            self.take_name(target)?;
            self.drop_link(victim)?;
        }
        let parent = self.inode_mut(target.parent)?;
        parent.mtime = Time::Recent;
        parent.entries.insert(target.name.clone(), ino);
        self.reparent(ino, source.parent, target.parent)?;
        Ok(Answer::Unit)
    }

    fn exchange(&mut self, source: &Found, ino: Ino, target: &Found, other: Ino) -> Result<Answer, Errno> {
        for (found, ino) in [(source, other), (target, ino)] {
            let parent = self.inode_mut(found.parent)?;
            parent.mtime = Time::Recent;
            parent.entries.insert(found.name.clone(), ino);
        }
        self.reparent(ino, source.parent, target.parent)?;
        self.reparent(other, target.parent, source.parent)?;
        Ok(Answer::Unit)
    }

    /// Moves the link that a directory holds on its parent.
    fn reparent(&mut self, ino: Ino, before: Ino, after: Ino) -> Result<(), Errno> {
        if self.is_dir(ino) {
            self.inode_mut(ino)?.parent = after;
            self.inode_mut(before)?.nlink -= 1;
            self.inode_mut(after)?.nlink += 1;
        }
        Ok(())
    }

    /// Walks all but the last name, as `rename` does with both paths before it
    /// looks at either name.
    fn walk_parent(&self, path: &Path) -> Result<(Ino, Vec<u8>), Errno> {
        let (last, parents) = path.0.split_last().ok_or(Errno::BUSY)?;
        let parent = self.find(&Path(parents.to_vec()), true)?;
        if self.is_dir(parent) { Ok((parent, last.bytes())) } else { Err(Errno::NOTDIR) }
    }

    fn look_up(&self, (parent, name): (Ino, Vec<u8>)) -> Result<Found, Errno> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        let ino = self.inode(parent)?.entries.get(&name).copied();
        Ok(Found { parent, name, ino })
    }
}
