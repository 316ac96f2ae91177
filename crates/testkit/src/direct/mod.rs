//! An application's system calls on a [`FileSystem`], without a kernel between
//! them: a second front, which holds none of the kernel's locks and has none of
//! its caches.

mod attributes;
mod data;
mod names;
mod snapshot;
mod walk;

use crate::op::{Op, OpenSpec, SLOTS, Target};
use crate::outcome::{Answer, Failed, Kind, Outcome, Stat, Time};
use crate::{Common, Side, Subject, Tree};
use braid_contract::{Attr, Caller, Entry, Error, FileKind, FileSystem, HandleId, InodeId, Result};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex};

/// The umask for new files, as in the model.
const UMASK: u32 = 0o022;

/// A file system in which sequences are carried out, each in a directory of its
/// own.
pub struct DirectSide {
    fs: Arc<dyn FileSystem>,
    common: Arc<Common>,
    /// Held from the look at an end of file to the write behind it: appends are
    /// the callers' to agree on.
    appending: Arc<Mutex<()>>,
}

impl DirectSide {
    /// Uses a file system that holds nothing of these names yet.
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>, common: Arc<Common>) -> Self {
        Self { fs, common, appending: Arc::default() }
    }

    fn subject(&self, root: InodeId) -> Direct {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let pid = std::process::id();
        Direct {
            fs: Arc::clone(&self.fs),
            root,
            caller: Caller { uid, gid, groups: None, pid, tid: pid, of_stack: false },
            slots: Default::default(),
            looked_up: Vec::new(),
            ctimes: HashMap::new(),
            common: Arc::clone(&self.common),
            appending: Arc::clone(&self.appending),
        }
    }
}

impl Side for DirectSide {
    fn begin(&self, case: &str) -> io::Result<Box<dyn Subject>> {
        let mut subject = self.subject(InodeId::ROOT);
        let made = self.fs.mkdir(&subject.caller, InodeId::ROOT, OsStr::new(case), 0o755, UMASK)?;
        subject.root = made.attr.ino;
        Ok(Box::new(subject))
    }

    fn join(&self, case: &str) -> io::Result<Box<dyn Subject>> {
        let mut subject = self.subject(InodeId::ROOT);
        let name = OsStr::new(case);
        let made = match self.fs.mkdir(&subject.caller, InodeId::ROOT, name, 0o755, UMASK) {
            Err(error) if errno(&error) == Errno::EXIST => {
                self.fs.lookup(&subject.caller, InodeId::ROOT, name)?
            }
            made => made?,
        };
        subject.root = made.attr.ino;
        Ok(Box::new(subject))
    }

    fn end(&self, case: &str) -> io::Result<()> {
        let mut subject = self.subject(InodeId::ROOT);
        let found = self.fs.lookup(&subject.caller, InodeId::ROOT, OsStr::new(case))?;
        subject.root = found.attr.ino;
        subject.remove_all(found.attr.ino)?;
        subject.give_back();
        self.fs.rmdir(&subject.caller, InodeId::ROOT, OsStr::new(case))?;
        Ok(())
    }
}

/// An open file of a sequence. Its inode is not forgotten before it is closed.
#[derive(Clone, Copy)]
struct Slot {
    ino: InodeId,
    handle: HandleId,
    kind: Kind,
    flags: OpenSpec,
    position: u64,
}

/// One sequence's tree.
struct Direct {
    fs: Arc<dyn FileSystem>,
    /// The directory of the sequence.
    root: InodeId,
    caller: Caller,
    slots: [Option<Slot>; SLOTS as usize],
    /// Lookups of the current operation, which are returned at its end.
    looked_up: Vec<InodeId>,
    /// The last change time seen of each inode, to notice one that goes back.
    ctimes: HashMap<InodeId, braid_contract::Timestamp>,
    common: Arc<Common>,
    appending: Arc<Mutex<()>>,
}

/// An error as the model answers it.
fn errno(error: &Error) -> Errno {
    Errno::from_raw_os_error(error.errno().0)
}

/// A result as the model answers it.
fn os<T>(result: Result<T>) -> std::result::Result<T, Errno> {
    result.map_err(|error| errno(&error))
}

fn kind_of(kind: FileKind) -> Kind {
    match kind {
        FileKind::Regular => Kind::File,
        FileKind::Directory => Kind::Dir,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Fifo => Kind::Fifo,
        _ => Kind::Other,
    }
}

impl Direct {
    fn slot(&self, slot: u8) -> std::result::Result<&Slot, Errno> {
        self.slots.get(usize::from(slot)).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    /// The inode that an operation on attributes is about, and its open file.
    fn target(&mut self, target: &Target) -> std::result::Result<(InodeId, Option<HandleId>), Errno> {
        match target {
            Target::Slot(slot) => {
                let slot = self.slot(*slot)?;
                Ok((slot.ino, (slot.kind == Kind::File).then_some(slot.handle)))
            }
            Target::Path(path) => Ok((self.find(path, true)?.attr.ino, None)),
            Target::NoFollow(path) => Ok((self.find(path, false)?.attr.ino, None)),
        }
    }

    /// Notes a lookup that is given back at the end of the operation.
    fn noted(&mut self, entry: Result<Entry>) -> std::result::Result<Entry, Errno> {
        let entry = os(entry)?;
        self.looked_up.push(entry.attr.ino);
        Ok(entry)
    }

    /// The attributes as two sides can be compared in them.
    fn normal(&mut self, attr: &Attr) -> Stat {
        let kind = kind_of(attr.kind);
        let before = self.ctimes.insert(attr.ino, attr.ctime);
        let wrong = before
            .filter(|before| *before > attr.ctime)
            .map(|before| format!("change time went back from {before:?} to {:?}", attr.ctime));
        let dir = kind == Kind::Dir;
        Stat {
            kind,
            mode: attr.mode,
            nlink: if dir && !self.common.dir_links { 0 } else { attr.nlink.into() },
            uid: attr.uid,
            gid: attr.gid,
            size: if dir { 0 } else { attr.size },
            mtime: Time::of(attr.mtime.secs, attr.mtime.nanos),
            atime: Time::Any,
            wrong,
        }
    }

    fn run(&mut self, op: &Op) -> std::result::Result<Answer, Errno> {
        match op {
            Op::Open { slot, path, flags, mode } => self.open(*slot, path, *flags, *mode),
            Op::Close { slot } => self.close(*slot),
            Op::Read { .. } | Op::Pread { .. } | Op::Write { .. } | Op::Pwrite { .. } => self.transfer(op),
            Op::Seek { slot, to } => self.seek(*slot, *to),
            Op::Truncate { target, len } => self.truncate(target, *len),
            Op::Allocate { slot, mode, offset, len } => self.allocate(*slot, *mode, *offset, *len),
            Op::Copy { from, from_offset, to, to_offset, len } => {
                self.copy((*from, *from_offset), (*to, *to_offset), *len)
            }
            Op::Sync { slot, data_only } => self.sync(*slot, *data_only),
            Op::Chmod { .. } | Op::Chown { .. } | Op::SetTimes { .. } | Op::Stat { .. } => {
                self.attributes(op)
            }
            Op::SetXattr { .. } | Op::GetXattr { .. } | Op::ListXattr { .. } | Op::RemoveXattr { .. } => {
                self.xattr(op)
            }
            _ => self.names(op),
        }
    }
}

impl Subject for Direct {
    fn apply(&mut self, op: &Op) -> Outcome {
        let outcome = self.run(op).map_err(Failed);
        self.give_back();
        outcome
    }

    fn snapshot(&mut self) -> std::result::Result<Tree, Errno> {
        let tree = self.read_tree();
        self.give_back();
        tree
    }
}

impl Direct {
    fn give_back(&mut self) {
        std::mem::take(&mut self.looked_up).into_iter().for_each(|ino| self.fs.forget(ino, 1));
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        for slot in 0..SLOTS {
            // Those without a file have nothing to close.
            let _ = self.close(slot);
        }
        self.give_back();
        if self.root != InodeId::ROOT {
            self.fs.forget(self.root, 1);
        }
    }
}
