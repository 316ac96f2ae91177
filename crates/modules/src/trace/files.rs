//! The state of open files in a recording.

use crate::sync::{Mutex, RwLock};
use braid_contract::{Attr, Caller, HandleId, InodeId};
use braid_placement::{LineKind, Record};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file, from its first operation in a recording until its last close.
#[derive(Debug)]
pub(super) struct File {
    pub(super) ino: InodeId,
    uid: u32,
    /// When it was made, in nanoseconds since 1970.
    born_ns: i64,
    size: AtomicU64,
    /// Whether it is recorded; `None` before it was described.
    pub(super) recorded: Mutex<Option<bool>>,
    /// Its last name is gone, or it never had one.
    nameless: AtomicBool,
}

impl File {
    fn new(attr: &Attr) -> Self {
        let born = attr.btime.unwrap_or(attr.ctime);
        Self {
            ino: attr.ino,
            uid: attr.uid,
            born_ns: born.secs.saturating_mul(1_000_000_000).saturating_add(born.nanos.into()),
            size: AtomicU64::new(attr.size),
            recorded: Mutex::default(),
            nameless: AtomicBool::new(attr.nlink == 0),
        }
    }

    /// Its size.
    pub(super) fn size_now(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Notes that so many bytes from `offset` on were written or reserved.
    pub(super) fn reach(&self, offset: u64, len: u64) {
        if len > 0 {
            self.size.fetch_max(offset.saturating_add(len), Ordering::Relaxed);
        }
    }

    /// Notes that its size was set.
    pub(super) fn cut(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    /// Its description, which precedes its first operation.
    pub(super) fn record(&self, at: u64, size: u64, path: String, wall_ns: i64) -> Record {
        let age = wall_ns.saturating_sub(self.born_ns).max(0).cast_unsigned();
        let (file, uid) = (self.ino.0, self.uid);
        Record { op: LineKind::File, at, file, path: Some(path), size, age, uid, ..Record::default() }
    }
}

/// The opener of a handle; if it was opened before the recording, its first
/// user. Data that the kernel writes back through it has no other caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opener {
    pub(super) thread: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The files that are open.
#[derive(Debug, Default)]
pub(super) struct Files(RwLock<Open>);

#[derive(Debug, Default)]
struct Open {
    handles: HashMap<HandleId, (Arc<File>, Opener)>,
    /// With the number of their handles.
    files: HashMap<InodeId, (Arc<File>, usize)>,
}

impl Files {
    /// The file behind the handle.
    pub(super) fn get(&self, handle: HandleId) -> Option<Arc<File>> {
        self.0.read().handles.get(&handle).map(|(file, _)| Arc::clone(file))
    }

    /// The opener of the handle.
    pub(super) fn opener(&self, handle: HandleId) -> Option<Opener> {
        self.0.read().handles.get(&handle).map(|(_, opener)| *opener)
    }

    /// The file with these attributes, open or not.
    pub(super) fn of(&self, attr: &Attr) -> Arc<File> {
        let open = self.0.read();
        open.files.get(&attr.ino).map_or_else(|| Arc::new(File::new(attr)), |(file, _)| Arc::clone(file))
    }

    /// Adds a handle of the file with these attributes.
    pub(super) fn enter(&self, handle: HandleId, attr: &Attr, caller: &Caller) -> Arc<File> {
        let opener = Opener { thread: caller.tid, uid: caller.uid, gid: caller.gid };
        let mut open = self.0.write();
        let Open { handles, files } = &mut *open;
        let (file, count) = files.entry(attr.ino).or_insert_with(|| (Arc::new(File::new(attr)), 0));
        // Two threads may be the first to use it.
        if handles.insert(handle, (Arc::clone(file), opener)).is_none() {
            *count += 1;
        }
        Arc::clone(file)
    }

    /// Removes a handle that is about to be closed. Answers the file if that
    /// removes it.
    pub(super) fn leave(&self, handle: HandleId) -> Option<InodeId> {
        let mut open = self.0.write();
        let (file, _) = open.handles.remove(&handle)?;
        let (_, count) = open.files.get_mut(&file.ino)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        open.files.remove(&file.ino);
        file.nameless.load(Ordering::Relaxed).then_some(file.ino)
    }

    /// Notes that the file has a name.
    pub(super) fn name(&self, ino: InodeId) {
        if let Some((file, _)) = self.0.read().files.get(&ino) {
            file.nameless.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that the last name of the file is gone. Answers whether it is
    /// open.
    pub(super) fn unname(&self, ino: InodeId) -> bool {
        let open = self.0.read();
        let Some((file, _)) = open.files.get(&ino) else { return false };
        file.nameless.store(true, Ordering::Relaxed);
        true
    }
}
