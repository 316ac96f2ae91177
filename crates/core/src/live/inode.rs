//! Inodes that are known, and the live state of regular files in use. The two
//! lead to each other, so they share a file.

use super::in_use::InUse;
use super::set_id::SetIdCheck;
use super::spread::Spread;
use super::stream::StreamCell;
use super::writable::Writable;
use crate::live::{DurabilityDependency, Tag};
use braid_contract::{
    Access, Errno, Error, Fd, FileKind, InodeId, NativeHandle, ObjectId, Result, SetTime, TierId, Timestamp,
};
use braid_format::PinAttr;
use braid_home::{Home, Node};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// The shape of a regular file, as far as it is known without looking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Not looked at yet.
    Unknown,
    /// All data is in the home file.
    Plain,
    /// It has a range index, or lives whole elsewhere.
    Spread,
}

/// An inode of the namespace. Small: there is one for each inode that the
/// kernel remembers.
#[derive(Debug)]
pub struct Inode {
    /// The number that applications see.
    pub ino: InodeId,
    /// The kind of inode.
    pub kind: FileKind,
    /// Distinguishes inodes that had the same number.
    pub generation: u64,
    /// When it was made, where that is known.
    pub(super) btime: Option<Timestamp>,
    pub(super) node: Node,
    pub(super) shape: AtomicU8,
    /// The live state of a regular file in use.
    pub file: Mutex<InUse<File>>,
}

impl Inode {
    pub(crate) fn shape(&self) -> Shape {
        match self.shape.load(Ordering::Relaxed) {
            1 => Shape::Plain,
            2 => Shape::Spread,
            _ => Shape::Unknown,
        }
    }

    /// Whether it may be a file with an index.
    pub(crate) fn may_be_spread(&self) -> bool {
        self.kind == FileKind::Regular && self.shape() != Shape::Plain
    }

    pub(crate) fn set_shape(&self, shape: Shape) {
        self.shape.store(shape as u8, Ordering::Relaxed);
    }

    /// It had no index when it was looked at, unless it was found to have one since.
    pub(crate) fn seems_plain(&self) {
        let (unknown, plain) = (Shape::Unknown as u8, Shape::Plain as u8);
        // Otherwise a later look has told.
        let _ = self.shape.compare_exchange(unknown, plain, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The handle by which it is opened, where it is.
    pub fn handle(&self) -> Option<&NativeHandle> {
        match &self.node {
            Node::Handle(handle, _) => Some(handle),
            Node::Pinned(_) => None,
        }
    }

    /// Whether it is an inode of the directory that is home now.
    pub(crate) fn is_of(&self, home: &Home) -> bool {
        match &self.node {
            Node::Handle(_, turn) => *turn == home.turn(),
            // Home is not replaced where inodes are pinned.
            Node::Pinned(_) => true,
        }
    }

    /// An inode that an earlier process knew, under the number that it had.
    pub(crate) fn known(ino: InodeId, kind: FileKind, node: Node) -> Self {
        let generation = match &node {
            Node::Handle(handle, _) => handle.generation(),
            Node::Pinned(_) => 0,
        };
        let (shape, file) = (AtomicU8::new(Shape::Unknown as u8), Mutex::default());
        Self { ino, kind, generation, btime: None, node, shape, file }
    }

    /// The same inode on another home directory, under the same number.
    pub fn moved(&self, handle: NativeHandle, turn: u32) -> Self {
        Self {
            ino: self.ino,
            kind: self.kind,
            generation: self.generation,
            btime: None,
            node: Node::Handle(handle, turn),
            shape: AtomicU8::new(self.shape.load(Ordering::Relaxed)),
            file: Mutex::default(),
        }
    }

    pub(super) fn is(&self, handle: Option<&NativeHandle>) -> bool {
        match &self.node {
            Node::Handle(mine, _) => handle == Some(mine),
            // A pinned inode's number is not given to another one.
            Node::Pinned(_) => true,
        }
    }
}

/// Where a file's bytes are.
#[derive(Debug)]
pub enum Layout {
    /// All in the home file.
    Plain,
    /// Where the index says, or all on one other tier.
    Spread(Box<Spread>),
}

/// Attributes of a spread file, which may be ahead of its home inode.
#[derive(Clone, Copy, Debug)]
pub struct AheadAttrs {
    /// The id of its objects.
    pub id: ObjectId,
    pub(crate) size: u64,
    pub(crate) mtime: Option<Timestamp>,
    /// The access time by reads of other tiers, where that is known.
    pub(crate) atime: Option<Option<Timestamp>>,
    /// The one tier that all of it is on, of a whole file.
    pub(crate) whole: Option<TierId>,
    /// Tiers that are known to have nothing of it, as bits.
    pub(crate) missing: u64,
}

/// A regular file in use. There is one for an inode at a time.
#[derive(Debug)]
pub struct File {
    /// Its inode.
    pub inode: Arc<Inode>,
    /// The home file, as it could be opened at first.
    first: Fd,
    /// The home file for writing, if `first` can't and that is needed.
    writable: OnceLock<Fd>,
    first_writes: bool,
    /// The home file, for copies of it: see [`unnoticed`](Self::unnoticed).
    unnoticed: OnceLock<Fd>,
    /// Where its data is: shared by I/O, held alone to change it.
    pub layout: RwLock<Layout>,
    /// Of a spread file: shared by writes to the home file, which may make it
    /// longer, and held alone while its size is set.
    pub(crate) home_len: RwLock<()>,
    pub(crate) opens: Mutex<Opens>,
    /// Held while the times of the home inode are set ([`HeldTimes`]).
    setting_times: Mutex<()>,
    /// Held while a spread file is synced: a second sync must not succeed while
    /// the first is still under way.
    pub(crate) syncing: Mutex<()>,
    /// Failed syncs, which every descriptor reports once.
    sync_errors: Mutex<SyncErrors>,
    /// Whether set-id bits or file capabilities may have to go at a write.
    pub(crate) set_id: SetIdCheck,
    /// Names the file in the table of heat.
    pub heat: OnceLock<Arc<Tag>>,
    /// Its path below the volume's root, as it was when a rule first asked.
    pub(crate) path: OnceLock<String>,
    /// A rule that pins placed some of its ranges.
    pub(crate) pinned: AtomicBool,
    /// The stream of its data.
    pub(crate) stream: StreamCell,
    /// The stream that a profile knows it by.
    pub(crate) profiled: StreamCell,
    /// Its fate is learned.
    pub(crate) followed: AtomicBool,
    /// Where it is pinned to, once that was asked for.
    pin: Mutex<Option<Option<PinAttr>>>,
    pub(crate) cached_time: CachedTime,
}

/// Failures to make the file's data durable. The kernel reports each once for
/// each of its own descriptors, and those of all applications share one here.
#[derive(Debug, Default)]
struct SyncErrors {
    count: u64,
    last: Option<Errno>,
}

/// The modification time that was set last. A kernel that writes back from its
/// cache sets the time of the writes, and then writes: the time has to be set
/// once more after that. It sets none for writes within the same tick of its
/// clock: to it, the time is still the one before.
#[derive(Debug, Default)]
pub(crate) struct CachedTime {
    set: Mutex<Option<Timestamp>>,
    written_since: AtomicBool,
}

impl CachedTime {
    pub(crate) fn was_set(&self, mtime: SetTime) {
        *self.set.lock() = match mtime {
            SetTime::At(time) => Some(time),
            SetTime::Now => None,
        };
        self.written_since.store(false, Ordering::Release);
    }

    /// The kernel is about to write back to a file with this time.
    pub(crate) fn will_be_written_back(&self, mtime: impl FnOnce() -> Result<Timestamp>) -> Result<()> {
        let mut set = self.set.lock();
        if set.is_none() {
            *set = Some(mtime()?);
        }
        Ok(())
    }

    /// The kernel wrote back.
    pub(crate) fn written_back(&self) {
        self.written_since.store(true, Ordering::Release);
    }

    /// The time to set once more, if there is one.
    pub(crate) fn take_due(&self) -> Option<Timestamp> {
        if self.written_since.swap(false, Ordering::AcqRel) { *self.set.lock() } else { None }
    }
}

/// How often a file is open, and how.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    pub(crate) handles: u32,
    /// Handles whose I/O the kernel does by itself on the home file: while
    /// there is one, the file stays plain.
    pub(crate) passthrough: u32,
    /// The last name is gone: the directory that it was in.
    pub(crate) nameless: Option<DurabilityDependency>,
    /// The file's data was removed: nothing may open it any more.
    pub(crate) dead: bool,
}

impl Drop for File {
    fn drop(&mut self) {
        let at_rest = match self.layout.get_mut() {
            Layout::Spread(spread) if !self.opens.get_mut().dead => spread.at_rest(),
            _ => None,
        };
        // The memory of this state is freed with the last reference, and the
        // inode, which the kernel may remember for long, has one. If the file
        // is just coming into use, it is replaced at once.
        if let Some(mut slot) = self.inode.file.try_lock() {
            slot.ended(self, at_rest);
        }
    }
}

impl File {
    /// Whether it has no name any more.
    pub(crate) fn is_nameless(&self) -> bool {
        self.data().stat().is_ok_and(|stat| stat.attr.nlink == 0)
    }

    /// A file that is in use from now on, by this descriptor.
    pub fn new(inode: Arc<Inode>, first: Fd, first_writes: bool, layout: Layout) -> Self {
        Self {
            inode,
            first,
            writable: OnceLock::new(),
            first_writes,
            unnoticed: OnceLock::new(),
            layout: RwLock::new(layout),
            home_len: RwLock::new(()),
            opens: Mutex::new(Opens::default()),
            setting_times: Mutex::new(()),
            syncing: Mutex::new(()),
            sync_errors: Mutex::new(SyncErrors::default()),
            set_id: SetIdCheck::new(),
            heat: OnceLock::new(),
            path: OnceLock::new(),
            pinned: AtomicBool::new(false),
            stream: StreamCell::default(),
            profiled: StreamCell::default(),
            followed: AtomicBool::new(false),
            pin: Mutex::new(None),
            cached_time: CachedTime::default(),
        }
    }

    /// The same file on another home directory, with as many handles; this one
    /// is idle, and must not be used any more.
    pub fn moved(&self, inode: Arc<Inode>, (data, writes): (Fd, bool), layout: Layout, handles: u32) -> Self {
        let errors = self.sync_errors.lock();
        // Where the name was is of no interest any more: all is durable.
        let nameless = self.opens.lock().nameless.as_ref().map(|_| None);
        let opens = Opens { handles, nameless, ..Opens::default() };
        let mut moved = Self::new(inode, data, writes, layout);
        moved.opens = Mutex::new(opens);
        moved.sync_errors = Mutex::new(SyncErrors { count: errors.count, last: errors.last });
        moved.cached_time = CachedTime {
            set: Mutex::new(*self.cached_time.set.lock()),
            written_since: AtomicBool::new(self.cached_time.written_since.load(Ordering::Acquire)),
        };
        moved
    }

    /// It has lost its last name already; that may not be durable.
    pub(crate) fn has_no_name(&self) {
        self.opens.lock().nameless = Some(None);
    }

    /// Ends all use of it: operations of its users fail from now on.
    pub fn retire(&self) {
        self.opens.lock().dead = true;
    }

    /// The home file, for looking and, where permissions allow, for reading.
    pub fn data(&self) -> &Fd {
        // The second one was opened for writing, and may be for that only.
        &self.first
    }

    /// The home file, to be read without a trace in its access time, if that
    /// can be.
    pub(crate) fn unnoticed(&self) -> &Fd {
        if let Some(fd) = self.unnoticed.get() {
            return fd;
        }
        match self.data().reopen(Access::Read) {
            Ok(fd) => {
                fd.keep_access_time();
                self.unnoticed.get_or_init(|| fd)
            }
            Err(_) => self.data(),
        }
    }

    /// Size of the home file.
    pub fn home_size(&self) -> Result<u64> {
        Ok(self.data().stat()?.attr.size)
    }

    /// Size of the file now; 0 if it is unknown.
    pub fn size_now(&self) -> u64 {
        self.ahead().map(|ahead| ahead.size).or_else(|| self.home_size().ok()).unwrap_or(0)
    }

    /// The home file, for writing too.
    pub(crate) fn writable(&self) -> Result<Writable<'_>> {
        let fd = if self.first_writes { Some(&self.first) } else { self.writable.get() };
        Ok(Writable::new(fd.ok_or(Errno::EACCES)?, &self.set_id))
    }

    /// Its modification time now.
    pub(crate) fn mtime(&self) -> Result<Timestamp> {
        match self.ahead().and_then(|ahead| ahead.mtime) {
            Some(mtime) => Ok(mtime),
            None => Ok(self.data().stat()?.attr.mtime),
        }
    }

    /// Whether a descriptor that can write is open.
    pub fn can_write(&self) -> bool {
        self.first_writes || self.writable.get().is_some()
    }

    pub(crate) fn make_writable(&self, data: Fd) {
        // Another thread may have been faster; either descriptor will do.
        let _ = self.writable.set(data);
    }

    /// Counts one more open.
    pub fn opened(&self, passthrough: bool) -> Result<()> {
        let mut opens = self.opens.lock();
        if opens.dead {
            return Err(Errno::ESTALE.into());
        }
        opens.handles += 1;
        opens.passthrough += u32::from(passthrough);
        Ok(())
    }

    /// Where the file is pinned to; `None` if it is not pinned.
    pub fn pin(&self, home: &Home) -> Result<Option<PinAttr>> {
        let mut known = self.pin.lock();
        if let Some(pin) = &*known {
            return Ok(pin.clone());
        }
        let pin = home.pin_of(&**self.data(), &home.identify(&**self.data())?)?;
        Ok(known.insert(pin).clone())
    }

    /// The file was pinned or unpinned: the attribute is read again.
    pub fn pin_was_set(&self) {
        *self.pin.lock() = None;
    }

    /// Attributes that may be ahead of the home inode; `None` for a plain file.
    pub fn ahead(&self) -> Option<AheadAttrs> {
        match &*self.layout.read() {
            Layout::Plain => None,
            Layout::Spread(spread) => Some(AheadAttrs {
                id: spread.id(),
                size: spread.size(),
                mtime: spread.times.mtime(),
                atime: spread.times.atime_is_known().then(|| spread.times.atime()),
                whole: spread.index.whole_tier(),
                missing: spread.missing(),
            }),
        }
    }

    /// Does something with the live state of the spread file with this id, if
    /// the file still is that.
    pub(crate) fn with_spread<T>(&self, id: ObjectId, work: impl FnOnce(&Spread) -> T) -> Option<T> {
        match &*self.layout.read() {
            Layout::Spread(spread) if spread.id() == id => Some(work(spread)),
            _ => None,
        }
    }

    /// Data of the file could not be made durable, and may be lost.
    pub fn note_sync_error(&self, error: &Error) {
        let mut errors = self.sync_errors.lock();
        errors.count += 1;
        errors.last = Some(error.errno());
    }

    /// How many such errors there were, and the last one.
    pub(crate) fn sync_errors(&self) -> (u64, Option<Errno>) {
        let errors = self.sync_errors.lock();
        (errors.count, errors.last)
    }

    /// The home inode of the file is about to be changed. After a crash, a
    /// change that is later than the last write to a whole file says that the
    /// home inode has the time of that write.
    pub(crate) fn inode_will_change(&self) -> Result<()> {
        match &*self.layout.read() {
            Layout::Spread(spread) if spread.index.whole().is_some() => self.update_times(spread),
            _ => Ok(()),
        }
    }

    /// Attributes of the home inode were set: `times_only`, or others too.
    pub(crate) fn inode_is_set(&self, times_only: bool) -> Result<()> {
        let Layout::Spread(spread) = &*self.layout.read() else { return Ok(()) };
        let noted = if times_only { &spread.inode_timed } else { &spread.inode_dirty };
        noted.store(true, Ordering::Release);
        // A write to a whole file may have come meanwhile.
        if spread.index.whole().is_some() { self.update_times(spread) } else { Ok(()) }
    }

    /// Brings the modification time to the home inode, if it is ahead of it.
    /// Sets times: see [`hold_times`](Self::hold_times).
    pub(crate) fn update_times(&self, spread: &Spread) -> Result<()> {
        match spread.times.mtime() {
            Some(_) => self.hold_times().update(spread, None),
            None => Ok(()),
        }
    }

    /// Lets no other thread set times of the home inode. The caller holds the
    /// layout, and neither `home_len` nor a lock of the index.
    pub(crate) fn hold_times(&self) -> HeldTimes<'_> {
        HeldTimes { file: self, _alone: self.setting_times.lock() }
    }

    /// The same, if no other thread sets times at present.
    pub(crate) fn try_hold_times(&self) -> Option<HeldTimes<'_>> {
        Some(HeldTimes { file: self, _alone: self.setting_times.try_lock()? })
    }
}

/// The times of a home inode, which only the holder sets: a time that the
/// daemon read before must not replace one that a user set meanwhile.
pub(crate) struct HeldTimes<'a> {
    file: &'a File,
    _alone: MutexGuard<'a, ()>,
}

impl HeldTimes<'_> {
    /// The home inode's modification time.
    pub(crate) fn of_home(&self) -> Result<Timestamp> {
        Ok(self.file.data().stat()?.attr.mtime)
    }

    /// Sets the modification time, if it is ahead of the home inode; to `mtime`
    /// if it is not.
    pub(crate) fn update(&self, spread: &Spread, mtime: Option<Timestamp>) -> Result<()> {
        let ahead = spread.times.mtime();
        let Some(time) = ahead.or(mtime) else { return Ok(()) };
        // It goes along: alone, it would make the change time that of a read.
        let atime = self.atime_ahead(spread)?;
        self.file.data().set_times(atime.map(SetTime::At), Some(SetTime::At(time)))?;
        if let Some(ahead) = ahead {
            spread.times.mtime_was_stored(ahead);
        }
        atime.inspect(|atime| spread.times.atime_is_kept(*atime));
        Ok(())
    }

    /// Brings the access time to the home inode, if it is ahead of it.
    pub(crate) fn bring_atime(&self, spread: &Spread) -> Result<()> {
        if let Some(atime) = self.atime_ahead(spread)? {
            self.file.data().set_times(Some(SetTime::At(atime)), None)?;
            spread.times.atime_is_kept(atime);
        }
        Ok(())
    }

    /// The access time, if it is ahead of the home inode.
    fn atime_ahead(&self, spread: &Spread) -> Result<Option<Timestamp>> {
        let Some(atime) = spread.times.atime() else { return Ok(None) };
        let home = self.file.data().stat()?.attr.atime;
        Ok((atime > home).then_some(atime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_was_made_since_a_look_is_not_forgotten() {
        let handle = NativeHandle::from_parts(1, &[7]).unwrap();
        let inode = Inode::known(InodeId(7), FileKind::Regular, Node::Handle(handle, 0));
        inode.seems_plain();
        assert!(!inode.may_be_spread());
        inode.set_shape(Shape::Spread);
        inode.seems_plain();
        assert!(inode.may_be_spread());
    }
}
