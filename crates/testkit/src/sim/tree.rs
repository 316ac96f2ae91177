//! Operations on names: paths, and the kernel's answers to them.

use super::inode::{Body, Dir, Entry, Node, ROOT};
use super::names::NameChange;
use super::state::{Context, State};
use braid_contract::{Errno, RenameMode, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const NAME_MAX: usize = 255;
/// Mode of the whiteout that a rename leaves under the old name, if asked to.
const WHITEOUT: u32 = 0o020_000;

/// The end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Last<'a> {
    Name(&'a OsStr),
    Dot,
    DotDot,
}

impl State {
    fn dir(&self, ino: u64) -> Result<&Dir> {
        self.node(ino)?.dir().ok_or_else(|| Errno::ENOTDIR.into())
    }

    /// The directory above.
    pub(super) fn parent(&self, ino: u64) -> Result<u64> {
        Ok(self.node(ino)?.names.first().map_or(ino, |link| link.dir))
    }

    fn find(&self, dir: u64, name: &OsStr) -> Result<Option<u64>> {
        let dir = self.dir(dir)?;
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        Ok(dir.entries.get(name).map(|entry| entry.ino))
    }

    fn step(&self, dir: u64, component: Last<'_>) -> Result<u64> {
        match component {
            Last::Name(name) => self.find(dir, name)?.ok_or_else(|| Errno::ENOENT.into()),
            Last::Dot => self.dir(dir).map(|_| dir),
            Last::DotDot => self.dir(dir).and_then(|_| self.parent(dir)),
        }
    }

    /// Walks a path up to its end. Symbolic links on the way are refused.
    pub(super) fn walk<'a>(&self, dir: u64, path: &'a OsStr) -> Result<(u64, Last<'a>)> {
        let mut parts = path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let mut part = parts.next().ok_or(Errno::ENOENT)?;
        let mut at = dir;
        for next in parts {
            at = self.step(at, component(part))?;
            if matches!(self.node(at)?.body, Body::Symlink(_)) {
                return Err(Errno::ELOOP.into());
            }
            part = next;
        }
        self.dir(at)?;
        Ok((at, component(part)))
    }

    /// The inode that a path leads to.
    pub(super) fn lookup(&self, dir: u64, path: &OsStr) -> Result<u64> {
        let (dir, last) = self.walk(dir, path)?;
        self.step(dir, last)
    }

    /// The directory and name where something can be made.
    fn vacancy(&self, dir: u64, path: &OsStr) -> Result<(u64, Arc<OsStr>)> {
        match self.walk(dir, path)? {
            (dir, Last::Name(name)) if self.find(dir, name)?.is_none() => {
                self.must_exist(dir)?;
                Ok((dir, name.into()))
            }
            _ => Err(Errno::EEXIST.into()),
        }
    }

    /// A directory that was removed takes no names.
    fn must_exist(&self, dir: u64) -> Result<()> {
        let gone = dir != ROOT && self.node(dir)?.names.is_empty();
        if gone { Err(Errno::ENOENT.into()) } else { Ok(()) }
    }

    /// Makes an inode.
    pub(super) fn make(
        &mut self,
        context: &Context<'_>,
        dir: u64,
        path: &OsStr,
        mode: u32,
        rdev: u32,
        body: Body,
    ) -> Result<u64> {
        let (dir, name) = self.vacancy(dir, path)?;
        let mut node = self.new_node(context, dir, mode, body)?;
        node.rdev = rdev;
        let ino = self.add_inode(node);
        let change = NameChange { dir, name, old: None, new: Some(ino) };
        self.change_names(context, vec![change], None, false);
        Ok(ino)
    }

    /// Makes a file without a name.
    pub(super) fn make_unnamed(
        &mut self,
        context: &Context<'_>,
        dir: u64,
        mode: u32,
        body: Body,
    ) -> Result<u64> {
        self.dir(dir)?;
        let node = self.new_node(context, dir, mode, body)?;
        let ino = self.add_inode(node);
        // The number of its birth must not be that of the next change.
        self.next_seq();
        if let Some(inode) = self.inode_mut(ino) {
            inode.linkable = true;
        }
        Ok(ino)
    }

    /// An inode as it is made in a directory.
    fn new_node(&self, context: &Context<'_>, dir: u64, mode: u32, body: Body) -> Result<Node> {
        let mut node = Node::new(mode, body, context.now);
        let parent = self.node(dir)?;
        if parent.mode & 0o2000 != 0 {
            node.gid = parent.gid;
            if node.is_dir() {
                node.mode |= 0o2000;
            }
        }
        Ok(node)
    }

    pub(super) fn link(&mut self, context: &Context<'_>, ino: u64, dir: u64, path: &OsStr) -> Result<()> {
        let (dir, name) = self.vacancy(dir, path)?;
        let node = self.node(ino)?;
        if node.is_dir() {
            return Err(Errno::EPERM.into());
        }
        if node.names.is_empty() && !self.inode(ino)?.linkable {
            return Err(Errno::ENOENT.into());
        }
        if let Some(inode) = self.inode_mut(ino) {
            inode.linkable = false;
        }
        let change = NameChange { dir, name, old: None, new: Some(ino) };
        self.change_names(context, vec![change], None, false);
        Ok(())
    }

    pub(super) fn remove(
        &mut self,
        context: &Context<'_>,
        dir: u64,
        path: &OsStr,
        want_dir: bool,
    ) -> Result<()> {
        let (dir, name) = match self.walk(dir, path)? {
            (dir, Last::Name(name)) => (dir, name),
            (_, Last::Dot) if want_dir => return Err(Errno::EINVAL.into()),
            (_, Last::DotDot) if want_dir => return Err(Errno::ENOTEMPTY.into()),
            _ => return Err(Errno::EISDIR.into()),
        };
        let ino = self.find(dir, name)?.ok_or(Errno::ENOENT)?;
        match (self.node(ino)?.dir(), want_dir) {
            (Some(_), false) => return Err(Errno::EISDIR.into()),
            (None, true) => return Err(Errno::ENOTDIR.into()),
            (Some(dir), true) if !dir.entries.is_empty() => return Err(Errno::ENOTEMPTY.into()),
            _ => {}
        }
        let change = NameChange { dir, name: name.into(), old: Some(ino), new: None };
        self.change_names(context, vec![change], want_dir.then_some(ino), false);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        context: &Context<'_>,
        (from, path): (u64, &OsStr),
        (to, new_path): (u64, &OsStr),
        mode: RenameMode,
    ) -> Result<()> {
        let (from, last) = self.walk(from, path)?;
        let (to, new_last) = self.walk(to, new_path)?;
        let Last::Name(name) = last else { return Err(Errno::EBUSY.into()) };
        let Last::Name(new_name) = new_last else {
            let exists = mode == RenameMode::NoReplace;
            return Err(if exists { Errno::EEXIST } else { Errno::EBUSY }.into());
        };
        let source = self.find(from, name)?.ok_or(Errno::ENOENT)?;
        let target = self.find(to, new_name)?;
        self.check_rename((from, source), (to, target), mode)?;
        if target == Some(source) {
            return Ok(());
        }
        let exchange = mode == RenameMode::Exchange;
        let is_dir = |ino: u64| self.inodes.get(&ino).is_some_and(|inode| inode.live.is_dir());
        let replaced_dir = target.filter(|target| !exchange && is_dir(*target));
        let moves_dir = from != to && (is_dir(source) || (exchange && target.is_some_and(is_dir)));
        let left = match mode {
            RenameMode::Exchange => target,
            RenameMode::Whiteout => {
                let node = self.new_node(context, from, WHITEOUT, Body::Other)?;
                Some(self.add_inode(node))
            }
            RenameMode::Replace | RenameMode::NoReplace => None,
        };
        let changes = vec![
            NameChange { dir: from, name: name.into(), old: Some(source), new: left },
            NameChange { dir: to, name: new_name.into(), old: target, new: Some(source) },
        ];
        self.change_names(context, changes, replaced_dir, moves_dir);
        Ok(())
    }

    /// The kernel's checks before a rename, in its order.
    fn check_rename(
        &self,
        (from, source): (u64, u64),
        (to, target): (u64, Option<u64>),
        mode: RenameMode,
    ) -> Result<()> {
        let exchange = mode == RenameMode::Exchange;
        match target {
            Some(_) if mode == RenameMode::NoReplace => return Err(Errno::EEXIST.into()),
            None if exchange => return Err(Errno::ENOENT.into()),
            _ => {}
        }
        if self.is_above(source, to)? {
            return Err(Errno::EINVAL.into());
        }
        if let Some(target) = target
            && self.is_above(target, from)?
        {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
        }
        self.must_exist(to)?;
        let Some(target) = target.filter(|target| *target != source && !exchange) else { return Ok(()) };
        match (self.node(source)?.dir(), self.node(target)?.dir()) {
            (Some(_), None) => Err(Errno::ENOTDIR.into()),
            (None, Some(_)) => Err(Errno::EISDIR.into()),
            (Some(_), Some(dir)) if !dir.entries.is_empty() => Err(Errno::ENOTEMPTY.into()),
            _ => Ok(()),
        }
    }

    /// Whether `dir` is `ino` or below it.
    fn is_above(&self, ino: u64, mut dir: u64) -> Result<bool> {
        loop {
            if dir == ino {
                return Ok(true);
            }
            let parent = self.parent(dir)?;
            if parent == dir {
                return Ok(false);
            }
            dir = parent;
        }
    }

    /// The entries of a directory after `offset`, not all at once.
    pub(super) fn list(&self, ino: u64, offset: i64) -> Result<Vec<(Arc<OsStr>, Entry)>> {
        const AT_ONCE: usize = 256;
        let dir = self.dir(ino)?;
        let dots = [(".", ino, 1), ("..", self.parent(ino)?, 2)];
        let dots = dots.into_iter().filter(|(.., cookie)| *cookie > offset);
        let dots = dots
            .map(|(name, ino, cookie)| (Arc::from(OsStr::new(name)), Entry { ino, kind: 0o040_000, cookie }));
        let names = dir.by_cookie.range(offset.max(2) + 1..).take(AT_ONCE);
        let names = names.filter_map(|(_, name)| Some((name.clone(), *dir.entries.get(name)?)));
        Ok(dots.chain(names).collect())
    }
}

fn component(part: &[u8]) -> Last<'_> {
    match part {
        b"." => Last::Dot,
        b".." => Last::DotDot,
        name => Last::Name(OsStr::from_bytes(name)),
    }
}
