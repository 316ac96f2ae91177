//! The table of inodes that the front end knows.

use super::home::{Home, Identity, Node};
use crate::file::File;
use crate::sync::Mutex;
use braid_contract::{Access, Errno, Fd, FileKind, InodeId, NativeHandle, Result};
use lru::LruCache;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

const SHARDS: usize = 16;

/// Descriptors that are kept for inodes in use, at most.
const PATHS_KEPT: NonZeroUsize = NonZeroUsize::new(1024).expect("1024 is not zero");

/// What is known of a regular file without looking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Unknown,
    Plain,
    Spread,
}

/// An inode of the namespace. Small: there is one for each inode that the
/// kernel remembers.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) ino: InodeId,
    pub(crate) kind: FileKind,
    pub(crate) generation: u64,
    node: Node,
    shape: AtomicU8,
    /// The live state of a regular file, while somebody uses it.
    pub(crate) file: Mutex<Weak<File>>,
}

impl Inode {
    pub(crate) fn shape(&self) -> Shape {
        match self.shape.load(Ordering::Relaxed) {
            1 => Shape::Plain,
            2 => Shape::Spread,
            _ => Shape::Unknown,
        }
    }

    /// Whether it may be a file with an index.
    pub(crate) fn may_be_spread(&self) -> bool {
        self.kind == FileKind::Regular && self.shape() != Shape::Plain
    }

    pub(crate) fn set_shape(&self, shape: Shape) {
        self.shape.store(shape as u8, Ordering::Relaxed);
    }

    /// The handle by which it is opened, where it is.
    pub(crate) fn handle(&self) -> Option<&NativeHandle> {
        match &self.node {
            Node::Handle(handle, _) => Some(handle),
            Node::Pinned(_) => None,
        }
    }

    /// Whether it is an inode of the directory that is home now.
    pub(crate) fn is_of(&self, home: &Home) -> bool {
        match &self.node {
            Node::Handle(_, turn) => *turn == home.turn(),
            // Home is not replaced where inodes are pinned.
            Node::Pinned(_) => true,
        }
    }

    /// The same inode on another home directory, under the same number.
    pub(crate) fn moved(&self, handle: NativeHandle, turn: u32) -> Self {
        Self {
            ino: self.ino,
            kind: self.kind,
            generation: self.generation,
            node: Node::Handle(handle, turn),
            shape: AtomicU8::new(self.shape.load(Ordering::Relaxed)),
            file: Mutex::new(Weak::new()),
        }
    }

    fn is(&self, handle: Option<&NativeHandle>) -> bool {
        match &self.node {
            Node::Handle(mine, _) => handle == Some(mine),
            // A pinned inode's number is not given to another one.
            Node::Pinned(_) => true,
        }
    }
}

/// An inode and how often the front end looked it up.
pub(crate) struct Known {
    pub(crate) inode: Arc<Inode>,
    pub(crate) lookups: u64,
}

/// All inodes that the front end has looked up and not forgotten.
pub(crate) struct InodeTable {
    shards: [Mutex<HashMap<InodeId, Known>>; SHARDS],
    /// Descriptors of inodes used lately, so that a path walk does not open
    /// each directory anew.
    paths: Mutex<LruCache<InodeId, Fd>>,
    /// Inodes that are to be dropped when their last user is done.
    in_use: Mutex<Vec<InodeId>>,
}

impl InodeTable {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            paths: Mutex::new(LruCache::new(PATHS_KEPT)),
            in_use: Mutex::new(Vec::new()),
        }
    }

    /// The inode behind `fd`, with one more lookup.
    pub(crate) fn enter(&self, home: &Home, identity: &Identity, fd: Fd) -> Arc<Inode> {
        let ino = home.public_ino(identity.ino());
        let mut shard = self.shard(ino).lock();
        let make = |lookups| {
            let generation = identity.handle.as_ref().map_or(0, NativeHandle::generation);
            let inode = Inode {
                ino,
                kind: identity.kind(),
                generation,
                node: home.node(identity, fd),
                shape: AtomicU8::new(Shape::Unknown as u8),
                file: Mutex::new(Weak::new()),
            };
            Known { inode: Arc::new(inode), lookups }
        };
        let known = match shard.entry(ino) {
            Entry::Vacant(vacant) => vacant.insert(make(1)),
            Entry::Occupied(occupied) => {
                let known = occupied.into_mut();
                known.lookups += 1;
                if !known.inode.is(identity.handle.as_ref()) {
                    // The number was given to a new inode. What the kernel
                    // still forgets of the old one counts for this entry.
                    *known = make(known.lookups);
                    self.paths.lock().pop(&ino);
                }
                known
            }
        };
        Arc::clone(&known.inode)
    }

    /// The inode of this number; `ESTALE` if it is not known.
    pub(crate) fn get(&self, ino: InodeId) -> Result<Arc<Inode>> {
        let shard = self.shard(ino).lock();
        shard.get(&ino).map(|known| Arc::clone(&known.inode)).ok_or_else(|| Errno::ESTALE.into())
    }

    /// Gives lookups back.
    pub(crate) fn forget(&self, ino: InodeId, count: u64) {
        if ino == InodeId::ROOT {
            return;
        }
        let mut shard = self.shard(ino).lock();
        if let Some(known) = shard.get_mut(&ino) {
            known.lookups = known.lookups.saturating_sub(count);
            if known.lookups > 0 {
                return;
            }
            if Arc::strong_count(&known.inode) > 1 {
                // Somebody is at it still: the release of an open file may be
                // carried out after the forget that the kernel sent behind it.
                self.in_use.lock().push(ino);
                return;
            }
            shard.remove(&ino);
            drop(shard);
            self.paths.lock().pop(&ino);
        }
    }

    /// Gives back what the table has grown by and does not need any more.
    pub(crate) fn shrink(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            if shard.capacity() / 4 > shard.len() {
                shard.shrink_to_fit();
            }
        }
    }

    /// Drops the inodes that were forgotten while somebody was at them.
    pub(crate) fn drop_forgotten(&self) {
        let forgotten = std::mem::take(&mut *self.in_use.lock());
        forgotten.into_iter().for_each(|ino| self.forget(ino, 0));
    }

    /// A descriptor of the inode, for looking.
    pub(crate) fn path(&self, home: &Home, inode: &Inode) -> Result<Fd> {
        if let Some(fd) = self.paths.lock().get(&inode.ino) {
            return Ok(Fd::clone(fd));
        }
        let fd = home.open_node(&inode.node, Access::Path)?;
        // A file is touched once or twice; a directory by every name in it.
        if inode.kind == FileKind::Directory {
            self.paths.lock().put(inode.ino, Fd::clone(&fd));
        }
        Ok(fd)
    }

    /// Opens the inode's contents.
    pub(crate) fn open(&self, home: &Home, inode: &Inode, access: Access) -> Result<Fd> {
        home.open_node(&inode.node, access)
    }

    /// Lets go of what is kept open of an inode whose last name is gone, so
    /// that its space is returned.
    pub(crate) fn release_path(&self, ino: InodeId) {
        self.paths.lock().pop(&ino);
    }

    /// All inodes that are known.
    pub(crate) fn all(&self) -> Vec<Known> {
        let known = |known: &Known| Known { inode: Arc::clone(&known.inode), lookups: known.lookups };
        self.shards.iter().flat_map(|shard| shard.lock().values().map(known).collect::<Vec<_>>()).collect()
    }

    /// Others take their place.
    pub(crate) fn replace_all(&self, all: Vec<Known>) {
        self.shards.iter().for_each(|shard| shard.lock().clear());
        self.paths.lock().clear();
        for known in all {
            self.shard(known.inode.ino).lock().insert(known.inode.ino, known);
        }
    }

    /// How many inodes are known.
    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().len() as u64).sum()
    }

    fn shard(&self, ino: InodeId) -> &Mutex<HashMap<InodeId, Known>> {
        &self.shards[ino.0 as usize % SHARDS]
    }
}
