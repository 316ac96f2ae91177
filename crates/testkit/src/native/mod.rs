//! A directory on a mounted file system, accessed like by any application.

mod attrs;
mod data;
mod names;
mod snapshot;

pub(crate) use attrs::xattr_names;
pub(crate) use data::{Whole, allocate_flags, judge_seek, truncate_path};

use crate::op::{Op, OpenSpec, Path, SLOTS, Target};
use crate::outcome::{Answer, Failed, Kind, Outcome};
use crate::{Common, Side, Subject, Tree};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A directory in which sequences are carried out, each in a tree of its own.
#[derive(Clone, Debug)]
pub struct NativeSide {
    root: PathBuf,
    common: Arc<Common>,
}

impl NativeSide {
    /// Uses the directory `root`, which exists.
    #[must_use]
    pub fn new(root: PathBuf, common: Arc<Common>) -> Self {
        Self { root, common }
    }
}

impl Side for NativeSide {
    fn begin(&self, case: &str) -> io::Result<Box<dyn Subject>> {
        let root = self.root.join(case);
        fs::create_dir(&root)?;
        Ok(Box::new(Native::open(root, self.common.clone())?))
    }

    fn join(&self, case: &str) -> io::Result<Box<dyn Subject>> {
        let root = self.root.join(case);
        fs::create_dir_all(&root)?;
        Ok(Box::new(Native::open(root, self.common.clone())?))
    }

    fn end(&self, case: &str) -> io::Result<()> {
        let root = self.root.join(case);
        if !self.common.superuser {
            make_removable(&root)?;
        }
        fs::remove_dir_all(root)
    }
}

/// Gives the owner back the permissions that a sequence may have taken away.
fn make_removable(dir: &std::path::Path) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_removable(&entry.path())?;
        }
    }
    Ok(())
}

/// An open file of a sequence.
struct Slot {
    fd: OwnedFd,
    kind: Kind,
    direct: bool,
}

/// One sequence's tree on a mounted file system.
pub struct Native {
    root: PathBuf,
    dir: OwnedFd,
    slots: [Option<Slot>; SLOTS as usize],
    /// The last change time seen of each inode, to notice one that goes back.
    ctimes: HashMap<u64, (i64, u64)>,
    common: Arc<Common>,
}

impl Native {
    /// Uses the directory `root` as the tree.
    ///
    /// # Errors
    /// The error that kept the directory from being opened.
    pub fn open(root: PathBuf, common: Arc<Common>) -> io::Result<Self> {
        let dir =
            rustix::fs::open(&root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { root, dir, slots: Default::default(), ctimes: HashMap::new(), common })
    }

    fn slot(&self, slot: u8) -> Result<&Slot, Errno> {
        self.slots.get(usize::from(slot)).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    fn fd(&self, slot: u8) -> Result<BorrowedFd<'_>, Errno> {
        Ok(self.slot(slot)?.fd.as_fd())
    }

    /// The path for system calls that take no directory.
    fn full(&self, path: &Path) -> PathBuf {
        self.root.join(OsStr::from_bytes(&path.bytes()))
    }

    /// Opens a file, into the slot unless it is a named pipe: those are only
    /// opened and closed, since I/O on them is the kernel's alone.
    fn open_slot(&mut self, slot: u8, path: &Path, flags: &OpenSpec, mode: u16) -> Result<Answer, Errno> {
        let direct = flags.direct && self.common.direct && !flags.append;
        let fd = rustix::fs::openat(
            &self.dir,
            path.bytes(),
            open_flags(flags, direct),
            Mode::from(u32::from(mode)),
        )?;
        let kind = Kind::from(rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode));
        if kind == Kind::Fifo {
            return Ok(Answer::Fifo);
        }
        let place = self.slots.get_mut(usize::from(slot)).ok_or(Errno::BADF)?;
        *place = Some(Slot { fd, kind, direct });
        Ok(Answer::Unit)
    }

    fn close(&mut self, slot: u8) -> Result<Answer, Errno> {
        let place = self.slots.get_mut(usize::from(slot)).ok_or(Errno::BADF)?;
        place.take().map(|_| Answer::Unit).ok_or(Errno::BADF)
    }

    fn run(&mut self, op: &Op) -> Result<Answer, Errno> {
        match op {
            Op::Open { slot, path, flags, mode } => self.open_slot(*slot, path, flags, *mode),
            Op::Close { slot } => self.close(*slot),
            Op::Read { .. } | Op::Pread { .. } | Op::Write { .. } | Op::Pwrite { .. } => self.transfer(op),
            Op::Seek { slot, to } => self.seek(*slot, *to),
            Op::Truncate { target, len } => self.truncate(target, *len),
            Op::Allocate { slot, mode, offset, len } => self.allocate(*slot, *mode, *offset, *len),
            Op::Copy { from, from_offset, to, to_offset, len } => {
                self.copy(*from, *from_offset, *to, *to_offset, *len)
            }
            Op::Sync { slot, data_only } => self.sync(*slot, *data_only),
            Op::Chmod { target, mode } => self.chmod(target, *mode),
            Op::Chown { target, uid, gid } => self.chown(target, *uid, *gid),
            Op::SetTimes { target, atime, mtime } => self.set_times(target, *atime, *mtime),
            Op::SetXattr { .. } | Op::GetXattr { .. } | Op::ListXattr { .. } | Op::RemoveXattr { .. } => {
                self.xattr(op)
            }
            Op::Stat { target } => Ok(Answer::Stat(self.stat(target)?)),
            _ => self.names(op),
        }
    }
}

impl Subject for Native {
    fn apply(&mut self, op: &Op) -> Outcome {
        loop {
            match self.run(op) {
                Err(Errno::INTR) => {}
                outcome => return outcome.map_err(Failed),
            }
        }
    }

    fn snapshot(&mut self) -> Result<Tree, Errno> {
        self.read_tree()
    }
}

fn open_flags(spec: &OpenSpec, direct: bool) -> OFlags {
    // Without O_NONBLOCK, opening a named pipe would wait for its other end.
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    flags |= match (spec.access.reads(), spec.access.writes()) {
        (true, true) => OFlags::RDWR,
        (_, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    for (wanted, flag) in [
        (spec.create, OFlags::CREATE),
        (spec.exclusive, OFlags::EXCL),
        (spec.truncate, OFlags::TRUNC),
        (spec.append, OFlags::APPEND),
        (spec.no_follow, OFlags::NOFOLLOW),
        (spec.directory, OFlags::DIRECTORY),
        (direct, OFlags::DIRECT),
    ] {
        if wanted {
            flags |= flag;
        }
    }
    flags
}

/// Whether a target at a path is taken as it is, symbolic link or not.
fn no_follow(target: &Target) -> rustix::fs::AtFlags {
    match target {
        Target::NoFollow(_) => rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        _ => rustix::fs::AtFlags::empty(),
    }
}
