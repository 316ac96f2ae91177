//! `.braid/index` and `.braid/open` of the home tier: the files of the indexes
//! and the marks of those that may be ahead of their home inode.

use super::Index;
use super::ballast::Ballast;
use crate::format::Header;
use crate::sync::Mutex;
use braid_contract::{Context, ObjectId, Result, TierId};
use rustix::fs::{AtFlags, IFlags, Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

#[derive(Debug)]
pub(crate) struct IndexDir {
    index: OwnedFd,
    open: OwnedFd,
    home: TierId,
    pub(crate) ballast: Arc<Ballast>,
    /// Indexes whose directory entry may not be durable yet.
    unsynced: Mutex<HashSet<ObjectId>>,
    /// How often each file is marked.
    marks: Mutex<HashMap<ObjectId, u32>>,
}

impl IndexDir {
    /// Lays the directories out in `braid`, the home tier's `.braid`.
    pub(crate) fn create(braid: &OwnedFd) -> Result<()> {
        for name in ["index", "open"] {
            match rustix::fs::mkdirat(braid, name, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error).with_context(|| format!("making .braid/{name}")),
            }
        }
        Ballast::create(braid).context("making .braid/ballast")?;
        // On btrfs a store to an allocated block may still need a new one, and
        // fail as SIGBUS, unless copy-on-write is off. Elsewhere the flag is
        // unknown, and not needed.
        let index = rustix::fs::openat(braid, "index", DIR, Mode::empty())?;
        if let Ok(flags) = rustix::fs::ioctl_getflags(&index) {
            let _ = rustix::fs::ioctl_setflags(&index, flags | IFlags::NOCOW);
        }
        Ok(())
    }

    /// Opens the directories.
    pub(crate) fn open(braid: &OwnedFd, home: TierId) -> Result<Self> {
        let open = |name| {
            rustix::fs::openat(braid, name, DIR, Mode::empty())
                .with_context(|| format!("opening .braid/{name}"))
        };
        Ok(Self {
            index: open("index")?,
            open: open("open")?,
            ballast: Arc::new(Ballast::open(braid)?),
            home,
            unsynced: Mutex::new(HashSet::new()),
            marks: Mutex::new(HashMap::new()),
        })
    }

    /// Makes the index of a new spread file.
    pub(crate) fn create_index(&self, header: Header) -> Result<Index> {
        let id = header.id;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = || {
            self.ballast
                .or_spend(|| rustix::fs::openat(&self.index, path_of(id), flags, Mode::from_raw_mode(0o600)))
        };
        let fd = match open() {
            Err(rustix::io::Errno::NOENT) => {
                match rustix::fs::mkdirat(&self.index, id.shard(), Mode::from_raw_mode(0o700)) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                open()
            }
            result => result,
        }
        .context("making an index")?;
        self.unsynced.lock().insert(id);
        Index::create(fd, header, self.home, &self.ballast).inspect_err(|_| drop(self.remove_index(id)))
    }

    pub(crate) fn open_index(&self, id: ObjectId) -> Result<Index> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = match rustix::fs::openat(&self.index, path_of(id), flags, Mode::empty()) {
            Err(rustix::io::Errno::ROFS) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                rustix::fs::openat(&self.index, path_of(id), flags, Mode::empty())
            }
            result => result,
        };
        let fd = fd.with_context(|| format!("opening index {id}"))?;
        Index::open(fd, id, self.home, &self.ballast)
    }

    /// Removes an index; one that does not exist is passed over.
    pub(crate) fn remove_index(&self, id: ObjectId) -> Result<()> {
        self.unsynced.lock().remove(&id);
        ignore_missing(rustix::fs::unlinkat(&self.index, path_of(id), AtFlags::empty()))
            .context("removing an index")
    }

    /// Makes contents and name of an index durable.
    pub(crate) fn sync(&self, index: &Index) -> Result<()> {
        index.sync()?;
        if self.unsynced.lock().contains(&index.id()) {
            let shard = rustix::fs::openat(&self.index, index.id().shard(), DIR, Mode::empty())?;
            rustix::fs::fsync(&shard).context("syncing a directory of indexes")?;
            rustix::fs::fsync(&self.index).context("syncing .braid/index")?;
            self.unsynced.lock().remove(&index.id());
        }
        Ok(())
    }

    /// Marks a spread file whose state is about to run ahead of its home inode.
    /// Each mark is taken away by one [`unmark`](Self::unmark): a file that is
    /// written to and removed at the same time is marked twice.
    pub(crate) fn mark(&self, id: ObjectId) -> Result<()> {
        let mut marks = self.marks.lock();
        let count = marks.entry(id).or_insert(0);
        if *count == 0 {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let made = rustix::fs::openat(&self.open, id.to_string(), flags, Mode::from_raw_mode(0o600));
            if let Err(error) = made {
                marks.remove(&id);
                return Err(error).context("marking a file");
            }
        }
        *count += 1;
        Ok(())
    }

    /// Takes one mark away.
    pub(crate) fn unmark(&self, id: ObjectId) -> Result<()> {
        let mut marks = self.marks.lock();
        match marks.get_mut(&id) {
            Some(count) if *count > 1 => {
                *count -= 1;
                Ok(())
            }
            _ => {
                marks.remove(&id);
                self.remove_mark(id)
            }
        }
    }

    /// Takes all marks of a file away that is gone.
    pub(crate) fn unmark_gone(&self, id: ObjectId) -> Result<()> {
        let mut marks = self.marks.lock();
        marks.remove(&id);
        self.remove_mark(id)
    }

    fn remove_mark(&self, id: ObjectId) -> Result<()> {
        ignore_missing(rustix::fs::unlinkat(&self.open, id.to_string(), AtFlags::empty()))
            .context("unmarking a file")
    }

    /// All marked ids.
    pub(crate) fn marked(&self) -> Result<Vec<ObjectId>> {
        ids_in(&self.open)
    }

    /// Calls `visit` with the id of every index.
    pub(crate) fn list(&self, visit: &mut dyn FnMut(ObjectId) -> Result<()>) -> Result<()> {
        for shard in rustix::fs::Dir::read_from(&self.index)? {
            let shard = shard?;
            if shard.file_name().to_bytes().starts_with(b".") {
                continue;
            }
            let dir = rustix::fs::openat(&self.index, shard.file_name(), DIR, Mode::empty())?;
            ids_in(&dir)?.into_iter().try_for_each(&mut *visit)?;
        }
        Ok(())
    }
}

fn ids_in(dir: &OwnedFd) -> Result<Vec<ObjectId>> {
    let mut ids = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        ids.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<ObjectId>().ok()));
    }
    Ok(ids)
}

fn ignore_missing(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        result => result,
    }
}

fn path_of(id: ObjectId) -> String {
    format!("{}/{id}", id.shard())
}
