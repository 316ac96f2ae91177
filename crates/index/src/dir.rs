//! `.braid/index` and `.braid/open` of the home tier: the files of the indexes,
//! and the marks of files that may be ahead of their home inode.

use crate::ballast::Ballast;
use crate::index::{Index, decode_header};
use crate::marks::{HandedMark, Marks, Spares};
use crate::segments::Segments;
use braid_contract::{Access, Context, Errno, Fd, NativeFd, NativeHandle, ObjectId, Result, TierId};
use braid_format::{Entry, HEADER_LEN, Header, MUTABLE_FROM, Mark, Words, index_path};
use braid_home::names_in;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The index directory of an open volume, and its marks.
#[derive(Debug)]
pub struct IndexDir {
    /// Their location, which changes when home is replaced.
    dirs: RwLock<Arc<Dirs>>,
    /// Indexes whose directory entry may not be durable yet.
    unsynced: Mutex<HashSet<ObjectId>>,
    /// Held for reading while an index is made, which has no header at first.
    making: RwLock<()>,
    marks: Mutex<Marks>,
    spares: Spares,
    /// Marks that may not be durable yet.
    marks_unsynced: Unsynced,
    /// Subdirectories of the index that may not be durable; at first, those of
    /// earlier mounts too.
    shards_unsynced: Unsynced,
}

/// The directories of one home tier.
#[derive(Debug)]
pub struct Dirs {
    /// `.braid/index`.
    pub index: Fd,
    /// `.braid/open`, which holds the marks.
    pub open: Fd,
    ballast: Arc<Ballast>,
    home: TierId,
}

impl Dirs {
    /// Opens them below `.braid`.
    pub fn open(braid: &dyn NativeFd, home: TierId) -> Result<Self> {
        let open = |name| {
            braid
                .open_at(OsStr::new(name), Access::Directory)
                .with_context(|| format!("opening .braid/{name}"))
        };
        Ok(Self {
            index: open("index")?,
            open: open("open")?,
            ballast: Arc::new(Ballast::open(braid)?),
            home,
        })
    }

    /// Opens the index of this id. `ENOENT` if there is none, `EUCLEAN` if its header can't be believed.
    pub fn open_index(&self, id: ObjectId) -> Result<Index> {
        let path = index_path(id);
        let fd = match self.index.open_at(OsStr::new(&path), Access::ReadWrite) {
            Err(error) if error.errno() == Errno::EROFS => {
                self.index.open_at(OsStr::new(&path), Access::Read)
            }
            result => result,
        };
        let fd = fd.with_context(|| format!("opening index {id}"))?;
        Index::open(fd, id, self.home, &self.ballast)
    }
}

/// The state in memory of indexes and marks, for a process that takes a volume
/// over.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct IndexState {
    marks: Vec<HandedMark>,
    /// Indexes whose names may not be durable.
    unsynced: Vec<ObjectId>,
}

impl IndexDir {
    /// Creates the directories in `braid`, the home tier's `.braid`.
    pub fn create(braid: &dyn NativeFd) -> Result<()> {
        for name in ["index", "open"] {
            braid.ensure_dir_at(name).with_context(|| format!("making .braid/{name}"))?;
        }
        Ballast::create(braid).context("making .braid/ballast")?;
        // On btrfs, unless copy-on-write is off, a store to an allocated block
        // may still need a new one, and fail with SIGBUS. Other file systems
        // neither know the flag nor need it.
        braid.open_at(OsStr::new("index"), Access::Directory)?.write_in_place();
        Ok(())
    }

    /// Opens the directories.
    pub fn open(braid: &dyn NativeFd, home: TierId) -> Result<Self> {
        Ok(Self {
            dirs: RwLock::new(Arc::new(Dirs::open(braid, home)?)),
            unsynced: Mutex::new(HashSet::new()),
            making: RwLock::new(()),
            marks: Mutex::new(Marks::default()),
            spares: Spares::default(),
            marks_unsynced: Unsynced::new(),
            shards_unsynced: Unsynced::new(),
        })
    }

    /// The current directories.
    pub fn dirs(&self) -> Arc<Dirs> {
        Arc::clone(&self.dirs.read())
    }

    /// Switches to other directories, in which everything is durable. No
    /// operation is under way.
    pub fn switch_root(&self, dirs: Dirs) {
        *self.dirs.write() = Arc::new(dirs);
        self.unsynced.lock().clear();
        self.marks.lock().switch_root();
    }

    /// Space set aside for indexes.
    pub fn ballast(&self) -> Arc<Ballast> {
        Arc::clone(&self.dirs.read().ballast)
    }

    /// Creates the index of a new spread file.
    pub fn create_index(&self, header: Header) -> Result<Index> {
        let id = header.id;
        let path = index_path(id);
        let dirs = self.dirs();
        let _making = self.making.read();
        let open = || dirs.ballast.or_spend(|| dirs.index.create_at(OsStr::new(&path), 0o600));
        let fd = match open() {
            Err(error) if error.errno() == Errno::ENOENT => {
                dirs.index.ensure_dir_at(&id.shard())?;
                self.shards_unsynced.note();
                open()
            }
            result => result,
        }
        .context("making an index")?;
        self.unsynced.lock().insert(id);
        Index::create(fd, header, dirs.home, &dirs.ballast).inspect_err(|_| drop(self.remove_index(id)))
    }

    /// Opens the index of this id, as [`Dirs::open_index`] does. One that is
    /// being made is waited for.
    pub fn open_index(&self, id: ObjectId) -> Result<Index> {
        match self.dirs().open_index(id) {
            Err(error) if error.errno() == Errno::EUCLEAN => {
                drop(self.making.write());
                self.dirs().open_index(id)
            }
            result => result,
        }
    }

    /// The header of an index, without opening the rest.
    pub fn header_of(&self, id: ObjectId) -> Result<Header> {
        let fd = self.dirs().index.open_at(OsStr::new(&index_path(id)), Access::Read)?;
        let mut bytes = [0; MUTABLE_FROM];
        let len = fd.read_at(0, &mut [IoSliceMut::new(&mut bytes)], false)?;
        decode_header(&bytes[..len], id)
    }

    /// Whether an index has no header: no file refers to it.
    pub fn lacks_header(&self, id: ObjectId) -> Result<bool> {
        let file = self.dirs().index.open_at(OsStr::new(&index_path(id)), Access::Read)?;
        Ok(!has_header(&file)?)
    }

    /// Whether the creation of an index was interrupted, so that no file refers
    /// to it yet: it has no header, which is durable before that, and no range
    /// on a tier other than home.
    pub fn is_unfinished(&self, id: ObjectId) -> Result<bool> {
        let dirs = self.dirs();
        let file = dirs.index.open_at(OsStr::new(&index_path(id)), Access::Read)?;
        if has_header(&file)? {
            return Ok(false);
        }
        let mut elsewhere = false;
        let segments = Segments::new(file, Arc::clone(&dirs.ballast))?;
        segments.for_each_word(HEADER_LEN as u64, |at, word| {
            let entry = Words::of(id).decode_entry((at - HEADER_LEN as u64) / 8, word);
            elsewhere |= !matches!(entry, Ok(Some(entry)) if entry.tier == dirs.home);
            Ok(())
        })?;
        Ok(!elsewhere)
    }

    /// Removes an index; a missing one is no error.
    pub fn remove_index(&self, id: ObjectId) -> Result<()> {
        self.unsynced.lock().remove(&id);
        self.dirs().index.ensure_gone_at(&index_path(id)).context("removing an index")
    }

    /// Makes all marks durable.
    pub fn sync_marks(&self) -> Result<()> {
        self.marks_unsynced.sync(|| self.dirs().open.sync(false).context("syncing .braid/open"))
    }

    /// Makes contents and name of an index durable, after the marks that lead
    /// recovery to a home inode that it is ahead of.
    pub fn sync(&self, index: &Index) -> Result<()> {
        self.sync_marks()?;
        if index.whole().is_some() {
            return Ok(());
        }
        index.sync()?;
        if self.unsynced.lock().contains(&index.id()) {
            let dirs = self.dirs();
            let shard = dirs.index.open_at(OsStr::new(&index.id().shard()), Access::Directory)?;
            shard.sync(false).context("syncing a directory of indexes")?;
            self.shards_unsynced.sync(|| dirs.index.sync(false).context("syncing .braid/index"))?;
            self.unsynced.lock().remove(&index.id());
        }
        Ok(())
    }

    /// Makes durable the part of index and marks that an `fsync` of a file of
    /// `size` bytes needs ([`Index::sync`] makes all of it durable).
    pub fn sync_size(
        &self,
        index: &Index,
        size: u64,
        data_only: bool,
        is_part_size: impl FnOnce() -> bool,
    ) -> Result<()> {
        if index.whole().is_some() || self.unsynced.lock().contains(&index.id()) {
            return self.sync(index);
        }
        self.sync_marks()?;
        index.sync_size(size, data_only, is_part_size)
    }

    /// Marks a spread file whose state is about to be ahead of its home inode.
    /// Each mark is removed by one [`unmark`](Self::unmark): a file that is
    /// written to and removed at the same time is marked twice. The mark of a
    /// whole file identifies its inode.
    pub fn mark(&self, id: ObjectId, handle: Option<&NativeHandle>) -> Result<()> {
        if self.marks.lock().mark(&*self.dirs().open, id, handle)? {
            self.marks_unsynced.note();
        }
        Ok(())
    }

    /// Takes an id, durably marked, for a file that is about to leave home, as a
    /// whole or in part.
    pub fn take_marked(
        &self,
        handle: Option<&NativeHandle>,
        make_id: &dyn Fn() -> Result<ObjectId>,
    ) -> Result<ObjectId> {
        let dirs = self.dirs();
        let id = self.spares.take(&*dirs.open, make_id)?;
        self.marks.lock().give(&*dirs.open, id, handle)?;
        Ok(id)
    }

    /// Removes unused spare marks.
    pub fn drop_spares(&self) -> Result<()> {
        self.spares.clear(&*self.dirs().open)
    }

    /// Removes one mark.
    pub fn unmark(&self, id: ObjectId) -> Result<()> {
        self.marks.lock().unmark(&*self.dirs().open, id, false)
    }

    /// Removes all marks of a file that is gone.
    pub fn unmark_gone(&self, id: ObjectId) -> Result<()> {
        self.marks.lock().unmark(&*self.dirs().open, id, true)
    }

    /// All existing marks.
    pub fn marked(&self) -> Result<Vec<Mark>> {
        let names = names_in(&*self.dirs().open)?;
        Ok(names.iter().filter_map(|name| Mark::parse(name)).collect())
    }

    /// Loads the marks that exist when the volume is opened.
    pub fn find_marks(&self) -> Result<Vec<Mark>> {
        let names = names_in(&*self.dirs().open)?;
        let mut marks = self.marks.lock();
        Ok(names.iter().filter_map(|name| marks.enter(name)).collect())
    }

    /// The state that another process needs to go on with the volume; no
    /// operation is under way.
    pub fn hand_over(&self) -> IndexState {
        let unsynced = self.unsynced.lock().iter().copied().collect();
        IndexState { marks: self.marks.lock().hand_over(), unsynced }
    }

    /// Goes on where another process ended.
    pub fn take_over(&self, state: IndexState) {
        self.marks.lock().take_over(state.marks);
        self.unsynced.lock().extend(state.unsynced);
    }

    /// Has the next open of a marked file recover it: its home inode could not be brought up to
    /// date.
    pub fn leave_unrecovered(&self, id: ObjectId) {
        self.marks.lock().leave(id);
    }

    /// The home inode of a file that this process marked is up to date.
    pub fn is_up_to_date(&self, id: ObjectId) {
        self.marks.lock().is_known(id);
    }

    /// Whether the file was in use when the volume went down, or its last use did not end well, and
    /// it could not be recovered since.
    pub fn is_unrecovered(&self, id: ObjectId) -> bool {
        self.marks.lock().is_left(id)
    }

    /// Gives a whole file an index, durably, and then makes that effective with
    /// `count`, durably too.
    pub fn give_file(
        &self,
        index: &Index,
        synced_size: u64,
        count: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        index.become_file(|whole| {
            // A crash may have left one.
            self.remove_index(index.id())?;
            let made = self.create_index(index.header().clone())?;
            let fill = || -> Result<()> {
                for range in 0..whole.ranges {
                    made.set_entry(range, Entry { tier: whole.tier, reason: whole.reason, version: 0 })?;
                }
                made.set_size(whole.size)?;
                made.set_synced_size(whole.size.min(synced_size))?;
                made.set_owners(whole.owners)?;
                made.set_gaps(whole.gaps)?;
                made.set_object_durable(whole.tier)?;
                self.sync(&made)
            };
            fill().inspect_err(|_| drop(self.remove_index(index.id())))?;
            count()?;
            Ok(made)
        })
    }

    /// Calls `visit` with the id of every index.
    pub fn list(&self, visit: &mut dyn FnMut(ObjectId) -> Result<()>) -> Result<()> {
        let dirs = self.dirs();
        for shard in names_in(&*dirs.index)? {
            let dir = match dirs.index.open_at(&shard, Access::Directory) {
                // Not Braid's; the check reports it.
                Err(error) if error.errno() == Errno::ENOTDIR => continue,
                result => result?,
            };
            ids_in(&*dir)?.into_iter().try_for_each(&mut *visit)?;
        }
        Ok(())
    }
}

/// Whether a directory has new names that may not be durable.
#[derive(Debug)]
struct Unsynced {
    noted: AtomicBool,
    /// Held during a sync: later callers wait for its end.
    syncing: Mutex<()>,
}

impl Unsynced {
    /// Names of earlier mounts may not have been synced.
    fn new() -> Self {
        Self { noted: AtomicBool::new(true), syncing: Mutex::new(()) }
    }

    /// Notes a new name.
    fn note(&self) {
        self.noted.store(true, Ordering::Release);
    }

    /// Makes noted names durable with `sync`, if there are any.
    fn sync(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let _syncing = self.syncing.lock();
        if self.noted.swap(false, Ordering::AcqRel) {
            sync().inspect_err(|_| self.note())?;
        }
        Ok(())
    }
}

/// The ids among the names in a directory; other names are skipped.
pub fn ids_in(dir: &dyn NativeFd) -> Result<Vec<ObjectId>> {
    let names = names_in(dir)?;
    Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}

fn has_header(file: &Fd) -> Result<bool> {
    let mut page = [0; HEADER_LEN];
    let len = file.read_at(0, &mut [IoSliceMut::new(&mut page)], false)?;
    Ok(page[..len.min(MUTABLE_FROM)].iter().any(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_contract::VolumeId;
    use braid_format::RangeSize;
    use braid_stores::native::open_tier_dir;

    #[test]
    fn an_index_that_is_being_made_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let braid = open_tier_dir(root.path()).unwrap();
        IndexDir::create(&*braid).unwrap();
        let dir = IndexDir::open(&*braid, TierId(0)).unwrap();
        let made = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..2000_u16 {
                    let mut id = [0; 16];
                    id[1..3].copy_from_slice(&n.to_le_bytes());
                    let header = Header {
                        volume: VolumeId([1; 16]),
                        id: ObjectId(id),
                        range_size: RangeSize::new(1 << 16).unwrap(),
                        ino: 1,
                        btime_ns: 0,
                        plain_size: 0,
                        handle: None,
                    };
                    dir.create_index(header).unwrap();
                    dir.remove_index(ObjectId(id)).unwrap();
                }
                made.store(true, Ordering::Release);
            });
            while !made.load(Ordering::Acquire) {
                dir.list(&mut |id| match dir.open_index(id) {
                    Err(error) if error.errno() == Errno::ENOENT => Ok(()),
                    result => result.map(drop),
                })
                .unwrap();
            }
        });
    }
}
