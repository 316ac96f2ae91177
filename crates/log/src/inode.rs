//! Inodes in memory, and the effect of a record's changes on them. Operations and
//! replay change inodes by the same code, so that replay repeats exactly the
//! operations.

use crate::actor::Actor;
use crate::device::BLOCK;
use crate::directory::{Directory, NAME_WEIGHT, OFFSET_WEIGHT, kind_bits};
use crate::extents::{Extents, Run};
use crate::record::{Begin, Change, Name};
use crate::sync::{Mutex, RwLock};
use braid_contract::{Errno, FileKind, Result, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of an inode in an image beside its content, at most.
const INODE_WEIGHT: usize = 220;
/// Bytes of a piece of a file in an image, at most.
const PIECE_WEIGHT: usize = 24;
/// Bytes of an extended attribute in an image beside name and value, at most.
const XATTR_WEIGHT: usize = 10;

/// The content of an inode.
#[derive(Clone, Debug, Default)]
pub(crate) enum Content {
    /// Nothing but its number: devices, pipes, sockets.
    #[default]
    None,
    /// A small file.
    Inline(Vec<u8>),
    Blocks(Extents),
    Names(Directory),
    Target(Vec<u8>),
}

/// The state of an inode.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The number of the last record that changed it.
    pub(crate) version: u64,
    /// Type and permission bits; 0 before it began.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) btime: Timestamp,
    pub(crate) parent: u64,
    pub(crate) generation: u64,
    pub(crate) content: Content,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    xattr_bytes: usize,
    pub(crate) created_by: Arc<Actor>,
    pub(crate) written_by: Option<Arc<Actor>>,
    /// It has no name and no data any more.
    pub(crate) is_gone: bool,
    /// It never had a name (`O_TMPFILE`), and may get one: it began without, and its names were
    /// never counted.
    pub(crate) is_unnamed: bool,
}

/// An inode. Its lock is taken before it is written about in the log, and held until
/// the change is applied, so that records of one inode are in the order of its changes.
#[derive(Debug, Default)]
pub(crate) struct Inode {
    pub(crate) ino: u64,
    pub(crate) state: RwLock<State>,
    /// Lookups that are not returned.
    pub(crate) lookups: AtomicU64,
    /// It may have been looked up in a process that crashed: how often is not known, until some
    /// lookups are returned.
    pub(crate) may_be_known: AtomicBool,
    /// Open files and directories. Rises only under the lock, shared, of an inode that
    /// is not gone.
    pub(crate) opens: AtomicU64,
    /// The name by which its path was last found. Its lock is the innermost.
    pub(crate) last_name: Mutex<Option<Name>>,
}

impl Inode {
    pub(crate) fn new(ino: u64) -> Self {
        Self { ino, ..Self::default() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opens.load(Ordering::Acquire) > 0
    }

    /// Whether its number is not known any more.
    pub(crate) fn is_unused(&self) -> bool {
        !self.is_open() && !self.is_known()
    }

    /// Whether there are lookups that are not returned.
    pub(crate) fn is_known(&self) -> bool {
        self.lookups.load(Ordering::Acquire) > 0 || self.may_be_known.load(Ordering::Acquire)
    }
}

impl State {
    /// Whether it is an inode at all.
    pub(crate) fn is_live(&self) -> bool {
        self.mode != 0 && !self.is_gone
    }

    pub(crate) fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).unwrap_or(FileKind::Regular)
    }

    /// Its type, as entries of directories have it.
    pub(crate) fn kind_bits(&self) -> u8 {
        kind_bits(self.mode)
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    pub(crate) fn names(&self) -> Option<&Directory> {
        if let Content::Names(names) = &self.content { Some(names) } else { None }
    }

    /// The names of a directory.
    ///
    /// # Errors
    /// `ENOTDIR`, and `ENOENT` for a directory that is gone.
    pub(crate) fn directory(&self) -> Result<&Directory> {
        match &self.content {
            Content::Names(names) => Ok(names),
            _ if self.is_gone => Err(Errno::ENOENT.into()),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    /// Refuses what is no directory.
    ///
    /// # Errors
    /// `ENOTDIR`, and `ENOENT` for a directory that is gone.
    pub(crate) fn require_dir(&self) -> Result<()> {
        self.directory().map(|_| ())
    }

    pub(crate) fn extents(&self) -> Option<&Extents> {
        if let Content::Blocks(extents) = &self.content { Some(extents) } else { None }
    }

    /// Bytes that it takes in an image, at most.
    pub(crate) fn weight(&self) -> i64 {
        if !self.is_live() {
            return 0;
        }
        let content = match &self.content {
            Content::None => 0,
            Content::Inline(bytes) | Content::Target(bytes) => bytes.len(),
            Content::Blocks(extents) => extents.count() * PIECE_WEIGHT,
            Content::Names(names) => names.weight(),
        };
        (INODE_WEIGHT + content + self.xattr_bytes + self.xattrs.len() * XATTR_WEIGHT) as i64
    }

    /// How many bytes more it takes in an image after these changes, at most.
    pub(crate) fn growth(&self, changes: &[Change]) -> i64 {
        changes.iter().map(|change| self.growth_by(change)).sum()
    }

    fn growth_by(&self, change: &Change) -> i64 {
        let name_weight = |name: &Name| (name.len() + NAME_WEIGHT + OFFSET_WEIGHT) as i64;
        let has = |name: &Name| self.names().is_some_and(|names| names.find(name).is_some());
        let xattr_weight = |name: &[u8], value: &[u8]| (name.len() + value.len() + XATTR_WEIGHT) as i64;
        let xattr = |name: &[u8]| self.xattrs.get(name).map_or(0, |value| xattr_weight(name, value));
        let pieces = |from, to| self.extents().map_or(0, |extents| extents.growth(from, to));
        match change {
            Change::Begin(_) => (INODE_WEIGHT + OFFSET_WEIGHT) as i64,
            Change::Map(mapped) => {
                let more = mapped.iter().map(|piece| pieces(piece.at, piece.end()) + 1).sum::<i64>();
                more * PIECE_WEIGHT as i64
            }
            Change::Unmap(from, to) => pieces(*from, *to) * PIECE_WEIGHT as i64,
            Change::Enter(name, ..) if has(name) => 0,
            Change::Enter(name, ..) => name_weight(name),
            Change::Leave(name) if has(name) => -name_weight(name),
            Change::Inline(bytes) => match &self.content {
                Content::Inline(before) => bytes.len() as i64 - before.len() as i64,
                _ => bytes.len() as i64,
            },
            Change::Target(bytes) => bytes.len() as i64,
            Change::SetXattr(name, value) => xattr_weight(name, value) - xattr(name),
            Change::DropXattr(name) => -xattr(name),
            Change::End => -self.weight(),
            _ => 0,
        }
    }

    /// Applies the changes of record `version`; hands `freed` blocks that it does not
    /// have any more.
    pub(crate) fn apply(&mut self, version: u64, changes: Vec<Change>, freed: &mut Vec<Run>) {
        self.version = self.version.max(version);
        for change in changes {
            self.apply_one(change, freed);
        }
    }

    fn apply_one(&mut self, change: Change, freed: &mut Vec<Run>) {
        match change {
            Change::Begin(begin) => self.begin(*begin),
            Change::Mode(mode) => self.mode = self.mode & !0o7777 | mode & 0o7777,
            Change::Owner(uid, gid) => (self.uid, self.gid) = (uid, gid),
            Change::Accessed(time) => self.atime = time,
            Change::Modified(time) => self.mtime = time,
            Change::Changed(time) => self.ctime = time,
            Change::Links(nlink) => {
                self.nlink = nlink;
                self.is_unnamed = false;
            }
            Change::Parent(parent) => self.parent = parent,
            Change::Wrote(actor) => self.written_by = Some(actor),
            Change::Sum(_) => {}
            Change::SetXattr(name, value) => {
                self.drop_xattr(&name);
                self.xattr_bytes += name.len() + value.len();
                self.xattrs.insert(name, value);
            }
            Change::DropXattr(name) => self.drop_xattr(&name),
            Change::Enter(name, ino, kind) => {
                if let Content::Names(names) = &mut self.content {
                    names.enter(name, ino, kind);
                }
            }
            Change::Leave(name) => {
                if let Content::Names(names) = &mut self.content {
                    names.leave(&name);
                }
            }
            Change::Offset(offset) => {
                if let Content::Names(names) = &mut self.content {
                    names.skip_to(offset);
                }
            }
            Change::Target(target) => {
                self.size = target.len() as u64;
                self.content = Content::Target(target);
            }
            data => self.apply_data(data, freed),
        }
    }

    fn apply_data(&mut self, change: Change, freed: &mut Vec<Run>) {
        match change {
            Change::Inline(bytes) => {
                self.free_blocks(freed);
                self.size = bytes.len() as u64;
                self.content = Content::Inline(bytes);
            }
            Change::Map(pieces) => {
                if !matches!(self.content, Content::Blocks(_)) {
                    self.content = Content::Blocks(Extents::default());
                }
                if let Content::Blocks(extents) = &mut self.content {
                    pieces.into_iter().for_each(|piece| extents.map(piece, freed));
                }
            }
            Change::Unmap(from, to) => {
                if let Content::Blocks(extents) = &mut self.content {
                    extents.unmap(from, to, freed);
                }
            }
            Change::Size(size) => self.resize(size, freed),
            Change::End => {
                self.free_blocks(freed);
                self.content = Content::None;
                self.xattrs.clear();
                self.xattr_bytes = 0;
                (self.nlink, self.is_gone) = (0, true);
            }
            _ => {}
        }
    }

    fn begin(&mut self, begin: Begin) {
        let Begin { mode, uid, gid, rdev, nlink, parent, generation, time, actor } = begin;
        (self.mode, self.uid, self.gid, self.rdev, self.nlink) = (mode, uid, gid, rdev, nlink);
        (self.parent, self.generation, self.created_by) = (parent, generation, actor);
        (self.atime, self.mtime, self.ctime, self.btime) = (time, time, time, time);
        self.is_unnamed = nlink == 0;
        self.content = match self.kind() {
            FileKind::Regular => Content::Inline(Vec::new()),
            FileKind::Directory => Content::Names(Directory::default()),
            FileKind::Symlink => Content::Target(Vec::new()),
            _ => Content::None,
        };
    }

    fn resize(&mut self, size: u64, freed: &mut Vec<Run>) {
        match &mut self.content {
            Content::Inline(bytes) if size < bytes.len() as u64 => bytes.truncate(size as usize),
            Content::Blocks(extents) if size < self.size => {
                extents.unmap(size.div_ceil(BLOCK), u64::MAX, freed);
            }
            _ => {}
        }
        self.size = size;
        // Without blocks, it may be a small file again.
        if size == 0 && self.extents().is_some_and(|extents| extents.blocks() == 0) {
            self.content = Content::Inline(Vec::new());
        }
    }

    fn free_blocks(&mut self, freed: &mut Vec<Run>) {
        if let Content::Blocks(extents) = &mut self.content {
            extents.unmap(0, u64::MAX, freed);
        }
    }

    fn drop_xattr(&mut self, name: &[u8]) {
        if let Some(value) = self.xattrs.remove(name) {
            self.xattr_bytes -= name.len() + value.len();
        }
    }

    /// The changes that make this inode from nothing, in portions of about `portion`
    /// bytes in a record.
    pub(crate) fn describe(&self, portion: usize) -> Vec<Vec<Change>> {
        let mut portions = vec![self.describe_itself()];
        let mut filled = 0;
        let mut add = |change: Change, bytes: usize| {
            if filled + bytes > portion {
                portions.push(Vec::new());
                filled = 0;
            }
            filled += bytes;
            if let Some(last) = portions.last_mut() {
                last.push(change);
            }
        };
        for (name, value) in &self.xattrs {
            add(Change::SetXattr(name.clone(), value.clone()), name.len() + value.len());
        }
        match &self.content {
            Content::None => {}
            Content::Inline(bytes) => add(Change::Inline(bytes.clone()), bytes.len()),
            Content::Target(bytes) => add(Change::Target(bytes.clone()), bytes.len()),
            Content::Blocks(extents) => {
                extents.iter().for_each(|piece| add(Change::Map(vec![piece]), PIECE_WEIGHT));
            }
            Content::Names(names) => {
                for (offset, named) in names.steps() {
                    offset.into_iter().for_each(|offset| add(Change::Offset(offset), OFFSET_WEIGHT));
                    let Some(named) = named else { continue };
                    add(
                        Change::Enter(named.name.clone(), named.ino, named.kind),
                        named.name.len() + NAME_WEIGHT,
                    );
                }
            }
        }
        portions
    }

    /// The changes that make an inode that is gone.
    pub(crate) fn describe_gone(&self) -> Vec<Change> {
        let mut changes = self.describe_itself();
        changes.extend([Change::Size(self.size), Change::End]);
        // One that is open may get some still.
        changes.extend(self.xattrs.iter().map(|(name, value)| Change::SetXattr(name.clone(), value.clone())));
        changes
    }

    fn describe_itself(&self) -> Vec<Change> {
        let begin = Begin {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            nlink: self.nlink,
            parent: self.parent,
            generation: self.generation,
            time: self.btime,
            actor: Arc::clone(&self.created_by),
        };
        let mut changes = vec![Change::Begin(Box::new(begin))];
        if self.nlink == 0 && !self.is_unnamed {
            changes.push(Change::Links(0));
        }
        for (time, change) in [
            (self.atime, Change::Accessed as fn(Timestamp) -> Change),
            (self.mtime, Change::Modified),
            (self.ctime, Change::Changed),
        ] {
            if time != self.btime {
                changes.push(change(time));
            }
        }
        changes.extend(self.written_by.clone().map(Change::Wrote));
        if self.extents().is_some() {
            changes.extend([Change::Size(self.size), Change::Map(Vec::new())]);
        }
        changes
    }
}
