//! The open files of a directory store: a bounded cache by object id. Changed
//! files stay open beyond it until they are synced (see [`super::unsynced`]).

use braid_contract::{Fd, ObjectId, Result};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;

/// At most this many objects stay open in each shard; one in use stays open
/// even after it leaves the cache.
const OPEN_PER_SHARD: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");

/// Open files, most recently used kept. No system call is made under a shard's
/// lock: a file that is slow to open or to close must not hold up others.
pub(super) struct OpenFiles {
    shards: [Mutex<LruCache<ObjectId, Fd>>; SHARDS],
}

impl OpenFiles {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::new(LruCache::new(OPEN_PER_SHARD))) }
    }

    /// The open file of `id`, opened by `open` if it is not cached.
    pub(super) fn get(&self, id: ObjectId, open: impl FnOnce() -> Result<Fd>) -> Result<Fd> {
        if let Some(file) = self.shard(id).get(&id) {
            return Ok(Arc::clone(file));
        }
        let file = open()?;
        let (file, pushed_out) = self.enter(id, file);
        drop(pushed_out);
        // It may have been removed since it was opened, with `forget` called
        // before it was entered; a later `forget` handles it.
        if is_removed(&file) {
            self.forget(id);
        }
        Ok(file)
    }

    /// Enters a file unless another thread was faster. Answers the cached one,
    /// and the one to be closed.
    fn enter(&self, id: ObjectId, file: Fd) -> (Fd, Option<Fd>) {
        let mut shard = self.shard(id);
        if let Some(first) = shard.get(&id) {
            return (Arc::clone(first), Some(file));
        }
        let pushed_out = shard.push(id, Arc::clone(&file)).map(|(_, file)| file);
        (file, pushed_out)
    }

    /// The open file of `id`, if it is cached.
    pub(super) fn peek(&self, id: ObjectId) -> Option<Fd> {
        self.shard(id).peek(&id).map(Arc::clone)
    }

    /// Drops the cached file of `id`.
    pub(super) fn forget(&self, id: ObjectId) {
        let forgotten = self.shard(id).pop(&id);
        // Closed without the lock: this may free the object's space.
        drop(forgotten);
    }

    /// Drops all cached files.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let fresh = LruCache::new(OPEN_PER_SHARD);
            let cleared = std::mem::replace(&mut *lock(shard), fresh);
            drop(cleared);
        }
    }

    fn shard(&self, id: ObjectId) -> MutexGuard<'_, LruCache<ObjectId, Fd>> {
        // Ids are random: the last byte is as good as a hash.
        lock(&self.shards[usize::from(id.0[15]) % SHARDS])
    }
}

/// Whether an open file has no name any more.
pub(super) fn is_removed(file: &Fd) -> bool {
    file.stat().is_ok_and(|stat| stat.attr.nlink == 0)
}

fn lock(shard: &Mutex<LruCache<ObjectId, Fd>>) -> MutexGuard<'_, LruCache<ObjectId, Fd>> {
    // A panic elsewhere can't leave a cache half-changed.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::open_tier_dir;
    use braid_contract::Access;
    use std::ffi::OsStr;

    const ID: ObjectId = ObjectId([3; 16]);

    #[test]
    fn a_file_that_is_removed_while_it_is_opened_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let root = open_tier_dir(dir.path()).unwrap();
        root.create_at(OsStr::new("object"), 0o600).unwrap();
        let files = OpenFiles::new();
        let open_and_remove = || {
            let file = root.open_at(OsStr::new("object"), Access::ReadWrite)?;
            root.remove_at(OsStr::new("object"), false)?;
            files.forget(ID);
            Ok(file)
        };
        files.get(ID, open_and_remove).unwrap();
        assert!(files.peek(ID).is_none());
    }

    #[test]
    fn of_two_that_open_a_file_both_use_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let root = open_tier_dir(dir.path()).unwrap();
        let first = root.create_at(OsStr::new("object"), 0o600).unwrap();
        let files = OpenFiles::new();
        let open_late = || {
            files.get(ID, || Ok(Arc::clone(&first)))?;
            root.open_at(OsStr::new("object"), Access::ReadWrite)
        };
        let file = files.get(ID, open_late).unwrap();
        assert!(Arc::ptr_eq(&file, &first));
    }
}
