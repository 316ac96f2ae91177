//! The table of inodes that the front end knows.

use super::inode::Inode;
use crate::keeper::Keeper;
use crate::live::Shape;
use braid_contract::{Access, Errno, Fd, FileKind, InodeId, NativeHandle, Result, Timestamp};
use braid_home::{Home, Identity};
use lru::LruCache;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

const SHARDS: usize = 16;

/// Descriptors that are kept for inodes in use, at most.
const PATHS_KEPT: NonZeroUsize = NonZeroUsize::new(1024).expect("1024 is not zero");

/// An inode and how often the front end looked it up.
pub struct KnownInode {
    /// The inode.
    pub inode: Arc<Inode>,
    /// How often the kernel looked it up.
    pub lookups: u64,
    /// The call of [`InodeTable::oldest`] before which it came, or which
    /// returned it last.
    age: u32,
}

impl KnownInode {
    /// An inode that an earlier process knew, looked up so often.
    pub(crate) fn of(inode: Inode, lookups: u64) -> Self {
        Self { inode: Arc::new(inode), lookups, age: 0 }
    }

    /// The same knowledge of an inode that takes this one's place.
    pub fn moved_to(&self, inode: &Arc<Inode>) -> Self {
        Self { inode: Arc::clone(inode), ..*self }
    }
}

/// All inodes that the front end has looked up and not forgotten.
pub struct InodeTable {
    shards: [Mutex<HashMap<InodeId, KnownInode>>; SHARDS],
    /// Descriptors of inodes used lately, so that a path walk does not open
    /// each directory again.
    paths: Mutex<LruCache<InodeId, Fd>>,
    /// Descriptors of inodes that lost their last name, or never had one, until
    /// they are forgotten. Home would give their numbers to new inodes, and the
    /// kernel's requests for the old one would affect the new one, which may be
    /// another user's.
    nameless: Mutex<HashMap<InodeId, Fd>>,
    /// Inodes that were forgotten, to be dropped when their last user is done.
    in_use: Mutex<Vec<InodeId>>,
    /// Inodes that were found after a crash, each with a lookup that counts as the front end's;
    /// `None` without a crash, and once it was asked which of them it knows.
    found: Mutex<Option<Vec<InodeId>>>,
    /// Where those of `nameless` outlive the process.
    keeper: OnceLock<Arc<dyn Keeper>>,
    /// Calls of [`oldest`](Self::oldest).
    age: AtomicU32,
}

impl Default for InodeTable {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            paths: Mutex::new(LruCache::new(PATHS_KEPT)),
            nameless: Mutex::new(HashMap::new()),
            in_use: Mutex::new(Vec::new()),
            found: Mutex::new(None),
            keeper: OnceLock::new(),
            age: AtomicU32::new(0),
        }
    }
}

impl InodeTable {
    /// The inode behind `fd`, with one more lookup.
    pub fn enter(&self, home: &Home, identity: &Identity, fd: Fd) -> Arc<Inode> {
        let ino = home.public_ino(identity.ino());
        let mut shard = self.shard(ino).lock();
        let age = self.age.load(Ordering::Relaxed);
        let make = |lookups| {
            let generation = identity.handle.as_ref().map_or(0, NativeHandle::generation);
            let inode = Inode {
                ino,
                kind: identity.kind(),
                generation,
                btime: identity.attr.btime,
                node: home.node(identity, fd),
                shape: AtomicU8::new(Shape::Unknown as u8),
                file: Mutex::default(),
            };
            KnownInode { inode: Arc::new(inode), lookups, age }
        };
        let known = match shard.entry(ino) {
            Entry::Vacant(vacant) => vacant.insert(make(1)),
            Entry::Occupied(occupied) => {
                let known = occupied.into_mut();
                known.lookups += 1;
                if !known.inode.is(identity.handle.as_ref()) {
                    // The number was given to a new inode. Lookups of the old
                    // one that the kernel has yet to forget count for this
                    // entry.
                    *known = make(known.lookups);
                    self.paths.lock().pop(&ino);
                }
                known
            }
        };
        Arc::clone(&known.inode)
    }

    /// The inode of this number, with one more lookup, if it is known, was made at this time, and
    /// has no index. Home gives the number of a known inode to no other one, unless a name is
    /// removed behind the volume's back.
    pub(crate) fn enter_plain(&self, ino: InodeId, btime: Option<Timestamp>) -> Option<Arc<Inode>> {
        let mut shard = self.shard(ino).lock();
        let known = shard.get_mut(&ino)?;
        let is_it = btime.is_some() && known.inode.btime == btime && !known.inode.may_be_spread();
        is_it.then(|| {
            known.lookups += 1;
            Arc::clone(&known.inode)
        })
    }

    /// Whether [`enter_plain`](Self::enter_plain) may find an inode of this number.
    pub(crate) fn knows_plain(&self, ino: InodeId) -> bool {
        let shard = self.shard(ino).lock();
        shard.get(&ino).is_some_and(|known| known.inode.btime.is_some() && !known.inode.may_be_spread())
    }

    /// Inodes of an earlier process, which crashed, are about to be found.
    pub(crate) fn finds(&self) {
        *self.found.lock() = Some(Vec::new());
    }

    /// An inode that an earlier process knew when it crashed, with one lookup: the front end
    /// forgets it with as many as it had, at once.
    pub(crate) fn enter_found(&self, home: &Home, identity: &Identity, fd: Fd) -> Arc<Inode> {
        let inode = self.enter(home, identity, fd);
        self.found.lock().iter_mut().for_each(|found| found.push(inode.ino));
        inode
    }

    /// The inodes that were found. Those that are found later are the front end's.
    pub fn take_found(&self) -> Vec<InodeId> {
        self.found.lock().take().unwrap_or_default()
    }

    /// The inode of this number; `ESTALE` if it is not known.
    pub fn get(&self, ino: InodeId) -> Result<Arc<Inode>> {
        let shard = self.shard(ino).lock();
        shard.get(&ino).map(|known| Arc::clone(&known.inode)).ok_or_else(|| Errno::ESTALE.into())
    }

    /// Gives lookups back. Answers whether an inode without a name was
    /// forgotten, and so its space is free.
    pub fn forget(&self, ino: InodeId, count: u64) -> bool {
        if ino == InodeId::ROOT {
            return false;
        }
        let mut shard = self.shard(ino).lock();
        let Some(known) = shard.get_mut(&ino) else { return false };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups > 0 {
            return false;
        }
        if Arc::strong_count(&known.inode) > 1 {
            // It is still in use: the release of an open file may be
            // carried out after the forget that the kernel sent behind it.
            self.in_use.lock().push(ino);
            return false;
        }
        shard.remove(&ino);
        drop(shard);
        self.paths.lock().pop(&ino);
        // Closed without the lock: that may free all of a large file.
        self.release_nameless(ino)
    }

    /// Keeps the inode behind `fd`, which has no name, until it is forgotten.
    pub fn keep_nameless(&self, ino: InodeId, fd: Fd) {
        let shard = self.shard(ino).lock();
        let unneeded = match shard.contains_key(&ino) {
            true => {
                let earlier = self.nameless.lock().insert(ino, Fd::clone(&fd));
                // With the lock, so that it is not released before.
                if let Some(keeper) = self.keeper.get().filter(|_| earlier.is_none()) {
                    keeper.keep(ino, &fd);
                }
                earlier
            }
            false => Some(fd),
        };
        // Closed without a lock: that may free all of a large file.
        drop(shard);
        drop(unneeded);
    }

    /// The inode is about to lose its last name. Where that is to outlive the process, its
    /// descriptor is kept already now.
    pub(crate) fn loses_last_name(&self, ino: InodeId, fd: &Fd) {
        if self.keeper.get().is_some() {
            self.keep_nameless(ino, Fd::clone(fd));
        }
    }

    /// The inode got a name, or kept it.
    pub fn named(&self, ino: InodeId) {
        self.release_nameless(ino);
    }

    /// Answers whether there was one.
    fn release_nameless(&self, ino: InodeId) -> bool {
        let kept = self.nameless.lock().remove(&ino);
        if let (Some(_), Some(keeper)) = (&kept, self.keeper.get()) {
            keeper.release(ino);
        }
        kept.is_some()
    }

    /// Has the keeper drop an inode that it keeps for an earlier process, if it has a name.
    pub fn settle_kept(&self, ino: InodeId) {
        let _shard = self.shard(ino).lock();
        if let Some(keeper) = self.keeper.get().filter(|_| !self.nameless.lock().contains_key(&ino)) {
            // With the lock, so that it is not kept anew meanwhile.
            keeper.release(ino);
        }
    }

    /// Numbers are about to be others than home's.
    pub fn will_renumber(&self) {
        self.keeper.get().into_iter().for_each(|keeper| keeper.renumber());
    }

    /// Has inodes without a name outlive the process. Only the first call counts.
    pub fn set_keeper(&self, keeper: Arc<dyn Keeper>) {
        let _ = self.keeper.set(keeper);
    }

    /// The inodes without a name that are kept.
    pub(crate) fn nameless(&self) -> Vec<(InodeId, Fd)> {
        self.nameless.lock().iter().map(|(ino, fd)| (*ino, Fd::clone(fd))).collect()
    }

    /// Whether there are inodes without a name.
    pub fn has_nameless(&self) -> bool {
        !self.nameless.lock().is_empty()
    }

    /// Gives back memory that the table does not need any more.
    pub fn shrink(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            if shard.capacity() / 4 > shard.len() {
                shard.shrink_to_fit();
            }
        }
    }

    /// Drops the inodes that were forgotten while they were in use. Answers
    /// whether some of them had no name.
    pub fn drop_forgotten(&self) -> bool {
        let forgotten = std::mem::take(&mut *self.in_use.lock());
        forgotten.into_iter().filter(|ino| self.forget(*ino, 0)).count() > 0
    }

    /// A descriptor of the inode, for looking.
    pub fn path(&self, home: &Home, inode: &Inode) -> Result<Fd> {
        if let Some(fd) = self.paths.lock().get(&inode.ino) {
            return Ok(Fd::clone(fd));
        }
        if let Some(fd) = self.nameless.lock().get(&inode.ino) {
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
    pub fn open(&self, home: &Home, inode: &Inode, access: Access) -> Result<Fd> {
        home.open_node(&inode.node, access)
    }

    /// Closes the kept descriptor of an inode whose last name is gone, so that
    /// its space is freed.
    pub(crate) fn release_path(&self, ino: InodeId) {
        self.paths.lock().pop(&ino);
    }

    /// All inodes that are known.
    pub fn all(&self) -> Vec<KnownInode> {
        let known = |known: &KnownInode| known.moved_to(&known.inode);
        self.shards.iter().flat_map(|shard| shard.lock().values().map(known).collect::<Vec<_>>()).collect()
    }

    /// Replaces all.
    pub fn replace_all(&self, all: Vec<KnownInode>) {
        self.shards.iter().for_each(|shard| shard.lock().clear());
        self.paths.lock().clear();
        let kept = std::mem::take(&mut *self.nameless.lock());
        drop(kept);
        for known in all {
            self.shard(known.inode.ino).lock().insert(known.inode.ino, known);
        }
    }

    /// So many of the inodes that have been known for longest; next time,
    /// others come first.
    pub fn oldest(&self, count: u64) -> Vec<InodeId> {
        let now = self.age.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut all: Vec<(u32, InodeId)> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let known = shard.iter().filter(|(ino, _)| **ino != InodeId::ROOT);
            all.extend(known.map(|(ino, known)| (now.wrapping_sub(known.age), *ino)));
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(all.len());
        if count < all.len() {
            all.select_nth_unstable_by_key(count, |(age, _)| Reverse(*age));
        }
        all.truncate(count);
        for (_, ino) in &all {
            if let Some(known) = self.shard(*ino).lock().get_mut(ino) {
                known.age = now;
            }
        }
        all.into_iter().map(|(_, ino)| ino).collect()
    }

    /// How many inodes are known.
    pub fn count(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().len() as u64).sum()
    }

    fn shard(&self, ino: InodeId) -> &Mutex<HashMap<InodeId, KnownInode>> {
        &self.shards[ino.0 as usize % SHARDS]
    }
}
