//! Inodes, and the changes to one that may be lost.
//!
//! An [`Inode`] is kept twice: as processes see it and as it is surely found
//! after power loss. Between the two lie changes of its metadata, in order, and
//! versions of its blocks.

use super::content::{BLOCK, Bytes, Content, mask, split};
use braid_contract::{Attr, FileKind, InodeId, Timestamp};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Arc;

/// Inode number of the root directory.
pub(super) const ROOT: u64 = 2;

/// Bits of the mode for the kind.
pub(super) const KIND: u32 = 0o170_000;

/// Bytes that are written as one even when power is lost.
pub(super) const UNIT: usize = 512;

/// A name of an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) dir: u64,
    pub(super) name: Arc<OsStr>,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) ino: u64,
    pub(super) kind: u32,
    pub(super) cookie: i64,
}

/// The entries of a directory, by name and in the order of their making.
#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    pub(super) entries: BTreeMap<Arc<OsStr>, Entry>,
    pub(super) by_cookie: BTreeMap<i64, Arc<OsStr>>,
    /// How many of them are directories.
    pub(super) subdirs: u32,
}

/// The contents of an inode.
#[derive(Clone, Debug)]
pub(super) enum Body {
    File(Content),
    Dir(Dir),
    Symlink(Arc<[u8]>),
    Other,
}

/// An inode at one moment.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Kind and permission bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    btime: Timestamp,
    /// The latest changes that set `mtime` and `ctime`: changes may become
    /// durable out of order, and an earlier one must not turn time back.
    mtime_seq: u64,
    ctime_seq: u64,
    pub(super) xattrs: BTreeMap<Arc<OsStr>, Arc<[u8]>>,
    pub(super) names: Vec<Link>,
    pub(super) body: Body,
}

/// A change of an inode's metadata.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// A write beyond the end.
    Grow(u64),
    Truncate(u64),
    /// Whole blocks become holes.
    Punch(Range<u64>),
    /// Whole blocks become unwritten, others get space; the file is at least so
    /// large.
    Zero {
        clear: Range<u64>,
        reserve: Range<u64>,
        size: u64,
    },
    /// Blocks get space; the file is at least so large.
    Allocate(Range<u64>, u64),
    /// Only the times of a write.
    Touch,
    Xattr(Arc<OsStr>, Option<Arc<[u8]>>),
    Mode(u32),
    Owner {
        uid: Option<u32>,
        gid: Option<u32>,
        mode: u32,
    },
    Times {
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    },
}

/// A change of metadata that may be lost.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) seq: u64,
    pub(super) time: Timestamp,
    pub(super) change: Change,
}

/// A version of a block that may be lost.
#[derive(Clone, Debug)]
pub(super) struct Touch {
    pub(super) seq: u64,
    pub(super) after: Arc<Bytes>,
}

/// An inode with its possible states.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    /// The state that processes see.
    pub(super) live: Arc<Node>,
    /// The durable state.
    pub(super) base: Arc<Node>,
    /// Changes of metadata since `base`, in order.
    pub(super) meta: Vec<Meta>,
    /// Versions of blocks since `base`, in order.
    pub(super) history: BTreeMap<u64, Vec<Touch>>,
    /// Processes can still reach it.
    pub(super) alive: bool,
    /// The operation on names that made it.
    pub(super) born: u64,
    /// The last operation on names that had to do with it.
    pub(super) names_seq: u64,
    /// It was made without a name, and has had none.
    pub(super) linkable: bool,
}

impl Node {
    pub(super) fn new(mode: u32, body: Body, now: Timestamp) -> Self {
        Self {
            mode,
            uid: 0,
            gid: 0,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            mtime_seq: 0,
            ctime_seq: 0,
            xattrs: BTreeMap::new(),
            names: Vec::new(),
            body,
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }

    pub(super) fn dir(&self) -> Option<&Dir> {
        match &self.body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    pub(super) fn content(&self) -> Option<&Content> {
        match &self.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// Blocks that it takes.
    pub(super) fn allocated(&self) -> u64 {
        self.content().map_or(0, Content::allocated)
    }

    pub(super) fn set_mtime(&mut self, time: Timestamp, seq: u64) {
        if seq >= self.mtime_seq {
            (self.mtime, self.mtime_seq) = (time, seq);
        }
    }

    pub(super) fn set_ctime(&mut self, time: Timestamp, seq: u64) {
        if seq >= self.ctime_seq {
            (self.ctime, self.ctime_seq) = (time, seq);
        }
    }

    /// Carries out a change of metadata.
    pub(super) fn apply(&mut self, meta: &Meta) {
        self.set_ctime(meta.time, meta.seq);
        match &meta.change {
            Change::Xattr(name, Some(value)) => {
                self.xattrs.insert(name.clone(), value.clone());
            }
            Change::Xattr(name, None) => {
                self.xattrs.remove(name);
            }
            Change::Mode(mode) => self.mode = *mode,
            Change::Owner { uid, gid, mode } => {
                self.uid = uid.unwrap_or(self.uid);
                self.gid = gid.unwrap_or(self.gid);
                self.mode = *mode;
            }
            Change::Times { atime, mtime } => {
                self.atime = atime.unwrap_or(self.atime);
                if let Some(mtime) = mtime {
                    self.set_mtime(*mtime, meta.seq);
                }
            }
            change => {
                self.set_mtime(meta.time, meta.seq);
                if let Body::File(content) = &mut self.body {
                    change.apply_to(content);
                }
            }
        }
    }

    pub(super) fn attr(&self, ino: u64) -> Attr {
        let (size, blocks) = match &self.body {
            Body::File(content) => (content.size, content.allocated() * (BLOCK / 512)),
            Body::Dir(_) => (BLOCK, 0),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Other => (0, 0),
        };
        let names = self.names.len() as u32;
        let nlink = match &self.body {
            Body::Dir(dir) if names > 0 || ino == ROOT => 2 + dir.subdirs,
            _ => names,
        };
        Attr {
            ino: InodeId(ino),
            size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: Some(self.btime),
            // No node is made with other bits.
            kind: FileKind::from_mode(self.mode).unwrap_or(FileKind::Regular),
            mode: (self.mode & 0o7777) as u16,
            nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            block_size: BLOCK as u32,
        }
    }
}

impl Change {
    fn apply_to(&self, content: &mut Content) {
        match self {
            Self::Grow(size) => content.size = content.size.max(*size),
            Self::Truncate(size) => content.truncate(*size),
            Self::Punch(blocks) => content.punch(blocks.clone()),
            Self::Zero { clear, reserve, size } => {
                content.unwrite(clear.clone());
                content.reserve(reserve.clone());
                content.size = content.size.max(*size);
            }
            Self::Allocate(blocks, size) => {
                content.reserve(blocks.clone());
                content.size = content.size.max(*size);
            }
            _ => {}
        }
    }

    /// Data that was synced can't be read without it, so that `fdatasync`
    /// covers it.
    pub(super) fn is_needed(&self) -> bool {
        matches!(
            self,
            Self::Grow(_) | Self::Truncate(_) | Self::Punch(_) | Self::Zero { .. } | Self::Allocate(..)
        )
    }

    /// Whether it removed a block's space or made it unwritten: earlier writes
    /// are not visible after it, nor later ones before.
    pub(super) fn clears(&self, block: u64) -> bool {
        match self {
            Self::Truncate(size) => block >= size.div_ceil(BLOCK),
            Self::Punch(blocks) | Self::Zero { clear: blocks, .. } => blocks.contains(&block),
            _ => false,
        }
    }

    /// From where on it zeroed the block, if it is a new size within it.
    pub(super) fn masks(&self, block: u64) -> Option<usize> {
        match self {
            Self::Truncate(size) if split(*size).0 == block && split(*size).1 != 0 => Some(split(*size).1),
            _ => None,
        }
    }
}

impl Inode {
    /// An inode of which everything is durable.
    pub(super) fn settled(node: Arc<Node>) -> Self {
        Self {
            live: node.clone(),
            base: node,
            meta: Vec::new(),
            history: BTreeMap::new(),
            alive: true,
            born: 0,
            names_seq: 0,
            linkable: false,
        }
    }

    /// Nothing of it but names may be lost.
    pub(super) fn is_clean(&self) -> bool {
        self.meta.is_empty() && self.history.is_empty()
    }

    pub(super) fn live_mut(&mut self) -> &mut Node {
        Arc::make_mut(&mut self.live)
    }

    /// Writes a part of a block, as processes see it.
    pub(super) fn write_block(&mut self, seq: u64, block: u64, at: usize, part: &[u8]) {
        let Body::File(content) = &mut Arc::make_mut(&mut self.live).body else { return };
        let old = content.data(block);
        let mut bytes = old.map_or([0; BLOCK as usize], |old| **old);
        bytes[at..at + part.len()].copy_from_slice(part);
        let after = Arc::new(bytes);
        content.put(block, after.clone());
        self.history.entry(block).or_default().push(Touch { seq, after });
    }

    /// Makes changes of metadata durable, up to one of them.
    pub(super) fn commit_meta(&mut self, upto: u64) {
        let count = self.meta.iter().take_while(|meta| meta.seq <= upto).count();
        if count == 0 {
            return;
        }
        let base = Arc::make_mut(&mut self.base);
        for meta in self.meta.drain(..count) {
            base.apply(&meta);
            for (block, touches) in &mut self.history {
                if meta.change.clears(*block) {
                    touches.retain(|touch| touch.seq > meta.seq);
                } else if let Some(at) = meta.change.masks(*block) {
                    let before = touches.iter_mut().take_while(|touch| touch.seq < meta.seq);
                    before.for_each(|touch| mask(&mut touch.after, at));
                }
            }
        }
        self.history.retain(|_, touches| !touches.is_empty());
    }

    /// Makes the contents durable. No change of metadata that is needed to read
    /// them may be pending.
    pub(super) fn commit_data(&mut self) {
        self.history.clear();
        if let Body::File(content) = &self.live.body {
            Arc::make_mut(&mut self.base).body = Body::File(content.clone());
        }
    }
}
