//! The home tier's directory: the root that everything is opened from.

use crate::format::IdAttr;
use crate::namespace::BRAID_DIR;
use braid_contract::{Attr, Context, Errno, Error, FileKind, InodeId, ObjectId, Result, Timestamp, Usage};
use braid_sys::{FileHandle, is_privileged, lock_tier_dir, measure_space};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, XattrFlags};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How to come back to an inode.
#[derive(Debug)]
pub(crate) enum Node {
    /// By its file handle: costs nothing while nobody uses the inode.
    Handle(FileHandle),
    /// By an `O_PATH` descriptor, where handles may not be opened
    /// (unprivileged) or do not exist.
    Pinned(OwnedFd),
}

/// What is known of an inode when it is looked at.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) stat: Statx,
    pub(crate) kind: FileKind,
    pub(crate) handle: Option<FileHandle>,
}

impl Identity {
    pub(crate) fn ino(&self) -> u64 {
        self.stat.stx_ino
    }

    /// Birth time in nanoseconds since the epoch; 0 where it is not recorded.
    pub(crate) fn btime_ns(&self) -> i64 {
        if self.stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
            return 0;
        }
        self.stat
            .stx_btime
            .tv_sec
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(self.stat.stx_btime.tv_nsec))
    }

    pub(crate) fn size(&self) -> u64 {
        self.stat.stx_size
    }
}

/// The home tier's directory.
pub(crate) struct Home {
    root: OwnedFd,
    device: (u32, u32),
    root_ino: u64,
    /// Inodes are opened by handle.
    by_handle: bool,
    attr_name: &'static str,
}

impl Home {
    /// Opens and locks the directory. Creates nothing.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let root = lock_tier_dir(dir).with_context(|| dir.display().to_string())?;
        let stat = statx(&root)?;
        let handles = FileHandle::of(&root).and_then(|handle| handle.open(&root, OFlags::PATH));
        Ok(Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            root_ino: stat.stx_ino,
            by_handle: handles.is_ok(),
            attr_name: if is_privileged() { "trusted.braid.id" } else { "user.braid.id" },
            root,
        })
    }

    /// Uses the namespace of extended attributes that the volume was made
    /// with, `user.` or `trusted.`.
    pub(crate) fn use_user_xattr(&mut self, user: bool) {
        self.attr_name = if user { "user.braid.id" } else { "trusted.braid.id" };
    }

    pub(crate) fn uses_user_xattr(&self) -> bool {
        self.attr_name.starts_with("user.")
    }

    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens `.braid`.
    pub(crate) fn braid(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.root, BRAID_DIR, flags, Mode::empty())
    }

    /// The inode number that applications see for a native one: the root's is
    /// fixed by the protocol.
    pub(crate) fn public_ino(&self, native: u64) -> InodeId {
        if native == self.root_ino { InodeId::ROOT } else { InodeId(native) }
    }

    /// Looks at the inode behind `fd`, which may be `O_PATH`. `EXDEV` if it is
    /// on another file system: something is mounted inside the home tier.
    pub(crate) fn identify(&self, fd: impl AsFd) -> Result<Identity> {
        let stat = statx(&fd)?;
        if (stat.stx_dev_major, stat.stx_dev_minor) != self.device {
            return Err(Errno::EXDEV.into());
        }
        let kind = FileKind::from_mode(u32::from(stat.stx_mode)).ok_or(Errno::EIO)?;
        let handle = FileHandle::of(&fd).ok();
        Ok(Identity { stat, kind, handle })
    }

    /// How to come back to the inode behind `fd`.
    pub(crate) fn node(&self, identity: &Identity, fd: OwnedFd) -> Node {
        match &identity.handle {
            Some(handle) if self.by_handle => Node::Handle(handle.clone()),
            _ => Node::Pinned(fd),
        }
    }

    /// Opens an inode again.
    pub(crate) fn open_node(&self, node: &Node, flags: OFlags) -> Result<OwnedFd> {
        match node {
            Node::Handle(handle) => Ok(handle.open(&self.root, flags)?),
            Node::Pinned(fd) if flags.contains(OFlags::PATH) => Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?),
            Node::Pinned(fd) => reopen(fd, flags),
        }
    }

    /// Whether stored handles can be opened.
    pub(crate) fn opens_handles(&self) -> bool {
        self.by_handle
    }

    /// Opens an inode by a handle that was stored, if handles can be opened.
    pub(crate) fn open_handle(&self, handle: &FileHandle) -> Result<Option<OwnedFd>> {
        if !self.by_handle {
            return Ok(None);
        }
        Ok(Some(handle.open(&self.root, OFlags::PATH)?))
    }

    /// The id attribute of the inode behind `fd`; `None` if there is none or
    /// if it was copied from another inode.
    pub(crate) fn id_attr(&self, fd: impl AsFd, identity: &Identity) -> Result<Option<IdAttr>> {
        let attr = self.any_id_attr(fd, identity)?;
        Ok(attr.filter(|attr| {
            let born_with_it =
                attr.btime_ns == 0 || identity.btime_ns() == 0 || attr.btime_ns == identity.btime_ns();
            attr.ino == identity.ino() && born_with_it
        }))
    }

    /// The id attribute of the inode behind `fd`, copied or not.
    pub(crate) fn any_id_attr(&self, fd: impl AsFd, identity: &Identity) -> Result<Option<IdAttr>> {
        if identity.kind != FileKind::Regular {
            return Ok(None);
        }
        let mut value = [0; 64];
        let get = |path: &str| rustix::fs::getxattr(path, self.attr_name, &mut value[..]);
        let value = match with_permission(&fd, Mode::RUSR, get) {
            Ok(len) => &value[..len],
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let attr = IdAttr::decode(value)
            .map_err(|error| Error::new(Errno::EUCLEAN, format!("inode {}: {error}", identity.ino())))?;
        Ok(Some(attr))
    }

    /// Sets the id attribute.
    pub(crate) fn set_id_attr(&self, fd: impl AsFd, attr: &IdAttr) -> Result<()> {
        let set =
            |path: &str| rustix::fs::setxattr(path, self.attr_name, &attr.encode(), XattrFlags::empty());
        with_permission(&fd, Mode::WUSR, set).context("setting the id attribute")
    }

    pub(crate) fn remove_id_attr(&self, fd: impl AsFd) -> Result<()> {
        match with_permission(&fd, Mode::WUSR, |path| rustix::fs::removexattr(path, self.attr_name)) {
            Ok(()) | Err(rustix::io::Errno::NODATA) => Ok(()),
            Err(error) => Err(error).context("removing the id attribute"),
        }
    }

    /// Tries whether the directory takes the attribute that spread files need.
    /// Leaves no trace.
    pub(crate) fn try_xattr(&self) -> Result<()> {
        let name = if self.uses_user_xattr() { "user.braid.probe" } else { "trusted.braid.probe" };
        rustix::fs::fsetxattr(&self.root, name, b"1", XattrFlags::empty())?;
        Ok(rustix::fs::fremovexattr(&self.root, name)?)
    }

    /// Calls `visit` with path (below the root), `O_PATH` descriptor and
    /// identity of every regular file of the namespace.
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(&Path, &OwnedFd, &Identity) -> Result<()>) -> Result<()> {
        let mut pending = vec![PathBuf::new()];
        while let Some(path) = pending.pop() {
            let dir = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&self.root, dir, flags, Mode::empty())
                .with_context(|| format!("opening {}", dir.display()))?;
            for entry in rustix::fs::Dir::read_from(&fd)? {
                let entry = entry?;
                let name = Path::new(OsStr::from_bytes(entry.file_name().to_bytes()));
                let in_root = path.as_os_str().is_empty();
                if matches!(entry.file_name().to_bytes(), b"." | b"..")
                    || in_root && name == Path::new(BRAID_DIR)
                {
                    continue;
                }
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let child = rustix::fs::openat(&fd, name, flags, Mode::empty())?;
                match self.identify(&child) {
                    Ok(identity) if identity.kind == FileKind::Directory => pending.push(path.join(name)),
                    Ok(identity) if identity.kind == FileKind::Regular => {
                        visit(&path.join(name), &child, &identity)?
                    }
                    Ok(_) => {}
                    Err(error) if error.errno() == Errno::EXDEV => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// Does something with the inode behind `fd` that needs permission on the
/// inode itself, as `user.` attributes do. The owner of an unprivileged volume
/// may have taken it away; it is given back for a moment.
fn with_permission<T>(
    fd: impl AsFd,
    needed: Mode,
    mut act: impl FnMut(&str) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let path = proc_path(&fd);
    match act(&path) {
        Err(rustix::io::Errno::ACCESS) => {
            let mode = Mode::from_raw_mode(u32::from(statx(&fd)?.stx_mode) & 0o7777);
            rustix::fs::chmod(&path, mode | needed)?;
            let result = act(&path);
            rustix::fs::chmod(&path, mode)?;
            result
        }
        result => result,
    }
}

/// Space of the file system that the directory `root` is on.
pub(crate) fn usage(root: &OwnedFd) -> Result<Usage> {
    let space = measure_space(root)?;
    Ok(Usage { total: space.total, free: space.free, available: space.available, device: space.device })
}

/// A path that leads to an open descriptor, for calls that take no `O_PATH`.
pub(crate) fn proc_path(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Opens the inode behind a descriptor anew.
pub(crate) fn reopen(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    Ok(rustix::fs::open(proc_path(fd), flags | OFlags::CLOEXEC, Mode::empty())?)
}

pub(crate) fn statx(fd: impl AsFd) -> rustix::io::Result<Statx> {
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// The native attributes as the contract has them.
pub(crate) fn attr_of(stat: &Statx, ino: InodeId, kind: FileKind) -> Attr {
    let time = |time: &rustix::fs::StatxTimestamp| Timestamp { secs: time.tv_sec, nanos: time.tv_nsec };
    Attr {
        ino,
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: time(&stat.stx_atime),
        mtime: time(&stat.stx_mtime),
        ctime: time(&stat.stx_ctime),
        btime: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(&stat.stx_btime)),
        kind,
        mode: stat.stx_mode & 0o7777,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor) as u32,
        block_size: stat.stx_blksize,
    }
}

/// The marks of a file system that an object id names one of.
pub(crate) fn new_object_id() -> Result<ObjectId> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(ObjectId(bytes))
}
