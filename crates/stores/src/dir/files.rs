//! The open files of a directory store: a bounded cache by object id.

use braid_contract::{Fd, ObjectId, Result};
use lru::LruCache;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;

/// At most this many objects stay open in each shard; one that is in use stays
/// open beyond its time in the cache.
const OPEN_PER_SHARD: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");

/// Open files, most recently used kept.
pub(super) struct OpenFiles {
    hasher: RandomState,
    shards: [Mutex<LruCache<ObjectId, Fd>>; SHARDS],
}

impl OpenFiles {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::new(LruCache::new(OPEN_PER_SHARD))),
        }
    }

    /// The open file of `id`, opened by `open` if it is not cached.
    pub(super) fn get(&self, id: ObjectId, open: impl FnOnce() -> Result<Fd>) -> Result<Fd> {
        let mut shard = self.shard(id);
        if let Some(file) = shard.get(&id) {
            return Ok(Arc::clone(file));
        }
        // Opened under the lock, so that `forget` can't come between and leave
        // the file of a removed object in the cache.
        let file = open()?;
        shard.put(id, Arc::clone(&file));
        Ok(file)
    }

    /// The open file of `id`, if it is cached.
    pub(super) fn peek(&self, id: ObjectId) -> Option<Fd> {
        self.shard(id).peek(&id).map(Arc::clone)
    }

    /// Drops the cached file of `id`.
    pub(super) fn forget(&self, id: ObjectId) {
        self.shard(id).pop(&id);
    }

    fn shard(&self, id: ObjectId) -> MutexGuard<'_, LruCache<ObjectId, Fd>> {
        let shard = self.hasher.hash_one(id) as usize % SHARDS;
        // A panic elsewhere can't leave a cache half-changed.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
