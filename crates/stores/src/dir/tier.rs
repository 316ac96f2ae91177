//! The opened directory of a tier, and the files of objects in it.

use super::files::OpenFiles;
use super::unsynced::{Mark, Unsynced};
use braid_contract::{Access, Context, Errno, Fd, NativeFd, ObjectId, Result, Shown};
use braid_sys::AlignedBuf;
use std::ffi::{OsStr, OsString};
use std::io::IoSliceMut;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const LABEL: &str = ".braid/label";
/// A text for people about the directory.
const NOTICE: &str = "README";
pub(super) const LABEL_MAX: usize = 4096;

/// One opening of a tier's directory. Another one replaces it when the file
/// system went away and was mounted again.
pub(super) struct Tier {
    pub(super) root: Fd,
    /// Holds the lock; the root itself, or the root of the mount through which
    /// the same file system was opened at first.
    pub(super) lock: Fd,
    files: OpenFiles,
    /// Shared with another opening of the same file system, since that loses
    /// nothing.
    pub(super) unsynced: Arc<Unsynced>,
    syncing_all: Arc<Mutex<()>>,
}

impl Tier {
    /// The directory `root`, which its opener locked.
    pub(super) fn new(root: Fd) -> Self {
        let lock = Arc::clone(&root);
        let unsynced = Arc::new(Unsynced::new());
        Self { root, lock, files: OpenFiles::new(), unsynced, syncing_all: Arc::default() }
    }

    /// The same file system by another descriptor.
    pub(super) fn through(&self, root: Fd) -> Self {
        let (lock, unsynced) = (Arc::clone(&self.lock), Arc::clone(&self.unsynced));
        Self { root, lock, files: OpenFiles::new(), unsynced, syncing_all: Arc::clone(&self.syncing_all) }
    }

    /// The object's file, to be read.
    pub(super) fn file(&self, id: ObjectId) -> Result<Fd> {
        match self.file_to_change(id) {
            // A file system that went read-only can still be read. Not cached:
            // it may become writable again.
            Err(error) if error.errno() == Errno::EROFS => self.open(id, Access::Read),
            result => result,
        }
    }

    /// The object's file, to be read and written.
    pub(super) fn file_to_change(&self, id: ObjectId) -> Result<Fd> {
        self.files.get(id, || match self.unsynced.file(id) {
            // The descriptor that receives errors of writeback.
            Some(file) => Ok(file),
            None => self.open(id, Access::ReadWrite),
        })
    }

    /// The object's file, opened with `O_PATH`.
    pub(super) fn file_to_stat(&self, id: ObjectId) -> Result<Fd> {
        let open = self.files.peek(id).or_else(|| self.unsynced.file(id));
        open.map_or_else(|| self.open(id, Access::Path), Ok)
    }

    fn open(&self, id: ObjectId, access: Access) -> Result<Fd> {
        let path = path_of(id);
        let file = self.with_room(|| self.root.open_at(OsStr::new(&path), access))?;
        if access != Access::Path {
            file.keep_access_time();
        }
        Ok(file)
    }

    /// Runs `open`; if the process has too many open files, once more after
    /// closing cached ones.
    fn with_room<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        match open() {
            Err(error) if matches!(error.errno(), Errno::EMFILE | Errno::ENFILE) => {
                self.files.clear();
                self.unsynced.close_all();
                open()
            }
            result => result,
        }
    }

    /// Creates the object's file, unless it exists.
    pub(super) fn create(&self, id: ObjectId) -> Result<()> {
        let path = path_of(id);
        let create = || self.with_room(|| self.root.create_at(OsStr::new(&path), 0o600));
        self.unsynced.made(id);
        let created = match create() {
            Err(error) if error.errno() == Errno::ENOENT => {
                self.root.ensure_dir_at(&dir_of(id))?;
                self.unsynced.dir_made(id);
                create()
            }
            result => result,
        };
        match created {
            Ok(file) => {
                file.keep_access_time();
                self.files.get(id, || Ok(file)).map(drop)
            }
            Err(error) if error.errno() == Errno::EEXIST => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a file the name of an object.
    pub(super) fn adopt(&self, id: ObjectId, file: &dyn NativeFd) -> Result<()> {
        let (dir, name) = (dir_of(id), id.to_string());
        self.root.ensure_dir_at(&dir)?;
        self.unsynced.dir_made(id);
        self.unsynced.made(id);
        let dir = self.root.open_at(OsStr::new(&dir), Access::Directory)?;
        file.link_to(&*dir, OsStr::new(&name))
    }

    /// Removes the object's file, if it exists.
    pub(super) fn remove(&self, id: ObjectId) -> Result<()> {
        self.root.ensure_gone_at(&path_of(id))?;
        self.files.forget(id);
        self.unsynced.removed(id);
        Ok(())
    }

    /// Makes objects and their names durable.
    pub(super) fn sync(&self, ids: &[ObjectId], data_only: bool) -> Result<()> {
        let marks: Vec<Mark> = ids.iter().map(|id| self.unsynced.mark(*id)).collect();
        for id in ids {
            self.file(*id)?.sync(data_only)?;
        }
        let (mut dirs, mut fresh) = ([false; 256], false);
        for (id, mark) in ids.iter().zip(&marks) {
            if self.unsynced.name_needs_sync(*id, *mark) && !dirs[usize::from(id.0[0])] {
                fresh |= !self.unsynced.dir_is_durable(*id);
                self.sync_dir(&dir_of(*id))?;
                dirs[usize::from(id.0[0])] = true;
            }
        }
        // The directories themselves may be new, and stay marked so if this
        // fails: the marks are cleared only below.
        if fresh {
            self.sync_dir(".braid/data")?;
        }
        let mut result = Ok(());
        for (id, mark) in ids.iter().zip(marks) {
            if dirs[usize::from(id.0[0])] {
                self.unsynced.names_synced(*id);
            }
            result = result.and(self.unsynced.synced(*id, mark));
        }
        result
    }

    /// Makes everything on the file system durable.
    pub(super) fn sync_all(&self) -> Result<()> {
        // One at a time: a caller that arrives while another one gets an error
        // must not take its own success for the objects'.
        let _alone = self.syncing_all.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.unsynced.all();
        // Through the descriptor that was open all the time: it is the one that
        // receives errors of writeback.
        self.lock.sync_fs().inspect_err(|_| self.unsynced.could_not_sync_all())?;
        before.into_iter().for_each(|(id, mark)| self.unsynced.synced_with_all(id, mark));
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> Result<()> {
        let dir = self.with_room(|| self.root.open_at(OsStr::new(path), Access::Directory));
        dir.and_then(|dir| dir.sync(false)).with_context(|| format!("syncing {path}"))
    }

    /// Calls `visit` with every object.
    pub(super) fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        let data = match self.root.open_at(OsStr::new(".braid/data"), Access::Directory) {
            Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
            result => result?,
        };
        data.read_dir(0, &mut |shard| {
            if !is_dots(shard.name) {
                let dir = data.open_at(shard.name, Access::Directory)?;
                dir.read_dir(0, &mut |object| {
                    if let Some(id) = object.name.to_str().and_then(|name| name.parse().ok()) {
                        visit(id);
                    }
                    Ok(true)
                })?;
            }
            Ok(true)
        })
    }

    /// Removes all objects, then the label and the directories.
    pub(super) fn clear(&self) -> Result<()> {
        let braid = match self.root.open_at(OsStr::new(".braid"), Access::Directory) {
            Err(error) if error.errno() == Errno::ENOENT => return Ok(()),
            result => result?,
        };
        let mut ids = Vec::new();
        self.list(&mut |id| ids.push(id))?;
        ids.into_iter().try_for_each(|id| self.remove(id))?;
        self.files.clear();
        if let Ok(data) = braid.open_at(OsStr::new("data"), Access::Directory) {
            for shard in names_in(&data)? {
                data.remove_at(&shard, true).with_context(|| format!("removing {}", shard.shown()))?;
            }
            braid.remove_at(OsStr::new("data"), true).context("removing .braid/data")?;
        }
        // Without the label, remaining objects would have no known owner.
        self.root.sync_fs()?;
        for name in [NOTICE, "README.new", "label.new", "label"] {
            braid.ensure_gone_at(name)?;
        }
        self.root.remove_at(OsStr::new(".braid"), true).context("removing .braid")?;
        self.root.sync(false)
    }

    /// Sets the label, and creates the directories of objects.
    pub(super) fn set_label(&self, bytes: &[u8]) -> Result<()> {
        self.root.ensure_dir_at(".braid").context("making .braid")?;
        self.root.ensure_dir_at(".braid/data").context("making .braid/data")?;
        let dir = self.root.open_at(OsStr::new(".braid"), Access::Directory)?;
        dir.replace_small("label", bytes).context("writing .braid/label")?;
        self.root.sync(false)
    }

    /// Writes a text to `.braid`, if it is missing.
    pub(super) fn leave_notice(&self, text: &[u8]) -> Result<()> {
        let dir = self.root.open_at(OsStr::new(".braid"), Access::Directory)?;
        match dir.read_small(NOTICE, text.len() + 1) {
            Ok(Some(found)) if found == text => Ok(()),
            _ => dir.replace_small(NOTICE, text).context("writing .braid/README"),
        }
    }
}

/// Reads the label below `root` from the device, bypassing memory where that is
/// possible.
pub(super) fn read_label_on_device(root: &Fd) -> Result<Option<Vec<u8>>> {
    let file = match root.open_at(OsStr::new(LABEL), Access::Read) {
        Err(error) if error.errno() == Errno::ENOENT => return Ok(None),
        result => result?,
    };
    let mut buf = AlignedBuf::new();
    let bytes = buf.bytes(LABEL_MAX);
    let len = file.read_at(0, &mut [IoSliceMut::new(bytes)], true)?;
    Ok(Some(bytes[..len].to_vec()))
}

fn path_of(id: ObjectId) -> String {
    format!(".braid/data/{}/{id}", id.shard())
}

fn dir_of(id: ObjectId) -> String {
    format!(".braid/data/{}", id.shard())
}

fn names_in(dir: &Fd) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    dir.read_dir(0, &mut |entry| {
        if !is_dots(entry.name) {
            names.push(entry.name.to_owned());
        }
        Ok(true)
    })?;
    Ok(names)
}

fn is_dots(name: &OsStr) -> bool {
    name == "." || name == ".."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::open_tier_dir;

    const ID: ObjectId = ObjectId([0xa; 16]);

    fn tier() -> (tempfile::TempDir, Tier) {
        let dir = tempfile::tempdir().unwrap();
        let tier = Tier::new(open_tier_dir(dir.path()).unwrap());
        tier.set_label(b"label").unwrap();
        (dir, tier)
    }

    #[test]
    fn what_is_cleared_can_be_used_anew_and_what_is_foreign_stays() {
        let (dir, tier) = tier();
        tier.create(ID).unwrap();
        tier.leave_notice(b"read me").unwrap();
        let notice = dir.path().join(".braid/README");
        assert_eq!(std::fs::read(&notice).unwrap(), b"read me");
        std::fs::write(dir.path().join("notes"), "mine").unwrap();
        let foreign = dir.path().join(".braid/data/0a/foreign");
        std::fs::write(&foreign, "?").unwrap();
        assert_eq!(tier.clear().unwrap_err().errno(), Errno::ENOTEMPTY);
        assert!(dir.path().join(LABEL).exists(), "the label is the last to go");
        std::fs::remove_file(foreign).unwrap();
        tier.clear().unwrap();
        tier.clear().unwrap();
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["notes"]);
        tier.set_label(b"another").unwrap();
        tier.create(ID).unwrap();
    }

    #[test]
    fn a_name_that_could_not_be_synced_is_synced_the_next_time() {
        let (dir, tier) = tier();
        tier.create(ID).unwrap();
        let (names, away) = (dir.path().join(".braid/data/0a"), dir.path().join("away"));
        std::fs::rename(&names, &away).unwrap();
        assert_eq!(tier.sync(&[ID], true).unwrap_err().errno(), Errno::ENOENT);
        assert!(tier.unsynced.mark(ID).is_new() && !tier.unsynced.dir_is_durable(ID));
        std::fs::rename(&away, &names).unwrap();
        tier.sync(&[ID], true).unwrap();
        assert!(!tier.unsynced.name_needs_sync(ID, tier.unsynced.mark(ID)));
    }

    #[test]
    fn a_directory_of_objects_that_had_to_be_made_again_is_synced_again() {
        let (dir, tier) = tier();
        tier.create(ID).unwrap();
        tier.sync(&[ID], true).unwrap();
        tier.remove(ID).unwrap();
        assert!(tier.unsynced.dir_is_durable(ID));
        tier.create(ID).unwrap();
        assert!(tier.unsynced.dir_is_durable(ID));
        tier.remove(ID).unwrap();
        std::fs::remove_dir(dir.path().join(".braid/data/0a")).unwrap();
        tier.create(ID).unwrap();
        assert!(!tier.unsynced.dir_is_durable(ID));
        tier.sync(&[ID], true).unwrap();
        assert!(tier.unsynced.dir_is_durable(ID));
    }

    #[test]
    fn a_name_that_an_earlier_process_made_is_synced_too() {
        let (dir, earlier) = tier();
        earlier.create(ID).unwrap();
        drop(earlier);
        let tier = Tier::new(open_tier_dir(dir.path()).unwrap());
        tier.file(ID).unwrap();
        let names = dir.path().join(".braid/data/0a");
        std::fs::rename(&names, dir.path().join("away")).unwrap();
        // The attempt has effects that show.
        assert_eq!(tier.sync(&[ID], true).unwrap_err().errno(), Errno::ENOENT);
    }
}
