//! The files of objects, by their ids: names change under one lock, and files stay open for a
//! while.

use braid_contract::{
    Caller, Entry, Errno, FileSystem, HandleId, InodeId, ObjectId, OpenFlags, Result, list_names,
};
use lru::LruCache;
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// The directory of the store's files, in the root.
const TOP: &str = ".braid";
/// The directory of objects, in that one.
const OBJECTS: &str = "objects";
/// A text for people, beside it.
const NOTICE: &str = "README";

/// Most files that stay open without being used.
const OPEN_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// An inode that the file system knows to be in use.
pub(super) struct Known {
    fs: Arc<dyn FileSystem>,
    pub(super) ino: InodeId,
}

impl Known {
    fn new(fs: &Arc<dyn FileSystem>, entry: &Entry) -> Self {
        Self { fs: Arc::clone(fs), ino: entry.attr.ino }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.fs.forget(self.ino, 1);
    }
}

/// An open file.
pub(super) struct Opened {
    pub(super) known: Known,
    pub(super) handle: HandleId,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Its errors were reported to the writers and syncs.
        let _ = self.known.fs.release(self.handle);
    }
}

/// The files of all objects.
pub(super) struct Objects {
    fs: Arc<dyn FileSystem>,
    names: Mutex<Names>,
    /// Whether names changed since they were last made durable.
    unsynced: Mutex<bool>,
}

/// The known names, which change under its lock.
struct Names {
    /// The directory of objects, once it was found.
    dir: Option<Arc<Known>>,
    open: LruCache<ObjectId, Arc<Opened>>,
}

impl Objects {
    pub(super) fn new(fs: Arc<dyn FileSystem>) -> Self {
        let names = Names { dir: None, open: LruCache::new(OPEN_MAX) };
        Self { fs, names: Mutex::new(names), unsynced: Mutex::new(false) }
    }

    fn look_up(&self, dir: InodeId, name: &OsStr) -> Result<Known> {
        let entry = self.fs.lookup(&Caller::root(), dir, name)?;
        Ok(Known::new(&self.fs, &entry))
    }

    /// The directory of objects. `ENOENT` before the first label.
    fn dir(&self, names: &mut Names) -> Result<Arc<Known>> {
        if let Some(dir) = &names.dir {
            return Ok(Arc::clone(dir));
        }
        let top = self.look_up(InodeId::ROOT, OsStr::new(TOP))?;
        let dir = Arc::new(self.look_up(top.ino, OsStr::new(OBJECTS))?);
        names.dir = Some(Arc::clone(&dir));
        Ok(dir)
    }

    /// Makes the directories, unless they are there.
    pub(super) fn set_up(&self) -> Result<()> {
        let _names = self.names.lock();
        let top = self.ensure_dir(InodeId::ROOT, OsStr::new(TOP))?;
        self.ensure_dir(top.ino, OsStr::new(OBJECTS)).map(drop)
    }

    fn ensure_dir(&self, parent: InodeId, name: &OsStr) -> Result<Known> {
        match self.fs.mkdir(&Caller::root(), parent, name, 0o700, 0) {
            Err(error) if error.errno() == Errno::EEXIST => self.look_up(parent, name),
            made => Ok(Known::new(&self.fs, &made?)),
        }
    }

    /// Makes the file of an object, unless it is there.
    pub(super) fn create(&self, id: ObjectId) -> Result<()> {
        let mut names = self.names.lock();
        let dir = self.dir(&mut names)?;
        let name = OsString::from(id.to_string());
        match self.fs.create(&Caller::root(), dir.ino, &name, 0o600, 0, true, both().into()) {
            Err(error) if error.errno() == Errno::EEXIST => Ok(()),
            made => {
                let (entry, opened) = made?;
                *self.unsynced.lock() = true;
                let known = Known::new(&self.fs, &entry);
                names.open.put(id, Arc::new(Opened { known, handle: opened.handle }));
                Ok(())
            }
        }
    }

    /// The file of an object.
    pub(super) fn open(&self, id: ObjectId) -> Result<Arc<Opened>> {
        let mut names = self.names.lock();
        if let Some(opened) = names.open.get(&id) {
            return Ok(Arc::clone(opened));
        }
        let dir = self.dir(&mut names)?;
        let known = self.look_up(dir.ino, &OsString::from(id.to_string()))?;
        let handle = self.fs.open(&Caller::root(), known.ino, both().into())?.handle;
        let opened = Arc::new(Opened { known, handle });
        names.open.put(id, Arc::clone(&opened));
        Ok(opened)
    }

    /// Removes the file of an object, if it is there.
    pub(super) fn remove(&self, id: ObjectId) -> Result<()> {
        let mut names = self.names.lock();
        let dir = match self.dir(&mut names) {
            Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
            dir => dir?,
        };
        self.ensure_gone(dir.ino, &OsString::from(id.to_string()))?;
        names.open.pop(&id);
        Ok(())
    }

    fn ensure_gone(&self, dir: InodeId, name: &OsStr) -> Result<()> {
        match self.fs.unlink(&Caller::root(), dir, name) {
            Err(error) if error.errno() == Errno::ENOENT => Ok(()),
            gone => gone,
        }
    }

    /// Makes the names of objects durable.
    pub(super) fn sync_names(&self) -> Result<()> {
        // Before the other lock, which holders of this one take.
        let dir = self.dir(&mut self.names.lock());
        // An operation that comes meanwhile waits: its name may be among those that are being synced.
        let mut unsynced = self.unsynced.lock();
        if *unsynced {
            let dir = dir?;
            let caller = Caller::root();
            let handle = self.fs.open_dir(&caller, dir.ino)?;
            let synced = self.fs.sync_dir(&caller, handle);
            self.fs.release_dir(handle)?;
            synced?;
            *unsynced = false;
        }
        Ok(())
    }

    /// The names in the directory of objects. Other files may be among them.
    pub(super) fn list(&self) -> Result<Vec<OsString>> {
        let dir = match self.dir(&mut self.names.lock()) {
            Err(error) if error.errno() == Errno::ENOENT => return Ok(Vec::new()),
            dir => dir?,
        };
        list_names(&*self.fs, &Caller::root(), dir.ino, || Ok(()))
    }

    /// Leaves a text for people, unless there is one.
    pub(super) fn leave_notice(&self, text: &[u8]) -> Result<()> {
        let _names = self.names.lock();
        let caller = Caller::root();
        let top = self.look_up(InodeId::ROOT, OsStr::new(TOP))?;
        match self.fs.create(&caller, top.ino, OsStr::new(NOTICE), 0o644, 0, true, both().into()) {
            Err(error) if error.errno() == Errno::EEXIST => Ok(()),
            made => {
                let (entry, opened) = made?;
                let file = Opened { known: Known::new(&self.fs, &entry), handle: opened.handle };
                self.fs.write(&caller, file.handle, 0, text, Default::default()).map(drop)
            }
        }
    }

    /// Removes all objects and directories. `ENOTEMPTY` if other files are in the way.
    pub(super) fn clear(&self) -> Result<()> {
        let listed = self.list()?;
        let mut names = self.names.lock();
        let caller = Caller::root();
        let top = match self.look_up(InodeId::ROOT, OsStr::new(TOP)) {
            Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
            top => top?,
        };
        if let Ok(dir) = self.dir(&mut names) {
            for name in listed.iter().filter(|name| id_of(name).is_some()) {
                self.ensure_gone(dir.ino, name)?;
            }
            self.fs.rmdir(&caller, top.ino, OsStr::new(OBJECTS))?;
        }
        names.open.clear();
        names.dir = None;
        self.ensure_gone(top.ino, OsStr::new(NOTICE))?;
        self.fs.rmdir(&caller, InodeId::ROOT, OsStr::new(TOP))
    }
}

/// The object that a name stands for.
pub(super) fn id_of(name: &OsStr) -> Option<ObjectId> {
    name.to_str()?.parse().ok()
}

/// For reading and writing.
fn both() -> OpenFlags {
    OpenFlags { read: true, write: true, ..OpenFlags::default() }
}
