//! A file system in memory: the expected results of operations.
//!
//! It models the view of the superuser on Linux, so it knows no permission
//! checks, and it never runs out of room. Clones are cheap: the state after
//! each operation of a sequence can be kept.

mod attrs;
mod data;
mod names;
mod path;

use crate::op::{Op, OpenSpec, Path, SLOTS, Target};
use crate::outcome::{Answer, Bytes, Failed, Kind, Outcome, Stat, Time};
use crate::tree::{Content, Node, Tree};
use crate::{Common, Side, Subject};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The number of an inode; never used again after the inode is gone.
type Ino = u64;

const ROOT: Ino = 1;

/// The file mode creation mask that is taken off the modes of new files. Native
/// subjects have that of the process.
const UMASK: u16 = 0o022;

#[derive(Clone, Debug)]
struct Inode {
    kind: Kind,
    mode: u16,
    uid: u32,
    gid: u32,
    nlink: u64,
    mtime: Time,
    /// A regular file's bytes, or a symbolic link's target.
    data: Vec<u8>,
    /// A directory's names.
    entries: BTreeMap<Vec<u8>, Ino>,
    /// A directory's parent.
    parent: Ino,
    /// A symbolic link's target, parsed.
    target: Path,
    xattrs: BTreeMap<String, Bytes>,
}

#[derive(Clone, Debug)]
struct Slot {
    ino: Ino,
    flags: OpenSpec,
    position: u64,
}

/// A file system in memory.
#[derive(Clone, Debug)]
pub struct Model {
    inodes: BTreeMap<Ino, Inode>,
    next: Ino,
    slots: [Option<Slot>; SLOTS as usize],
    common: Arc<Common>,
}

impl Model {
    /// An empty file system, whose root belongs to the process's user.
    #[must_use]
    pub fn new(common: Arc<Common>) -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mut root = Inode::new(Kind::Dir, 0o777 & !UMASK, uid, gid);
        root.nlink = 2;
        root.parent = ROOT;
        let inodes = BTreeMap::from([(ROOT, root)]);
        Self { inodes, next: ROOT + 1, slots: Default::default(), common }
    }

    fn inode(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.inodes.get(&ino).ok_or(Errno::STALE)
    }

    fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino).ok_or(Errno::STALE)
    }

    fn slot(&self, slot: u8) -> Result<&Slot, Errno> {
        self.slots.get(usize::from(slot)).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    fn slot_mut(&mut self, slot: u8) -> Result<&mut Slot, Errno> {
        self.slots.get_mut(usize::from(slot)).and_then(Option::as_mut).ok_or(Errno::BADF)
    }

    /// The inode that an operation on attributes is about.
    fn target(&self, target: &Target) -> Result<Ino, Errno> {
        match target {
            Target::Slot(slot) => Ok(self.slot(*slot)?.ino),
            Target::Path(path) => self.find(path, true),
            Target::NoFollow(path) => self.find(path, false),
        }
    }

    /// Forgets an inode without names or opens.
    fn forget(&mut self, ino: Ino) {
        let open = self.slots.iter().flatten().any(|slot| slot.ino == ino);
        if !open && self.inodes.get(&ino).is_some_and(|inode| inode.nlink == 0) {
            self.inodes.remove(&ino);
        }
    }

    fn run(&mut self, op: &Op) -> Result<Answer, Errno> {
        match op {
            Op::Open { slot, path, flags, mode } => self.open(*slot, path, *flags, *mode),
            Op::Close { slot } => self.close(*slot),
            Op::Read { slot, len } => self.read(*slot, *len),
            Op::Pread { slot, offset, len } => self.pread(*slot, *offset, *len),
            Op::Write { slot, data } => self.write(*slot, *data),
            Op::Pwrite { slot, offset, data } => self.pwrite(*slot, *offset, *data),
            Op::Seek { slot, to } => self.seek(*slot, *to),
            Op::Truncate { target, len } => self.truncate(target, *len),
            Op::Allocate { slot, mode, offset, len } => self.allocate(*slot, *mode, *offset, *len),
            Op::Copy { from, from_offset, to, to_offset, len } => {
                self.copy(*from, *from_offset, *to, *to_offset, *len)
            }
            Op::Sync { slot, .. } => self.slot(*slot).map(|_| Answer::Unit),
            Op::Rename { from, to, mode } => self.rename(from, to, *mode),
            Op::Link { from, to } => self.link(from, to),
            Op::Symlink { path, target } => self.symlink(path, target),
            Op::ReadLink { path } => self.read_link(path),
            Op::Unlink { path } => self.unlink(path),
            Op::MakeDir { path, mode } => self.make_dir(path, *mode),
            Op::MakeDirChain { depth } => self.make_chain(*depth),
            Op::RemoveDir { path } => self.remove_dir(path),
            Op::MakeFifo { path, mode } => self.make_fifo(path, *mode),
            Op::ReadDir { path } => self.read_dir(path),
            _ => self.attributes(op),
        }
    }

    fn close(&mut self, slot: u8) -> Result<Answer, Errno> {
        let ino = self.slot(slot)?.ino;
        self.slots[usize::from(slot)] = None;
        self.forget(ino);
        Ok(Answer::Unit)
    }

    fn node(&self, ino: Ino) -> Result<Node, Errno> {
        let inode = self.inode(ino)?;
        let content = match inode.kind {
            Kind::File | Kind::Symlink => Content::Bytes(Bytes(inode.data.clone())),
            _ => Content::None,
        };
        Ok(Node { stat: self.stat_of(inode), first: Vec::new(), content, xattrs: inode.xattrs.clone() })
    }

    fn stat_of(&self, inode: &Inode) -> Stat {
        Stat {
            kind: inode.kind,
            mode: inode.mode,
            nlink: if inode.kind == Kind::Dir && !self.common.dir_links { 0 } else { inode.nlink },
            uid: inode.uid,
            gid: inode.gid,
            size: inode.data.len() as u64,
            mtime: inode.mtime,
            atime: Time::Any,
            wrong: None,
        }
    }

    fn read_tree(&self) -> Result<Tree, Errno> {
        let mut tree = Tree::default();
        let mut pending = vec![(Vec::new(), ROOT)];
        let mut inos = BTreeMap::new();
        while let Some((path, ino)) = pending.pop() {
            for (name, child) in &self.inode(ino)?.entries {
                let mut child_path: Vec<u8> = path.clone();
                if !child_path.is_empty() {
                    child_path.push(b'/');
                }
                child_path.extend(name);
                pending.push((child_path, *child));
            }
            tree.nodes.insert(path.clone(), self.node(ino)?);
            inos.insert(path, ino);
        }
        let mut firsts = BTreeMap::new();
        for (path, node) in &mut tree.nodes {
            let first: &mut Vec<u8> = firsts.entry(inos.get(path)).or_insert_with(|| path.clone());
            node.first.clone_from(first);
        }
        for slot in 0..SLOTS {
            let Ok(open) = self.slot(slot) else { continue };
            let mut node = self.node(open.ino)?;
            node.xattrs.clear();
            if node.stat.kind == Kind::File && !open.flags.access.reads() {
                node.content = Content::Failed(Failed(Errno::BADF));
            }
            tree.open.insert(slot, node);
        }
        Ok(tree)
    }
}

impl Inode {
    fn new(kind: Kind, mode: u16, uid: u32, gid: u32) -> Self {
        Self {
            kind,
            mode,
            uid,
            gid,
            nlink: 1,
            mtime: Time::Recent,
            data: Vec::new(),
            entries: BTreeMap::new(),
            parent: ROOT,
            target: Path(Vec::new()),
            xattrs: BTreeMap::new(),
        }
    }
}

impl Subject for Model {
    fn apply(&mut self, op: &Op) -> Outcome {
        self.run(op).map_err(Failed)
    }

    fn snapshot(&mut self) -> Result<Tree, Errno> {
        self.read_tree()
    }
}

/// Makes a [`Model`] for each sequence.
#[derive(Clone, Debug)]
pub struct ModelSide(pub Arc<Common>);

impl Side for ModelSide {
    fn begin(&self, _case: &str) -> io::Result<Box<dyn Subject>> {
        Ok(Box::new(Model::new(self.0.clone())))
    }

    fn end(&self, _case: &str) -> io::Result<()> {
        Ok(())
    }
}
