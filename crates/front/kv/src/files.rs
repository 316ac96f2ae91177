//! A directory of any file system as keys and values. A put makes another file, writes it,
//! has it made durable, and renames it over the value that is there: neither a reader nor
//! a crash finds half of one.
//!
//! The file system is used in the caller's name, so that modules which judge or account
//! callers do; bits of mode are looked at here. The bucket's own work (leftovers, the kept
//! parts of a replaced file) is done as root.

use crate::held::{Held, check};
use crate::limits::check_value_len;
use crate::listing::{Listing, Listings, UnfinishedName};
use braid_contract::key_value::{PAGE_BYTES_MAX, VALUE_MAX, check_batch, check_len, name_of_key};
use braid_contract::rights::{ACL, Guard, READ, SEARCH, WRITE};
use braid_contract::{
    Attr, Caller, Errno, Error, FileKind, FileSystem, FrontCache, HandleId, InodeId, KeyChange, KeyValue,
    OpenFlags, PutOptions, PutWhen, RenameMode, Result, ScanPage, ScanRange, SetAttr, WriteFlags, XattrMode,
};
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Locks that keys share.
const LOCKS: usize = 32;
/// How often a file is looked up again that went when it was about to be used.
const TRIES: usize = 100;

/// A directory of a file system as keys and values.
#[derive(Debug)]
pub struct FileBucket {
    fs: Files,
    dir: Held,
    /// Held while a key changes.
    changing: [Mutex<()>; LOCKS],
    /// Those of scans that are not at their ends.
    listings: Arc<Listings>,
}

/// The file system, and the cache of a mount which shows the same files.
struct Files(Arc<dyn FileSystem>, Option<Arc<dyn FrontCache>>);

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Files")
    }
}

/// A file that is about to become a value, and is removed if it does not.
struct Unfinished<'a> {
    bucket: &'a FileBucket,
    name: UnfinishedName,
    file: Held,
    is_done: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // The next scan tries again.
            let _ = self.bucket.fs.0.unlink(&Caller::stack(), self.bucket.dir.ino(), &self.name.name());
        }
    }
}

impl FileBucket {
    /// The directory as keys and values. `cache` is that of the mount which shows the same
    /// files, if there is one.
    #[must_use]
    pub fn new(
        fs: Arc<dyn FileSystem>,
        dir: Held,
        cache: Option<Arc<dyn FrontCache>>,
        listings: &Arc<Listings>,
    ) -> Self {
        Self { fs: Files(fs, cache), dir, changing: Default::default(), listings: Arc::clone(listings) }
    }

    fn fs(&self) -> &dyn FileSystem {
        &*self.fs.0
    }

    /// The directory's attributes, if the caller has these rights to it.
    fn enter(&self, caller: &Caller, wanted: u16) -> Result<Attr> {
        let attr = self.fs().getattr(&Caller::stack(), self.dir.ino(), None)?;
        check(self.fs(), caller, &attr, wanted)?;
        Ok(attr)
    }

    /// The file of a name, which is a value's.
    fn find(&self, name: &OsStr) -> Result<Option<Held>> {
        let held = match Held::look_up(&self.fs.0, self.dir.ino(), name) {
            Err(error) if error.errno() == Errno::ENOENT => return Ok(None),
            held => held?,
        };
        match held.attr.kind {
            FileKind::Regular => Ok(Some(held)),
            FileKind::Directory => Err(Errno::EISDIR.into()),
            _ => Err(Error::new(Errno::EINVAL, "the key's name is no regular file's")),
        }
    }

    /// Looks a name up, and works with its file, once more if that went meanwhile.
    fn with_file<T>(&self, name: &OsStr, mut work: impl FnMut(&Held) -> Result<T>) -> Result<Option<T>> {
        for _ in 0..TRIES {
            let Some(file) = self.find(name)? else { return Ok(None) };
            if let Some(cache) = &self.fs.1 {
                cache.write_back(file.ino())?;
            }
            match work(&file) {
                Err(error) if error.errno() == Errno::ESTALE => {}
                done => return done.map(Some),
            }
        }
        Err(Errno::EBUSY.into())
    }

    /// Reads the value of a name, if it is there.
    fn value(&self, caller: &Caller, name: &OsStr, value: &mut Vec<u8>, most: usize) -> Result<bool> {
        let found = self.with_file(name, |file| {
            check(self.fs(), caller, &file.attr, READ)?;
            let flags = OpenFlags { read: true, ..OpenFlags::default() };
            let handle = self.fs().open(caller, file.ino(), flags.into())?.handle;
            let read = self.read_all(caller, (file.ino(), handle), value, most);
            self.fs().release(handle)?;
            read
        })?;
        Ok(found.is_some())
    }

    fn read_all(
        &self,
        caller: &Caller,
        (ino, handle): (InodeId, HandleId),
        value: &mut Vec<u8>,
        most: usize,
    ) -> Result<()> {
        let size = self.fs().getattr(caller, ino, Some(handle))?.size;
        value.resize(check_len(size, most)?, 0);
        let mut done = 0;
        while done < value.len() {
            match self.fs().read(caller, handle, done as u64, &mut value[done..], false)? {
                0 => break,
                read => done += read,
            }
        }
        value.truncate(done);
        Ok(())
    }

    fn alone<R>(&self, name: &OsStr, work: impl FnOnce() -> R) -> R {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let _changing = self.changing[hasher.finish() as usize % LOCKS].lock();
        work()
    }

    fn put_alone(&self, caller: &Caller, name: &OsStr, value: &[u8], options: PutOptions) -> Result<bool> {
        let old = self.find(name)?;
        let is_met = match options.when {
            PutWhen::Always => true,
            PutWhen::Absent => old.is_none(),
            PutWhen::Present => old.is_some(),
        };
        let dir = self.enter(caller, if is_met { WRITE | SEARCH } else { SEARCH })?;
        if !is_met {
            return Ok(false);
        }
        if let Some(old) = &old {
            may_remove(caller, &dir, old)?;
            check(self.fs(), caller, &old.attr, WRITE)?;
        }
        let mut new = self.write_new(caller, value, old.as_ref(), options.mode)?;
        let (mode, otherwise) = match options.when {
            PutWhen::Always => (RenameMode::Replace, None),
            PutWhen::Absent => (RenameMode::NoReplace, Some(Errno::EEXIST)),
            PutWhen::Present => (RenameMode::Exchange, Some(Errno::ENOENT)),
        };
        let (dir, temporary) = (self.dir.ino(), new.name.name());
        match self.fs().rename(caller, dir, &temporary, dir, name, mode) {
            // Another process was faster.
            Err(error) if Some(error.errno()) == otherwise => return Ok(false),
            renamed => renamed?,
        }
        // The exchanged file is removed.
        new.is_done = mode != RenameMode::Exchange;
        drop(new);
        self.names_changed(&[name.to_owned(), temporary], old.as_ref());
        Ok(true)
    }

    fn names_changed(&self, names: &[OsString], lost: Option<&Held>) {
        let Some(cache) = &self.fs.1 else { return };
        cache.names_came(self.dir.ino(), names);
        lost.into_iter().for_each(|lost| cache.attributes_changed(lost.ino()));
    }

    /// A new file with this value, durable, and with the kept parts of an old
    /// one.
    fn write_new(
        &self,
        caller: &Caller,
        value: &[u8],
        old: Option<&Held>,
        mode: u16,
    ) -> Result<Unfinished<'_>> {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let first = if old.is_some() { 0o600 } else { mode & 0o777 };
        let (name, (entry, opened)) = loop {
            let name = UnfinishedName::new();
            let made =
                self.fs().create(caller, self.dir.ino(), &name.name(), first.into(), 0, true, flags.into());
            match made {
                // A leftover of an earlier process.
                Err(error) if error.errno() == Errno::EEXIST => {}
                made => break (name, made?),
            }
        };
        let file = Held::of(&self.fs.0, entry.attr);
        let new = Unfinished { bucket: self, name, file, is_done: false };
        let written = self.fill(caller, opened.handle, value).and_then(|()| match old {
            Some(old) => self.keep(old, &new.file),
            None => Ok(()),
        });
        let synced = written.and_then(|()| self.fs().fsync(caller, opened.handle, false));
        self.fs().release(opened.handle)?;
        synced.map(|()| new)
    }

    fn fill(&self, caller: &Caller, handle: HandleId, value: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < value.len() {
            let flags = WriteFlags::default();
            match self.fs().write(caller, handle, done as u64, &value[done..], flags)? {
                0 => return Err(Errno::EIO.into()),
                written => done += written,
            }
        }
        Ok(())
    }

    /// Gives the new file the owner, mode and extended attributes of the old one.
    fn keep(&self, old: &Held, new: &Held) -> Result<()> {
        let (caller, fs, old, new) = (Caller::stack(), self.fs(), &old.attr, &new.attr);
        let differs = |old: u32, new: u32| (old != new).then_some(old);
        let owner = (differs(old.uid, new.uid), differs(old.gid, new.gid));
        if owner != (None, None) {
            fs.setattr(
                &caller,
                new.ino,
                None,
                &SetAttr { uid: owner.0, gid: owner.1, ..SetAttr::default() },
            )?;
        }
        let names = match fs.listxattr(&caller, old.ino) {
            Err(error) if error.errno() == Errno::EOPNOTSUPP => Vec::new(),
            names => names?,
        };
        let mut names: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
        names.retain(|name| name.starts_with(b"user.") || *name == ACL.as_bytes());
        for name in &names {
            let value = fs.getxattr(&caller, old.ino, OsStr::from_bytes(name))?;
            fs.setxattr(&caller, new.ino, OsStr::from_bytes(name), &value, XattrMode::Set)?;
        }
        if fs.capabilities().posix_acl && !names.contains(&ACL.as_bytes()) {
            // One that it has of the directory; most have none.
            let _ = fs.removexattr(&caller, new.ino, OsStr::new(ACL));
        }
        let mode = u32::from(old.mode & 0o777);
        fs.setattr(&caller, new.ino, None, &SetAttr { mode: Some(mode), ..SetAttr::default() }).map(drop)
    }

    fn delete_alone(&self, caller: &Caller, name: &OsStr) -> Result<bool> {
        let dir = self.enter(caller, WRITE | SEARCH)?;
        let Some(file) = self.find(name)? else { return Ok(false) };
        may_remove(caller, &dir, &file)?;
        match self.fs().unlink(caller, self.dir.ino(), name) {
            Err(error) if error.errno() == Errno::ENOENT => return Ok(false),
            removed => removed?,
        }
        self.names_changed(&[name.to_owned()], Some(&file));
        Ok(true)
    }

    /// The keys, as the page before found them if nothing changed.
    fn listing(&self, caller: &Caller, is_first: bool) -> Result<Arc<Listing>> {
        // Modules may keep a caller from listing, whatever another one found.
        let handle = self.fs().open_dir(caller, self.dir.ino())?;
        self.fs().release_dir(handle)?;
        if !is_first
            && let Some(kept) = self.listings.get(self.dir.ino())
            && kept.is_current(self.fs(), self.dir.ino())?
        {
            return Ok(kept);
        }
        let listing = Arc::new(Listing::read(self.fs(), self.dir.ino())?);
        for name in &listing.leftovers {
            // Another process may remove it too.
            let _ = self.fs().unlink(&Caller::stack(), self.dir.ino(), name);
        }
        if !listing.leftovers.is_empty() {
            self.names_changed(&listing.leftovers, None);
        }
        self.listings.keep(self.dir.ino(), Arc::clone(&listing));
        Ok(listing)
    }
}

/// Refuses a caller who may not remove the file from the directory.
fn may_remove(caller: &Caller, dir: &Attr, file: &Held) -> Result<()> {
    match Guard::from(dir).lets_remove(caller, &Guard::from(&file.attr)) {
        true => Ok(()),
        false => Err(Errno::EACCES.into()),
    }
}

fn file_name(key: &[u8]) -> Result<OsString> {
    name_of_key(key).map(OsString::from_vec)
}

impl KeyValue for FileBucket {
    fn batch_is_atomic(&self) -> bool {
        false
    }

    fn read(&self, caller: &Caller, key: &[u8], value: &mut Vec<u8>, most: usize) -> Result<bool> {
        let name = file_name(key)?;
        self.enter(caller, SEARCH)?;
        self.value(caller, &name, value, most)
    }

    fn len(&self, caller: &Caller, key: &[u8]) -> Result<Option<u64>> {
        let name = file_name(key)?;
        self.enter(caller, SEARCH)?;
        self.with_file(&name, |file| Ok(self.fs().getattr(&Caller::stack(), file.ino(), None)?.size))
    }

    fn put(&self, caller: &Caller, key: &[u8], value: &[u8], options: PutOptions) -> Result<bool> {
        check_value_len(value.len()).map_err(|text| Error::new(Errno::EFBIG, text))?;
        let name = file_name(key)?;
        self.alone(&name, || self.put_alone(caller, &name, value, options))
    }

    fn delete(&self, caller: &Caller, key: &[u8]) -> Result<bool> {
        let name = file_name(key)?;
        self.alone(&name, || self.delete_alone(caller, &name))
    }

    fn scan(&self, caller: &Caller, range: &ScanRange, count: usize, values: bool) -> Result<ScanPage> {
        self.enter(caller, READ | SEARCH)?;
        let listing = self.listing(caller, range.after.is_none())?;
        let first = range.after.as_ref().unwrap_or(&range.from).max(&range.prefix);
        let begin = listing.keys.partition_point(|(key, _)| key < first);
        let (mut page, mut bytes, mut last) = (ScanPage::default(), 0, None);
        for (key, is_file) in listing.keys[begin..].iter().take_while(|(key, _)| !range.is_over_at(key)) {
            if !range.has(key) {
                continue;
            }
            if page.entries.len() == count || bytes >= PAGE_BYTES_MAX {
                page.next = last;
                return Ok(page);
            }
            last = Some(key.clone());
            if values {
                let mut value = Vec::new();
                if !self.value(caller, &file_name(key)?, &mut value, VALUE_MAX)? {
                    continue;
                }
                bytes += value.len();
                page.entries.push((key.clone(), Some(value)));
            } else if *is_file || matches!(self.find(&file_name(key)?), Ok(Some(_))) {
                page.entries.push((key.clone(), None));
            }
        }
        self.listings.forget(self.dir.ino());
        Ok(page)
    }

    fn batch(&self, caller: &Caller, changes: &[KeyChange<'_>]) -> Result<()> {
        check_batch(changes)?;
        let keys: Result<Vec<_>> = changes.iter().map(|change| name_of_key(change.key())).collect();
        keys?;
        for change in changes {
            match change {
                KeyChange::Put(key, value) => drop(self.put(caller, key, value, PutOptions::default())?),
                KeyChange::Delete(key) => drop(self.delete(caller, key)?),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.fs().sync()
    }
}
