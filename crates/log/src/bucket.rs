//! A directory as keys and values (`LabKVS` of `LabStor`): a put is one operation and one
//! record of the log, and so is a batch.

use crate::core::Core;
use crate::inode::Inode;
use crate::ops::handles;
use crate::ops::values::{self, Changed, Wanted};
use braid_contract::key_value::{VALUE_MAX, check_batch, name_of_key};
use braid_contract::{
    Caller, FrontCache, InodeId, KeyChange, KeyValue, PutOptions, PutWhen, Result, ScanPage, ScanRange,
};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A directory of a log file system as keys and values.
pub struct LogBucket {
    core: Arc<Core>,
    dir: Arc<Inode>,
    /// That of the mount which shows the same files.
    cache: Option<Arc<dyn FrontCache>>,
}

impl fmt::Debug for LogBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogBucket").field("dir", &self.dir.ino).finish_non_exhaustive()
    }
}

impl LogBucket {
    pub(crate) fn new(core: Arc<Core>, dir: InodeId, cache: Option<Arc<dyn FrontCache>>) -> Result<Self> {
        let dir = core.inode(dir)?;
        dir.state.read().require_dir()?;
        // It is known here, whatever the kernel forgets.
        dir.lookups.fetch_add(1, Ordering::AcqRel);
        Ok(Self { core, dir, cache })
    }

    fn change(&self, caller: &Caller, wanted: Vec<Wanted<'_>>, how: (PutWhen, u16)) -> Result<bool> {
        let names: Vec<OsString> = match &self.cache {
            Some(_) => wanted.iter().map(|wanted| OsString::from_vec(wanted.name.to_vec())).collect(),
            None => Vec::new(),
        };
        let Changed { is_done, lost } = values::change(&self.core, caller, &self.dir, wanted, how)?;
        if let Some(cache) = self.cache.as_ref().filter(|_| is_done) {
            cache.names_came(InodeId(self.dir.ino), &names);
            lost.into_iter().for_each(|ino| cache.attributes_changed(InodeId(ino)));
        }
        Ok(is_done)
    }

    /// The file of a name, with all data that the kernel has of it.
    fn file(&self, caller: &Caller, name: &[u8]) -> Result<Option<Arc<Inode>>> {
        let found = values::look_up(&self.core, caller, &self.dir, name)?;
        if let (Some(inode), Some(cache)) = (&found, &self.cache)
            && inode.is_open()
        {
            cache.write_back(InodeId(inode.ino))?;
        }
        Ok(found)
    }

    /// Reads the value of a name, if it is there.
    fn value(&self, caller: &Caller, name: &[u8], value: &mut Vec<u8>, most: usize) -> Result<bool> {
        loop {
            let Some(inode) = self.file(caller, name)? else { return Ok(false) };
            // If it was replaced at this moment, the other one counts.
            if values::read(&self.core, caller, &inode, value, most)? {
                return Ok(true);
            }
        }
    }
}

impl Drop for LogBucket {
    fn drop(&mut self) {
        handles::take_back(&self.core, &self.dir, 1);
    }
}

impl KeyValue for LogBucket {
    fn batch_is_atomic(&self) -> bool {
        true
    }

    fn read(&self, caller: &Caller, key: &[u8], value: &mut Vec<u8>, most: usize) -> Result<bool> {
        self.value(caller, &name_of_key(key)?, value, most)
    }

    fn len(&self, caller: &Caller, key: &[u8]) -> Result<Option<u64>> {
        let name = name_of_key(key)?;
        loop {
            let Some(inode) = self.file(caller, &name)? else { return Ok(None) };
            let state = inode.state.read();
            if state.is_live() {
                return Ok(Some(state.size));
            }
        }
    }

    fn put(&self, caller: &Caller, key: &[u8], value: &[u8], options: PutOptions) -> Result<bool> {
        let name = name_of_key(key)?;
        let wanted = Wanted { name: &name, value: Some(value) };
        self.change(caller, vec![wanted], (options.when, options.mode))
    }

    fn delete(&self, caller: &Caller, key: &[u8]) -> Result<bool> {
        let name = name_of_key(key)?;
        let how = (PutWhen::Always, PutOptions::default().mode);
        self.change(caller, vec![Wanted { name: &name, value: None }], how)
    }

    fn scan(&self, caller: &Caller, range: &ScanRange, count: usize, values: bool) -> Result<ScanPage> {
        let mut keys = values::keys(caller, &self.dir, range, count.saturating_add(1))?;
        let mut has_more = keys.len() > count;
        keys.truncate(count);
        let (mut page, mut bytes) = (ScanPage::default(), 0);
        let mut last = None;
        for (key, _) in keys {
            if values && values::is_full(bytes) {
                has_more = true;
                break;
            }
            last = Some(key.clone());
            let mut value = Vec::new();
            // One that went meanwhile is left out.
            if !values || self.value(caller, &name_of_key(&key)?, &mut value, VALUE_MAX)? {
                bytes += value.len();
                page.entries.push((key, values.then_some(value)));
            }
        }
        page.next = last.filter(|_| has_more);
        Ok(page)
    }

    fn batch(&self, caller: &Caller, changes: &[KeyChange<'_>]) -> Result<()> {
        check_batch(changes)?;
        let names: Vec<Vec<u8>> =
            changes.iter().map(|change| name_of_key(change.key())).collect::<Result<_>>()?;
        let wanted = changes.iter().zip(&names).map(|(change, name)| Wanted {
            name,
            value: if let KeyChange::Put(_, value) = change { Some(value) } else { None },
        });
        self.change(caller, wanted.collect(), (PutWhen::Always, PutOptions::default().mode)).map(drop)
    }

    fn sync(&self) -> Result<()> {
        self.core.journal.commit(self.core.journal.last_record())
    }
}
