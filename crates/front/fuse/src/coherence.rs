//! The kernel's cached state of an inode that a direct write makes stale.
//!
//! The kernel drops the pages of a direct write before it sends the write, and
//! again after a synchronous one, but not after an asynchronous one (libaio,
//! io_uring). A cached read meanwhile may bring old data into the cache, where
//! it would stay. So Braid drops the pages too, when the write is done and
//! before it is answered (`invalidate`): every read after the answer finds the
//! new data. If the cache was not used since the file was opened, there is
//! nothing to drop, and a direct write costs nothing more.

use crate::open_table::{SHARDS, shard_index};
use braid_contract::InodeId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

/// Possible cached state of an open inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cached {
    /// There were reads or writes through its cache.
    pages: bool,
    /// There were writes that bypassed it.
    direct: bool,
}

impl Cached {
    /// Its state is unknown.
    pub(crate) const UNKNOWN: Self = Self { pages: true, direct: true };
}

/// Open inodes that were used through the kernel's cache, or bypassing it.
pub(crate) struct CacheTable {
    shards: Vec<RwLock<HashMap<InodeId, Cached>>>,
    /// Number of inodes with direct writes.
    direct: AtomicUsize,
}

impl CacheTable {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| RwLock::default()).collect(), direct: AtomicUsize::new(0) }
    }

    /// Notes a read or write through the cache that is about to happen.
    pub(crate) fn through_cache(&self, ino: InodeId) {
        if !self.get(ino).pages {
            self.change(ino, |cached| cached.pages = true);
        }
    }

    /// Notes a direct write; answers the parts that it made stale in the
    /// kernel.
    pub(crate) fn written_directly(&self, ino: InodeId) -> Outdated {
        let before = self.get(ino);
        if !before.direct {
            let was = self.change(ino, |cached| std::mem::replace(&mut cached.direct, true));
            self.direct.fetch_add(usize::from(!was), Ordering::AcqRel);
        }
        match before {
            Cached { pages: true, .. } => Outdated::Pages,
            Cached { direct: false, .. } => Outdated::Attributes,
            Cached { .. } => Outdated::Nothing,
        }
    }

    /// Whether a direct write may make reported attributes stale without the
    /// kernel's notice.
    pub(crate) fn is_written_directly(&self, ino: InodeId) -> bool {
        self.direct.load(Ordering::Acquire) > 0 && self.get(ino).direct
    }

    /// Notes that the inode's last open has ended.
    pub(crate) fn closed(&self, ino: InodeId) {
        if self.get(ino) == Cached::default() {
            return;
        }
        let mut shard = self.shard(ino).write().unwrap_or_else(PoisonError::into_inner);
        if shard.remove(&ino).is_some_and(|cached| cached.direct) {
            self.direct.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// All of it, for the process that goes on with the mount.
    pub(crate) fn give(&self) -> Vec<(InodeId, Cached)> {
        let shards = self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner));
        shards
            .flat_map(|shard| shard.iter().map(|(ino, cached)| (*ino, *cached)).collect::<Vec<_>>())
            .collect()
    }

    /// Goes on with the state of an earlier process.
    pub(crate) fn go_on(&self, all: &[(InodeId, Cached)]) {
        for (ino, cached) in all {
            self.change(*ino, |known| *known = *cached);
            self.direct.fetch_add(usize::from(cached.direct), Ordering::AcqRel);
        }
    }

    fn get(&self, ino: InodeId) -> Cached {
        let shard = self.shard(ino).read().unwrap_or_else(PoisonError::into_inner);
        shard.get(&ino).copied().unwrap_or_default()
    }

    fn change<R>(&self, ino: InodeId, change: impl FnOnce(&mut Cached) -> R) -> R {
        let mut shard = self.shard(ino).write().unwrap_or_else(PoisonError::into_inner);
        change(shard.entry(ino).or_default())
    }

    fn shard(&self, ino: InodeId) -> &RwLock<HashMap<InodeId, Cached>> {
        &self.shards[shard_index(ino)]
    }
}

/// Stale state of an inode in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outdated {
    Nothing,
    Attributes,
    Pages,
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: InodeId = InodeId(9);

    #[test]
    fn pages_are_outdated_where_the_cache_was_used() {
        let table = CacheTable::new();
        assert_eq!(table.written_directly(INO), Outdated::Attributes);
        assert_eq!(table.written_directly(INO), Outdated::Nothing);
        table.through_cache(INO);
        assert_eq!(table.written_directly(INO), Outdated::Pages);
        assert_eq!(table.written_directly(INO), Outdated::Pages);
        assert_eq!(table.written_directly(InodeId(10)), Outdated::Attributes);
    }

    #[test]
    fn nothing_is_kept_of_a_closed_inode() {
        let table = CacheTable::new();
        assert!(!table.is_written_directly(INO));
        table.through_cache(INO);
        table.written_directly(INO);
        assert!(table.is_written_directly(INO) && !table.is_written_directly(InodeId(10)));
        table.closed(INO);
        assert!(!table.is_written_directly(INO));
        assert_eq!(table.written_directly(INO), Outdated::Attributes);
        table.closed(INO);
        assert_eq!(table.direct.load(Ordering::Relaxed), 0);
        assert!(table.shards.iter().all(|shard| shard.read().is_ok_and(|shard| shard.is_empty())));
    }
}
