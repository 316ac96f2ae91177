//! A directory of a log file system as keys and values: its own while nothing is on top of
//! it, and files while modules are, which have to see them. Modules come and go while a
//! directory is open, so each operation asks anew.

use crate::modules::Modules;
use braid_contract::{
    Caller, FileSystem, FrontCache, InodeId, KeyChange, KeyValue, PutOptions, Result, ScanPage, ScanRange,
};
use braid_kv::{FileBucket, Held, Listings};
use braid_log::{LogBucket, LogFs};
use std::sync::{Arc, OnceLock};

/// A log file system below modules, which may be none.
#[derive(Clone)]
pub(crate) struct LogStack {
    pub(crate) fs: Arc<LogFs>,
    pub(crate) modules: Arc<Modules>,
    /// The whole stack, with its present modules.
    pub(crate) top: Arc<dyn FileSystem>,
    pub(crate) listings: Arc<Listings>,
}

impl LogStack {
    pub(super) fn bucket(&self, dir: Held, cache: Option<Arc<dyn FrontCache>>) -> StackBucket {
        let ino = dir.ino();
        let files = FileBucket::new(Arc::clone(&self.top), dir, cache.clone(), &self.listings);
        StackBucket { stack: self.clone(), dir: ino, cache, own: OnceLock::new(), files }
    }
}

/// A directory of such a stack.
pub(super) struct StackBucket {
    stack: LogStack,
    dir: InodeId,
    /// That of the kernel.
    cache: Option<Arc<dyn FrontCache>>,
    /// Opened when it is first used: below modules, it may never be.
    own: OnceLock<LogBucket>,
    /// Keeps the directory looked up.
    files: FileBucket,
}

impl StackBucket {
    /// The implementation for an operation that begins now.
    fn now(&self) -> Result<&dyn KeyValue> {
        if !self.stack.modules.is_empty() {
            return Ok(&self.files);
        }
        if let Some(own) = self.own.get() {
            return Ok(own);
        }
        let own = self.stack.fs.bucket(self.dir, self.cache.clone())?;
        Ok(self.own.get_or_init(|| own))
    }
}

impl KeyValue for StackBucket {
    fn batch_is_atomic(&self) -> bool {
        self.now().is_ok_and(KeyValue::batch_is_atomic)
    }

    fn read(&self, caller: &Caller, key: &[u8], value: &mut Vec<u8>, most: usize) -> Result<bool> {
        self.now()?.read(caller, key, value, most)
    }

    fn len(&self, caller: &Caller, key: &[u8]) -> Result<Option<u64>> {
        self.now()?.len(caller, key)
    }

    fn put(&self, caller: &Caller, key: &[u8], value: &[u8], options: PutOptions) -> Result<bool> {
        self.now()?.put(caller, key, value, options)
    }

    fn delete(&self, caller: &Caller, key: &[u8]) -> Result<bool> {
        self.now()?.delete(caller, key)
    }

    fn scan(&self, caller: &Caller, range: &ScanRange, count: usize, values: bool) -> Result<ScanPage> {
        self.now()?.scan(caller, range, count, values)
    }

    fn batch(&self, caller: &Caller, changes: &[KeyChange<'_>]) -> Result<()> {
        self.now()?.batch(caller, changes)
    }

    fn sync(&self) -> Result<()> {
        self.now()?.sync()
    }
}
