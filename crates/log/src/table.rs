//! All inodes, by number, in hash maps of their own locks.

use crate::inode::Inode;
use crate::sync::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

const SHARDS: usize = 64;

/// A map from numbers that many threads use at a time.
#[derive(Debug)]
pub(crate) struct Sharded<T> {
    shards: Vec<RwLock<HashMap<u64, Arc<T>>>>,
}

/// All inodes.
pub(crate) type Table = Sharded<Inode>;

impl<T> Default for Sharded<T> {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| RwLock::default()).collect() }
    }
}

impl<T> Sharded<T> {
    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<T>>> {
        &self.shards[(number % SHARDS as u64) as usize]
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        self.shard(number).read().get(&number).cloned()
    }

    pub(crate) fn insert(&self, number: u64, value: Arc<T>) {
        self.shard(number).write().insert(number, value);
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.shard(number).write().remove(&number)
    }

    /// All of them, one map after another: entries that come or go meanwhile may be
    /// seen or not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<T>> + '_ {
        self.shards.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>())
    }

    /// The same with their numbers.
    pub(crate) fn iter_numbered(&self) -> impl Iterator<Item = (u64, Arc<T>)> + '_ {
        self.shards.iter().flat_map(|shard| {
            shard.read().iter().map(|(number, value)| (*number, Arc::clone(value))).collect::<Vec<_>>()
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }
}
