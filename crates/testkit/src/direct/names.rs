//! Operations on names.

use super::{Direct, UMASK, kind_of, os};
use crate::op::{Op, Path, RenameMode};
use crate::outcome::{Answer, Bytes, Kind};
use braid_contract::{DirEntry, DirSink, FileKind, InodeId};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Takes a few entries at a time.
struct Listing {
    left: usize,
    entries: Vec<(OsString, Option<FileKind>)>,
    offset: i64,
}

impl DirSink for Listing {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.offset = entry.next_offset;
        self.entries.push((entry.name.to_owned(), entry.kind));
        true
    }
}

impl Direct {
    pub(super) fn names(&mut self, op: &Op) -> Result<Answer, Errno> {
        match op {
            Op::Rename { from, to, mode } => self.rename(from, to, *mode)?,
            Op::Link { from, to } => {
                let ino = self.find(from, false)?.attr.ino;
                let to = self.free_name(to)?;
                let linked = self.fs.link(&self.caller, ino, to.parent, &to.name);
                self.noted(linked)?;
            }
            Op::Symlink { path, target } => {
                let found = self.free_name(path)?;
                let target = target.bytes();
                let made =
                    self.fs.symlink(&self.caller, found.parent, &found.name, OsStr::from_bytes(&target));
                self.noted(made)?;
            }
            Op::ReadLink { path } => {
                let attr = self.find(path, false)?.attr;
                if kind_of(attr.kind) != Kind::Symlink {
                    return Err(Errno::INVAL);
                }
                return Ok(Answer::Bytes(Bytes(os(self.fs.readlink(&self.caller, attr.ino))?)));
            }
            Op::Unlink { path } => {
                let found = self.walk(path, false)?;
                found.entry.ok_or(Errno::NOENT)?;
                os(self.fs.unlink(&self.caller, found.parent, &found.name))?;
            }
            Op::RemoveDir { path } => {
                let found = self.walk(path, false)?;
                found.entry.ok_or(Errno::NOENT)?;
                os(self.fs.rmdir(&self.caller, found.parent, &found.name))?;
            }
            Op::MakeDir { path, mode } => self.make_dir(path, *mode)?,
            Op::MakeDirChain { depth } => return self.make_chain(*depth),
            Op::MakeFifo { path, mode } => {
                let found = self.free_name(path)?;
                let mode = 0o010_000 | u32::from(*mode) & 0o7777;
                let made = self.fs.mknod(&self.caller, found.parent, &found.name, mode, UMASK, 0);
                self.noted(made)?;
            }
            Op::ReadDir { path } => return self.read_dir(path),
            _ => return Ok(Answer::Skipped),
        }
        Ok(Answer::Unit)
    }

    fn make_dir(&mut self, path: &Path, mode: u16) -> Result<(), Errno> {
        let found = self.free_name(path)?;
        let mode = u32::from(mode) & 0o1777;
        let made = self.fs.mkdir(&self.caller, found.parent, &found.name, mode, UMASK);
        self.noted(made).map(drop)
    }

    /// Makes the directories of a chain that do not exist; answers how many.
    fn make_chain(&mut self, depth: u8) -> Result<Answer, Errno> {
        let (mut path, mut made) = (Path(Vec::new()), 0);
        for _ in 0..depth {
            path.0.push(crate::Name::D(9));
            match self.make_dir(&path, 0o755) {
                Ok(()) => made += 1,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Answer::Count(made))
    }

    /// Both directories are found before either name is looked at.
    fn rename(&mut self, from: &Path, to: &Path, mode: RenameMode) -> Result<(), Errno> {
        let (parent, name) = self.parent_of(from)?;
        let (new_parent, new_name) = self.parent_of(to)?;
        let mode = match mode {
            RenameMode::Replace => braid_contract::RenameMode::Replace,
            RenameMode::NoReplace => braid_contract::RenameMode::NoReplace,
            RenameMode::Exchange => braid_contract::RenameMode::Exchange,
        };
        let (name, new_name) = (OsStr::from_bytes(&name), OsStr::from_bytes(&new_name));
        match os(self.fs.rename(&self.caller, parent, name, new_parent, new_name, mode)) {
            // POSIX allows both for a directory with names.
            Err(Errno::EXIST) if mode == braid_contract::RenameMode::Replace => Err(Errno::NOTEMPTY),
            result => result,
        }
    }

    /// The directory of the last name of a path, and that name.
    fn parent_of(&mut self, path: &Path) -> Result<(InodeId, Vec<u8>), Errno> {
        let (last, parents) = path.0.split_last().ok_or(Errno::BUSY)?;
        let parent = self.find(&Path(parents.to_vec()), true)?;
        match kind_of(parent.attr.kind) {
            Kind::Dir => Ok((parent.attr.ino, last.bytes())),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn read_dir(&mut self, path: &Path) -> Result<Answer, Errno> {
        let dir = self.find(path, true)?.attr;
        if kind_of(dir.kind) != Kind::Dir {
            return Err(Errno::NOTDIR);
        }
        let (mut names, mut special) = (BTreeMap::new(), 0);
        for (name, kind) in self.entries(dir.ino)? {
            if name == "." || name == ".." {
                special += 1;
                continue;
            }
            let kind = match kind {
                Some(kind) => kind,
                None => self.child(dir.ino, &name)?.ok_or(Errno::NOENT)?.attr.kind,
            };
            let text = name.as_bytes().escape_ascii().to_string();
            if names.insert(text.clone(), kind_of(kind)).is_some() {
                return Ok(Answer::Inconsistent(format!("\"{text}\" is listed twice")));
            }
        }
        if special != 2 {
            return Ok(Answer::Inconsistent(format!("\".\" and \"..\" are listed {special} times together")));
        }
        Ok(Answer::Names(names))
    }

    /// All entries of a directory.
    pub(super) fn entries(&self, dir: InodeId) -> Result<Vec<(OsString, Option<FileKind>)>, Errno> {
        const AT_A_TIME: usize = 5;
        let handle = os(self.fs.open_dir(&self.caller, dir))?;
        let mut sink = Listing { left: AT_A_TIME, entries: Vec::new(), offset: 0 };
        let read = loop {
            let before = sink.entries.len();
            let read = os(self.fs.read_dir(&self.caller, handle, sink.offset, false, &mut sink));
            if read.is_err() || sink.entries.len() == before {
                break read;
            }
            sink.left = AT_A_TIME;
        };
        os(self.fs.release_dir(handle))?;
        read.map(|()| sink.entries)
    }

    /// Removes everything in a directory.
    pub(super) fn remove_all(&mut self, dir: InodeId) -> std::io::Result<()> {
        for (name, _) in self.entries(dir)? {
            if name == "." || name == ".." {
                continue;
            }
            let Some(entry) = self.child(dir, &name)? else { continue };
            if kind_of(entry.attr.kind) == Kind::Dir {
                self.remove_all(entry.attr.ino)?;
                self.fs.rmdir(&self.caller, dir, &name)?;
            } else {
                self.fs.unlink(&self.caller, dir, &name)?;
            }
        }
        Ok(())
    }
}
