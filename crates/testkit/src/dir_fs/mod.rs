//! A file system over a directory, without a volume: small, complete enough to
//! mount, and able to misbehave in the ways that tests need.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod operations;

use braid_contract::{
    Attr, Caller, Entry, Errno, Error, FileKind, HandleId, InodeId, IoMode, OpenFlags, OpenRequest, Result,
    SetAttr, SetTime, Timestamp, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How opens are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Through the page cache.
    Cached,
    /// Each call by itself.
    Direct,
    /// Passthrough wherever it is allowed, cached elsewhere.
    Passthrough,
    /// Each mode in turn, as far as the contract allows.
    Rotate,
    /// Passthrough on a descriptor that the kernel refuses.
    BadPassthrough,
}

/// A promise of the trait that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A rename to another directory is answered and not done.
    LosesRename,
    /// A rename that must not replace does.
    ReplacesAnyway,
    /// Modes are not masked.
    IgnoresUmask,
    /// Data of a file goes with its last name, open or not.
    LosesUnlinked,
    /// A directory that is read on begins from its start.
    ListsAgain,
    /// Punched data stays.
    PunchesNothing,
    /// An operation that finds an inode by its name and then changes it is not
    /// alone in the directory, as if the kernel's locks were held by every
    /// caller.
    TrustsCallers,
}

struct Inode {
    fd: Arc<OwnedFd>,
    lookups: u64,
}

struct File {
    file: OwnedFd,
    /// For reads with `O_DIRECT`.
    direct: Option<OwnedFd>,
}

enum Handle {
    File(File),
    Dir(Vec<(OsString, u64, FileType)>, InodeId),
}

/// A file system over a directory.
pub struct DirFs {
    choice: Choice,
    violation: Option<Violation>,
    /// Held while names change: that takes several system calls, and callers do
    /// not guarantee that a name keeps its inode.
    names: Mutex<()>,
    inodes: Mutex<HashMap<InodeId, Inode>>,
    forgotten: Condvar,
    released: Condvar,
    handles: Mutex<HashMap<u64, Arc<Handle>>>,
    next: AtomicU64,
    /// How often a descriptor was given away.
    pub passthrough_opens: AtomicU64,
    /// How often a name was looked up.
    pub lookups: AtomicU64,
    /// How often data was read.
    pub reads: AtomicU64,
    /// The flags of the last write.
    pub last_write: Mutex<WriteFlags>,
}

impl DirFs {
    /// A file system over the directory `root`. Changes the file mode creation
    /// mask of the process.
    ///
    /// # Panics
    /// If the directory can't be opened.
    #[must_use]
    pub fn new(root: &Path, choice: Choice) -> Self {
        // Modes are applied as given; this process has nothing else to make.
        rustix::process::umask(Mode::empty());
        let fd = rustix::fs::open(root, OFlags::PATH, Mode::empty()).unwrap();
        let root = Inode { fd: Arc::new(fd), lookups: 1 };
        Self {
            choice,
            violation: None,
            names: Mutex::default(),
            inodes: Mutex::new([(InodeId::ROOT, root)].into()),
            forgotten: Condvar::new(),
            released: Condvar::new(),
            handles: Mutex::default(),
            next: AtomicU64::new(1),
            passthrough_opens: AtomicU64::new(0),
            lookups: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            last_write: Mutex::default(),
        }
    }

    /// The same, with a promise that it breaks.
    #[must_use]
    pub fn breaking(root: &Path, violation: Violation) -> Self {
        Self { violation: Some(violation), ..Self::new(root, Choice::Cached) }
    }

    fn breaks(&self, violation: Violation) -> bool {
        self.violation == Some(violation)
    }

    /// Keeps others from changing names.
    fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        (!self.breaks(Violation::TrustsCallers)).then(|| self.names.lock().unwrap())
    }

    /// Whether all inodes but the root are forgotten, now or soon.
    ///
    /// # Panics
    /// If another thread panicked.
    #[must_use]
    pub fn wait_all_forgotten(&self) -> bool {
        let inodes = self.inodes.lock().unwrap();
        let limit = Duration::from_secs(60);
        let (_inodes, late) =
            self.forgotten.wait_timeout_while(inodes, limit, |inodes| inodes.len() > 1).unwrap();
        !late.timed_out()
    }

    /// Whether all handles are released, now or soon.
    ///
    /// # Panics
    /// If another thread panicked.
    #[must_use]
    pub fn wait_all_released(&self) -> bool {
        let handles = self.handles.lock().unwrap();
        let limit = Duration::from_secs(60);
        let (_handles, late) =
            self.released.wait_timeout_while(handles, limit, |handles| !handles.is_empty()).unwrap();
        !late.timed_out()
    }

    fn path(&self, ino: InodeId) -> Result<PathBuf> {
        let inodes = self.inodes.lock().unwrap();
        let inode = inodes.get(&ino).ok_or(Errno::ESTALE)?;
        Ok(format!("/proc/self/fd/{}", inode.fd.as_raw_fd()).into())
    }

    fn child(&self, parent: InodeId, name: &OsStr) -> Result<PathBuf> {
        match name.as_bytes() {
            b"panic" => panic!("deliberate"),
            b"damaged" => Err(Error::new(Errno::EUCLEAN, "deliberate")),
            b"huge-errno" => Err(Errno(4095).into()),
            b"no-system-call" => Err(Errno::ENOSYS.into()),
            _ => Ok(self.path(parent)?.join(name)),
        }
    }

    fn handle(&self, handle: HandleId) -> Result<Arc<Handle>> {
        Ok(self.handles.lock().unwrap().get(&handle.0).ok_or(Errno::EBADF)?.clone())
    }

    fn file<R>(&self, handle: HandleId, f: impl FnOnce(&File) -> rustix::io::Result<R>) -> Result<R> {
        match &*self.handle(handle)? {
            Handle::File(file) => os(f(file)),
            Handle::Dir(..) => Err(Errno::EISDIR.into()),
        }
    }

    fn add_handle(&self, handle: Handle) -> HandleId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.handles.lock().unwrap().insert(id, Arc::new(handle));
        HandleId(id)
    }

    /// Counts a lookup of the inode at `path`.
    fn entry(&self, path: &Path) -> Result<Entry> {
        self.entry_of(os(rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()))?)
    }

    /// The same, of the inode behind a descriptor.
    fn entry_of(&self, fd: OwnedFd) -> Result<Entry> {
        let stat = os(rustix::fs::fstat(&fd))?;
        let mut attr = attr(&stat);
        let mut inodes = self.inodes.lock().unwrap();
        let root = os(rustix::fs::fstat(&*inodes[&InodeId::ROOT].fd))?;
        if (stat.st_dev, stat.st_ino) == (root.st_dev, root.st_ino) {
            attr.ino = InodeId::ROOT;
        }
        inodes.entry(attr.ino).or_insert_with(|| Inode { fd: Arc::new(fd), lookups: 0 }).lookups += 1;
        Ok(Entry { attr, generation: 0 })
    }

    fn own(&self, path: &Path, caller: &Caller) -> Result<()> {
        if self.breaks(Violation::TrustsCallers) {
            // Long enough for another to come in between.
            (0..100).for_each(|_| std::thread::yield_now());
        }
        let (uid, gid) = (Uid::from_raw(caller.uid), Gid::from_raw(caller.gid));
        if (uid, gid) == (rustix::process::geteuid(), rustix::process::getegid()) {
            // It is already, with a group and bits that the directory decides on.
            return Ok(());
        }
        os(rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))
    }

    fn open_path(&self, path: &Path, flags: OpenFlags) -> Result<HandleId> {
        let open = |flags| os(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()));
        let file = File {
            file: open(if flags.write { OFlags::RDWR } else { OFlags::RDONLY })?,
            direct: if flags.direct { Some(open(OFlags::RDONLY | OFlags::DIRECT)?) } else { None },
        };
        Ok(self.add_handle(Handle::File(file)))
    }

    fn backing(path: &Path) -> Result<IoMode> {
        let fd = os(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()))?;
        Ok(IoMode::Passthrough(Arc::new(fd)))
    }

    fn mode(&self, path: &Path, request: OpenRequest, turn: u64) -> Result<IoMode> {
        if request.passthrough_required {
            return Self::backing(path);
        }
        let may = request.passthrough_allowed;
        match (self.choice, turn % 3) {
            (Choice::Passthrough, _) | (Choice::Rotate, 0) if may => Self::backing(path),
            (Choice::BadPassthrough, _) if may => {
                let file = std::fs::File::open("/proc/self/mem")?;
                Ok(IoMode::Passthrough(Arc::new(file.into())))
            }
            (Choice::Direct, _) | (Choice::Rotate, 1) => Ok(IoMode::Direct),
            _ => Ok(IoMode::Cached),
        }
    }

    fn set_times(path: &Path, changes: &SetAttr) -> Result<()> {
        let spec = |time: Option<SetTime>| match time {
            None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
            Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
            Some(SetTime::At(time)) => Timespec { tv_sec: time.secs, tv_nsec: i64::from(time.nanos) },
        };
        let times = Timestamps { last_access: spec(changes.atime), last_modification: spec(changes.mtime) };
        os(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()))
    }

    fn kill_set_id(file: &OwnedFd) -> rustix::io::Result<()> {
        let mode = rustix::fs::fstat(file)?.st_mode;
        let executable_group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777 & !(0o4000 | executable_group)))
    }
}

fn os<T>(result: rustix::io::Result<T>) -> Result<T> {
    result.map_err(|error| Errno(error.raw_os_error()).into())
}

fn kind(kind: FileType) -> FileKind {
    match kind {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::Regular,
    }
}

fn attr(stat: &Stat) -> Attr {
    let time = |secs: i64, nanos: u64| Timestamp { secs, nanos: nanos as u32 };
    Attr {
        ino: InodeId(stat.st_ino),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        btime: None,
        kind: kind(FileType::from_raw_mode(stat.st_mode)),
        mode: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        block_size: stat.st_blksize as u32,
    }
}
